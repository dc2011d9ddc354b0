// SPDX-License-Identifier: Apache-2.0

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

// A method is how a pod is let go.
type method int

const (
	// byEviction: as its PodDisruptionBudget allows.
	byEviction method = iota
	// byDeletion: now. The peer ends it with the grace that it has.
	byDeletion
	// byForce: now, without grace, and the peer is not asked.
	byForce
)

// A reason has pods go.
type reason struct {
	// event is the reason of the event that tells of it.
	event string
	// onPod says that each pod is told that it went. Otherwise the Peer is told, once for all of them.
	onPod bool
	how   method
	// cause says in words why the pod has to go, and is "" if it need not.
	cause func(f placeFacts, pod *corev1.Pod) string
}

// reasons are all that pods are let go for. The first that applies to a pod counts.
var reasons = []reason{
	{event: v1alpha1.ReasonParting, how: byForce, cause: ofDeletedPeer(unpeeredByForce)},
	{event: v1alpha1.ReasonParting, how: byDeletion, cause: ofDeletedPeer(drainsNow)},
	{event: v1alpha1.ReasonParting, how: byEviction, cause: ofDeletedPeer(func(*v1alpha1.Peer) bool { return true })},
	{event: v1alpha1.ReasonPeerDraining, how: byEviction, cause: inPhase(v1alpha1.OfferDraining, "the peer asks for it")},
	{event: v1alpha1.ReasonPeerLeft, how: byEviction, cause: inPhase(v1alpha1.OfferLeaving, "the peer parts from us")},
	{event: v1alpha1.ReasonOffloadingChanged, onPod: true, how: byEviction, cause: forbiddenThere},
	{event: v1alpha1.ReasonOffloadingChanged, onPod: true, how: byEviction, cause: forbiddenAtHome},
}

// placeFacts are what decides whether pods may stay on a node.
type placeFacts struct {
	// nodeFacts are those of the virtual node that the pods are on. There is no node for pods at home.
	nodeFacts
	// placement says where the user of the namespace lets its pods run. It is nil unless the user wants pods moved.
	placement *offload.Placement
	// nodes are all virtual nodes.
	nodes []corev1.Node
}

// misplacedFacts are those of a pod in a namespace whose user wants pods moved.
func misplacedFacts(pod *corev1.Pod, placement *offload.Placement, nodes []corev1.Node) placeFacts {
	facts := placeFacts{placement: placement, nodes: nodes}
	for i := range nodes {
		if nodes[i].Name == pod.Spec.NodeName {
			facts.node = &nodes[i]
		}
	}
	return facts
}

// drains reports whether the node is closed. Pods go only then: else what replaces a pod could come back to the node.
func (f placeFacts) drains() bool { return f.peer != nil && f.node != nil && isClosed(f.node) }

func ofDeletedPeer(how func(*v1alpha1.Peer) bool) func(placeFacts, *corev1.Pod) string {
	return func(f placeFacts, _ *corev1.Pod) string {
		if f.drains() && !f.peer.DeletionTimestamp.IsZero() && how(f.peer) {
			return "the Peer is being deleted"
		}
		return ""
	}
}

func drainsNow(peer *v1alpha1.Peer) bool { return peer.Parting().Drain == v1alpha1.DrainNow }

// inPhase is for what a provider asks in its offer. One that is only silent has not asked for anything.
func inPhase(phase v1alpha1.OfferPhase, cause string) func(placeFacts, *corev1.Pod) string {
	return func(f placeFacts, _ *corev1.Pod) string {
		if f.drains() && f.ad != nil && exchange.Phase(&f.ad.Spec) == phase {
			return cause
		}
		return ""
	}
}

// forbiddenThere is for pods on a virtual node that the user's words do not let new pods run on.
func forbiddenThere(f placeFacts, pod *corev1.Pod) string {
	if f.placement == nil || f.node == nil || !isMadeAgain(pod) {
		return ""
	}
	return f.placement.Forbids(pod, f.node)
}

// forbiddenAtHome is for pods at home that the user's words send away, if there is somewhere to go.
func forbiddenAtHome(f placeFacts, pod *corev1.Pod) string {
	if f.placement == nil || maybeVirtual(pod.Spec.NodeName) || !isMadeAgain(pod) || !f.hasPlaceFor(pod) {
		return ""
	}
	if _, refused := offload.Refusal(pod); refused {
		return ""
	}
	return f.placement.ForbidsHome(pod)
}

// hasPlaceFor reports whether a virtual node takes such a pod.
func (f placeFacts) hasPlaceFor(pod *corev1.Pod) bool {
	return slices.ContainsFunc(f.nodes, func(node corev1.Node) bool {
		return takesPodsNow(&node) && f.placement.Forbids(pod, &node) == ""
	})
}

func takesPodsNow(node *corev1.Node) bool {
	return offload.TakesPods(node) && exchange.IsReady(node)
}

// isMadeAgain reports whether the pod runs, and is made again when it goes: by its controller, or by a PodMove. To move any other is its
// author's to do.
func isMadeAgain(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return pod.Spec.NodeName != "" && !terminal(pod) && (isLone(pod) || owner != nil && owner.Kind != "DaemonSet" && owner.Kind != "Node")
}

// A leaver is a pod that has to go.
type leaver struct {
	pod    *corev1.Pod
	reason *reason
	cause  string
}

// leavers returns those of the pods that must go and are not going yet, the ones first that serve nobody: to let them go
// costs no budget. They are the cache's own and must not be changed.
func leavers(pods []corev1.Pod, factsOf func(*corev1.Pod) placeFacts) []leaver {
	var going []leaver
	for i := range pods {
		pod := &pods[i]
		if _, stays := staysHome(pod); stays {
			continue
		}
		found, must := leaverOf(pod, factsOf(pod))
		if must && !isGoing(pod, found.reason.how) {
			going = append(going, found)
		}
	}
	slices.SortFunc(going, func(a, b leaver) int {
		switch {
		case isReady(b.pod) && !isReady(a.pod):
			return -1
		case isReady(a.pod) && !isReady(b.pod):
			return 1
		}
		return cmp.Or(cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name))
	})
	return going
}

func leaverOf(pod *corev1.Pod, f placeFacts) (leaver, bool) {
	for i := range reasons {
		if cause := reasons[i].cause(f, pod); cause != "" {
			return leaver{pod: pod, reason: &reasons[i], cause: cause}, true
		}
	}
	return leaver{}, false
}

// isGoing reports whether the pod has been let go already by the method, or by a stronger one.
func isGoing(pod *corev1.Pod, how method) bool {
	if how == byForce {
		return deletedAtOnce(pod)
	}
	return !pod.DeletionTimestamp.IsZero()
}

// budget names what shares a PodDisruptionBudget with the pod: all pods of one controller look the same to it. What does
// not ask budgets waits for nobody.
func (l leaver) budget() string {
	if owner := metav1.GetControllerOf(l.pod); owner != nil && l.reason.how == byEviction {
		return string(owner.UID)
	}
	return fmt.Sprintf("%d/%s", l.reason.how, l.pod.UID)
}
