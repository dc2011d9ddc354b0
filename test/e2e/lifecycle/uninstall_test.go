// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// remembered returns what was noted.
func remembered[T any](c *framework.Cluster, of string) (found T, err error) {
	data, err := os.ReadFile(c.MemoryFile(of))
	if err != nil {
		return found, err
	}
	return found, json.Unmarshal(data, &found)
}

func TestCheckFindsNothingWrong(t *testing.T) {
	ctx := framework.Begin(t)
	for _, c := range []*framework.Cluster{lubeck, hamburg} {
		if out, err := c.Hanse(ctx, "check", "--wait"); err != nil {
			t.Errorf("%s: %v\n%s", c.Name, err, out)
		}
	}
	// A cluster without Hanse is told so, and could have it.
	if out, err := rostock.Hanse(ctx, "check"); err == nil {
		t.Errorf("a cluster without Hanse passes: %s", out)
	}
	if out, err := rostock.Hanse(ctx, "check", "--pre"); err != nil {
		t.Errorf("rostock could not have Hanse: %v\n%s", err, out)
	}
}

// Unpeering refuses while a claim has its volume at the peer. With --delete-data nothing is left of it on either side.
func TestUnpeerDeletesDataIfAsked(t *testing.T) {
	ctx := framework.Begin(t)
	for _, c := range []*framework.Cluster{lubeck, hamburg} {
		c.AwaitNoRemotePods(t)
	}
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	claim := framework.NewClaimTemplate("hanse")
	claim.Namespace = ns
	lubeck.MustCreate(t, &claim)
	pod := framework.NewShellPod(ns, "writer", framework.PersistentWordScript)
	framework.MountClaim(&pod.Spec, "data")
	lubeck.MustCreate(t, pod)
	lubeck.AwaitReadyPods(t, ns, "writer", 1)
	volume := lubeck.RemoteClaims(t, ns)["data"]
	theirs := hamburg.ClaimOfVolume(t, volume)
	lubeck.DeleteAndWait(t, pod)
	if _, err := lubeck.Hanse(ctx, "unpeer", "hamburg"); err == nil || !strings.Contains(err.Error(), ns+"/data") || !strings.Contains(err.Error(), "--delete-data") {
		t.Errorf("unpeering with a volume there: %v", err)
	}
	if err := lubeck.CheckPeerReady(ctx, "hamburg"); err != nil {
		t.Error(err)
	}
	if _, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--delete-data"); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "nothing is left of the volume", func(ctx context.Context) error {
		return errors.Join(
			lubeck.CheckGone(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: claim.ObjectMeta}), lubeck.CheckGone(ctx, &corev1.PersistentVolume{ObjectMeta: framework.ObjectMeta(volume)}),
			hamburg.CheckGone(ctx, theirs.DeepCopy()), hamburg.CheckGone(ctx, &corev1.PersistentVolume{ObjectMeta: framework.ObjectMeta(theirs.Spec.VolumeName)}),
		)
	})
}

// The name of this file makes it the last of the stories that need the clusters alone: it leaves them without Hanse.
func TestUninstallLeavesNothing(t *testing.T) {
	ctx := framework.Begin(t)
	for _, c := range []*framework.Cluster{lubeck, hamburg} {
		c.AwaitNoRemotePods(t)
	}
	for _, c := range []*framework.Cluster{lubeck, hamburg} {
		if _, err := c.Hanse(ctx, "uninstall"); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []*framework.Cluster{lubeck, hamburg} {
		before, err := remembered[framework.Inventory](c, framework.RememberedObjects)
		if err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, c.Name+" has the objects it had before", func(ctx context.Context) error { return c.CheckInventory(ctx, before) })
	}
}
