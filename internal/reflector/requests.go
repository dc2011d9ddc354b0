package reflector

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// A place holds the objects of one kind in one namespace of our own cluster.
type place struct {
	Namespace string
	Kind      reflection.Kind
}

// A request asks the copier to look at what pods of a place refer to at one peer.
type request struct {
	Peer string
	place
}

// requestsOfPod are for all kinds that the pod refers to.
func requestsOfPod(pod *corev1.Pod) []request {
	peer, away := peerOf(pod)
	if !away {
		return nil
	}
	var requests []request
	for _, reference := range reflection.References(&pod.Spec) {
		req := request{Peer: peer, place: place{Namespace: pod.Namespace, Kind: reference.Kind}}
		if !slices.Contains(requests, req) {
			requests = append(requests, req)
		}
	}
	return requests
}

// peerOf returns the peer whose virtual node the pod seems to be bound to. Only the label of the Node tells for certain.
func peerOf(pod *corev1.Pod) (string, bool) {
	return strings.CutPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix)
}

// needs is what the pod refers to, if it may still be started.
func needs(pod *corev1.Pod) []reflection.Reference {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	return reflection.References(&pod.Spec)
}

// needsMove lets through pods that come to a virtual node or go, and those that refer to something else than before.
var needsMove = predicate.And(
	predicate.NewPredicateFuncs(func(object client.Object) bool {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return false
		}
		_, away := peerOf(pod)
		return away
	}),
	predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, known := e.ObjectOld.(*corev1.Pod)
		after, ok := e.ObjectNew.(*corev1.Pod)
		return known && ok &&
			(before.Spec.NodeName != after.Spec.NodeName || !slices.Equal(needs(before), needs(after)))
	}})
