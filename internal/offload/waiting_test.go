// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestWhichPodsWait(t *testing.T) {
	gated := func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/mine"}, {Name: v1alpha1.GateNoClusterFits}}
	}
	roomless := func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists}}
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		}}
	}
	for name, test := range map[string]struct {
		edits []func(*corev1.Pod)
		want  bool
	}{
		"new":                       {nil, false},
		"gated":                     {[]func(*corev1.Pod){gated}, true},
		"without a node":            {[]func(*corev1.Pod){roomless}, true},
		"that may not leave":        {[]func(*corev1.Pod){roomless, func(p *corev1.Pod) { p.Spec.Tolerations = nil }}, false},
		"gated by another":          {[]func(*corev1.Pod){gated, func(p *corev1.Pod) { p.Spec.SchedulingGates = p.Spec.SchedulingGates[:1] }}, false},
		"that has a node":           {[]func(*corev1.Pod){roomless, func(p *corev1.Pod) { p.Spec.NodeName = "worker" }}, false},
		"that is going":             {[]func(*corev1.Pod){gated, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }}, false},
		"that runs here for others": {[]func(*corev1.Pod){roomless, func(p *corev1.Pod) { p.OwnerReferences = testkit.OwnedByShadowPod("web", "u") }}, false},
		"that only says it does":    {[]func(*corev1.Pod){roomless, func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.LabelHomeUID: "u"} }}, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			for _, edit := range test.edits {
				edit(pod)
			}
			if got := Waits(pod); got != test.want {
				t.Errorf("waits: %t", got)
			}
		})
	}
}

const gate = "schedulingGates: [{name: hanse.dev/no-cluster-fits}]\n"

func TestRelease(t *testing.T) {
	both := v1alpha1.PlacementStatus{Nodes: []v1alpha1.NodePlacement{
		{Name: "hanse-bremen", Weight: 50}, {Name: "hanse-hamburg", Weight: 100}, {Name: "hanse-kiel", Excluded: "dear"},
	}}
	for name, test := range map[string]struct {
		strategy    v1alpha1.OffloadingStrategy
		decided     v1alpha1.PlacementStatus
		pod         string
		annotations map[string]string
		room        []string
		want        string // "" for no change
	}{
		"nothing has room": {strategy: "Remote", decided: both, pod: gate},
		"the gate goes with the affinity": {
			strategy: "Remote", decided: both, pod: gate, room: []string{"hanse-hamburg", "hanse-kiel"},
			want: `
affinity: {nodeAffinity: {
  requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [
    {key: hanse.dev/type, operator: In, values: [virtual-node]}, {key: hanse.dev/peer, operator: NotIn, values: [kiel]}]}]},
  preferredDuringSchedulingIgnoredDuringExecution: [
    {weight: 100, preference: {matchExpressions: [{key: hanse.dev/peer, operator: In, values: [hamburg]}]}},
    {weight: 50, preference: {matchExpressions: [{key: hanse.dev/peer, operator: In, values: [bremen]}]}}]}}
tolerations: [
  {key: hanse.dev/virtual-node, operator: Exists},
  {key: hanse.dev/full, operator: Equal, value: hamburg, effect: NoSchedule}]`,
		},
		"what its author wrote stays": {
			strategy: "Remote", decided: v1alpha1.PlacementStatus{Strict: true, Only: []string{"hanse-bremen"}, Nodes: both.Nodes[:2]},
			pod: `
schedulingGates: [{name: mine}, {name: hanse.dev/no-cluster-fits}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
  {matchExpressions: [{key: disk, operator: Exists}]}, {}]}}}`,
			annotations: map[string]string{v1alpha1.AnnotationPrefer: "Spread", v1alpha1.AnnotationExclude: "ulm"},
			room:        []string{"hanse-bremen", "hanse-hamburg"},
			want: `
schedulingGates: [{name: mine}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
  {matchExpressions: [{key: disk, operator: Exists}, {key: hanse.dev/type, operator: In, values: [virtual-node]},
    {key: hanse.dev/peer, operator: In, values: [bremen]}, {key: hanse.dev/peer, operator: NotIn, values: [ulm]}]}, {}]}}}
tolerations: [
  {key: hanse.dev/virtual-node, operator: Exists},
  {key: hanse.dev/full, operator: Equal, value: bremen, effect: NoSchedule}]`,
		},
		"the pod itself excludes what has room": {
			strategy: "Remote", decided: both, pod: gate, room: []string{"hanse-hamburg"},
			annotations: map[string]string{v1alpha1.AnnotationExclude: "hamburg"},
		},
		"a namespace that is Local by now": {strategy: "Local", decided: both, pod: gate, want: "{}"},
		"one that may stay by now": {
			strategy: "LocalAndRemote", decided: v1alpha1.PlacementStatus{PrefersRemote: true}, pod: gate,
			want: "tolerations: [{key: hanse.dev/virtual-node, operator: Exists}]",
		},
		"a provider has room for a pod that it had none for": {
			strategy: "LocalAndRemote", decided: both, room: []string{"hanse-bremen", "hanse-hamburg"},
			pod: "tolerations: [{key: hanse.dev/full, operator: Equal, value: bremen, effect: NoSchedule}]",
			want: `tolerations: [{key: hanse.dev/full, operator: Equal, value: bremen, effect: NoSchedule},
  {key: hanse.dev/full, operator: Equal, value: hamburg, effect: NoSchedule}]`,
		},
		"a pod that tolerates all": {
			strategy: "Remote", decided: both, room: []string{"hanse-bremen"},
			pod: "tolerations: [{key: hanse.dev/full, operator: Exists, effect: NoSchedule}]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}, Spec: specOf(t, test.pod)}
			before := pod.DeepCopy()
			placement := placed(t, v1alpha1.NamespaceOffloadingSpec{Strategy: test.strategy}, test.decided)
			got, changed := placement.Release(pod, func(node string) bool { return slices.Contains(test.room, node) })
			if diff := cmp.Diff(before, pod); diff != "" {
				t.Errorf("the pod that was given has changed:\n%s", diff)
			}
			if changed != (test.want != "") {
				t.Fatalf("changed: %t", changed)
			}
			if diff := cmp.Diff(specOf(t, test.want), got.Spec, cmpopts.EquateEmpty()); changed && diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodsTolerateNoMoreThanTheBest(t *testing.T) {
	var decided v1alpha1.PlacementStatus
	for i := range int32(100) {
		decided.Nodes = append(decided.Nodes, v1alpha1.NodePlacement{Name: v1alpha1.VirtualNodeName("p" + string('a'+i%26) + string('a'+i/26)), Weight: i})
	}
	placement := placed(t, v1alpha1.NamespaceOffloadingSpec{Strategy: "Remote"}, decided)
	got, _ := placement.Release(&corev1.Pod{}, func(string) bool { return true })
	if len(got.Spec.Tolerations) != maxFullTolerated || got.Spec.Tolerations[0].Value != "pvd" {
		t.Errorf("%d tolerations, the first %v", len(got.Spec.Tolerations), got.Spec.Tolerations[0])
	}
	if _, changed := placement.Release(got, func(string) bool { return true }); changed {
		t.Error("it grows on")
	}
}

func specOf(t *testing.T, text string) corev1.PodSpec {
	t.Helper()
	var spec corev1.PodSpec
	if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	return spec
}
