// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/move"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// steering is a PodMove that waits for the pod that its owner makes in the place of the original, with a gate until one minute past noon.
func steering(t *testing.T, kind, original string, change func(map[string]any)) *unstructured.Unstructured {
	t.Helper()
	object := podMove(t, "alice")
	object.Object["spec"].(map[string]any)["pod"].(map[string]any)["name"] = original //nolint:forcetypeassert // podMove has them
	status := map[string]any{
		"phase": "Steering", "method": "Steer", "gateUntil": noon.Add(time.Minute).Format(time.RFC3339), "owner": map[string]any{"kind": kind, "name": "web", "uid": "owner"},
	}
	object.Object["status"] = status
	if change != nil {
		change(status)
	}
	return object
}

// made is a pod that the owner makes at noon.
func made(kind string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := withKind(&corev1.Pod{ObjectMeta: in("shop", "web-1")}, "", "v1", "Pod")
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "web", UID: "owner", Controller: ptr.To(true)}}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Time: ptr.To(metav1.NewTime(noon))}}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func TestOnlyTheNextPodOfAnOwnerIsGated(t *testing.T) {
	at := func(times ...time.Time) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.ManagedFields = nil
			for _, at := range times {
				p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: "m", Time: ptr.To(metav1.NewTime(at))})
			}
		}
	}
	indexed := func(p *corev1.Pod) { p.Name, p.GenerateName = "sum-1-abcde", "sum-1-" }
	late := noon.Add(2 * time.Minute)
	for name, test := range map[string]struct {
		kind, original string // ReplicaSet and web-1 if they are ""
		change         func(map[string]any)
		deleted        bool
		pod            func(*corev1.Pod)
		want           bool
	}{
		"the owner's":                     {want: true},
		"that of another":                 {pod: func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" }},
		"one that the owner only owns":    {pod: func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }},
		"one of nobody":                   {pod: func(p *corev1.Pod) { p.OwnerReferences = nil }},
		"one that is bound":               {pod: func(p *corev1.Pod) { p.Spec.NodeName = "here" }},
		"one after its time":              {pod: at(late)},
		"one with an older entry besides": {pod: at(noon, late)},
		"one whose time is not known":     {pod: at()},
		"the ordinal":                     {kind: "StatefulSet", want: true},
		"another ordinal":                 {kind: "StatefulSet", original: "web-2"},
		"the index":                       {kind: "Job", original: "sum-1-xyzab", pod: indexed, want: true},
		"another index":                   {kind: "Job", original: "sum-10-xyzab", pod: indexed},
		"while a copy is made":            {change: func(s map[string]any) { s["phase"] = "Copying" }},
		"before the manager says so":      {change: func(s map[string]any) { delete(s, "gateUntil") }},
		"by a move that is deleted":       {deleted: true},
		"before a move has begun":         {change: func(s map[string]any) { clear(s) }},
	} {
		t.Run(name, func(t *testing.T) {
			kind, original := "ReplicaSet", "web-1"
			if test.kind != "" {
				kind = test.kind
			}
			if test.original != "" {
				original = test.original
			}
			params := steering(t, kind, original, test.change)
			if test.deleted {
				params.SetDeletionTimestamp(ptr.To(metav1.NewTime(noon)))
			}
			pod := made(kind)
			if test.pod != nil {
				test.pod(pod)
			}
			policy := mutatingPolicy(t, "hanse-gate-next-pods")
			got := policy.mutate(review{by: "system:kube-controller-manager", in: inShop, object: pod, params: params})
			if gated := move.IsGated(asPod(t, got)); gated != test.want {
				t.Errorf("it is gated: %t", gated)
			}
		})
	}
}

func asPod(t *testing.T, object runtime.Object) *corev1.Pod {
	t.Helper()
	if pod, ok := object.(*corev1.Pod); ok {
		return pod
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func TestGateIsPutOnBesidesOthersAndOnce(t *testing.T) {
	policy := mutatingPolicy(t, "hanse-gate-next-pods")
	other := made("ReplicaSet", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/other"}} })
	params := steering(t, "ReplicaSet", "web-1", nil)
	first := asPod(t, policy.mutate(review{by: admin, in: inShop, object: other, params: params}))
	first.TypeMeta = other.TypeMeta
	second := asPod(t, policy.mutate(review{by: admin, in: inShop, object: first, params: params}))
	if gates := second.Spec.SchedulingGates; len(gates) != 2 || gates[0].Name != "example.org/other" || gates[1].Name != v1alpha1.GateMove {
		t.Errorf("its gates are %v", gates)
	}
}

// An eviction for a move takes effect only where the API server knows that the next pod is to be gated.
func TestPodsAreEvictedForMovesWhoseNextPodIsGated(t *testing.T) {
	eviction := func(notes map[string]string) *policyv1.Eviction {
		made := withKind(&policyv1.Eviction{ObjectMeta: in("shop", "web-1")}, "policy", "v1", "Eviction")
		made.Annotations = notes
		return made
	}
	ofMove := map[string]string{v1alpha1.AnnotationMove: "u"}
	for name, test := range map[string]struct {
		by     string
		notes  map[string]string
		change func(map[string]any)
		want   bool
	}{
		"the manager's":         {by: manager, notes: ofMove, want: true},
		"for another pod":       {by: manager, notes: map[string]string{v1alpha1.AnnotationMove: "other"}},
		"before that is known":  {by: manager, notes: ofMove, change: func(s map[string]any) { delete(s, "gateUntil") }},
		"of somebody else":      {by: admin, notes: ofMove},
		"one that is no move's": {by: manager},
	} {
		t.Run(name, func(t *testing.T) {
			policy := mutatingPolicy(t, "hanse-gate-next-pods")
			got := policy.mutate(review{by: test.by, in: inShop, of: "pods/eviction", object: eviction(test.notes), params: steering(t, "ReplicaSet", "web-1", test.change)})
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(got)
			if err != nil {
				t.Fatal(err)
			}
			if note := (&unstructured.Unstructured{Object: content}).GetAnnotations()[v1alpha1.AnnotationNextIsGated]; (note == "true") != test.want {
				t.Errorf("it says %q", note)
			}
		})
	}
	evicts := func(notes map[string]string) review {
		return review{by: manager, in: inShop, of: "pods/eviction", object: eviction(notes)}
	}
	expectDecisions(t, validatingPolicy(t, "hanse-own-moves"), map[string]decision{
		"one that is known":     {review: evicts(map[string]string{v1alpha1.AnnotationMove: "u", v1alpha1.AnnotationNextIsGated: "true"})},
		"one that is not":       {review: evicts(ofMove), want: "metadata.annotations: the API server does not know yet"},
		"one that is no move's": {review: evicts(nil)},
	})
}

// The manager says where a gated pod is to run, and changes nothing else of it.
func TestTheManagerSendsGatedPods(t *testing.T) {
	isGated := func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.GateMove}, {Name: "example.org/other"}}
	}
	otherGate := func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/other"}} }
	sent := func(p *corev1.Pod) { p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}} }
	changes := func(namespace string, after ...func(*corev1.Pod)) review {
		return review{by: manager, in: inShop, old: inNamespace(namespace, made("ReplicaSet", isGated)), object: inNamespace(namespace, made("ReplicaSet", after...))}
	}
	for policy, decisions := range map[string]map[string]decision{
		"hanse-own-writes": {
			"where nothing is offloaded": {review: changes("shop", otherGate, sent)},
			"a pod without our gate":     {review: review{by: manager, in: inShop, old: made("ReplicaSet", otherGate), object: made("ReplicaSet")}, want: "metadata.namespace: Hanse writes only"},
		},
		"hanse-own-pods": {
			"its affinity and our gate":   {review: changes("shop", otherGate, sent)},
			"but not the gates of others": {review: changes("shop", sent), want: "spec.schedulingGates: "},
			"nor what it runs":            {review: changes("shop", otherGate, func(p *corev1.Pod) { p.Spec.Containers = []corev1.Container{{Name: "x"}} }), want: "spec: "},
		},
		"hanse-own-moves": {
			"its gate":                              {review: changes("shop", otherGate, sent)},
			"but no labels":                         {review: changes("shop", otherGate, func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }), want: "metadata.labels: "},
			"nor owners":                            {review: changes("shop", otherGate, func(p *corev1.Pod) { p.OwnerReferences = nil }), want: "metadata: "},
			"and not in a namespace of Kubernetes'": {review: changes("kube-system", otherGate), want: "metadata.namespace: "},
		},
	} {
		expectDecisions(t, validatingPolicy(t, policy), decisions)
	}
}
