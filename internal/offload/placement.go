// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A Placement answers where the pods of one namespace may run, and which nodes they prefer. It follows what the user wrote
// in the NamespaceOffloading and what the manager has decided in its status. The manager writes what admission adds to pods
// by it; explaining, evicting and installing ask it too.
type Placement struct {
	offloading *v1alpha1.NamespaceOffloading
	selector   labels.Selector
}

// NewPlacement returns the placement of the namespace. It fails if the cluster selector makes no sense.
func NewPlacement(offloading *v1alpha1.NamespaceOffloading) (Placement, error) {
	selector, err := offloading.Spec.ClusterSelector.Selector()
	if err != nil {
		return Placement{}, err
	}
	return Placement{offloading: offloading, selector: selector}, nil
}

// Strategy returns the strategy of the namespace, also where the API server has not filled in the default.
func (p Placement) Strategy() v1alpha1.OffloadingStrategy {
	return cmp.Or(p.offloading.Spec.Strategy, v1alpha1.StrategyLocalAndRemote)
}

// Selects reports whether the namespace may use the cluster of the virtual node at all.
func (p Placement) Selects(node *corev1.Node) bool {
	return p.selector.Matches(labels.Set(node.Labels))
}

// Selector returns the cluster selector as a text, the same for all that select the same way.
func (p Placement) Selector() string { return p.selector.String() }

// ClassOf returns the class that the pod belongs to: the first in the list whose labels it has. It is nil if there is none.
func (p Placement) ClassOf(pod *corev1.Pod) *v1alpha1.PlacementClass {
	if p.offloading.Spec.Placement == nil {
		return nil
	}
	classes := p.offloading.Spec.Placement.Classes
	i := slices.IndexFunc(classes, func(class v1alpha1.PlacementClass) bool { return HasLabels(pod, class.PodLabels) })
	if i < 0 {
		return nil
	}
	return &classes[i]
}

// HasLabels reports whether the pod has all of the labels, with their values.
func HasLabels(pod *corev1.Pod, all map[string]v1alpha1.LabelValue) bool {
	for key, value := range all {
		if has, labelled := pod.Labels[key]; !labelled || has != string(value) {
			return false
		}
	}
	return true
}

// Objection says why no pod of the namespace may go to the virtual node, by what was decided about all of them; it is empty if they
// may.
func (p Placement) Objection(node string) string {
	decided := p.offloading.Status.Placement
	if decided == nil {
		return "It was not decided yet where pods of the namespace may go"
	}
	i := slices.IndexFunc(decided.Nodes, func(n v1alpha1.NodePlacement) bool { return n.Name == node })
	if i < 0 {
		return "The NamespaceOffloading does not select it"
	}
	return decided.Nodes[i].Excluded
}

// Decided returns what the manager has decided about pods such as this one: about its class, or else about the namespace.
func (p Placement) Decided(pod *corev1.Pod) v1alpha1.PlacementStatus {
	decided := p.offloading.Status.Placement
	if decided == nil {
		return v1alpha1.PlacementStatus{}
	}
	if own := p.componentOf(pod); own != nil {
		return own.PlacementStatus
	}
	class := p.ClassOf(pod)
	for i := range decided.Classes {
		if class != nil && decided.Classes[i].Name == class.Name {
			return decided.Classes[i].PlacementStatus
		}
	}
	return decided.PlacementStatus
}

// Forbids says why the user's own words keep the pod off the virtual node, and "" if they do not. The answer changes only
// when the user changes the NamespaceOffloading, so a running pod may be moved for it.
func (p Placement) Forbids(pod *corev1.Pod, node *corev1.Node) string {
	switch peer := node.Labels[v1alpha1.LabelPeer]; {
	case p.Strategy() == v1alpha1.StrategyLocal:
		return "strategy is Local"
	case !p.Selects(node):
		return "clusterSelector does not match the node"
	case slices.Contains(p.excluded(p.ClassOf(pod)), peer):
		return "placement excludes peer " + peer
	default:
		return ""
	}
}

// ForbidsHome says why the user's own words keep the pod off the nodes of this cluster, and "" if they do not.
func (p Placement) ForbidsHome(pod *corev1.Pod) string {
	if _, stays := pod.Annotations[v1alpha1.AnnotationRunsAtHome]; stays || p.Strategy() != v1alpha1.StrategyRemote || UsesClaims(&pod.Spec) {
		return ""
	}
	return "strategy is Remote"
}

// Excludes says why a new pod such as this one would not run on the virtual node, and "" if it might: by the user's words,
// by the annotations of the pod, and by what is decided at present. The answer may be another in a minute, so a running pod
// is not moved for it.
func (p Placement) Excludes(pod *corev1.Pod, node *corev1.Node) string {
	decided := p.Decided(pod)
	switch {
	case p.Forbids(pod, node) != "":
		return p.Forbids(pod, node)
	case slices.Contains(excludedBy(pod), node.Labels[v1alpha1.LabelPeer]):
		return "the pod excludes peer " + node.Labels[v1alpha1.LabelPeer]
	case decisionAbout(decided, node.Name).Excluded != "":
		return decisionAbout(decided, node.Name).Excluded
	case p.componentOf(pod) != nil && !slices.Contains(decided.Only, node.Name):
		return "the pod is of component " + p.componentOf(pod).Name + " of an Application, which is elsewhere or has no place yet"
	case decided.Strict && len(decided.Only) == 0:
		return "placement is strict, and no cluster fits"
	case decided.Strict && !slices.Contains(decided.Only, node.Name):
		return "placement is strict, and another one is better"
	case decided.Admission != nil && decided.Admission.Gated:
		return "no cluster takes new pods at present"
	default:
		return ""
	}
}

// Weight returns how much a new pod such as this one prefers the virtual node.
func (p Placement) Weight(pod *corev1.Pod, node *corev1.Node) int32 {
	return weightBy(Preference(pod), decisionAbout(p.Decided(pod), node.Name))
}

// PrefersHome reports whether a new pod such as this one goes to a virtual node only where home has no room.
func (p Placement) PrefersHome(pod *corev1.Pod) bool {
	return p.Strategy() == v1alpha1.StrategyLocalAndRemote && Preference(pod) == "" && !p.Decided(pod).PrefersRemote
}

// Preference returns what the annotation of the pod says that it prefers. What is no preference counts as none.
func Preference(pod *corev1.Pod) v1alpha1.PlacementPreference {
	switch said := v1alpha1.PlacementPreference(pod.Annotations[v1alpha1.AnnotationPrefer]); said {
	case v1alpha1.PreferPrice, v1alpha1.PreferLatency, v1alpha1.PreferSpread:
		return said
	default:
		return ""
	}
}

// TakesPods reports whether a virtual node takes new pods: neither an administrator has cordoned it, nor the peer.
func TakesPods(node *corev1.Node) bool {
	return !node.Spec.Unschedulable && !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Key == v1alpha1.TaintWithdrawn
	})
}

// excluded are the peers that the user excludes for the namespace and for the class, which may be nil.
func (p Placement) excluded(class *v1alpha1.PlacementClass) []string {
	var excluded []string
	if said := p.offloading.Spec.Placement; said != nil {
		excluded = append(excluded, said.Exclude...)
	}
	if class != nil {
		excluded = append(excluded, class.Exclude...)
	}
	return excluded
}

// excludedBy are the peers that the annotation of the pod names.
func excludedBy(pod *corev1.Pod) []string {
	var excluded []string
	for _, peer := range strings.Split(pod.Annotations[v1alpha1.AnnotationExclude], ",") {
		excluded = append(excluded, strings.TrimSpace(peer))
	}
	return excluded
}

func decisionAbout(decided v1alpha1.PlacementStatus, node string) v1alpha1.NodePlacement {
	i := slices.IndexFunc(decided.Nodes, func(n v1alpha1.NodePlacement) bool { return n.Name == node })
	if i < 0 {
		return v1alpha1.NodePlacement{}
	}
	return decided.Nodes[i]
}

func weightBy(preference v1alpha1.PlacementPreference, decision v1alpha1.NodePlacement) int32 {
	switch preference {
	case v1alpha1.PreferPrice:
		return decision.WeightByPrice
	case v1alpha1.PreferLatency:
		return decision.WeightByLatency
	case v1alpha1.PreferSpread:
		return 0
	default:
		return decision.Weight
	}
}

// Admission returns what admission adds to pods of the class about which that was decided; a nil class is all other pods of
// the namespace. Under strategy Local it returns nil: admission needs no more than the strategy then.
func (p Placement) Admission(class *v1alpha1.PlacementClass, decided v1alpha1.PlacementStatus) *v1alpha1.PodAdmission {
	return p.admission(p.Strategy(), class, decided)
}

func (p Placement) admission(
	strategy v1alpha1.OffloadingStrategy, class *v1alpha1.PlacementClass, decided v1alpha1.PlacementStatus,
) *v1alpha1.PodAdmission {
	if strategy == v1alpha1.StrategyLocal {
		return nil
	}
	mayStay := strategy == v1alpha1.StrategyLocalAndRemote
	homeFirst := mayStay && !decided.PrefersRemote
	away := v1alpha1.NodeTerm{MatchExpressions: slices.Concat([]v1alpha1.NodeRequirement{virtualNodes}, p.selected(), p.narrowed(class, decided))}
	admission := &v1alpha1.PodAdmission{
		Gated:              !mayStay && !decided.AllowsAny(),
		Preferred:          preferred(decided, "", homeFirst),
		PreferredByPrice:   preferred(decided, v1alpha1.PreferPrice, false),
		PreferredByLatency: preferred(decided, v1alpha1.PreferLatency, false),
		Tolerations:        []v1alpha1.PodToleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists}},
	}
	switch {
	case !mayStay:
		admission.Required = []v1alpha1.NodeTerm{away}
	case decided.Strict && len(decided.Only) == 0:
		admission.Required = []v1alpha1.NodeTerm{home}
	case len(away.MatchExpressions) > 1: // else all nodes will do
		admission.Required = []v1alpha1.NodeTerm{home, away}
	}
	if homeFirst {
		// A preference alone loses to the spreading of the scheduler, so virtual nodes have a second taint with the effect
		// PreferNoSchedule. Pods for which home comes first do not tolerate it.
		admission.Tolerations[0].Effect = corev1.TaintEffectNoSchedule
	}
	return admission
}

// The two kinds of nodes.
var (
	virtualNodes = v1alpha1.NodeRequirement{
		Key: v1alpha1.LabelType, Operator: corev1.NodeSelectorOpIn, Values: []v1alpha1.LabelValue{v1alpha1.TypeVirtualNode},
	}
	home = v1alpha1.NodeTerm{MatchExpressions: []v1alpha1.NodeRequirement{{
		Key: v1alpha1.LabelType, Operator: corev1.NodeSelectorOpNotIn, Values: []v1alpha1.LabelValue{v1alpha1.TypeVirtualNode},
	}}}
)

// selected are the requirements of the cluster selector.
func (p Placement) selected() []v1alpha1.NodeRequirement {
	by := p.offloading.Spec.ClusterSelector
	if by == nil {
		return nil
	}
	var found []v1alpha1.NodeRequirement
	for _, key := range slices.Sorted(maps.Keys(by.MatchLabels)) {
		found = append(found, v1alpha1.NodeRequirement{
			Key: key, Operator: corev1.NodeSelectorOpIn, Values: []v1alpha1.LabelValue{by.MatchLabels[key]},
		})
	}
	for _, e := range by.MatchExpressions {
		found = append(found, v1alpha1.NodeRequirement{Key: e.Key, Operator: corev1.NodeSelectorOperator(e.Operator), Values: e.Values})
	}
	return found
}

// narrowed are the requirements that exclude peers, by the user's words and by what was decided.
func (p Placement) narrowed(class *v1alpha1.PlacementClass, decided v1alpha1.PlacementStatus) []v1alpha1.NodeRequirement {
	excluded := p.excluded(class)
	for _, node := range decided.Nodes {
		if node.Excluded != "" {
			excluded = append(excluded, peerOf(node.Name))
		}
	}
	var found []v1alpha1.NodeRequirement
	if names := peerLabels(excluded); len(names) > 0 {
		found = append(found, v1alpha1.NodeRequirement{Key: v1alpha1.LabelPeer, Operator: corev1.NodeSelectorOpNotIn, Values: names})
	}
	only := make([]string, 0, len(decided.Only))
	for _, node := range decided.Only {
		only = append(only, peerOf(node))
	}
	// That none fits is no requirement: it passes, and a requirement does not. Pods that must leave get a gate for it.
	if names := peerLabels(only); decided.Strict && len(names) > 0 {
		found = append(found, v1alpha1.NodeRequirement{Key: v1alpha1.LabelPeer, Operator: corev1.NodeSelectorOpIn, Values: names})
	}
	return found
}

// preferred are the preferences among nodes. The scheduler adds up the weights of a node and takes the highest sum of all
// nodes with room for 100 percent. So weights of providers are a tenth where home comes first: there they count little beside
// home, and in full among each other once home has no room. Providers of the same weight share a term, which keeps pods small.
func preferred(decided v1alpha1.PlacementStatus, by v1alpha1.PlacementPreference, homeFirst bool) []v1alpha1.WeightedNodeTerm {
	var terms []v1alpha1.WeightedNodeTerm
	if homeFirst {
		terms = append(terms, v1alpha1.WeightedNodeTerm{Weight: 100, Preference: home})
	}
	peers := map[int32][]string{} // weight → peers
	for _, node := range decided.Nodes {
		weight := weightBy(by, node)
		if weight <= 0 || node.Excluded != "" || (decided.Strict && !slices.Contains(decided.Only, node.Name)) {
			continue
		}
		if homeFirst {
			weight = (weight + 9) / 10
		}
		peers[weight] = append(peers[weight], peerOf(node.Name))
	}
	for _, weight := range slices.Backward(slices.Sorted(maps.Keys(peers))) {
		terms = append(terms, v1alpha1.WeightedNodeTerm{Weight: weight, Preference: v1alpha1.NodeTerm{
			MatchExpressions: []v1alpha1.NodeRequirement{{
				Key: v1alpha1.LabelPeer, Operator: corev1.NodeSelectorOpIn, Values: peerLabels(peers[weight]),
			}},
		}})
	}
	return terms
}

// peerOf returns the name of the Peer that a virtual node of that name stands for.
func peerOf(node string) string { return strings.TrimPrefix(node, v1alpha1.VirtualNodePrefix) }

// peerLabels are names of peers as values of a label, sorted and each once. Names that no Peer can have are left out, since
// the API server would refuse the pod for them.
func peerLabels(peers []string) []v1alpha1.LabelValue {
	var values []v1alpha1.LabelValue
	for _, peer := range slices.Compact(slices.Sorted(slices.Values(peers))) {
		if len(validation.IsDNS1123Label(peer)) == 0 {
			values = append(values, v1alpha1.LabelValue(peer))
		}
	}
	return values
}

// Admitted reports whether admission has changed a new pod as the placement says. The pod must have had no affinity and no
// tolerations of its own, no annotations, and must ask for nothing.
func (p Placement) Admitted(pod *corev1.Pod) bool {
	terms := requiredTerms(pod)
	if p.Strategy() == v1alpha1.StrategyLocal {
		return !ToleratesVirtualNodes(pod) && slices.EqualFunc(terms, []v1alpha1.NodeTerm{home}, sameTerm)
	}
	admission := p.Decided(pod).Admission
	if admission != nil && admission.Gated {
		return Gated(pod)
	}
	return admission != nil && slices.EqualFunc(terms, admission.Required, sameTerm) &&
		slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return t.Key == v1alpha1.TaintVirtualNode && t.Effect == admission.Tolerations[0].Effect
		})
}

// LeftAlone reports whether admission has changed a new pod in no way.
func LeftAlone(pod *corev1.Pod) bool {
	return !ToleratesVirtualNodes(pod) && !Gated(pod) && !slices.ContainsFunc(requiredTerms(pod), func(term corev1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool { return e.Key == v1alpha1.LabelType })
	})
}

// ToleratesVirtualNodes reports whether the pod may go to virtual nodes.
func ToleratesVirtualNodes(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == v1alpha1.TaintVirtualNode })
}

func requiredTerms(pod *corev1.Pod) []corev1.NodeSelectorTerm {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil ||
		pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

func sameTerm(has corev1.NodeSelectorTerm, want v1alpha1.NodeTerm) bool {
	return slices.EqualFunc(has.MatchExpressions, want.MatchExpressions, func(a corev1.NodeSelectorRequirement, b v1alpha1.NodeRequirement) bool {
		return a.Key == b.Key && a.Operator == b.Operator &&
			slices.EqualFunc(a.Values, b.Values, func(x string, y v1alpha1.LabelValue) bool { return x == string(y) })
	})
}
