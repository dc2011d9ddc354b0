package peering

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func (c *Controller) options() controller.Options {
	return controller.Options{MaxConcurrentReconciles: c.config.Workers}
}

// peerChanges leaves out what we ourselves write: of the status only condition Advertised counts.
var peerChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*v1alpha1.Peer), e.ObjectNew.(*v1alpha1.Peer)
	return before.UID != after.UID || before.Generation != after.Generation ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		!equality.Semantic.DeepEqual(before.Finalizers, after.Finalizers) ||
		!ptr.Equal(advertised(before), advertised(after))
}}

// tenantChanges are those of namespaces whose name makes them tenant namespaces, whoever made them.
func tenantChanges() builder.Predicates {
	return builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
		return strings.HasPrefix(o.GetName(), v1alpha1.TenantNamespacePrefix)
	}))
}

// podCIDRChanges are those of an advertisement that matter for addresses: it is renewed far more often.
func podCIDRChanges() builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.Advertisement), e.ObjectNew.(*v1alpha1.Advertisement)
		return podCIDR(before) != podCIDR(after)
	}})
}

func peerOfNamespace() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return requestFor(o.GetName())
	})
}

func peerOfAdvertisement() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return requestFor(o.GetNamespace())
	})
}

func requestFor(tenantNamespace string) []reconcile.Request {
	peer, ok := strings.CutPrefix(tenantNamespace, v1alpha1.TenantNamespacePrefix)
	if !ok || peer == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: peer}}}
}

// advertised returns the status of condition Advertised, which package advertisement writes, or nil.
func advertised(peer *v1alpha1.Peer) *condition {
	found := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionAdvertised)
	if found == nil {
		return nil
	}
	return &condition{found.Type, found.Status, found.Reason, found.Message}
}

// podCIDROf returns the range of the peer's pods as the peer itself sees it, and no range while it is not known.
func (c *Controller) podCIDROf(ctx context.Context, peer *v1alpha1.Peer) (netip.Prefix, error) {
	ad := &v1alpha1.Advertisement{}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: peer.Spec.ClusterID}
	if err := c.client.Get(ctx, key, ad); client.IgnoreNotFound(err) != nil {
		return netip.Prefix{}, fmt.Errorf("read Advertisement %s: %w", key, err)
	}
	return podCIDR(ad), nil
}

func podCIDR(ad *v1alpha1.Advertisement) netip.Prefix {
	if ad.Spec.Network == nil {
		return netip.Prefix{}
	}
	for _, cidr := range parseRanges(ad.Spec.Network.PodCIDR) {
		return cidr
	}
	return netip.Prefix{}
}
