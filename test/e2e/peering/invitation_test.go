// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

func TestTokenRenewal(t *testing.T) {
	ctx := framework.Begin(t)
	home, remote := lubeck.RunPodAt(t, hamburg)
	ready := func() metav1.Condition {
		peer, err := lubeck.GetPeer(ctx, "hamburg")
		if err != nil {
			t.Fatal(err)
		}
		return *meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionReady)
	}
	if err := framework.Install(ctx, lubeck, "renewalPeriod=3s"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := framework.Install(context.Background(), lubeck); err != nil {
			t.Error(err)
		}
	})
	framework.Eventually(t, "hamburg is Ready", func(ctx context.Context) error { return lubeck.CheckPeerReady(ctx, "hamburg") })
	stable := ready()
	seen := map[string]bool{}
	framework.Eventually(t, "four tokens, one after the other", func(ctx context.Context) error {
		link := &corev1.Secret{}
		key := types.NamespacedName{Namespace: v1alpha1.TenantNamespace("hamburg"), Name: v1alpha1.LinkSecret}
		if err := lubeck.Get(ctx, key, link); err != nil {
			return err
		}
		seen[string(link.Data[v1alpha1.LinkSecretKey])] = true
		if len(seen) < 4 {
			return fmt.Errorf("%d so far", len(seen))
		}
		return nil
	})
	if now := ready(); now.LastTransitionTime != stable.LastTransitionTime || now.Status != metav1.ConditionTrue {
		t.Errorf("the peer was disturbed: %+v, then %+v", stable, now)
	}
	if err := lubeck.CheckExec(ctx, home); err != nil {
		t.Error(err)
	}
	framework.ExpectSamePod(t, home, hamburg.MustGetRemotePod(t, home))
	if now := hamburg.MustGetRemotePod(t, home); now.UID != remote.UID {
		t.Errorf("the remote pod was replaced")
	}
}

func TestRenewAfterOutage(t *testing.T) {
	ctx := framework.Begin(t)
	home, remote := lubeck.RunPodAt(t, hamburg)
	// The tokens end as they do when an outage was longer than their life, while nobody can be told.
	framework.CutOff(t)
	session := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("lubeck"), Name: v1alpha1.SessionSecret}}
	if err := hamburg.Delete(ctx, session); err != nil {
		t.Fatal(err)
	}
	framework.MustTestbed(t, "heal", "lubeck", "hamburg")
	framework.Eventually(t, "lubeck is told that its session has ended", func(ctx context.Context) error {
		return lubeck.CheckPeerCondition(ctx, "hamburg", v1alpha1.ConditionAuthenticated, v1alpha1.ReasonUnauthorized)
	})
	token, err := hamburg.Hanse(ctx, "invite", "lubeck", "--renew")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lubeck.Hanse(ctx, "join", strings.TrimSpace(token), "--as", "hamburg"); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "hamburg is Ready again", func(ctx context.Context) error { return lubeck.CheckPeerReady(ctx, "hamburg") })
	framework.Eventually(t, "the pod is Ready and the same", func(ctx context.Context) error {
		now, err := lubeck.GetPod(ctx, home.Namespace, home.Name)
		if err != nil {
			return err
		}
		if now.UID != home.UID || !framework.IsPodReady(now) {
			return fmt.Errorf("uid %s, ready %v", now.UID, framework.IsPodReady(now))
		}
		return nil
	})
	now := hamburg.MustGetRemotePod(t, home)
	if diff := cmp.Diff(framework.ContainerIDs(remote), framework.ContainerIDs(now)); diff != "" || now.UID != remote.UID {
		t.Errorf("the remote pod was replaced: %s", diff)
	}
	// That the Peer is Ready is what the manager found. The kubelet takes the new session when it sees that.
	framework.Eventually(t, "commands run again", func(ctx context.Context) error { return lubeck.CheckExec(ctx, home) })
}
