// SPDX-License-Identifier: Apache-2.0

package install

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/reflection"
)

func shadowObject(change func(*v1alpha1.ShadowObject)) *v1alpha1.ShadowObject {
	made := withKind(&v1alpha1.ShadowObject{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop-turin", Name: "ingress.web-1", Labels: map[string]string{v1alpha1.LabelReflected: "true", v1alpha1.LabelKind: "Ingress"},
			Annotations: map[string]string{v1alpha1.AnnotationOriginUID: "u", v1alpha1.AnnotationOriginVersion: "1"},
		},
		Spec: v1alpha1.ShadowObjectSpec{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress", Name: "web", Object: `{"spec":{}}`},
	}, "hanse.dev", "v1alpha1", "ShadowObject")
	change(made)
	return made
}

func TestShadowObjectsAreGuarded(t *testing.T) {
	makes := func(change func(*v1alpha1.ShadowObject)) review {
		return review{by: peer, in: inTwin, object: shadowObject(change)}
	}
	expectDecisions(t, validatingPolicy(t, "hanse-guard-objects"), map[string]decision{
		"one that says of what it is a copy": {review: makes(asItIs)},
		"of another peer":                    {review: makes(func(s *v1alpha1.ShadowObject) { s.Labels[v1alpha1.LabelPeer] = "milan" }), want: "metadata.labels"},
		"with an owner": {review: makes(func(s *v1alpha1.ShadowObject) {
			s.OwnerReferences = []metav1.OwnerReference{{Kind: "Namespace", Name: "x", UID: "u"}}
		}), want: "metadata.ownerReferences"},
		"that nobody may delete": {review: makes(func(s *v1alpha1.ShadowObject) { s.Finalizers = []string{"x.org/hold"} }), want: "metadata.finalizers"},
	})
	weighs := func(count, text string) review {
		r := makes(func(s *v1alpha1.ShadowObject) { s.Spec.Object = text })
		r.in, r.params = twinWithRoom("1048576"), holding(map[corev1.ResourceName]string{"count/shadowobjects.hanse.dev": count})
		return r
	}
	large := strings.Repeat("a", 256<<10)
	expectDecisions(t, validatingPolicy(t, "hanse-guard-bytes"), map[string]decision{
		"the largest":                  {review: weighs("0", large)},
		"one that is too large":        {review: weighs("0", large+"a"), want: "spec.object: at most"},
		"one that is not escaped":      {review: weighs("0", `{"a": "<"}`), want: "spec.pod, spec.onward and spec.object are sent"},
		"a large one beside others":    {review: weighs("9", large), want: "the provider has no room"},
		"a small one beside others":    {review: weighs("900", `{}`)},
		"a text of nothing but quotes": {review: weighs("2", strings.Repeat(`"`, 200<<10)), want: "the provider has no room"},
	})
}

func TestTheManagerWritesNoObjectsButThoseOfPeers(t *testing.T) {
	of := func(change func(*networkingv1.Ingress)) *networkingv1.Ingress {
		made := withKind(&networkingv1.Ingress{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop-turin", Name: "web", Annotations: map[string]string{"a": "b"}, OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "hanse.dev/v1alpha1", Kind: "ShadowObject", Name: "ingress.web-1", UID: "u", Controller: new(true),
				}},
			},
			Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "www.example.org"}}},
		}, "networking.k8s.io", "v1", "Ingress")
		change(made)
		return made
	}
	users := func(change func(*networkingv1.Ingress)) *networkingv1.Ingress {
		return of(func(i *networkingv1.Ingress) {
			i.Namespace, i.OwnerReferences = "shop", nil
			change(i)
		})
	}
	by := func(in map[string]string, old, object runtime.Object) review {
		return review{by: manager, in: in, old: old, object: object}
	}
	addressed := func(i *networkingv1.Ingress) { i.Annotations[v1alpha1.AnnotationAddressAt+"turin"] = "192.0.2.1" }
	isOfUsers := by(inShop, users(asItIs), users(func(i *networkingv1.Ingress) { i.Spec = networkingv1.IngressSpec{} }))
	isOfUsers.by = admin
	const only = "Hanse's manager writes only"
	expectDecisions(t, validatingPolicy(t, "hanse-own-objects"), map[string]decision{
		"one that a peer asks for":           {review: by(inTwin, nil, of(asItIs))},
		"a change of it":                     {review: by(inTwin, of(asItIs), of(addressed))},
		"its end":                            {review: by(inTwin, of(asItIs), nil)},
		"one that nobody asked for":          {review: by(inTwin, nil, users(asItIs)), want: only},
		"one of the provider, taken":         {review: by(inTwin, users(asItIs), of(asItIs)), want: only},
		"one of the provider, ended":         {review: by(inTwin, users(asItIs), nil), want: only},
		"one that looks like a peer's":       {review: by(inShop, nil, of(asItIs)), want: only},
		"an address on a user's":             {review: by(inShop, users(asItIs), users(addressed))},
		"an address that is taken off":       {review: by(inShop, users(addressed), users(asItIs))},
		"another annotation":                 {review: by(inShop, users(asItIs), users(func(i *networkingv1.Ingress) { i.Annotations["a"] = "c" })), want: only},
		"a label":                            {review: by(inShop, users(asItIs), users(func(i *networkingv1.Ingress) { i.Labels = map[string]string{"a": "b"} })), want: only},
		"its rules":                          {review: by(inShop, users(asItIs), users(func(i *networkingv1.Ingress) { i.Spec.Rules = nil })), want: only},
		"a user's that is made":              {review: by(inShop, nil, users(addressed)), want: only},
		"a user's that ends":                 {review: by(inShop, users(asItIs), nil), want: only},
		"users do what they like with those": {review: isOfUsers},
	})
}

func TestTheManagerInstallsNoDefinitionsButThoseThatAreKept(t *testing.T) {
	o := options()
	o.Values = map[string]any{"allowedKinds": []any{
		map[string]any{"group": "example.org", "version": "v1", "kind": "Widget", "resource": "widgets", "definition": "widgets"},
		map[string]any{"group": "example.org", "version": "v1", "kind": "Gadget", "resource": "gadgets"},
	}}
	named := func(name string, change func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
		made := withKind(&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{Scope: apiextensionsv1.NamespaceScoped},
		}, "apiextensions.k8s.io", "v1", "CustomResourceDefinition")
		change(made)
		return made
	}
	widgets := named("widgets.example.org", asItIs)
	webhook := named("widgets.example.org", func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter}
	})
	clusters := named("widgets.example.org", func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Scope = apiextensionsv1.ClusterScoped })
	const only = "Hanse's manager only creates definitions"
	expectDecisions(t, validatingPolicyOf(t, o, "hanse-own-definitions"), map[string]decision{
		"one that is kept":            {review: review{by: manager, object: widgets}},
		"its end":                     {review: review{by: manager, old: widgets}, want: only},
		"a change of it":              {review: review{by: manager, old: widgets, object: widgets}, want: only},
		"one that is not kept":        {review: review{by: manager, object: named("gadgets.example.org", asItIs)}, want: only},
		"one with a webhook":          {review: review{by: manager, object: webhook}, want: only},
		"one of no namespace":         {review: review{by: manager, object: clusters}, want: only},
		"administrators do as always": {review: review{by: admin, object: webhook}},
	})
	creates := func(o Options) bool {
		return slices.ContainsFunc(rulesOf(t, find(t, mustRender(t, o), "ClusterRole", "hanse-manager")), func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.Resources, "customresourcedefinitions")
		})
	}
	if !creates(o) || creates(options()) {
		t.Error("the right to create definitions is there where none is kept, or the other way around")
	}
}

func TestKindsThatCannotBeListed(t *testing.T) {
	for name, kind := range map[string]map[string]any{
		"of the core":   {"group": "v1", "version": "v1", "kind": "Pod", "resource": "pods"},
		"of Kubernetes": {"group": "apps", "version": "v1", "kind": "Deployment", "resource": "deployments"},
		"rights":        {"group": "rbac.authorization.k8s.io", "version": "v1", "kind": "Role", "resource": "roles"},
		"of Hanse":      {"group": "hanse.dev", "version": "v1alpha1", "kind": "ShadowPod", "resource": "shadowpods"},
		"a gateway":     {"group": "gateway.networking.k8s.io", "version": "v1", "kind": "Gateway", "resource": "gateways"},
		"no resource":   {"group": "example.org", "version": "v1", "kind": "Widget"},
	} {
		for _, list := range []string{"reflectedKinds", "allowedKinds"} {
			o := options()
			o.Values = map[string]any{list: []any{kind}}
			if _, err := Render(o); err == nil {
				t.Errorf("%s in %s: no error", name, list)
			}
		}
	}
}

func TestRightsToListedKinds(t *testing.T) {
	o := options()
	widget := map[string]any{"group": "example.org", "version": "v1", "kind": "Widget", "resource": "widgets", "definition": "of-widgets"}
	gadget := map[string]any{"group": "example.org", "version": "v1", "kind": "Gadget", "resource": "gadgets", "status": true}
	o.Values = map[string]any{"allowedKinds": []any{widget}, "reflectedKinds": []any{gadget}}
	m := mustRender(t, o)
	verbs := map[string]string{}
	for _, role := range []string{v1alpha1.ClusterRoleManagerInTwin, "hanse-manager"} {
		for _, rule := range rulesOf(t, find(t, m, "ClusterRole", role)) {
			if rule.APIGroups[0] == "example.org" {
				verbs[role+" "+rule.Resources[0]] = strings.Join(rule.Verbs, " ")
			}
		}
	}
	for what, want := range map[string]string{
		"hanse-manager-in-twin widgets": "get create update delete", "hanse-manager widgets": "list watch",
		"hanse-manager gadgets": "get list watch", "hanse-manager gadgets/status": "patch",
	} {
		if verbs[what] != want {
			t.Errorf("%s: %q, want %q", what, verbs[what], want)
		}
		delete(verbs, what)
	}
	if len(verbs) > 0 {
		t.Errorf("and besides %v", verbs)
	}
	containers, _, _ := unstructured.NestedSlice(find(t, m, "Deployment", "hanse-manager").Object, "spec", "template", "spec", "containers")
	args, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	for flag, want := range map[string]reflection.ListedKind{
		"--reflect-kind=": {Group: "example.org", Version: "v1", Kind: "Gadget", Status: true},
		"--allow-kind=":   {Group: "example.org", Version: "v1", Kind: "Widget", Definition: "of-widgets"},
	} {
		i := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, flag) })
		if i < 0 {
			t.Fatalf("no %s in %v", flag, args)
		}
		if got, err := reflection.ParseListedKind(strings.TrimPrefix(args[i], flag)); err != nil || !cmp.Equal(want, got) {
			t.Errorf("%s is %v (%v)", args[i], got, err)
		}
	}
}
