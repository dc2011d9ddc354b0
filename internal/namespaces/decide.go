package namespaces

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A need says whether a peer should have a twin of a namespace.
type need int

const (
	// notNeeded: nothing that the user or the administrator wrote asks for the twin.
	notNeeded need = iota
	// unknown: what there is stays, and nothing is asked for.
	unknown
	// needed: the twin must exist.
	needed
)

// situation is what a decision about one namespace and one peer rests on. What does not exist is nil.
type situation struct {
	offloading *v1alpha1.NamespaceOffloading
	peer       *v1alpha1.Peer
	node       *corev1.Node // the virtual node of the peer
}

// decide says whether the peer should have a twin of the namespace, pods that already run there aside.
func decide(s situation) (need, error) {
	if isLeaving(s.peer) {
		return unknown, nil // the twins go with the peering, in its order
	}
	if !offloads(s.offloading) || !provides(s.peer) {
		return notNeeded, nil
	}
	if s.node == nil {
		// Somebody deleted the Node, or it is not made yet. Its labels are not known, and pods may be running there.
		return unknown, nil
	}
	selector, err := s.offloading.Spec.ClusterSelector.Selector()
	if err != nil {
		return unknown, err
	}
	if !selector.Matches(labels.Set(s.node.Labels)) {
		return notNeeded, nil
	}
	return needed, nil
}

func offloads(o *v1alpha1.NamespaceOffloading) bool {
	return o != nil && o.DeletionTimestamp.IsZero() && o.Spec.Strategy != v1alpha1.StrategyLocal
}

func isLeaving(peer *v1alpha1.Peer) bool { return peer != nil && !peer.DeletionTimestamp.IsZero() }

// provides reports whether the peer has twins for us. One without Hanse has had them all along.
func provides(peer *v1alpha1.Peer) bool {
	return peer != nil && !isLeaving(peer) && peer.HasRole(v1alpha1.RoleProvider)
}
