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
)

func toPeer(name string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
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

// goes passes on that an object went: a virtual node without an offer is deleted behind its last pod.
func goes() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
