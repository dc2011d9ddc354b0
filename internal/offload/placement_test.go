// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// placed is the placement of a namespace about which that was decided.
func placed(t *testing.T, spec v1alpha1.NamespaceOffloadingSpec, decided v1alpha1.PlacementStatus) Placement {
	t.Helper()
	offloading := &v1alpha1.NamespaceOffloading{Spec: spec}
	placement, err := NewPlacement(offloading)
	if err != nil {
		t.Fatal(err)
	}
	decided.Admission = placement.Admission(nil, decided)
	offloading.Status.Placement = &v1alpha1.NamespacePlacementStatus{PlacementStatus: decided}
	return placement
}

func TestAdmissionIsRecognised(t *testing.T) {
	requirement := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	away := requirement(v1alpha1.LabelType, corev1.NodeSelectorOpIn, v1alpha1.TypeVirtualNode)
	home := requirement(v1alpha1.LabelType, corev1.NodeSelectorOpNotIn, v1alpha1.TypeVirtualNode)
	region := requirement("region", corev1.NodeSelectorOpIn, "south")
	south := &v1alpha1.ClusterSelector{MatchExpressions: []v1alpha1.ClusterSelectorRequirement{
		{Key: "region", Operator: metav1.LabelSelectorOpIn, Values: []v1alpha1.LabelValue{"south"}},
	}}
	anyEffect := []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode}}
	scheduling := []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Effect: corev1.TaintEffectNoSchedule}}
	notBremen := requirement(v1alpha1.LabelPeer, corev1.NodeSelectorOpNotIn, "bremen", "riga")
	onlyHamburg := requirement(v1alpha1.LabelPeer, corev1.NodeSelectorOpIn, "hamburg")
	exclude := &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{Exclude: []string{"riga"}}}
	ranked := &v1alpha1.PlacementStatus{PrefersRemote: true}
	hamburg := []v1alpha1.NodePlacement{{Name: "hanse-hamburg"}}
	bremenIsDear := &v1alpha1.PlacementStatus{Nodes: []v1alpha1.NodePlacement{{Name: "hanse-bremen", Excluded: "dear"}, {Name: "hanse-hamburg", Weight: 100}}}
	hamburgIsBest := &v1alpha1.PlacementStatus{Strict: true, Only: []string{"hanse-hamburg"}}
	nobodyFits := &v1alpha1.PlacementStatus{Strict: true}
	for name, test := range map[string]struct {
		spec        v1alpha1.NamespaceOffloadingSpec
		decided     *v1alpha1.PlacementStatus
		tolerations []corev1.Toleration
		terms       [][]corev1.NodeSelectorRequirement
		want        bool
	}{
		"Remote":                           {v1alpha1.NamespaceOffloadingSpec{Strategy: "Remote"}, nil, anyEffect, [][]corev1.NodeSelectorRequirement{{away}}, true},
		"Remote, not yet":                  {v1alpha1.NamespaceOffloadingSpec{Strategy: "Remote"}, nil, nil, nil, false},
		"Remote, still the other":          {v1alpha1.NamespaceOffloadingSpec{Strategy: "Remote"}, nil, scheduling, nil, false},
		"Remote, other selector":           {v1alpha1.NamespaceOffloadingSpec{Strategy: "Remote", ClusterSelector: south}, nil, anyEffect, [][]corev1.NodeSelectorRequirement{{away}}, false},
		"Remote, no longer selected":       {v1alpha1.NamespaceOffloadingSpec{Strategy: "Remote"}, nil, anyEffect, [][]corev1.NodeSelectorRequirement{{away, region}}, false},
		"Remote with selector":             {v1alpha1.NamespaceOffloadingSpec{Strategy: "Remote", ClusterSelector: south}, nil, anyEffect, [][]corev1.NodeSelectorRequirement{{away, region}}, true},
		"LocalAndRemote":                   {v1alpha1.NamespaceOffloadingSpec{Strategy: "LocalAndRemote"}, nil, scheduling, nil, true},
		"LocalAndRemote with":              {v1alpha1.NamespaceOffloadingSpec{Strategy: "LocalAndRemote", ClusterSelector: south}, nil, scheduling, [][]corev1.NodeSelectorRequirement{{home}, {away, region}}, true},
		"LocalAndRemote, still alone":      {v1alpha1.NamespaceOffloadingSpec{Strategy: "LocalAndRemote"}, nil, anyEffect, [][]corev1.NodeSelectorRequirement{{away}}, false},
		"Remote, one excluded by each":     {v1alpha1.NamespaceOffloadingSpec{Strategy: "Remote", Placement: exclude}, bremenIsDear, anyEffect, [][]corev1.NodeSelectorRequirement{{away, notBremen}}, true},
		"Remote, not excluded yet":         {v1alpha1.NamespaceOffloadingSpec{Strategy: "Remote", Placement: exclude}, bremenIsDear, anyEffect, [][]corev1.NodeSelectorRequirement{{away}}, false},
		"Remote, strictly":                 {v1alpha1.NamespaceOffloadingSpec{Strategy: "Remote"}, hamburgIsBest, anyEffect, [][]corev1.NodeSelectorRequirement{{away, onlyHamburg}}, true},
		"Remote, strictly nowhere":         {v1alpha1.NamespaceOffloadingSpec{Strategy: "Remote"}, nobodyFits, nil, nil, false},
		"LocalAndRemote, strictly nowhere": {v1alpha1.NamespaceOffloadingSpec{Strategy: "LocalAndRemote"}, nobodyFits, scheduling, [][]corev1.NodeSelectorRequirement{{home}}, true},
		"Remote, no longer strictly":       {v1alpha1.NamespaceOffloadingSpec{Strategy: "Remote"}, nil, anyEffect, [][]corev1.NodeSelectorRequirement{{away, onlyHamburg}}, false},
		"LocalAndRemote, ranked":           {v1alpha1.NamespaceOffloadingSpec{Strategy: "LocalAndRemote"}, ranked, anyEffect, nil, true},
		"LocalAndRemote, not yet":          {v1alpha1.NamespaceOffloadingSpec{Strategy: "LocalAndRemote"}, ranked, scheduling, nil, false},
		"LocalAndRemote, excluded":         {v1alpha1.NamespaceOffloadingSpec{Strategy: "LocalAndRemote", Placement: exclude}, bremenIsDear, scheduling, [][]corev1.NodeSelectorRequirement{{home}, {away, notBremen}}, true},
		"Local":                            {v1alpha1.NamespaceOffloadingSpec{Strategy: "Local"}, nil, nil, [][]corev1.NodeSelectorRequirement{{home}}, true},
		"Local, not yet":                   {v1alpha1.NamespaceOffloadingSpec{Strategy: "Local"}, nil, nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: test.tolerations}}
			if test.terms != nil {
				required := &corev1.NodeSelector{}
				for _, term := range test.terms {
					required.NodeSelectorTerms = append(required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: term})
				}
				pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
			}
			decided := v1alpha1.PlacementStatus{Nodes: hamburg}
			if test.decided != nil {
				decided = *test.decided
			}
			if got := placed(t, test.spec, decided).Admitted(pod); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// What explains a pod's place and what admission adds to the pod come from the same words, so they must agree on every node.
func TestAdmissionAgreesWithWhatIsExplained(t *testing.T) {
	south := &v1alpha1.ClusterSelector{
		MatchLabels:      map[string]v1alpha1.LabelValue{"region": "south"},
		MatchExpressions: []v1alpha1.ClusterSelectorRequirement{{Key: "broken", Operator: metav1.LabelSelectorOpDoesNotExist}},
	}
	var nodes []*corev1.Node
	for _, labels := range []map[string]string{
		{v1alpha1.LabelPeer: "bremen", "region": "south"},
		{v1alpha1.LabelPeer: "hamburg"},
		{v1alpha1.LabelPeer: "riga", "region": "south"},
		{v1alpha1.LabelPeer: "ulm", "region": "south", "broken": "yes"},
	} {
		labels[v1alpha1.LabelType] = v1alpha1.TypeVirtualNode
		nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.VirtualNodeName(labels[v1alpha1.LabelPeer]), Labels: labels}})
	}
	decisions := []v1alpha1.PlacementStatus{
		{},
		{PrefersRemote: true},
		{Strict: true},
		{Strict: true, Only: []string{"hanse-riga"}},
		{Nodes: []v1alpha1.NodePlacement{{Name: "hanse-bremen", Excluded: "dear"}, {Name: "hanse-riga", Weight: 100}}},
	}
	pod := &corev1.Pod{}
	for _, strategy := range []v1alpha1.OffloadingStrategy{v1alpha1.StrategyLocal, v1alpha1.StrategyRemote, v1alpha1.StrategyLocalAndRemote, ""} {
		for _, selector := range []*v1alpha1.ClusterSelector{nil, south} {
			for _, exclude := range [][]string{nil, {"hamburg"}, {"riga", "No Peer"}} {
				for i, decided := range decisions {
					spec := v1alpha1.NamespaceOffloadingSpec{
						Strategy: strategy, ClusterSelector: selector,
						Placement: &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{Exclude: exclude}},
					}
					placement := placed(t, spec, decided)
					for _, node := range nodes {
						said, admitted := placement.Excludes(pod, node), admits(placement.Decided(pod).Admission, node)
						if (said == "") != admitted {
							t.Errorf("%s, %v, %v, decision %d: node %s is admitted: %t, and is explained by %q",
								strategy, selector != nil, exclude, i, node.Name, admitted, said)
						}
					}
				}
			}
		}
	}
}

// admits does what the scheduler does.
func admits(admission *v1alpha1.PodAdmission, node *corev1.Node) bool {
	if admission == nil || admission.Gated {
		return false
	}
	return len(admission.Required) == 0 || slices.ContainsFunc(admission.Required, func(term v1alpha1.NodeTerm) bool {
		return !slices.ContainsFunc(term.MatchExpressions, func(e v1alpha1.NodeRequirement) bool {
			value, has := node.Labels[e.Key]
			listed := has && slices.Contains(e.Values, v1alpha1.LabelValue(value))
			switch e.Operator {
			case corev1.NodeSelectorOpIn:
				return !listed
			case corev1.NodeSelectorOpNotIn:
				return listed
			case corev1.NodeSelectorOpExists:
				return !has
			default:
				return has
			}
		})
	})
}
