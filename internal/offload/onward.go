// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// maxOnwardPlacements is how many clusters can have asked for something: the home of a pod and those on its path.
	maxOnwardPlacements = v1alpha1.MaxPath + 1
	maxClusterID        = 30
	// nothingLeft is what a maxLatency becomes that the way so far has used up. No cluster is as near.
	nothingLeft = time.Nanosecond
)

// Inherit is what is asked for a class in a namespace for which something is asked too. What the class says counts instead
// of what the namespace says; but what either excludes is excluded, and both are strict if one is.
func Inherit(class, namespace v1alpha1.Placement) v1alpha1.Placement {
	spec := v1alpha1.Placement{
		Prefer:       cmp.Or(class.Prefer, namespace.Prefer),
		Request:      class.Request,
		MaxPrice:     cmp.Or(class.MaxPrice, namespace.MaxPrice),
		MaxLatency:   cmp.Or(class.MaxLatency, namespace.MaxLatency),
		MinBandwidth: cmp.Or(class.MinBandwidth, namespace.MinBandwidth),
		Exclude:      slices.Concat(namespace.Exclude, class.Exclude),
		Strict:       class.Strict || namespace.Strict,
	}
	if len(spec.Request) == 0 {
		spec.Request = namespace.Request
	}
	return spec
}

// AsksOnward returns what the namespace asks of each cluster that the pod is sent on to, and nil if that is nothing: what keeps
// the pod off virtual nodes here keeps it off the same clusters elsewhere. Peers have other names there, so idOf tells the id
// of the cluster that a name stands for here.
//
// What Hanse itself keeps in a twin says where this cluster sends pods on to, and is nothing that others must hold to.
func (p Placement) AsksOnward(pod *corev1.Pod, idOf func(peer string) string) *v1alpha1.OnwardPlacement {
	if len(Path(pod)) > 0 && p.offloading.Annotations[v1alpha1.AnnotationKeptOffloading] == "true" {
		return nil
	}
	said := v1alpha1.Placement{}
	if asked := p.offloading.Spec.Placement; asked != nil {
		said = asked.Placement
	}
	if class := p.ClassOf(pod); class != nil {
		said = Inherit(class.Placement, said)
	}
	selector := p.offloading.Spec.ClusterSelector
	if own := p.componentOf(pod); own != nil {
		c := own.Component
		said = Inherit(v1alpha1.Placement{Exclude: c.Exclude, MaxLatency: c.MaxLatency, MinBandwidth: c.MinBandwidth}, said)
		selector = onlyAmong(selector, c.Clusters)
	}
	excluded := slices.Concat(said.Exclude, excludedBy(pod))
	decided := p.Decided(pod)
	for _, node := range decided.Nodes {
		if node.Excluded != "" { // by a policy, perhaps
			excluded = append(excluded, peerOf(node.Name))
		}
	}
	ids := append(clusterIDs(excluded, idOf), decided.ExcludedBehind...)
	slices.Sort(ids)
	asks := v1alpha1.OnwardPlacement{
		ClusterSelector: selectorByID(selector, idOf), Exclude: slices.Compact(ids),
		MaxPrice: said.MaxPrice, MaxLatency: said.MaxLatency, MinBandwidth: said.MinBandwidth,
	}
	if asks.MaxPrice != nil {
		asks.Request = said.Request
	}
	if equality.Semantic.DeepEqual(asks, v1alpha1.OnwardPlacement{}) {
		return nil
	}
	return &asks
}

// onlyAmong returns the selector for those of the peers, all if there are none, that it selects.
func onlyAmong(selector *v1alpha1.ClusterSelector, peers []string) *v1alpha1.ClusterSelector {
	if len(peers) == 0 {
		return selector
	}
	narrowed := ptr.Deref(selector.DeepCopy(), v1alpha1.ClusterSelector{})
	requirement := v1alpha1.ClusterSelectorRequirement{Key: v1alpha1.LabelPeer, Operator: metav1.LabelSelectorOpIn}
	for _, peer := range peers {
		requirement.Values = append(requirement.Values, v1alpha1.LabelValue(peer))
	}
	narrowed.MatchExpressions = append(narrowed.MatchExpressions, requirement)
	return &narrowed
}

// clusterIDs are the ids of the peers of those names.
func clusterIDs(peers []string, idOf func(peer string) string) []string {
	var ids []string
	for _, peer := range peers {
		if len(validation.IsDNS1123Label(peer)) > 0 {
			continue
		}
		if id := idOf(peer); len(id) <= maxClusterID && len(validation.IsDNS1123Label(id)) == 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// selectorByID returns the selector with ids of clusters for names of peers.
func selectorByID(selector *v1alpha1.ClusterSelector, idOf func(peer string) string) *v1alpha1.ClusterSelector {
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return nil
	}
	named := func(value v1alpha1.LabelValue) v1alpha1.LabelValue { return v1alpha1.LabelValue(idOf(string(value))) }
	out := &v1alpha1.ClusterSelector{MatchLabels: maps.Clone(selector.MatchLabels)}
	if peer, selects := out.MatchLabels[v1alpha1.LabelPeer]; selects {
		delete(out.MatchLabels, v1alpha1.LabelPeer)
		out.MatchExpressions = append(out.MatchExpressions, v1alpha1.ClusterSelectorRequirement{
			Key: v1alpha1.LabelClusterID, Operator: metav1.LabelSelectorOpIn, Values: []v1alpha1.LabelValue{named(peer)},
		})
	}
	for _, requirement := range selector.MatchExpressions {
		if requirement.Key == v1alpha1.LabelPeer {
			requirement.Key, requirement.Values = v1alpha1.LabelClusterID, slices.Clone(requirement.Values)
			for i := range requirement.Values {
				requirement.Values[i] = named(requirement.Values[i])
			}
		}
		out.MatchExpressions = append(out.MatchExpressions, requirement)
	}
	return out
}

// SendOnward returns spec.onward of a ShadowPod for the pod: what clusters before have asked, which the pod carries, and what
// is asked here, if that is something. The peer is that far away, as far as it is known: a maxLatency is for the whole way. So is
// a minBandwidth, which each part of the way must have.
func SendOnward(pod *corev1.Pod, asked *v1alpha1.OnwardPlacement, away time.Duration) (string, error) {
	all, err := ReadOnward(carriedOnward(pod))
	if err != nil {
		return "", err
	}
	if asked != nil {
		all = append(all, *asked)
	}
	if len(all) == 0 {
		return "", nil
	}
	for i := range all {
		if most := all[i].MaxLatency; most != nil {
			all[i].MaxLatency = &metav1.Duration{Duration: max(most.Duration-away, nothingLeft)}
		}
	}
	text, err := json.Marshal(all)
	if err == nil && len(text) > v1alpha1.MaxOnwardBytes {
		err = fmt.Errorf("what is asked of clusters that it is sent on to has %d bytes, and at most %d are taken to another cluster",
			len(text), v1alpha1.MaxOnwardBytes)
	}
	return string(text), err
}

// carriedOnward is what the pod carries for the next cluster, and "" for a pod that began here, whatever its annotations say.
func carriedOnward(pod *corev1.Pod) string {
	if len(Path(pod)) == 0 {
		return ""
	}
	return pod.Annotations[v1alpha1.AnnotationOnward]
}

// ReadOnward reads spec.onward of a ShadowPod strictly: what is not understood cannot be obeyed.
func ReadOnward(text string) ([]v1alpha1.OnwardPlacement, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > v1alpha1.MaxOnwardBytes {
		return nil, fmt.Errorf("spec.onward: longer than %d bytes", v1alpha1.MaxOnwardBytes)
	}
	var asked []v1alpha1.OnwardPlacement
	if err := decode([]byte(text), &asked, true); err != nil {
		return nil, fmt.Errorf("spec.onward: %w", err)
	}
	if len(asked) > maxOnwardPlacements {
		return nil, fmt.Errorf("spec.onward: of %d clusters, at most %d", len(asked), maxOnwardPlacements)
	}
	for i := range asked {
		if err := checkOnward(&asked[i]); err != nil {
			return nil, fmt.Errorf("spec.onward[%d]: %w", i, err)
		}
	}
	return asked, nil
}

func checkOnward(asked *v1alpha1.OnwardPlacement) error {
	if _, err := asked.ClusterSelector.Selector(); err != nil {
		return err
	}
	if most := asked.MaxLatency; most != nil && most.Duration <= 0 {
		return fmt.Errorf("maxLatency: %s is no time", most.Duration)
	}
	if least := asked.MinBandwidth; least != nil && least.Sign() <= 0 {
		return fmt.Errorf("minBandwidth: %s is no bandwidth", least.String())
	}
	if most := asked.MaxPrice; most != nil && (most.Amount.Sign() < 0 || len(most.Currency) != 3) {
		return fmt.Errorf("maxPrice: %s %q is no price", most.Amount.String(), most.Currency)
	}
	return nil
}

// hereOr lets a pod run on the real nodes here, and on those virtual ones that stand for the next clusters.
func hereOr(next []string) []corev1.NodeSelectorTerm {
	kind := corev1.NodeSelectorRequirement{
		Key: v1alpha1.LabelType, Operator: corev1.NodeSelectorOpNotIn, Values: []string{v1alpha1.TypeVirtualNode},
	}
	here := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{kind}}
	kind.Operator = corev1.NodeSelectorOpIn
	return []corev1.NodeSelectorTerm{here, {MatchExpressions: []corev1.NodeSelectorRequirement{
		kind, {Key: v1alpha1.LabelClusterID, Operator: corev1.NodeSelectorOpIn, Values: next},
	}}}
}

// Next returns the ids of the clusters that the pod may be sent on to, as Build has made it by Rules.Next.
func Next(pod *corev1.Pod) []string {
	for _, term := range requiredTerms(pod) {
		for _, e := range term.MatchExpressions {
			if e.Key == v1alpha1.LabelClusterID && e.Operator == corev1.NodeSelectorOpIn {
				return e.Values
			}
		}
	}
	return nil
}

// NoteSentOn writes onto a pod that Build has made where it may be sent on to, and why not to other clusters.
func NoteSentOn(pod *corev1.Pod, why string) {
	text := "It stays on the provider's own nodes"
	if next := Next(pod); len(next) > 0 {
		text = "It may be sent on to " + strings.Join(next, ", ")
	}
	if why != "" {
		text += ". " + why
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.AnnotationSentOn, bounded(text, maxMessage))
}
