// SPDX-License-Identifier: Apache-2.0

package invitations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

func TestUnpeerRevokesTokens(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g := hamburg.Welcome(t, "visby-leaver")
	own := account(g.Invitation.Namespace, v1alpha1.PeerServiceAccount)
	request := func(secret string, life time.Duration) *authenticationv1.TokenRequest {
		r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(life.Seconds()))}}
		if secret != "" {
			r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: secret}
		}
		return r
	}
	const month = 30 * 24 * time.Hour
	for what, bad := range map[string]*authenticationv1.TokenRequest{
		"one that lives longer":         request(v1alpha1.SessionSecret, 2*month),
		"one that is not bound":         request("", month),
		"one bound to another object":   request(v1alpha1.ClusterInfo, month),
		"one that is bound to its join": request(v1alpha1.InvitationSecret, month),
	} {
		if err := g.SubResource("token").Create(ctx, own, bad); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("creating a token, %s: %v", what, err)
		}
	}
	good := request(v1alpha1.SessionSecret, month)
	if err := g.SubResource("token").Create(ctx, own, good); err != nil {
		t.Fatalf("renewing: %v", err)
	}
	renewed, _ := hamburg.As(t, good.Status.Token)
	key := types.NamespacedName{Namespace: g.Invitation.Namespace, Name: v1alpha1.ClusterInfo}
	if err := renewed.Get(ctx, key, &corev1.ConfigMap{}); err != nil {
		t.Fatal(err)
	}

	g.ExpectInvitationEnded(t)
	hamburg.MustHanse(t, "unpeer", "visby-leaver", "--force", "--forget")
	for name, c := range map[string]client.Client{"old": g.Client, "renewed": renewed} {
		framework.Eventually(t, "the "+name+" token is void: API servers remember tokens for 10 s", func(ctx context.Context) error {
			err := c.Get(ctx, key, &corev1.ConfigMap{})
			if apierrors.IsUnauthorized(err) {
				return nil
			}
			return fmt.Errorf("the answer is %w", cmp.Or(err, errors.New("the object")))
		})
	}
}

// TestTokenRenewal renews the session every three seconds. The Peer stays Ready, and so does a pod; the kubelet uses the new
// session for the next pod.
func TestTokenRenewal(t *testing.T) {
	ctx := t.Context()
	home, remote := lubeck.RunsAt(t, hamburg)
	ready := func() metav1.Condition {
		peer, err := lubeck.Peer(ctx, "hamburg")
		if err != nil {
			t.Fatal(err)
		}
		return *meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionReady)
	}
	if err := lubeck.Install(ctx, "renewalPeriod=3s"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lubeck.Install(context.Background()); err != nil {
			t.Error(err)
		}
	})
	framework.Eventually(t, "hamburg is Ready", func(ctx context.Context) error { return lubeck.PeerHas(ctx, "hamburg", v1alpha1.ConditionReady) })
	stable := ready()
	seen := map[string]bool{}
	framework.Eventually(t, "lubeck has four sessions, one after the other", func(ctx context.Context) error {
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
		t.Errorf("the Peer was disturbed: %+v, then %+v", stable, now)
	}
	if now, err := lubeck.Pod(ctx, home.Namespace, home.Name); err != nil || now.UID != home.UID || !framework.IsPodReady(now) {
		t.Errorf("the home pod was disturbed: %v %v", now.Status, err)
	}
	if now := hamburg.MustRemotePod(t, home); now.UID != remote.UID {
		t.Error("the remote pod was replaced")
	}
	lubeck.RunsAt(t, hamburg)
}
