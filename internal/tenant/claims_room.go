// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// bookings are how much storage claims were let ask for that the cache may not show yet. Without them, two claims that come at once
// would both get what is left for one.
type bookings struct {
	mu     sync.Mutex
	claims map[types.NamespacedName]resource.Quantity
}

// reserve books what the ShadowClaim asks for, if the limit of the peer leaves room for it in all twins of the peer together. If not,
// it returns the error that a quota would.
func (r *claimReconciler) reserve(ctx context.Context, seen *claimFacts) error {
	if seen.peer == nil {
		return nil
	}
	limit, limited := limitsOf(seen.peer).Resources[corev1.ResourceStorage]
	if !limited {
		return nil
	}
	r.booked.mu.Lock()
	defer r.booked.mu.Unlock()
	others, err := r.othersAsk(ctx, seen)
	if err != nil {
		return err
	}
	asked := seen.shadow.Spec.Storage
	if others.Add(asked); others.Cmp(limit) > 0 {
		return apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), seen.shadow.Name, fmt.Errorf(
			"it asks for %s, for which the provider's limit of %s for all claims of this cluster has no room: "+
				"delete other claims there, or have the limit raised", asked.String(), limit.String()))
	}
	if r.booked.claims == nil {
		r.booked.claims = map[types.NamespacedName]resource.Quantity{}
	}
	r.booked.claims[client.ObjectKeyFromObject(seen.shadow)] = asked
	return nil
}

// othersAsk returns how much all other claims and snapshots in twins of the peer ask for. What is booked and seen is booked no more.
func (r *claimReconciler) othersAsk(ctx context.Context, seen *claimFacts) (resource.Quantity, error) {
	twins, err := twinsOf(ctx, r.client, seen.peer.Name)
	if err != nil {
		return resource.Quantity{}, err
	}
	sum := resource.Quantity{}
	for i := range twins {
		claims := &corev1.PersistentVolumeClaimList{}
		if err := r.client.List(ctx, claims, client.InNamespace(twins[i].Name), client.UnsafeDisableDeepCopy); err != nil {
			return sum, fmt.Errorf("list claims: %w", err)
		}
		ask := map[string]resource.Quantity{} // by the name of the claim or the snapshot
		if err := r.snapshotsAsk(ctx, twins[i].Name, ask); err != nil {
			return sum, err
		}
		for j := range claims.Items {
			ask[claims.Items[j].Name] = claims.Items[j].Spec.Resources.Requests[corev1.ResourceStorage]
		}
		for key, booked := range r.booked.claims {
			if shown := ask[key.Name]; key.Namespace == twins[i].Name && shown.Cmp(booked) < 0 {
				ask[key.Name] = booked
			} else if key.Namespace == twins[i].Name {
				delete(r.booked.claims, key)
			}
		}
		if twins[i].Name == seen.shadow.Namespace {
			delete(ask, seen.shadow.Name)
		}
		for _, amount := range ask {
			sum.Add(amount)
		}
	}
	return sum, nil
}

// cancel forgets what the claim was let ask for. What it has, the cache shows.
func (b *bookings) cancel(claim types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.claims, claim)
}
