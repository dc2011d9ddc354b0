// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// maxFullTolerated is how many virtual nodes a pod tolerates by name although they are full. It keeps pods small. The best
// are tolerated first. Admission has the same limit.
const maxFullTolerated = 32

// Gated reports whether the pod waits behind the gate that admission puts on pods that no cluster takes.
func Gated(pod *corev1.Pod) bool { return slices.ContainsFunc(pod.Spec.SchedulingGates, isOurGate) }

func isOurGate(gate corev1.PodSchedulingGate) bool { return gate.Name == v1alpha1.GateNoClusterFits }

// Waits reports whether the pod may have to be released: it has our gate, or the scheduler has found no node for it, and it
// may leave. A remote pod is not ours to change.
func Waits(pod *corev1.Pod) bool {
	if v1alpha1.OwnerShadowPod(pod) != nil || pod.Spec.NodeName != "" || !pod.DeletionTimestamp.IsZero() {
		return false
	}
	if Gated(pod) {
		return true
	}
	scheduled := PodCondition(&pod.Status, corev1.PodScheduled)
	return scheduled != nil && scheduled.Status == corev1.ConditionFalse && scheduled.Reason == corev1.PodReasonUnschedulable &&
		(ToleratesVirtualNodes(pod) || UsesClaims(&pod.Spec))
}

// Ungated returns the pod without our gate. It is for pods that need not leave this cluster any more.
func Ungated(pod *corev1.Pod) *corev1.Pod {
	released := pod.DeepCopy()
	released.Spec.SchedulingGates = slices.DeleteFunc(released.Spec.SchedulingGates, isOurGate)
	return released
}

// Release returns the waiting pod as it is to be while it has room on the nodes of which hasRoom says so, and whether that is
// a change. What it does to a pod with our gate is what admission does to one that has none. Any other pod gets tolerations
// of nodes that are full for larger ones, and, if it uses claims, of virtual nodes at all: of an existing pod nothing else can be
// changed. A pod of which some claim stays here must not be released so.
func (p Placement) Release(pod *corev1.Pod, hasRoom func(node string) bool) (released *corev1.Pod, changed bool) {
	room := p.withRoom(pod, hasRoom)
	if !Gated(pod) {
		released = pod.DeepCopy()
		let := p.letGo(released)
		return released, tolerateFull(&released.Spec, room) || let
	}
	admission := p.Decided(pod).Admission
	switch {
	case p.strategyOf(pod) == v1alpha1.StrategyLocal:
		return Ungated(pod), true
	case admission == nil, p.strategyOf(pod) == v1alpha1.StrategyRemote && len(room) == 0:
		return pod, false
	}
	released = Ungated(pod)
	if !require(&released.Spec, alternatives(pod, admission)) {
		return released, true // it may stay here, and does
	}
	prefer(&released.Spec, preferredBy(pod, admission))
	released.Spec.Tolerations = append(released.Spec.Tolerations, tolerations(pod, admission)...)
	tolerateFull(&released.Spec, room)
	return released, true
}

// letGo lets a pod with claims onto virtual nodes, off which admission keeps it: that cannot know of which class its claims are.
func (p Placement) letGo(pod *corev1.Pod) bool {
	admission := p.Decided(pod).Admission
	if admission == nil || !UsesClaims(&pod.Spec) || ToleratesVirtualNodes(pod) {
		return false
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, tolerations(pod, admission)...)
	return true
}

// withRoom are the virtual nodes that the pod may go to and has room on, the best first.
func (p Placement) withRoom(pod *corev1.Pod, hasRoom func(node string) bool) []string {
	decided := p.Decided(pod)
	avoided := excludedBy(pod)
	nodes := slices.DeleteFunc(slices.Clone(decided.Nodes), func(n v1alpha1.NodePlacement) bool {
		return !decided.Allows(n) || slices.Contains(avoided, peerOf(n.Name)) || !hasRoom(n.Name)
	})
	slices.SortFunc(nodes, func(a, b v1alpha1.NodePlacement) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), strings.Compare(a.Name, b.Name))
	})
	names := make([]string, 0, len(nodes))
	for _, node := range nodes {
		names = append(names, node.Name)
	}
	return names
}

// tolerateFull lets the pod go to the nodes although they are full for larger ones. It reports whether that is a change.
func tolerateFull(spec *corev1.PodSpec, nodes []string) bool {
	tolerated := 0
	for _, t := range spec.Tolerations {
		switch {
		case t.Key != v1alpha1.TaintFull:
		case t.Operator == corev1.TolerationOpExists:
			return false
		default:
			tolerated++
		}
	}
	before := tolerated
	for _, node := range nodes {
		more := corev1.Toleration{
			Key: v1alpha1.TaintFull, Operator: corev1.TolerationOpEqual, Value: peerOf(node), Effect: corev1.TaintEffectNoSchedule,
		}
		if tolerated < maxFullTolerated && !slices.Contains(spec.Tolerations, more) {
			spec.Tolerations = append(spec.Tolerations, more)
			tolerated++
		}
	}
	return tolerated > before
}

// alternatives are the terms that admission asks for, less the peers that the pod excludes itself.
func alternatives(pod *corev1.Pod, admission *v1alpha1.PodAdmission) []corev1.NodeSelectorTerm {
	terms := admission.Required
	avoided := peerLabels(excludedBy(pod))
	if len(avoided) > 0 && len(terms) == 0 {
		terms = []v1alpha1.NodeTerm{home, {MatchExpressions: []v1alpha1.NodeRequirement{virtualNodes}}}
	}
	var found []corev1.NodeSelectorTerm
	for _, term := range terms {
		if len(avoided) > 0 && slices.ContainsFunc(term.MatchExpressions, isAway) {
			term.MatchExpressions = append(slices.Clone(term.MatchExpressions), v1alpha1.NodeRequirement{
				Key: v1alpha1.LabelPeer, Operator: corev1.NodeSelectorOpNotIn, Values: avoided,
			})
		}
		found = append(found, selectorTerm(term))
	}
	return found
}

func isAway(e v1alpha1.NodeRequirement) bool {
	return e.Key == v1alpha1.LabelType && e.Operator == corev1.NodeSelectorOpIn
}

func selectorTerm(term v1alpha1.NodeTerm) corev1.NodeSelectorTerm {
	var out corev1.NodeSelectorTerm
	for _, e := range term.MatchExpressions {
		requirement := corev1.NodeSelectorRequirement{Key: e.Key, Operator: e.Operator}
		for _, value := range e.Values {
			requirement.Values = append(requirement.Values, string(value))
		}
		out.MatchExpressions = append(out.MatchExpressions, requirement)
	}
	return out
}

// require has the pod meet one of the alternatives besides what its author requires. Kubernetes lets terms of a gated pod grow,
// and no others be added to those of its author. So it reports false, and does nothing, where that would be needed.
func require(spec *corev1.PodSpec, alternatives []corev1.NodeSelectorTerm) bool {
	if len(alternatives) == 0 {
		return true
	}
	affinity := nodeAffinity(spec)
	required := affinity.RequiredDuringSchedulingIgnoredDuringExecution
	switch {
	case required == nil:
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: alternatives}
	case len(alternatives) > 1:
		return false
	default:
		for i := range required.NodeSelectorTerms {
			term := &required.NodeSelectorTerms[i]
			if len(term.MatchExpressions)+len(term.MatchFields) > 0 { // else it matches no node, and must not begin to
				term.MatchExpressions = append(term.MatchExpressions, alternatives[0].MatchExpressions...)
			}
		}
	}
	return true
}

func prefer(spec *corev1.PodSpec, terms []v1alpha1.WeightedNodeTerm) {
	if len(terms) == 0 {
		return
	}
	affinity := nodeAffinity(spec)
	for _, term := range terms {
		affinity.PreferredDuringSchedulingIgnoredDuringExecution = append(affinity.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{Weight: term.Weight, Preference: selectorTerm(term.Preference)})
	}
}

func nodeAffinity(spec *corev1.PodSpec) *corev1.NodeAffinity {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	return spec.Affinity.NodeAffinity
}

// preferredBy are the preferences of the pod, which its annotation may choose.
func preferredBy(pod *corev1.Pod, admission *v1alpha1.PodAdmission) []v1alpha1.WeightedNodeTerm {
	switch Preference(pod) {
	case v1alpha1.PreferPrice:
		return admission.PreferredByPrice
	case v1alpha1.PreferLatency:
		return admission.PreferredByLatency
	case v1alpha1.PreferSpread:
		return nil
	default:
		return admission.Preferred
	}
}

// tolerations let the pod go to virtual nodes. One that prefers something itself is not behind real nodes.
func tolerations(pod *corev1.Pod, admission *v1alpha1.PodAdmission) []corev1.Toleration {
	var found []corev1.Toleration
	for _, t := range admission.Tolerations {
		toleration := corev1.Toleration{Key: t.Key, Operator: t.Operator, Effect: t.Effect}
		if Preference(pod) != "" {
			toleration.Effect = ""
		}
		found = append(found, toleration)
	}
	return found
}
