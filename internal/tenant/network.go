// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/overlay"
)

// connectionTo returns the Connection to the peer, which says how its home is seen here, and an empty one where there is none. It is
// the cache's own.
func connectionTo(ctx context.Context, reader client.Reader, peer string) (*v1alpha1.Connection, error) {
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer), Name: v1alpha1.ConnectionName}
	found, err := local.Find(ctx, reader, key, &v1alpha1.Connection{}, client.UnsafeDisableDeepCopy)
	if err == nil && found == nil {
		found = &v1alpha1.Connection{}
	}
	return found, err
}

// homeOf returns how the pods in the twin reach their home, nil where no network leads there. Whether the tunnel works right now does
// not matter: the pod cannot be changed later.
func homeOf(ctx context.Context, reader client.Reader, ns *corev1.Namespace) (*offload.HomeNetwork, error) {
	twin, ok := twinIn(ns)
	if !ok {
		return nil, nil
	}
	connection, err := connectionTo(ctx, reader, twin.peer)
	if err != nil || len(connection.Spec.Nameservers) == 0 {
		return nil, err
	}
	theirs := overlay.Mappings(connection.Spec.Theirs)
	home := &offload.HomeNetwork{
		Namespace: twin.home, Seen: func(address netip.Addr) (netip.Addr, bool) { return overlay.Seen(theirs, address) },
	}
	for _, address := range connection.Spec.Nameservers {
		home.Nameservers = append(home.Nameservers, string(address))
	}
	return home, nil
}

// homeRanges returns the ranges in which the peer's home is seen here.
func homeRanges(ctx context.Context, reader client.Reader, peer string) (ranges, error) {
	connection, err := connectionTo(ctx, reader, peer)
	if err != nil {
		return nil, err
	}
	var home ranges
	for _, m := range overlay.Mappings(connection.Spec.Theirs) {
		if m.Seen.IsValid() {
			home = append(home, m.Seen)
		}
	}
	return home, nil
}

// connectionMoved passes on that a home may be seen elsewhere than before.
var connectionMoved = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration()
}}
