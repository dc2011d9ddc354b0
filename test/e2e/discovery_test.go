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

// The two clusters are on one network, where multicast DNS works. The settings of the phase have them look for others.
func TestDiscovery(t *testing.T) {
	ctx := market(t)
	forgetEachOther := func() {
		bremen.forget(t, "wismar")
		wismar.forget(t, "bremen")
	}
	forgetEachOther() // in case that an earlier story had them know each other
	t.Cleanup(forgetEachOther)
	for here, there := range map[*cluster]string{bremen: "wismar", wismar: "bremen"} {
		eventually(t, here.Name+" discovers "+there, func(ctx context.Context) error {
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
			t.Errorf("%s made a tenant namespace for a cluster that nobody accepted: %v", here.Name, err)
		}
	}
	if err := peer(ctx, bremen, wismar); err != nil {
		t.Fatal(err)
	}
	bremen.runsAt(t, wismar)
}
