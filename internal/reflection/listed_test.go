// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

var (
	widget  = ListedKind{Group: "example.org", Version: "v1", Kind: "Widget", Omit: []string{"spec.secret"}, Status: true}
	widgets = []ListedKind{widget}
)

func TestKindsAreListed(t *testing.T) {
	got, err := ParseListedKind(`{"group": "example.org", "version": "v1", "kind": "Widget", "omit": ["spec.secret"], "status": true}`)
	if diff := cmp.Diff(widget, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := ParseListedKind(`{"group": "gateway.networking.k8s.io", "version": "v1", "kind": "HTTPRoute"}`); err != nil {
		t.Errorf("HTTPRoute: %v", err)
	}
	for name, text := range map[string]string{
		"nothing":                `{}`,
		"no JSON":                `Widget`,
		"a kind of the core":     `{"group": "", "version": "v1", "kind": "Pod"}`,
		"of Kubernetes":          `{"group": "apps", "version": "v1", "kind": "Deployment"}`,
		"rights":                 `{"group": "rbac.authorization.k8s.io", "version": "v1", "kind": "Role"}`,
		"of a gateway":           `{"group": "gateway.networking.k8s.io", "version": "v1", "kind": "Gateway"}`,
		"of Hanse":               `{"group": "hanse.dev", "version": "v1alpha1", "kind": "ShadowPod"}`,
		"an unknown field":       `{"group": "example.org", "version": "v1", "kind": "Widget", "fields": []}`,
		"a path that is none":    `{"group": "example.org", "version": "v1", "kind": "Widget", "omit": ["spec.list[0]"]}`,
		"longer than a label is": `{"group": "` + strings.Repeat("a", 60) + `.org", "version": "v1", "kind": "Widget"}`,
	} {
		if got, err := ParseListedKind(text); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestNamesOfShadowObjects(t *testing.T) {
	names := map[string]bool{}
	for _, name := range []string{
		ShadowName(Ingress, "web"), ShadowName("Widget.example.org", "web"), ShadowName("Widget.example", "org.web"),
		ShadowName(Ingress, strings.Repeat("w", 253)), ShadowName(Ingress, strings.Repeat("w", 252)), ShadowName(Ingress, strings.Repeat("w.", 126)),
	} {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 || names[name] {
			t.Errorf("%s: %v, or not the first of its name", name, problems)
		}
		names[name] = true
	}
	if got := ShadowName(Ingress, "web"); !strings.HasPrefix(got, "ingress.web-") {
		t.Errorf("got %s", got)
	}
}

// aWidget is one at home.
func aWidget(change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Widget",
		"spec": map[string]any{"size": int64(3), "secret": "x"}, "data": "<more>", "status": map[string]any{"ready": true},
	}}
	object.SetNamespace("shop")
	object.SetName("one")
	object.SetUID("u-1")
	object.SetGeneration(7)
	object.SetResourceVersion("40")
	object.SetLabels(map[string]string{"app": "web", "app.kubernetes.io/name": "web"})
	object.SetAnnotations(map[string]string{"speaks.to/controllers": "here"})
	object.SetFinalizers([]string{"example.org/hold"})
	object.SetOwnerReferences([]metav1.OwnerReference{{Kind: "Deployment", Name: "web"}})
	change(object)
	return object
}

func asItIs(*unstructured.Unstructured) {}

func TestObjectsOfListedKindsGoAsTheyAre(t *testing.T) {
	got, err := widget.Outbound(aWidget(asItIs), "shop-lubeck", ReachAll)
	if err != nil {
		t.Fatal(err)
	}
	want := &v1alpha1.ShadowObject{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop-lubeck", Name: ShadowName("Widget.example.org", "one"),
			Labels: map[string]string{"app": "web", v1alpha1.LabelReflected: "true", v1alpha1.LabelKind: "Widget.example.org"},
			Annotations: map[string]string{
				v1alpha1.AnnotationOriginUID: "u-1", v1alpha1.AnnotationOriginVersion: widget.version(aWidget(asItIs)),
			},
		},
		Spec: v1alpha1.ShadowObjectSpec{
			Group: "example.org", Version: "v1", Kind: "Widget", Name: "one", StatusBack: true,
			Object: `{"data":"\u003cmore\u003e","spec":{"size":3}}`,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestObjectsOfListedKindsThatStay(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*unstructured.Unstructured)
		reach  Reach
		want   string
	}{
		"by their author's will": {func(o *unstructured.Unstructured) {
			o.SetLabels(map[string]string{v1alpha1.LabelSkipReflection: "true"})
		}, ReachAll, "skip-reflection"},
		"too large": {func(o *unstructured.Unstructured) { o.Object["data"] = strings.Repeat("a", 256<<10) }, ReachAll, "at most"},
		"none":      {asItIs, ReachNone, "administrators"},
	} {
		if got, err := widget.Outbound(aWidget(test.change), "t", test.reach); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestVersionsOfListedKinds(t *testing.T) {
	first := widget.version(aWidget(asItIs))
	other := widget
	other.Omit = nil
	for name, test := range map[string]struct {
		kind   ListedKind
		change func(*unstructured.Unstructured)
		same   bool
	}{
		"its status":             {widget, func(o *unstructured.Unstructured) { o.SetResourceVersion("41") }, true},
		"its annotations":        {widget, func(o *unstructured.Unstructured) { o.SetAnnotations(nil) }, true},
		"its spec":               {widget, func(o *unstructured.Unstructured) { o.SetGeneration(8) }, false},
		"its labels":             {widget, func(o *unstructured.Unstructured) { o.SetLabels(nil) }, false},
		"what stays at home":     {other, asItIs, false},
		"without any generation": {widget, func(o *unstructured.Unstructured) { o.SetGeneration(0) }, false},
	} {
		if got := test.kind.version(aWidget(test.change)); (got == first) != test.same {
			t.Errorf("%s: %s after %s", name, got, first)
		}
	}
}

func TestWhichObjectsOfListedKindsGo(t *testing.T) {
	partial := func(name string, change func(*metav1.PartialObjectMetadata)) metav1.PartialObjectMetadata {
		object := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Generation: 1}}
		change(&object)
		return object
	}
	all := []metav1.PartialObjectMetadata{
		partial("plain", func(*metav1.PartialObjectMetadata) {}),
		partial("skipped", func(o *metav1.PartialObjectMetadata) {
			o.Labels = map[string]string{v1alpha1.LabelSkipReflection: "true"}
		}),
		partial("ending", func(o *metav1.PartialObjectMetadata) { o.DeletionTimestamp = &metav1.Time{} }),
		partial("of-others", func(o *metav1.PartialObjectMetadata) {
			o.Labels = map[string]string{v1alpha1.LabelReflected: "true"}
			o.Annotations = map[string]string{v1alpha1.AnnotationOriginUID: "u"}
		}),
	}
	got := map[string]bool{}
	for name, copied := range widget.Sources(all, ReachAll) {
		if name != ShadowName(widget.Name(), copied.Source.Name) {
			t.Errorf("%s is called %s", copied.Source.Name, name)
		}
		got[copied.Source.Name] = copied.Source.Stays == ""
	}
	if diff := cmp.Diff(map[string]bool{"plain": true, "skipped": false}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
