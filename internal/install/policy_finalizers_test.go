// SPDX-License-Identifier: Apache-2.0

package install

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	held    = "hanse.dev/shadow-pod"
	mapped  = "hanse.dev/namespace-mapping"
	foreign = "example.com/mine"

	manager = "system:serviceaccount:hanse-system:hanse-manager"
	kubelet = "system:serviceaccount:hanse-system:hanse-kubelet"
	peer    = "system:serviceaccount:hanse-peer-turin:hanse-peer"
	admin   = "kubernetes-admin"
)

func TestShadowPodsAreHeldFromTheBeginning(t *testing.T) {
	policy := mutatingPolicy(t, "hanse-hold-shadow-pods")
	for name, test := range map[string]struct{ before, want []string }{
		"without finalizers":   {nil, []string{held}},
		"with another":         {[]string{foreign}, []string{foreign, held}},
		"that are held before": {[]string{held}, []string{held}},
	} {
		t.Run(name, func(t *testing.T) {
			got := policy.mutate(review{object: shadowPod(test.before)}).(*unstructured.Unstructured).GetFinalizers()
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("finalizers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFinalizersAreTheManagersAlone(t *testing.T) {
	changes := func(by string, before, after []string) review {
		return review{by: by, old: shadowPod(before), object: shadowPod(after)}
	}
	const refused = "metadata.finalizers: only Hanse's manager"
	expectDecisions(t, validatingPolicy(t, "hanse-finalizers"), map[string]decision{
		"the manager takes one off":          {review: changes(manager, []string{held}, nil)},
		"a peer may not":                     {review: changes(peer, []string{held}, nil), want: refused},
		"nor from a mapping":                 {review: changes(peer, []string{mapped}, nil), want: refused},
		"nor may anybody else":               {review: changes(admin, []string{held}, nil), want: refused},
		"an administrator takes others off":  {review: changes(admin, []string{held, foreign}, []string{held})},
		"a peer changes nothing":             {review: changes(peer, []string{held}, []string{held})},
		"an administrator puts their own on": {review: changes(admin, []string{held}, []string{held, foreign})},
	})
}

func shadowPod(finalizers []string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "hanse.dev/v1alpha1", "kind": "ShadowPod",
		"metadata": map[string]any{"name": "web", "namespace": "shop-lubeck-abcdef"},
	}}
	if finalizers != nil {
		object.SetFinalizers(finalizers)
	}
	return object
}

// podWith is a pod with the given fields of its spec, one per line of YAML.
func podWith(t *testing.T, spec string) *corev1.Pod {
	t.Helper()
	pod := withKind(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u-1"}}, "", "v1", "Pod")
	if err := yaml.UnmarshalStrict([]byte(spec), &pod.Spec); err != nil {
		t.Fatal(err)
	}
	if len(pod.Spec.Containers) == 0 {
		pod.Spec.Containers = []corev1.Container{{Name: "web", Image: "web"}}
	}
	return pod
}

func controllerRef(version, kind string) *metav1.OwnerReference {
	yes := true
	return &metav1.OwnerReference{APIVersion: version, Kind: kind, Name: "owner", UID: "uid", Controller: &yes}
}

// indent makes YAML the value of a key.
func indent(text string) string { return strings.ReplaceAll("\n"+text, "\n", "\n  ") }
