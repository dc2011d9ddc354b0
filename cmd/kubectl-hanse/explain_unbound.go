// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// gateCause tells of scheduling gates.
func gateCause(s podSight) []podProblem {
	if s.where.Kind != placeNone || len(s.pod.Spec.SchedulingGates) == 0 {
		return nil
	}
	names := namesOf(s.pod.Spec.SchedulingGates, func(g *corev1.PodSchedulingGate) string { return g.Name })
	fix := "Whoever put them on takes them off"
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, v1alpha1.GroupVersion.Group+"/") }) {
		fix = "Hanse takes its own off as soon as a cluster takes the pod"
	}
	return problem(corev1.PodReasonSchedulingGated, "Scheduling gates hold it: "+some(names), fix, linkPending)
}

// candidate is a virtual node that the pod could be on by what its namespace and the placement say.
type candidate struct {
	nodeFacts

	closed *podProblem
}

// possible are the candidates of a pod without a node, also those that are closed.
func (s podSight) possible() []candidate {
	if s.where.Kind != placeNone || !s.leaves() {
		return nil
	}
	placement, err := offload.NewPlacement(s.offloading)
	if err != nil {
		return nil
	}
	var found []candidate
	for _, name := range s.virtualNodes() {
		f := s.nodeFactsOf(name)
		if f.node == nil && f.peer == nil || f.node != nil && placement.Excludes(s.pod, f.node) != "" {
			continue
		}
		found = append(found, candidate{f, f.closed()})
	}
	return found
}

// closedNodesCause tells of virtual nodes that take no new pods.
func closedNodesCause(s podSight) []podProblem {
	var found []podProblem
	for _, c := range s.possible() {
		if c.closed != nil {
			found = append(found, podProblem{c.closed.Reason, "Node " + c.name + ": " + c.closed.Message, c.closed.Fix, c.closed.Link})
		}
	}
	return found[:min(len(found), shownNodes)]
}

// foreignTaint is the first taint of a node that keeps the pod off, "" if none does. Those that say that a node is closed count
// elsewhere, and so does that a node is full where admission has not dealt with the pod: it gives the toleration to those that fit.
func foreignTaint(pod *corev1.Pod, node *corev1.Node) string {
	own := []string{v1alpha1.TaintVirtualNode, v1alpha1.TaintWithdrawn, corev1.TaintNodeUnschedulable, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}
	if !offload.ToleratesVirtualNodes(pod) {
		own = append(own, v1alpha1.TaintFull)
	}
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		tolerates := func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Background(), taint, false) }
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !slices.Contains(own, taint.Key) && !slices.ContainsFunc(pod.Spec.Tolerations, tolerates) {
			return taint.Key
		}
	}
	return ""
}

// fullNodesCause tells of open virtual nodes with a taint that the pod does not tolerate.
func fullNodesCause(s podSight) []podProblem {
	var found []podProblem
	for _, c := range s.possible() {
		if c.closed != nil || c.node == nil {
			continue
		}
		switch taint := foreignTaint(s.pod, c.node); taint {
		case "":
		case v1alpha1.TaintFull:
			found = append(found, problem("Full", "Node "+c.name+" has room for smaller pods only: no node of its peer has that much room in one place",
				"Wait until something ends there, or ask for less", linkPending)...)
		default:
			found = append(found, problem("Tainted", "Node "+c.name+" has the taint "+taint+", which the pod does not tolerate",
				"Take it off, or have the pod tolerate it", linkPending)...)
		}
	}
	return found[:min(len(found), shownNodes)]
}

// staleCause tells of a pod that was made when it might not go where it might go now: what it may is settled when it is made.
func staleCause(s podSight) []podProblem {
	stale := ""
	for _, c := range s.possible() {
		switch {
		case c.closed != nil || c.node == nil || foreignTaint(s.pod, c.node) != "",
			!labels.SelectorFromSet(s.pod.Spec.NodeSelector).Matches(labels.Set(c.node.Labels)): // the user's own words
		case mayGo(s.pod, c.node):
			return nil
		default:
			stale = orElse(stale, c.name)
		}
	}
	if stale == "" {
		return nil
	}
	return problem("Stale", "A new pod like it may run on "+stale+", and this one may not: it was made before that, and where a pod may run is "+
		"settled when it is made", "Delete it, so that its controller makes another one (kubectl rollout restart)", linkPending)
}

// mayGo reports whether the pod, as it was made, may run on the virtual node.
func mayGo(pod *corev1.Pod, node *corev1.Node) bool {
	fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return offload.ToleratesVirtualNodes(pod) && (fits || err != nil)
}

// offloadingCause tells why new pods of the namespace do not leave.
func offloadingCause(s podSight) []podProblem {
	if s.where.Kind != placeNone || !s.leaves() {
		return nil
	}
	return offloadingProblems(s.offloading)
}

// unscheduledCause tells what the scheduler says.
func unscheduledCause(s podSight) []podProblem {
	bound := offload.PodCondition(&s.pod.Status, corev1.PodScheduled)
	switch {
	case s.where.Kind != placeNone, len(s.pod.Spec.SchedulingGates) > 0:
		return nil
	case bound == nil || bound.Status == corev1.ConditionTrue:
		return problem("NotScheduled", "The scheduler has not looked at it yet", "Wait a moment. If it stays so: does kube-scheduler run?", linkPending)
	default:
		return problem(bound.Reason, "No node takes it: "+bound.Message, s.way(bound.Message), linkPending)
	}
}

// way is what helps a pod that no node takes. Room is named where it is missing.
func (s podSight) way(message string) string {
	var ways []string
	isOpen := func(c candidate) bool { return c.closed == nil && c.node != nil }
	mayStay := s.offloading == nil || s.offloading.Spec.Strategy != v1alpha1.StrategyRemote
	if lacksRoom(message) && (mayStay || slices.ContainsFunc(s.possible(), isOpen)) {
		ways = append(ways, "make room, or ask for less")
	}
	if s.couldLeave() {
		ways = append(ways, "have it run in another cluster: kubectl hanse offload "+s.pod.Namespace)
	}
	if len(s.told) > 0 {
		ways = append(ways, "mend what keeps it off other clusters, as said above")
	}
	if len(ways) == 0 {
		ways = append(ways, "see what it asks of its node: "+s.command("describe pod"))
	}
	return strings.ToUpper(ways[0][:1]) + strings.Join(ways, "; or ")[1:]
}

// couldLeave reports whether the pod might go to other clusters if its namespace was offloaded to them.
func (s podSight) couldLeave() bool {
	staysHere := s.offloading == nil || s.offloading.Spec.Strategy == v1alpha1.StrategyLocal
	return staysHere && s.errs[partOffloadings] == nil && len(s.virtualNodes()) > 0 &&
		!v1alpha1.IsSystemNamespace(s.pod.Namespace, s.scope.system)
}

// lacksRoom reports whether the scheduler says that a node has too little of something.
func lacksRoom(message string) bool {
	return strings.Contains(message, "Insufficient ") || strings.Contains(message, "Too many pods")
}
