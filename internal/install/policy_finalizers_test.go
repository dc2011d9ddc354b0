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
	policy := validatingPolicy(t, "hanse-finalizers")
	for name, test := range map[string]struct {
		by          string
		old, object []string
		create      bool
		want        string
	}{
		"the manager takes one off":             {by: manager, old: []string{held}},
		"a peer may not":                        {by: peer, old: []string{held}, want: "only Hanse's manager"},
		"nor from a mapping":                    {by: peer, old: []string{mapped}, want: "only Hanse's manager"},
		"nor may anybody else":                  {by: admin, old: []string{held}, want: "only Hanse's manager"},
		"an administrator takes others off":     {by: admin, old: []string{held, foreign}, object: []string{held}},
		"a peer changes nothing":                {by: peer, old: []string{held}, object: []string{held}},
		"a peer changes what others hold":       {by: peer, old: []string{held, foreign}, object: []string{held, foreign}},
		"a peer puts one on":                    {by: peer, old: []string{held}, object: []string{held, foreign}, want: "a peer may not put"},
		"a peer creates with one":               {by: peer, create: true, object: []string{foreign}, want: "a peer may not put"},
		"a peer creates without":                {by: peer, create: true},
		"a peer creates, and it is held":        {by: peer, create: true, object: []string{held}},
		"an administrator creates one with one": {by: admin, create: true, object: []string{foreign}},
	} {
		t.Run(name, func(t *testing.T) {
			r := review{object: shadowPod(test.object), by: test.by}
			if !test.create {
				r.old = shadowPod(test.old)
			}
			got := strings.Join(policy.validate(r), "; ")
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("refused with %q, want %q", got, test.want)
			}
		})
	}
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
	pod := withKind(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}, "", "v1", "Pod")
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
