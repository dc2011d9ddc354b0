// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// hack/skew.sh made images of this code that pretend to be of later versions.
func TestVersionSkew(t *testing.T) {
	ctx := framework.Begin(t)
	t.Cleanup(func() {
		if err := framework.Install(context.Background(), hamburg); err != nil {
			t.Error(err)
		}
		framework.EventuallyInCleanup(t, "both are compatible again", func(ctx context.Context) error {
			return compatible(ctx, metav1.ConditionTrue)
		})
	})
	home, remote := lubeck.RunPodAt(t, hamburg)

	// One minor version apart works.
	pretend(t, hamburg, "v0.2.0")
	framework.Eventually(t, "lubeck has seen the new version", func(ctx context.Context) error {
		return peerHasVersion(ctx, lubeck, "hamburg", "v0.2.0")
	})
	framework.Eventually(t, "both are compatible", func(ctx context.Context) error { return compatible(ctx, metav1.ConditionTrue) })
	lubeck.RunPodAt(t, hamburg)

	// Two apart does not, and says so on both sides. What runs keeps running and stays in reach.
	pretend(t, hamburg, "v0.3.0")
	framework.Eventually(t, "both say that they are not compatible", func(ctx context.Context) error {
		return compatible(ctx, metav1.ConditionFalse)
	})
	framework.Eventually(t, "the node takes no more pods", lubeck.CheckClosedToHamburg)
	now, err := lubeck.GetPod(ctx, home.Namespace, home.Name)
	if err != nil || now.UID != home.UID || !framework.IsPodReady(now) {
		t.Errorf("the running pod: %v %+v", err, now.Status.Conditions)
	}
	if after := hamburg.MustGetRemotePod(t, home); after.UID != remote.UID {
		t.Error("the remote pod was replaced")
	}
	if err := lubeck.CheckExec(ctx, home); err != nil {
		t.Error(err)
	}
}

// pretend upgrades the cluster to a build that says it is of that version.
func pretend(t *testing.T, c *framework.Cluster, version string) {
	t.Helper()
	if err := framework.InstallImage(t.Context(), c, "skew/"+version+".image"); err != nil {
		t.Fatal(err)
	}
}

func peerHasVersion(ctx context.Context, c *framework.Cluster, name, version string) error {
	peer, err := c.GetPeer(ctx, name)
	if err != nil {
		return err
	}
	if peer.Status.Version != version {
		return fmt.Errorf("it is %q", peer.Status.Version)
	}
	return nil
}

// compatible checks condition Compatible of lubeck and hamburg in each other's eyes.
func compatible(ctx context.Context, want metav1.ConditionStatus) error {
	for here, there := range map[*framework.Cluster]string{lubeck: "hamburg", hamburg: "lubeck"} {
		peer, err := here.GetPeer(ctx, there)
		if err != nil {
			return err
		}
		got := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionCompatible)
		if got == nil || got.Status != want {
			return fmt.Errorf("in %s: %+v", here.Name, got)
		}
	}
	return nil
}
