// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
)

// clusterManager is the name of Hanse in ClusterProfiles, and propertyID that of the property with the id of a cluster.
const (
	clusterManager = "hanse"
	propertyID     = v1alpha1.LabelClusterID
)

// profiles keeps a ClusterProfile for each Peer, in Hanse's namespace. A request names both.
type profiles struct{ Config }

func (p *profiles) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("cluster-profiles").
		For(&v1alpha1.Peer{}).
		Watches(&v1alpha1.Advertisement{}, handler.EnqueueRequestsFromMapFunc(peerOfTenant)).
		WithOptions(options()).
		Complete(p)
}

// Reconcile keeps the ClusterProfile of one Peer. Kubernetes deletes it with its owner.
func (p *profiles) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	peer, err := local.Find(ctx, p.Client, request.NamespacedName, &v1alpha1.Peer{}, client.UnsafeDisableDeepCopy)
	if err != nil || peer == nil {
		return reconcile.Result{}, err
	}
	key := client.ObjectKey{Namespace: p.Namespace, Name: request.Name}
	found, err := local.Find(ctx, p.Live, key, &inventory.ClusterProfile{})
	if err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case found != nil && found.Labels[inventory.LabelClusterManagerKey] != clusterManager:
		return reconcile.Result{}, nil // it is another manager's
	case found == nil:
		found = profileOf(p.Namespace, peer)
		if err := p.Client.Create(ctx, found); err != nil {
			return reconcile.Result{}, writing("ClusterProfile", err)
		}
	}
	offer, err := p.offer(ctx, peer)
	if err != nil {
		return reconcile.Result{}, err
	}
	after := found.DeepCopy()
	describe(&after.Status, peer, offer, found.Generation)
	if equality.Semantic.DeepEqual(after.Status, found.Status) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, writing("the status of ClusterProfile", p.Client.Status().Patch(ctx, after, client.MergeFrom(found)))
}

// offer returns what the peer says of itself, as far as that was accepted, or nil.
func (p *profiles) offer(ctx context.Context, peer *v1alpha1.Peer) (*v1alpha1.Advertisement, error) {
	if peer.Spec.ClusterID == "" {
		return nil, nil
	}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: peer.Spec.ClusterID}
	ad, err := local.Find(ctx, p.Client, key, &v1alpha1.Advertisement{}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("read the offer of peer %s: %w", peer.Name, err)
	}
	if ad == nil || ad.Annotations[v1alpha1.AnnotationAccepted] != "true" {
		return nil, nil
	}
	return ad, nil
}

func profileOf(namespace string, peer *v1alpha1.Peer) *inventory.ClusterProfile {
	return &inventory.ClusterProfile{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: peer.Name, Labels: map[string]string{inventory.LabelClusterManagerKey: clusterManager},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Peer", Name: peer.Name, UID: peer.UID},
			},
		},
		Spec: inventory.ClusterProfileSpec{DisplayName: peer.Name, ClusterManager: inventory.ClusterManager{Name: clusterManager}},
	}
}

// describe says in the status what is known of the peer: its offer may be nil.
func describe(status *inventory.ClusterProfileStatus, peer *v1alpha1.Peer, offer *v1alpha1.Advertisement, generation int64) {
	properties := map[string]string{}
	if offer != nil {
		status.Version.Kubernetes = offer.Spec.KubernetesVersion
		for key, value := range offer.Spec.Labels {
			properties[key] = string(value)
		}
	}
	properties[propertyID] = peer.Spec.ClusterID
	status.Properties = nil
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if value := properties[name]; value != "" && name != "" && len(name) <= 253 {
			status.Properties = append(status.Properties, inventory.Property{Name: name, Value: value})
		}
	}
	meta.SetStatusCondition(&status.Conditions, translated(peer, inventory.ClusterConditionControlPlaneHealthy, v1alpha1.ConditionReachable, generation))
	meta.SetStatusCondition(&status.Conditions, translated(peer, "Joined", v1alpha1.ConditionAuthenticated, generation))
}

// translated returns the condition of the Peer as one of the ClusterProfile.
func translated(peer *v1alpha1.Peer, kind, of string, generation int64) metav1.Condition {
	out := metav1.Condition{
		Type: kind, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonPending, Message: "Nothing is known of the peer yet", ObservedGeneration: generation,
	}
	if said := meta.FindStatusCondition(peer.Status.Conditions, of); said != nil {
		out.Status, out.Reason, out.Message = said.Status, said.Reason, said.Message
	}
	return out
}
