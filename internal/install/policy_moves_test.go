// SPDX-License-Identifier: Apache-2.0

package install

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func podMove(t *testing.T, author string) *unstructured.Unstructured {
	t.Helper()
	object := read(t, `{apiVersion: hanse.dev/v1alpha1, kind: PodMove, metadata: {namespace: shop, name: away, uid: move},
		spec: {pod: {name: web-1, uid: u}, destination: {node: there}}}`)
	if author != "" {
		object.SetAnnotations(map[string]string{v1alpha1.AnnotationAuthor: author})
	}
	return object
}

func elsewhere(t *testing.T, author string) *unstructured.Unstructured {
	t.Helper()
	object := podMove(t, author)
	if err := unstructured.SetNestedMap(object.Object, map[string]any{"elsewhere": "AnyNode"}, "spec", "destination"); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestPodMoveSaysWhoCreatedItAndIsHeld(t *testing.T) {
	policy := mutatingPolicy(t, "hanse-note-moves")
	forged := podMove(t, "somebody else")
	forged.SetFinalizers([]string{"example.org/other"})
	for name, test := range map[string]struct {
		object     *unstructured.Unstructured
		finalizers []string
	}{
		"a plain one":              {podMove(t, ""), []string{v1alpha1.FinalizerPodMove}},
		"one with a forged author": {forged, []string{"example.org/other", v1alpha1.FinalizerPodMove}},
	} {
		t.Run(name, func(t *testing.T) {
			policy.t = t
			got := policy.mutate(review{by: "alice", object: test.object}).(*unstructured.Unstructured) //nolint:forcetypeassert // a patch keeps the type
			if author := got.GetAnnotations()[v1alpha1.AnnotationAuthor]; author != "alice" {
				t.Errorf("the author is %q", author)
			}
			if diff := cmp.Diff(test.finalizers, got.GetFinalizers()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOnlyWhoMayDeleteAndCreatePodsMayMoveThem(t *testing.T) {
	expectDecisions(t, validatingPolicy(t, "hanse-guard-moves"), map[string]decision{
		"who may both":                              {review: review{by: "alice", object: podMove(t, "alice"), may: []string{"delete pods web-1", "create pods"}}},
		"who may not create":                        {review: review{by: "alice", object: podMove(t, "alice"), may: []string{"delete pods web-1"}}, want: "metadata.namespace: only who may create"},
		"who may not delete":                        {review: review{by: "alice", object: podMove(t, "alice"), may: []string{"delete pods web-2", "create pods"}}, want: "spec.pod: only who may delete"},
		"hanse kubelet, from a marked namespace":    {review: review{by: kubelet, in: inMarked, object: elsewhere(t, kubelet), may: []string{"delete pods web-1"}}},
		"hanse kubelet, from any other":             {review: review{by: kubelet, in: inShop, object: elsewhere(t, kubelet), may: []string{"delete pods web-1"}}, want: "metadata.namespace: only who may create"},
		"hanse kubelet, to a node of its choice":    {review: review{by: kubelet, in: inMarked, object: podMove(t, kubelet), may: []string{"delete pods web-1"}}, want: "metadata.namespace: only who may create"},
		"others, from a marked namespace elsewhere": {review: review{by: "alice", in: inMarked, object: elsewhere(t, "alice"), may: []string{"delete pods web-1"}}, want: "metadata.namespace: only who may create"},
		"in the name of another":                    {review: review{by: "alice", object: podMove(t, "bob"), may: []string{"delete pods web-1", "create pods"}}, want: "metadata.annotations: hanse.dev/author"},
		"in the system's namespaces":                {review: review{by: "alice", object: inNamespace("kube-system", podMove(t, "alice")), may: []string{"delete pods web-1", "create pods"}}, want: "metadata.namespace: pods in"},
		"a change by another":                       {review: review{by: "bob", old: podMove(t, "alice"), object: podMove(t, "alice")}},
		"but not of who it is by":                   {review: review{by: "bob", old: podMove(t, "alice"), object: podMove(t, "bob")}, want: "metadata.annotations: hanse.dev/author"},
	})
}

func TestTheManagerOnlyMovesPodsOfUsers(t *testing.T) {
	pod := func(change ...func(*corev1.Pod)) *corev1.Pod {
		made := withKind(&corev1.Pod{ObjectMeta: in("shop", "web")}, "", "v1", "Pod")
		made.Labels, made.Annotations = map[string]string{"app": "web"}, map[string]string{"note": "x"}
		for _, c := range change {
			c(made)
		}
		return made
	}
	isCopy := func(p *corev1.Pod) {
		p.Annotations[v1alpha1.AnnotationMove] = "move"
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PodMove", Name: "away", UID: "move"}}
	}
	owner := func(change func(*metav1.OwnerReference)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { change(&p.OwnerReferences[0]) }
	}
	cost := func(p *corev1.Pod) { p.Annotations[corev1.PodDeletionCost] = "1" }
	label := func(p *corev1.Pod) { p.Labels = maps.Clone(p.Labels); p.Labels["pod-template-hash"] = "1" }
	note := func(p *corev1.Pod) { p.Annotations["note"] = "y" }
	free := func(p *corev1.Pod) { p.OwnerReferences = nil }
	unmarked := func(p *corev1.Pod) { delete(p.Annotations, v1alpha1.AnnotationMove) }
	of := func(r review) review {
		r.by, r.in = manager, inShop
		return r
	}
	creates := func(change ...func(*corev1.Pod)) review { return of(review{object: pod(change...)}) }
	changes := func(before, after *corev1.Pod) review { return of(review{old: before, object: after}) }
	eviction := withKind(&policyv1.Eviction{ObjectMeta: in("shop", "web")}, "policy", "v1", "Eviction")
	const noCopy, noCost, noLabel = "metadata.ownerReferences: ", "metadata: ", "metadata.labels: "

	expectDecisions(t, validatingPolicy(t, "hanse-own-moves"), map[string]decision{
		"a copy":                                  {review: creates(isCopy)},
		"a pod of its own":                        {review: creates(), want: noCopy},
		"one that only says it is a copy":         {review: creates(isCopy, free), want: noCopy},
		"one of another move":                     {review: creates(isCopy, owner(func(o *metav1.OwnerReference) { o.UID = "x" })), want: noCopy},
		"one of another kind":                     {review: creates(isCopy, owner(func(o *metav1.OwnerReference) { o.Kind = "Peer" })), want: noCopy},
		"one that the move controls":              {review: creates(isCopy, owner(func(o *metav1.OwnerReference) { o.Controller = ptr.To(true) })), want: noCopy},
		"the end of a copy":                       {review: of(review{old: pod(isCopy)})},
		"the end of another pod":                  {review: of(review{old: pod()}), want: "Hanse's manager deletes"},
		"an eviction":                             {review: of(review{of: "pods/eviction", object: eviction})},
		"the cost of a pod":                       {review: changes(pod(), pod(cost))},
		"and back":                                {review: changes(pod(cost), pod())},
		"another annotation":                      {review: changes(pod(), pod(note)), want: noCost},
		"no annotation at all":                    {review: changes(pod(), pod(func(p *corev1.Pod) { p.Annotations = nil })), want: noCost},
		"labels of a pod":                         {review: changes(pod(), pod(label)), want: noLabel},
		"that a pod becomes a copy":               {review: changes(pod(), pod(isCopy)), want: noCost},
		"owners of a pod":                         {review: changes(pod(), pod(func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet"}} })), want: noCost},
		"a copy is handed over":                   {review: changes(pod(isCopy), pod(isCopy, free, label, cost))},
		"a copy loses labels":                     {review: changes(pod(isCopy, label), pod(isCopy)), want: noLabel},
		"a copy is settled":                       {review: changes(pod(isCopy, free, cost), pod())},
		"a copy is let go and settled at once":    {review: changes(pod(isCopy), pod())},
		"a copy gets another owner":               {review: changes(pod(isCopy), pod(isCopy, owner(func(o *metav1.OwnerReference) { o.Kind = "ReplicaSet" }))), want: noCost},
		"a copy in a namespace of Kubernetes":     {review: of(review{object: inNamespace("kube-system", pod(isCopy))}), want: "metadata.namespace: "},
		"an eviction in one of Hanse":             {review: of(review{of: "pods/eviction", object: inNamespace("hanse-system", eviction.DeepCopy())}), want: "metadata.namespace: "},
		"users do what they like":                 {review: review{by: admin, in: inShop, object: pod()}},
		"twins have other guards":                 {review: review{by: manager, in: inTwin, object: pod()}},
		"what is no move is looked at elsewhere":  {review: changes(pod(), pod(func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x"}} }))},
		"a copy that was settled is a pod as any": {review: of(review{old: pod(isCopy, unmarked, free)}), want: "Hanse's manager deletes"},
	})
}

func inNamespace[T metav1.Object](namespace string, object T) T {
	object.SetNamespace(namespace)
	return object
}
