package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// The two clusters are on one network, where multicast DNS works.
func TestDiscovery(t *testing.T) {
	ctx := alone(t)
	separated(t)
	both := []*cluster{lubeck, hamburg}
	for _, c := range both {
		if err := installWith(ctx, c, "discovery.enabled=true", "discovery.multicast=true", "discovery.period=5s", "manager.apiServers[0]="+c.config.Host); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, c := range both {
			if err := installWith(context.Background(), c); err != nil {
				t.Error(err)
			}
		}
	})
	for here, there := range map[*cluster]string{lubeck: "hamburg", hamburg: "lubeck"} {
		eventually(t, here.name+" discovers "+there, func(ctx context.Context) error {
			if err := here.peerSays(ctx, there, v1alpha1.ConditionReady, v1alpha1.ReasonDiscovered); err != nil {
				return err
			}
			peer, err := here.peer(ctx, there)
			if err != nil || len(peer.Spec.Roles) > 0 || len(peer.Status.DiscoveredServers) == 0 {
				return fmt.Errorf("%+v, %w", peer.Spec, err)
			}
			return nil
		})
		// It is known, and that is all.
		ns := &corev1.Namespace{}
		if err := here.Get(ctx, types.NamespacedName{Name: v1alpha1.TenantNamespace(there)}, ns); !apierrors.IsNotFound(err) {
			t.Errorf("%s made a tenant namespace for a cluster that nobody accepted: %v", here.name, err)
		}
	}
	if err := peer(ctx, lubeck, hamburg); err != nil {
		t.Fatal(err)
	}
	lubeck.runsAt(t, hamburg)
}
