package peering

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// watchedConditions are those of a Peer by which a join goes on.
var watchedConditions = []string{v1alpha1.ConditionJoined, v1alpha1.ConditionSession}

// peerChanges leaves out most of what we ourselves write.
var peerChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*v1alpha1.Peer), e.ObjectNew.(*v1alpha1.Peer)
	return before.UID != after.UID || before.Generation != after.Generation ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		!equality.Semantic.DeepEqual(before.Finalizers, after.Finalizers) ||
		before.Annotations[v1alpha1.AnnotationJoin] != after.Annotations[v1alpha1.AnnotationJoin] ||
		slices.ContainsFunc(watchedConditions, func(kind string) bool {
			return !ptr.Equal(said(before, kind), said(after, kind))
		})
}}

// namespaceChanges are those of namespaces whose name makes them tenant namespaces, whoever made them, and that twins go.
var namespaceChanges = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return isTenantName(e.Object.GetName()) },
	UpdateFunc: func(e event.UpdateEvent) bool { return isTenantName(e.ObjectNew.GetName()) },
	DeleteFunc: func(e event.DeleteEvent) bool {
		return isTenantName(e.Object.GetName()) || isOfType(e.Object, v1alpha1.TypeTwin)
	},
}

func isTenantName(name string) bool { return strings.HasPrefix(name, v1alpha1.TenantNamespacePrefix) }

func isOfType(object client.Object, value string) bool {
	return object.GetLabels()[v1alpha1.LabelType] == value
}

// offerChanges are those of an advertisement that matter here: it is renewed far more often.
var offerChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*v1alpha1.Advertisement), e.ObjectNew.(*v1alpha1.Advertisement)
	return podCIDR(before) != podCIDR(after) || before.Spec.Phase != after.Spec.Phase || !ptr.Equal(verdictOf(before), verdictOf(after))
}}

// claimChanges are what the claimer says, and that it was let in.
var claimChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*v1alpha1.PeeringClaim), e.ObjectNew.(*v1alpha1.PeeringClaim)
	return before.Generation != after.Generation || accepted(before) != accepted(after)
}}

// nodeTurned lets through that a virtual node goes, which a Peer that is being deleted waits for, and that its peer was cut off,
// for another reason than before, or is back.
var nodeTurned = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return isOfType(after, v1alpha1.TypeVirtualNode) && whyCutOff(before) != whyCutOff(after)
	},
	DeleteFunc: func(e event.DeleteEvent) bool { return isOfType(e.Object, v1alpha1.TypeVirtualNode) },
}

// whyCutOff returns the reason that the virtual node shows, "" if its peer is not cut off.
func whyCutOff(node *corev1.Node) string {
	return ptr.Deref(v1alpha1.CutOff(node), corev1.NodeCondition{}).Reason
}

// peersOf finds the Peer of a tenant namespace, of what lies in one and of a virtual node by the name, and that of a twin by
// the label.
func peersOf(_ context.Context, o client.Object) []reconcile.Request {
	peer, isTenant := strings.CutPrefix(cmp.Or(o.GetNamespace(), o.GetName()), v1alpha1.TenantNamespacePrefix)
	if _, isNode := o.(*corev1.Node); isNode {
		peer = strings.TrimPrefix(o.GetName(), v1alpha1.VirtualNodePrefix)
	} else if !isTenant {
		peer = o.GetLabels()[v1alpha1.LabelPeer]
	}
	if peer == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: peer}}}
}

// peerOfLink looks at a Peer whose link was made, closed, cut off, or is back.
func peerOfLink(_ context.Context, peer string, queue peers.Queue[reconcile.Request]) {
	queue.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: peer}})
}

// podCIDR returns the range of the peer's pods as the peer itself sees it, and no range while it is not known.
func podCIDR(ad *v1alpha1.Advertisement) netip.Prefix {
	if ad == nil || ad.Spec.Network == nil {
		return netip.Prefix{}
	}
	cidr, _ := netip.ParsePrefix(ad.Spec.Network.PodCIDR)
	return cidr.Masked()
}
