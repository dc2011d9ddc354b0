package kubelet

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/offload"
)

// drainMethod is how the pods of a virtual node are moved away.
type drainMethod int

const (
	// noDrain: they stay.
	noDrain drainMethod = iota
	// byEviction: as their PodDisruptionBudgets allow.
	byEviction
	// byDeletion: all of them now. The peer ends each with the grace that it has.
	byDeletion
	// byForce: all of them now, without grace, and the peer is not asked.
	byForce
)

// drainOrder is a method, with the cause for those who watch.
type drainOrder struct {
	method       drainMethod
	reason, text string
}

// drainOf says whether and how the node is drained. It is closed first: else what replaces a pod could come back to it.
func drainOf(f nodeFacts) drainOrder {
	switch {
	case f.peer == nil || f.node == nil || !isClosed(f.node):
		return drainOrder{}
	case !f.peer.DeletionTimestamp.IsZero():
		return drainOrder{partingMethod(f.peer), v1alpha1.ReasonParting, "the Peer is being deleted"}
	case f.ad == nil:
		return drainOrder{} // a provider that is only silent has not asked for anything
	}
	switch exchange.Phase(&f.ad.Spec) {
	case v1alpha1.OfferDraining:
		return drainOrder{byEviction, v1alpha1.ReasonPeerDraining, "the peer asks for it"}
	case v1alpha1.OfferLeaving:
		return drainOrder{byEviction, v1alpha1.ReasonPeerLeft, "the peer parts from us"}
	default:
		return drainOrder{}
	}
}

func partingMethod(peer *v1alpha1.Peer) drainMethod {
	switch {
	case forsaken(peer):
		return byForce
	case peer.Parting().Drain == v1alpha1.DrainNow:
		return byDeletion
	default:
		return byEviction
	}
}

// toMove returns those of the pods that must go and are not going yet, the ones first that serve nobody: to let them go
// costs no budget. They are the cache's own and must not be changed.
func toMove(pods []corev1.Pod, how drainMethod) []*corev1.Pod {
	var going []*corev1.Pod
	for i := range pods {
		pod := &pods[i]
		_, homebound := staysHome(pod)
		ending := !pod.DeletionTimestamp.IsZero()
		if how == byForce {
			ending = cutOff(pod)
		}
		if !homebound && !ending {
			going = append(going, pod)
		}
	}
	slices.SortFunc(going, func(a, b *corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return going
}

func rank(pod *corev1.Pod) int {
	if ready := offload.PodCondition(&pod.Status, corev1.PodReady); ready != nil && ready.Status == corev1.ConditionTrue {
		return 1
	}
	return 0
}

// budgetKey names what shares a PodDisruptionBudget with the pod: all pods of one controller look the same to it. What
// does not ask budgets waits for nobody.
func budgetKey(how drainMethod, pod *corev1.Pod) string {
	key := fmt.Sprintf("%d/%s", how, pod.UID)
	if owner := metav1.GetControllerOf(pod); owner != nil && how == byEviction {
		key = fmt.Sprintf("%d/%s", how, owner.UID)
	}
	return key
}
