// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// everything is the request to look at all that providers offer, and at each namespace.
var everything = reconcile.Request{}

// offloadingIn is a request for the NamespaceOffloading of the namespace.
func offloadingIn(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{
		Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName,
	}}
}

func offloadingOfNamespace(_ context.Context, namespace client.Object) []reconcile.Request {
	return []reconcile.Request{offloadingIn(namespace.GetName())}
}

// offloadingBeside is a request for the NamespaceOffloading in the namespace of the object.
func offloadingBeside(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{offloadingIn(object.GetNamespace())}
}

// pair is a request for the mapping of a namespace at a peer.
func pair(namespace, peer string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: peer}}
}

// pairOfPod is the pod's namespace and the peer that its node stands for. A real node whose name starts like a virtual
// one's gives a pair for which there is no link, which is looked at in vain.
func pairOfPod(_ context.Context, object client.Object) []reconcile.Request {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil
	}
	peer, virtual := strings.CutPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix)
	if !virtual {
		return nil
	}
	return []reconcile.Request{pair(pod.Namespace, peer)}
}

// pairOfVolume is the namespace of the claim that a volume at a peer was for, and the peer.
func pairOfVolume(_ context.Context, object client.Object) []reconcile.Request {
	volume, ok := object.(*corev1.PersistentVolume)
	if !ok {
		return nil
	}
	at, away := reflection.HandleOf(volume)
	if !away {
		return nil
	}
	return []reconcile.Request{pair(at.Namespace, at.Peer)}
}

// namespaceOf is a request for the namespace of the object.
func namespaceOf(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: object.GetNamespace()}}}
}

// offloaded are requests for all NamespaceOffloadings.
func offloaded(ctx context.Context, reader client.Reader) ([]reconcile.Request, error) {
	list := &v1alpha1.NamespaceOffloadingList{}
	if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list namespace offloadings: %w", err)
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, offloadingIn(list.Items[i].Namespace))
	}
	return requests, nil
}

// mappingChanged asks for a look at the namespace of the mapping. Answers of many peers come in together, and one status
// tells of all that came within a moment.
func (c *offloadings) mappingChanged(ctx context.Context, change peers.Change, queue peers.Queue[reconcile.Request]) {
	if change.Name == "" {
		c.linkChanged(ctx, "", queue)
		return
	}
	queue.AddAfter(offloadingIn(change.Name), settle)
}

// linkChanged asks for a look at every namespace.
func (c *offloadings) linkChanged(ctx context.Context, _ string, queue peers.Queue[reconcile.Request]) {
	requests, err := offloaded(ctx, c.Client)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Looking for what a change of a link concerns")
	}
	for _, request := range requests {
		queue.AddAfter(request, settle)
	}
}

// specChanged lets through what changes a decision: not the status, which these and other controllers write.
var specChanged = predicate.Or(predicate.GenerationChangedPredicate{}, predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
	},
})

// changed lets through the updates of a kind that change something that matters, and all that comes or goes.
func changed[T client.Object](matters func(before, after T) bool) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, wasOne := e.ObjectOld.(T)
		after, isOne := e.ObjectNew.(T)
		return wasOne && isOne && matters(before, after)
	}}
}

// offloadingChanged lets through what the user changes, and what anybody changes of the status. That our own writes come by
// too costs a look, and shows us those that a cache had not shown yet when we looked.
var offloadingChanged = predicate.Or(specChanged, changed(func(before, after *v1alpha1.NamespaceOffloading) bool {
	return !equality.Semantic.DeepEqual(before.Status, after.Status)
}))

// boundChanged lets through claims that get a volume.
var boundChanged = changed(func(before, after *corev1.PersistentVolumeClaim) bool {
	return before.Spec.VolumeName != after.Spec.VolumeName
})

// metadataChanged lets through what policies are asked with.
var metadataChanged = predicate.Or(predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})

// offerChanged leaves out heartbeats: what they change, the time and the sequence, makes no cluster better.
var offerChanged = changed(func(before, after *v1alpha1.Advertisement) bool {
	return isAccepted(before) != isAccepted(after) || !exchange.SameTerms(&before.Spec, &after.Spec) ||
		!equality.Semantic.DeepEqual(before.Spec.Availability, after.Spec.Availability) ||
		!equality.Semantic.DeepEqual(before.Spec.LargestPod, after.Spec.LargestPod)
})

func isAccepted(ad *v1alpha1.Advertisement) bool {
	return meta.IsStatusConditionTrue(ad.Status.Conditions, v1alpha1.ConditionAccepted)
}

// distanceChanged lets through new measurements of the way to a peer.
var distanceChanged = changed(func(before, after *v1alpha1.Peer) bool {
	old, now := &before.Status, &after.Status
	return !equality.Semantic.DeepEqual(old.RoundTripTime, now.RoundTripTime) || !ptr.Equal(old.LossPercent, now.LossPercent) ||
		!equality.Semantic.DeepEqual(old.Bandwidth, now.Bandwidth) || !equality.Semantic.DeepEqual(old.Throughput, now.Throughput)
})

// trustChanged lets through peers that are known now to be the ones that they name, or not any more.
var trustChanged = changed(func(before, after *v1alpha1.Peer) bool {
	const known = v1alpha1.ConditionAuthenticated
	return meta.IsStatusConditionFalse(before.Status.Conditions, known) != meta.IsStatusConditionFalse(after.Status.Conditions, known)
})

// virtualNodeChanged lets through virtual nodes that come, go, open, close or get other labels: not their heartbeats.
var virtualNodeChanged = predicate.And(
	predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode }),
	changed(func(before, after *corev1.Node) bool {
		return offload.TakesPods(before) != offload.TakesPods(after) || !maps.Equal(before.Labels, after.Labels)
	}))

// onlyDeletions is for pods: no other event of a pod makes a twin superfluous.
var onlyDeletions = predicate.Funcs{CreateFunc: no[event.CreateEvent], UpdateFunc: no[event.UpdateEvent]}

// comesOrGoes leaves out updates.
var comesOrGoes = predicate.Funcs{UpdateFunc: no[event.UpdateEvent]}

// onlyNew lets through what is seen for the first time.
var onlyNew = predicate.Funcs{UpdateFunc: no[event.UpdateEvent], DeleteFunc: no[event.DeleteEvent]}

func no[E any](E) bool { return false }

// leavesOrEnds lets through pods that come to a virtual node, and those that go.
var leavesOrEnds = predicate.And(predicate.NewPredicateFuncs(maybeAway), predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool { return !maybeAway(e.ObjectOld) },
})

// gateGoes lets through pods that no longer wait behind our gate.
var gateGoes = predicate.Funcs{
	CreateFunc: no[event.CreateEvent],
	UpdateFunc: func(e event.UpdateEvent) bool { return isGated(e.ObjectOld) && !isGated(e.ObjectNew) },
	DeleteFunc: func(e event.DeleteEvent) bool { return isGated(e.Object) },
}

func isGated(object client.Object) bool {
	pod, ok := object.(*corev1.Pod)
	return ok && offload.Gated(pod)
}

// waits lets through pods that wait for room, whatever happens to them.
var waits = predicate.And(predicate.Funcs{DeleteFunc: no[event.DeleteEvent]}, predicate.NewPredicateFuncs(func(object client.Object) bool {
	pod, ok := object.(*corev1.Pod)
	return ok && offload.Waits(pod)
}))

// maybeAway reports whether the pod may be on a virtual node, by the name of the node.
func maybeAway(object client.Object) bool {
	pod, ok := object.(*corev1.Pod)
	return ok && strings.HasPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix)
}

// isKeptHome reports whether admission has kept the pod at home. Pods keep that mark.
func isKeptHome(pod client.Object) bool {
	return pod.GetAnnotations()[v1alpha1.AnnotationRunsAtHome] != ""
}

// keepingChanged lets through what makes a NamespaceOffloading the user's, or Hanse's.
var keepingChanged = changed(func(before, after client.Object) bool { return isKept(before) != isKept(after) })

// virtualNodes are the cache's own and must not be changed.
func virtualNodes(ctx context.Context, reader client.Reader) ([]corev1.Node, error) {
	nodes := &corev1.NodeList{}
	err := reader.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list virtual nodes: %w", err)
	}
	return nodes.Items, nil
}

// agreementChanged lets through what changes where pods of an Application go.
var agreementChanged = predicate.Or(specChanged, changed(func(before, after *v1alpha1.Application) bool {
	return !equality.Semantic.DeepEqual(before.Status.Components, after.Status.Components)
}))
