package e2e

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// hack/skew.sh made images of this code that pretend to be of later versions.
func TestVersionSkew(t *testing.T) {
	ctx := alone(t, "skew")
	t.Cleanup(func() {
		if err := installWith(context.Background(), hamburg); err != nil {
			t.Error(err)
		}
		eventuallyAfter(t, "both are compatible again", func(ctx context.Context) error {
			return compatible(ctx, metav1.ConditionTrue)
		})
	})
	home, remote := lubeck.runsAt(t, hamburg)

	// One minor version apart works.
	hamburg.pretend(t, "v0.2.0")
	eventually(t, "lubeck has seen the new version", func(ctx context.Context) error {
		return lubeck.peerHasVersion(ctx, "hamburg", "v0.2.0")
	})
	eventually(t, "both are compatible", func(ctx context.Context) error { return compatible(ctx, metav1.ConditionTrue) })
	lubeck.runsAt(t, hamburg)

	// Two apart does not, and says so on both sides. What runs keeps running and stays in reach.
	hamburg.pretend(t, "v0.3.0")
	eventually(t, "both say that they are not compatible", func(ctx context.Context) error {
		return compatible(ctx, metav1.ConditionFalse)
	})
	eventually(t, "the node takes no more pods", lubeck.closedToHamburg)
	now, err := lubeck.pod(ctx, home.Namespace, home.Name)
	if err != nil || now.UID != home.UID || !podReady(now) {
		t.Errorf("the running pod: %v %+v", err, now.Status.Conditions)
	}
	if after := hamburg.mustRemotePod(t, home); after.UID != remote.UID {
		t.Error("the remote pod was replaced")
	}
	if err := lubeck.runsCommands(ctx, home); err != nil {
		t.Error(err)
	}
}

// pretend upgrades the cluster to a build that says it is of that version.
func (c *cluster) pretend(t *testing.T, version string) {
	t.Helper()
	if err := c.InstallImage(t.Context(), "skew/"+version+".image", settings(c)...); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) peerHasVersion(ctx context.Context, name, version string) error {
	peer, err := c.peer(ctx, name)
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
	for here, there := range map[*cluster]string{lubeck: "hamburg", hamburg: "lubeck"} {
		peer, err := here.peer(ctx, there)
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
