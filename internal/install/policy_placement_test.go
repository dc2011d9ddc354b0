// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

const ranked = `
spec: {strategy: %s}
status: {placement: {prefersRemote: %t, nodes: [
  {name: hanse-bremen, weight: 100, weightByPrice: 50, weightByLatency: 100},
  {name: hanse-hamburg, weight: 91, weightByPrice: 100},
  {name: hanse-kiel, excluded: too dear},
  {name: hanse-lubeck, weight: 1, weightByLatency: 50}]}}
`

// classes are of a namespace that has its pods run at hamburg alone. What is excluded in the spec of a class holds too,
// also for one that nothing was decided about.
const classes = `
spec: {strategy: Remote, placement: {strict: true, exclude: [ulm], classes: [
  {name: web, podLabels: {tier: gold, app: web}},
  {name: gold, podLabels: {tier: gold}, exclude: [hamburg]},
  {name: empty, podLabels: {empty: ""}},
  {name: new, podLabels: {new: "yes"}, exclude: [hamburg]}]}}
status: {placement: {strict: true, only: [hanse-hamburg], nodes: [{name: hanse-hamburg, weight: 100}], classes: [
  {name: web, strict: true, only: [hanse-lubeck], nodes: [{name: hanse-lubeck, weight: 100}]},
  {name: gold, nodes: [
    {name: hanse-bremen, weight: 100}, {name: hanse-lubeck, weight: 1}, {name: hanse-kiel, excluded: far}]},
  {name: empty, strict: true, only: [hanse-kiel], nodes: [{name: hanse-kiel, weight: 100}]}]}}
`

const homely = `
spec: {placement: {classes: [{name: gold, podLabels: {tier: gold}}]}}
status: {placement: {prefersRemote: true, nodes: [{name: hanse-hamburg, weight: 100}], classes: [
  {name: gold, nodes: [{name: hanse-bremen, weight: 100}]}]}}
`

const shaped = `
spec: {strategy: Remote}
status: {placement: {nodes: [
  {name: hanse-bremen, weight: 100, largestPod: {cpu: 500m, memory: 64Gi}},
  {name: hanse-hamburg, weight: 50, largestPod: {cpu: "2", memory: 1Gi}},
  {name: hanse-kiel, excluded: too dear}, {name: hanse-lubeck, weight: 1}]}}
`

// The scheduler's own code says which nodes a pod may run on, and how much it prefers them.
func TestPodsFollowThePlacementOfTheirNamespace(t *testing.T) {
	policy := mutatingPolicy(t, "hanse-place-pods")
	for name, test := range map[string]struct {
		params, pod string
		labels      map[string]string
		annotations map[string]string
		want        map[string]int64 // node that the pod may run on → how much it is preferred
		behindHome  bool
		waits       bool // behind our gate, for the manager
	}{
		"home first, and then by rank": {
			params:     fmt.Sprintf(ranked, "LocalAndRemote", false),
			want:       map[string]int64{"home": 100, "hanse-bremen": 10, "hanse-hamburg": 10, "hanse-lubeck": 1},
			behindHome: true,
		},
		"by rank alone": {
			params: fmt.Sprintf(ranked, "LocalAndRemote", true),
			want:   map[string]int64{"home": 0, "hanse-bremen": 100, "hanse-hamburg": 91, "hanse-lubeck": 1},
		},
		"by rank, and never at home": {
			params: fmt.Sprintf(ranked, "Remote", false),
			want:   map[string]int64{"hanse-bremen": 100, "hanse-hamburg": 91, "hanse-lubeck": 1},
		},
		"Local obeys nothing": {
			params: fmt.Sprintf(ranked, "Local", true),
			want:   map[string]int64{"home": 0},
		},
		"a pod that cannot leave obeys nothing": {
			params: fmt.Sprintf(ranked, "Remote", true),
			pod:    "hostNetwork: true",
			want:   map[string]int64{"home": 0},
		},
		"a pod that prefers price": {
			params:      fmt.Sprintf(ranked, "LocalAndRemote", false),
			annotations: map[string]string{v1alpha1.AnnotationPrefer: "Price"},
			want:        map[string]int64{"home": 0, "hanse-bremen": 50, "hanse-hamburg": 100, "hanse-lubeck": 0},
		},
		"a pod that prefers latency": {
			params:      fmt.Sprintf(ranked, "Remote", false),
			annotations: map[string]string{v1alpha1.AnnotationPrefer: "Latency"},
			want:        map[string]int64{"hanse-bremen": 100, "hanse-hamburg": 0, "hanse-lubeck": 50},
		},
		"a pod that prefers nothing": {
			params:      fmt.Sprintf(ranked, "LocalAndRemote", false),
			annotations: map[string]string{v1alpha1.AnnotationPrefer: "Spread"},
			want:        map[string]int64{"home": 0, "hanse-bremen": 0, "hanse-hamburg": 0, "hanse-lubeck": 0},
		},
		"a pod that prefers what nobody knows": {
			params:      fmt.Sprintf(ranked, "LocalAndRemote", false),
			annotations: map[string]string{v1alpha1.AnnotationPrefer: "Beauty"},
			want:        map[string]int64{"home": 100, "hanse-bremen": 10, "hanse-hamburg": 10, "hanse-lubeck": 1},
			behindHome:  true,
		},
		"a pod that avoids peers": {
			params:      fmt.Sprintf(ranked, "Remote", false),
			annotations: map[string]string{v1alpha1.AnnotationExclude: "bremen, lubeck,,No Peer,-x"},
			want:        map[string]int64{"hanse-hamburg": 91},
		},
		"peers that the user excludes, before anybody has decided": {
			params:     "spec: {placement: {exclude: [bremen, hamburg]}}",
			want:       map[string]int64{"home": 100, "hanse-kiel": 0, "hanse-lubeck": 0},
			behindHome: true,
		},
		"the user's own words stay": {
			params: fmt.Sprintf(ranked, "LocalAndRemote", true),
			pod: `
affinity: {nodeAffinity: {
  requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: region, operator: In, values: [south]}]},
    {matchFields: [{key: metadata.name, operator: In, values: [hanse-kiel]}]}]},
  preferredDuringSchedulingIgnoredDuringExecution: [
    {weight: 7, preference: {matchExpressions: [{key: region, operator: In, values: [south]}]}}]}}
`,
			want: map[string]int64{"home": 7, "hanse-bremen": 107},
		},
		"strict": {
			params: `
spec: {strategy: Remote}
status: {placement: {strict: true, only: [hanse-hamburg], nodes: [
  {name: hanse-bremen, weight: 50}, {name: hanse-hamburg, weight: 100}]}}`,
			want: map[string]int64{"hanse-hamburg": 100},
		},
		"strict, or at home": {
			params:     "{spec: {}, status: {placement: {strict: true, only: [hanse-hamburg], nodes: [{name: hanse-hamburg}]}}}",
			want:       map[string]int64{"home": 100, "hanse-hamburg": 0},
			behindHome: true,
		},
		"strict, and excluded by the pod": {
			params:      "{spec: {strategy: Remote}, status: {placement: {strict: true, only: [hanse-hamburg], nodes: [{name: hanse-hamburg}]}}}",
			annotations: map[string]string{v1alpha1.AnnotationExclude: "hamburg"},
			want:        map[string]int64{},
		},
		"strict, and nothing fits": {
			params: "{spec: {strategy: Remote}, status: {placement: {strict: true}}}",
			waits:  true,
		},
		"strict, and nothing fits but home": {
			params:     "{spec: {}, status: {placement: {strict: true, only: []}}}",
			want:       map[string]int64{"home": 100},
			behindHome: true,
		},
		"small enough for all": {
			params: shaped,
			pod:    "containers: [{name: a, resources: {requests: {cpu: 500m, memory: 1Gi}}}]",
			want:   map[string]int64{"hanse-bremen": 100, "hanse-hamburg": 50, "hanse-lubeck": 1},
		},
		"too large for one, with a sidecar": {
			params: shaped,
			pod: `
initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 200m}}}]
containers: [{name: a, resources: {requests: {cpu: 400m}}}]`,
			want: map[string]int64{"hanse-hamburg": 50, "hanse-lubeck": 1},
		},
		"too large for one, by an init container": {
			params: shaped,
			pod: `
initContainers: [{name: i, resources: {requests: {memory: 2Gi}}}]
containers: [{name: a, resources: {requests: {cpu: 400m}}}]`,
			want: map[string]int64{"hanse-bremen": 100, "hanse-lubeck": 1},
		},
		"too large for all that said how large": {
			params: shaped,
			pod:    "containers: [{name: a, resources: {requests: {cpu: 3}}}]",
			want:   map[string]int64{"hanse-lubeck": 1},
		},
		"too large for all that it does not exclude": {
			params:      shaped,
			pod:         "containers: [{name: a, resources: {requests: {cpu: 3}}}]",
			annotations: map[string]string{v1alpha1.AnnotationExclude: "lubeck"},
			waits:       true,
		},
		"too large for the only one": {
			params: "{spec: {strategy: Remote}, status: {placement: {strict: true, only: [hanse-kiel], nodes: [{name: hanse-kiel, largestPod: {cpu: 100m}}, {name: hanse-lubeck}]}}}",
			pod:    "{schedulingGates: [{name: mine}], containers: [{name: a, resources: {requests: {cpu: 200m}}}]}",
			waits:  true,
		},
		"too large for any other cluster": {
			params:     "{spec: {}, status: {placement: {nodes: [{name: hanse-kiel, largestPod: {cpu: 100m}}]}}}",
			pod:        "containers: [{name: a, resources: {requests: {cpu: 200m}}}]",
			want:       map[string]int64{"home": 100},
			behindHome: true,
		},
		"all are excluded": {
			params: "{spec: {strategy: Remote}, status: {placement: {nodes: [{name: hanse-kiel, excluded: far}]}}}",
			waits:  true,
		},
		"of no class": {
			params: classes,
			labels: map[string]string{"tier": "iron"},
			want:   map[string]int64{"hanse-hamburg": 100},
		},
		"without labels": {
			params: classes,
			want:   map[string]int64{"hanse-hamburg": 100},
		},
		"of a class": {
			params: classes,
			labels: map[string]string{"tier": "gold", "app": "shop"},
			want:   map[string]int64{"hanse-bremen": 100, "hanse-lubeck": 1},
		},
		"of several classes, of which the first counts": {
			params: classes,
			labels: map[string]string{"tier": "gold", "app": "web"},
			want:   map[string]int64{"hanse-lubeck": 100},
		},
		"of a class, with one of two labels": {
			params: classes,
			labels: map[string]string{"app": "web"},
			want:   map[string]int64{"hanse-hamburg": 100},
		},
		"of a class whose label is empty": {
			params: classes,
			labels: map[string]string{"empty": ""},
			want:   map[string]int64{"hanse-kiel": 100},
		},
		"of a class that nobody has looked at yet": {
			params: classes,
			labels: map[string]string{"new": "yes"},
			want:   map[string]int64{"hanse-hamburg": 100},
		},
		"of a class that is overridden": {
			params:      classes,
			labels:      map[string]string{"tier": "gold"},
			annotations: map[string]string{v1alpha1.AnnotationExclude: "lubeck", v1alpha1.AnnotationPrefer: "Spread"},
			want:        map[string]int64{"hanse-bremen": 0},
		},
		"of a class that comes behind home": {
			params:     homely,
			labels:     map[string]string{"tier": "gold"},
			want:       map[string]int64{"home": 100, "hanse-bremen": 10, "hanse-hamburg": 0, "hanse-kiel": 0, "hanse-lubeck": 0},
			behindHome: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			policy.t = t
			pod := podWith(t, test.pod)
			pod.Labels, pod.Annotations = test.labels, test.annotations
			pod = policy.mutate(review{object: pod, params: admitted(t, test.params)}).(*corev1.Pod)
			if offload.Gated(pod) != test.waits || test.waits && pod.Spec.Affinity != nil {
				t.Errorf("gates %v, affinity %v", pod.Spec.SchedulingGates, pod.Spec.Affinity)
			}
			if diff := cmp.Diff(test.want, suitable(t, pod), cmpopts.EquateEmpty()); diff != "" && !test.waits {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := waitsBehindHome(pod); got != test.behindHome {
				t.Errorf("waits behind home: %t, want %t", got, test.behindHome)
			}
		})
	}
}

// The manager may not have looked at the namespace yet, or be of a version that wrote nothing for admission.
func TestPodsBeforeTheManagerHasWritten(t *testing.T) {
	policy := mutatingPolicy(t, "hanse-place-pods")
	for name, test := range map[string]struct {
		params string
		want   map[string]int64
		leaves bool
	}{
		"Remote":              {"spec: {strategy: Remote}", map[string]int64{"hanse-bremen": 0, "hanse-hamburg": 0, "hanse-kiel": 0, "hanse-lubeck": 0}, true},
		"Remote, by selector": {"spec: {strategy: Remote, clusterSelector: {matchLabels: {region: south}}}", map[string]int64{"hanse-bremen": 0}, true},
		"Remote, by name": {
			"spec: {strategy: Remote, placement: {exclude: [bremen, kiel, No Peer]}}", map[string]int64{"hanse-hamburg": 0, "hanse-lubeck": 0}, true,
		},
		"Remote, as an older version has it": {
			"{spec: {strategy: Remote}, status: {placement: {nodes: [{name: hanse-kiel, weight: 100}]}}}",
			map[string]int64{"hanse-bremen": 0, "hanse-hamburg": 0, "hanse-kiel": 0, "hanse-lubeck": 0},
			true,
		},
		"Local": {"spec: {strategy: Local}", map[string]int64{"home": 0}, false},
		"LocalAndRemote": {
			"spec: {}", map[string]int64{"home": 0, "hanse-bremen": 0, "hanse-hamburg": 0, "hanse-kiel": 0, "hanse-lubeck": 0}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			policy.t = t
			pod := policy.mutate(review{object: podWith(t, ""), params: read(t, test.params)}).(*corev1.Pod)
			if diff := cmp.Diff(test.want, suitable(t, pod)); diff != "" || offload.ToleratesVirtualNodes(pod) != test.leaves {
				t.Errorf("tolerates virtual nodes: %t; nodes (-want +got):\n%s", offload.ToleratesVirtualNodes(pod), diff)
			}
		})
	}
}

// admitted is the NamespaceOffloading with what the manager adds to its status for admission.
func admitted(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	offloading := &v1alpha1.NamespaceOffloading{}
	if err := yaml.UnmarshalStrict([]byte(text), offloading); err != nil {
		t.Fatal(err)
	}
	placement, err := offload.NewPlacement(offloading)
	if err != nil {
		t.Fatal(err)
	}
	if offloading.Status.Placement == nil {
		offloading.Status.Placement = &v1alpha1.NamespacePlacementStatus{}
	}
	decided := offloading.Status.Placement
	decided.Admission = placement.Admission(nil, decided.PlacementStatus)
	for i := range decided.Classes {
		class := slices.IndexFunc(offloading.Spec.Placement.Classes, func(c v1alpha1.PlacementClass) bool { return c.Name == decided.Classes[i].Name })
		decided.Classes[i].Admission = placement.Admission(&offloading.Spec.Placement.Classes[class], decided.Classes[i].PlacementStatus)
	}
	data, err := yaml.Marshal(offloading)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, string(data))
}

// suitable are the nodes that the pod may run on while all virtual ones are full for larger pods, and how much its affinity
// prefers each.
func suitable(t *testing.T, pod *corev1.Pod) map[string]int64 {
	t.Helper()
	required := nodeaffinity.GetRequiredNodeAffinity(pod)
	preferred, err := nodeaffinity.NewPreferredSchedulingTerms(preferredTerms(pod))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int64{}
	for _, node := range nodes() {
		matches, err := required.Match(node)
		if err != nil {
			t.Fatal(err)
		}
		if matches && !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return !toleratesTaint(pod, taint) }) {
			found[node.Name] = preferred.Score(node)
		}
	}
	return found
}

// toleratesTaint does what the scheduler does, which also lets a pod that tolerates no virtual node at all go to none.
func toleratesTaint(pod *corev1.Pod, taint corev1.Taint) bool {
	return !offload.ToleratesVirtualNodes(pod) || slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == taint.Key && (t.Operator == corev1.TolerationOpExists || t.Value == taint.Value) && t.Effect == taint.Effect
	})
}

func preferredTerms(pod *corev1.Pod) []corev1.PreferredSchedulingTerm {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return nil
	}
	return pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
}

func nodes() []*corev1.Node {
	all := []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "home", Labels: map[string]string{"region": "south"}}}}
	for _, peer := range []string{"bremen", "hamburg", "kiel", "lubeck"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:   v1alpha1.VirtualNodeName(peer),
			Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeer: peer},
		}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: v1alpha1.TaintFull, Value: peer, Effect: corev1.TaintEffectNoSchedule}}}}
		if peer == "bremen" {
			node.Labels["region"] = "south"
		}
		all = append(all, node)
	}
	return all
}

// waitsBehindHome says whether the pod tolerates virtual nodes, and not that they are the second choice.
func waitsBehindHome(pod *corev1.Pod) bool {
	for _, toleration := range pod.Spec.Tolerations {
		if toleration.Key == v1alpha1.TaintVirtualNode {
			return toleration.Effect == corev1.TaintEffectNoSchedule
		}
	}
	return false
}

func TestAffinityThatPlacementWrites(t *testing.T) {
	policy := mutatingPolicy(t, "hanse-place-pods")
	params := admitted(t, `
spec: {clusterSelector: {matchLabels: {region: south}}}
status: {placement: {strict: true, only: [hanse-bremen, hanse-hanse-ulm], nodes: [
  {name: hanse-bremen, weight: 100}, {name: hanse-hanse-ulm, weight: 100}, {name: hanse-kiel, excluded: far}]}}`)
	pod := policy.mutate(review{object: podWith(t, ""), params: params}).(*corev1.Pod)
	comparePlacement(t, "strict with a selector", pod.Spec, "", `
affinity: {nodeAffinity: {
  requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: hanse.dev/type, operator: NotIn, values: [virtual-node]}]},
    {matchExpressions: [
      {key: hanse.dev/type, operator: In, values: [virtual-node]},
      {key: region, operator: In, values: [south]},
      {key: hanse.dev/peer, operator: NotIn, values: [kiel]},
      {key: hanse.dev/peer, operator: In, values: [bremen, hanse-ulm]}]}]},
  preferredDuringSchedulingIgnoredDuringExecution: [
    {weight: 100, preference: {matchExpressions: [{key: hanse.dev/type, operator: NotIn, values: [virtual-node]}]}},
    {weight: 10, preference: {matchExpressions: [{key: hanse.dev/peer, operator: In, values: [bremen, hanse-ulm]}]}}]}}
tolerations: [{key: hanse.dev/virtual-node, operator: Exists, effect: NoSchedule}, {key: hanse.dev/full, operator: Exists, effect: NoSchedule}]
`)
	pod = policy.mutate(review{object: podWith(t, ""), params: admitted(t, "{spec: {}, status: {placement: {prefersRemote: true}}}")}).(*corev1.Pod)
	comparePlacement(t, "nothing decided", pod.Spec, "",
		"tolerations: [{key: hanse.dev/virtual-node, operator: Exists}, {key: hanse.dev/full, operator: Exists, effect: NoSchedule}]")
}
