package e2e

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestSuspendedPeerMayNotEvenRead(t *testing.T) {
	ctx := shared(t)
	g := hamburg.welcome(t, "visby-suspended")
	twin := g.twin(t, "shop")
	if err := g.Create(ctx, shadow(t, twin, "stall", busyPod)); err != nil {
		t.Fatal(err)
	}
	g.awaitRunning(t, twin, "stall")
	before, err := hamburg.pod(ctx, twin, "stall")
	if err != nil {
		t.Fatal(err)
	}

	if _, err := hamburg.Hanse(ctx, "suspend", "visby-suspended"); err != nil {
		t.Fatal(err)
	}
	info := types.NamespacedName{Namespace: g.invitation.Namespace, Name: v1alpha1.ClusterInfo}
	record := types.NamespacedName{Namespace: twin, Name: "stall"}
	eventually(t, "the peer is refused everything", func(ctx context.Context) error {
		for _, err := range []error{g.Get(ctx, info, &corev1.ConfigMap{}), g.Get(ctx, record, &v1alpha1.ShadowPod{})} {
			if err == nil {
				return errors.New("it can still read")
			}
			if !apierrors.IsForbidden(err) {
				return err
			}
		}
		return nil
	})

	if _, err := hamburg.Hanse(ctx, "resume", "visby-suspended"); err != nil {
		t.Fatal(err)
	}
	g.awaitRunning(t, twin, "stall")
	after, err := hamburg.pod(ctx, twin, "stall")
	if err != nil || after.UID != before.UID || after.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("its pod did not just run on: %v", err)
	}
}

func TestCheckFindsNothingWrong(t *testing.T) {
	ctx := alone(t, "rostock")
	for _, c := range []*cluster{lubeck, hamburg} {
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

// rostock runs no Hanse: all that lubeck has of it is a kubeconfig.
func TestAgentlessPeer(t *testing.T) {
	ctx := shared(t, "rostock")
	_, err := lubeck.Hanse(ctx, "join", "--agentless", "--remote-kubeconfig", rostock.Kubeconfig, "--namespaces", "default", "--as", "visby-agentless", "--wait=false")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lubeck.forget(t, "visby-agentless") })
	eventually(t, "lubeck reaches rostock and says what does not work", func(ctx context.Context) error {
		for _, condition := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionAuthenticated} {
			if err := lubeck.peerHas(ctx, "visby-agentless", condition); err != nil {
				return err
			}
		}
		return lubeck.peerSays(ctx, "visby-agentless", v1alpha1.ConditionConnected, v1alpha1.ReasonAgentless)
	})
}
