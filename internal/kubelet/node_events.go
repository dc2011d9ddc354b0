package kubelet

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

func toPeer(name string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

func enqueuePeer(_ context.Context, peer string, queue peers.Queue[reconcile.Request]) {
	queue.Add(toPeer(peer)[0])
}

func peerOfAdvertisement(_ context.Context, object client.Object) []reconcile.Request {
	peer, ok := strings.CutPrefix(object.GetNamespace(), v1alpha1.TenantNamespacePrefix)
	if !ok {
		return nil
	}
	return toPeer(peer)
}

func peerOfNode(_ context.Context, object client.Object) []reconcile.Request {
	return toPeer(peerOf(object.GetName()))
}

func peerOfPod(_ context.Context, object client.Object) []reconcile.Request {
	pod, ok := object.(*corev1.Pod)
	if !ok || !maybeVirtual(pod.Spec.NodeName) {
		return nil
	}
	return toPeer(peerOf(pod.Spec.NodeName))
}

// goes passes on that a pod went, or that only finalizers keep it: a virtual node without an offer is deleted behind its
// last pod.
func goes() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, wasPod := e.ObjectOld.(*corev1.Pod)
			after, isPod := e.ObjectNew.(*corev1.Pod)
			return wasPod && isPod && !cutOff(before) && cutOff(after)
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// binds passes on that a pod came to its node: it must go again if the node is drained.
func binds() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, wasPod := e.ObjectOld.(*corev1.Pod)
			after, isPod := e.ObjectNew.(*corev1.Pod)
			return wasPod && isPod && before.Spec.NodeName != after.Spec.NodeName
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// closes passes on that a virtual node was closed to new pods: then its drain may begin.
func closes() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, wasNode := e.ObjectOld.(*corev1.Node)
			after, isNode := e.ObjectNew.(*corev1.Node)
			return wasNode && isNode && !isClosed(before) && isClosed(after)
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
