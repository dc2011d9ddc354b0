// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// terms let a peer have hosts below example.org, and widgets.
func terms() Terms {
	return Terms{
		Peer: &v1alpha1.PeerSpec{
			Ingress: &v1alpha1.PeerIngress{Hosts: []string{"*.example.org"}},
			Objects: []v1alpha1.AllowedKind{{Group: "example.org", Kind: "Widget"}, {Group: HTTPRoute.Group, Kind: HTTPRoute.Kind}},
		},
		Allowed: []schema.GroupKind{widget.GroupKind(), HTTPRoute},
	}
}

func asking(group, version, kind, object string) *v1alpha1.ShadowObject {
	return &v1alpha1.ShadowObject{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop-lubeck", Name: "one-1", UID: "u-2",
			Labels:      map[string]string{"app": "web", v1alpha1.LabelKind: kind, v1alpha1.LabelReflected: "true"},
			Annotations: map[string]string{v1alpha1.AnnotationOriginUID: "u-1"},
		},
		Spec: v1alpha1.ShadowObjectSpec{Group: group, Version: version, Kind: kind, Name: "one", Object: object},
	}
}

func askingWidget(object string) *v1alpha1.ShadowObject {
	return asking("example.org", "v1", "Widget", object)
}

// askingIngress is for an Ingress of the host, with changes.
func askingIngress(t *testing.T, host string, change func(*networkingv1.IngressSpec)) *v1alpha1.ShadowObject {
	t.Helper()
	spec := wholeIngress()
	spec.DefaultBackend, spec.TLS, spec.Rules[0].Host = nil, nil, host
	change(&spec)
	text, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	return asking("networking.k8s.io", "v1", "Ingress", string(text))
}

func TestAProviderMakesObjectsOfAllowedKinds(t *testing.T) {
	got, err := Make(askingWidget(`{"spec": {"size": 3}, "metadata": {"finalizers": ["x"], "name": "other"}, "status": {"ready": true}}`), terms())
	if err != nil {
		t.Fatal(err)
	}
	if version := got.GetAnnotations()[v1alpha1.AnnotationOriginVersion]; version == "" || !IsCopy(got) {
		t.Errorf("annotations %v", got.GetAnnotations())
	}
	got.SetAnnotations(nil)
	want := map[string]any{
		"apiVersion": "example.org/v1", "kind": "Widget", "spec": map[string]any{"size": int64(3)},
		"metadata": map[string]any{
			"namespace": "shop-lubeck", "name": "one", "labels": map[string]any{"app": "web", v1alpha1.LabelReflected: "true"},
			"ownerReferences": []any{map[string]any{
				"apiVersion": "hanse.dev/v1alpha1", "kind": "ShadowObject", "name": "one-1", "uid": "u-2",
				"controller": true, "blockOwnerDeletion": true,
			}},
		},
	}
	if diff := cmp.Diff(want, got.Object); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAProviderGivesIngressesItsOwnClass(t *testing.T) {
	for class, want := range map[string]*string{"": nil, "public": new("public")} {
		terms := terms()
		terms.Peer.Ingress.ClassName = class
		got, err := Make(askingIngress(t, "www.example.org", func(s *networkingv1.IngressSpec) { s.IngressClassName = new("internal") }), terms)
		if err != nil {
			t.Fatal(err)
		}
		found, ok, _ := unstructured.NestedString(got.Object, "spec", "ingressClassName")
		if ok != (want != nil) || ok && found != *want {
			t.Errorf("class %q is %q", class, found)
		}
	}
}

func TestWhatAProviderDenies(t *testing.T) {
	resource := networkingv1.IngressBackend{Resource: &corev1.TypedLocalObjectReference{Kind: "Bucket", Name: "b"}}
	none := func(*networkingv1.IngressSpec) {}
	unnamed, unlisted := terms(), terms()
	unnamed.Peer.Objects, unnamed.Peer.Ingress, unlisted.Allowed = nil, nil, nil
	hostless := terms()
	hostless.Peer.Ingress.Hosts = []string{"*"}
	const notAllowed, noHost, refused = v1alpha1.ReasonKindNotAllowed, v1alpha1.ReasonHostNotAllowed, v1alpha1.ReasonObjectRefused
	for name, test := range map[string]struct {
		shadow *v1alpha1.ShadowObject
		terms  Terms
		reason string
		want   string
	}{
		"a widget":                            {askingWidget(`{}`), terms(), "", ""},
		"a kind that the Peer does not name":  {askingWidget(`{}`), unnamed, notAllowed, "spec.objects"},
		"a kind to which there are no rights": {askingWidget(`{}`), unlisted, notAllowed, "allowedKinds"},
		"a pod":                               {asking("", "v1", "Pod", `{}`), terms(), notAllowed, "past all checks"},
		"rights":                              {asking("rbac.authorization.k8s.io", "v1", "Role", `{}`), terms(), notAllowed, "past all checks"},
		"no JSON":                             {askingWidget(`{`), terms(), refused, "spec.object"},
		"a list":                              {askingWidget(`[]`), terms(), refused, "spec.object"},
		"too large":                           {askingWidget(`{"a": "` + strings.Repeat("a", 256<<10) + `"}`), terms(), refused, "at most"},
		"an Ingress":                          {askingIngress(t, "www.example.org", none), terms(), "", ""},
		"a wildcard":                          {askingIngress(t, "*.shop.example.org", none), terms(), "", ""},
		"the domain itself":                   {askingIngress(t, "example.org", none), terms(), noHost, `"example.org"`},
		"another domain":                      {askingIngress(t, "www.bank.com", none), terms(), noHost, `"www.bank.com"`},
		"a domain that ends alike":            {askingIngress(t, "www.badexample.org", none), terms(), noHost, "www.badexample.org"},
		"an Ingress where none are allowed":   {askingIngress(t, "www.example.org", none), unnamed, noHost, "spec.ingress.hosts"},
		"any host":                            {askingIngress(t, "", none), terms(), noHost, "any host"},
		"any host where that is allowed":      {askingIngress(t, "", none), hostless, "", ""},
		"a default backend": {askingIngress(t, "www.example.org", func(s *networkingv1.IngressSpec) {
			s.DefaultBackend = wholeIngress().DefaultBackend
		}), terms(), noHost, "any host"},
		"a certificate for another": {askingIngress(t, "www.example.org", func(s *networkingv1.IngressSpec) {
			s.TLS = []networkingv1.IngressTLS{{Hosts: []string{"www.bank.com"}}}
		}), terms(), noHost, "www.bank.com"},
		"no rule":           {asking("networking.k8s.io", "v1", "Ingress", `{"spec": {}}`), terms(), noHost, "no host"},
		"no Ingress":        {asking("networking.k8s.io", "v1", "Ingress", `{"spec": 3}`), terms(), refused, "no Ingress"},
		"an old Ingress":    {asking("networking.k8s.io", "v1beta1", "Ingress", `{}`), terms(), v1alpha1.ReasonDefinitionMissing, "v1"},
		"a network policy":  {asking("networking.k8s.io", "v1", "NetworkPolicy", `{}`), terms(), notAllowed, "past all checks"},
		"a foreign backend": {askingIngress(t, "www.example.org", func(s *networkingv1.IngressSpec) { s.Rules[0].HTTP.Paths[0].Backend = resource }), terms(), refused, "no Service"},
	} {
		_, err := Make(test.shadow, test.terms)
		denial, _ := errors.AsType[*Denial](err)
		if (test.reason == "") != (err == nil) || denial != nil && (denial.Reason != test.reason || !strings.Contains(denial.Message, test.want)) {
			t.Errorf("%s: %v, want %s", name, err, test.reason)
		}
	}
}

func TestRoutesGetTheGatewayOfTheProvider(t *testing.T) {
	route := func(spec string) *v1alpha1.ShadowObject {
		return asking(HTTPRoute.Group, "v1", HTTPRoute.Kind, `{"spec": `+spec+`}`)
	}
	mine := route(`{"hostnames": ["www.example.org"], "parentRefs": [{"name": "theirs"}]}`)
	if _, err := Make(mine, terms()); err == nil || !strings.Contains(err.Error(), "spec.ingress.gateway") {
		t.Errorf("without a Gateway: %v", err)
	}
	withGateway := terms()
	withGateway.Peer.Ingress.Gateway = &v1alpha1.GatewayReference{Namespace: "web", Name: "public"}
	got, err := Make(mine, withGateway)
	if err != nil {
		t.Fatal(err)
	}
	parents, _, _ := unstructured.NestedSlice(got.Object, "spec", "parentRefs")
	if diff := cmp.Diff([]any{map[string]any{"namespace": "web", "name": "public"}}, parents); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, spec := range []string{`{}`, `{"hostnames": ["www.bank.com"]}`, `{"hostnames": "www.example.org"}`, `3`} {
		if got, err := Make(route(spec), withGateway); err == nil {
			t.Errorf("%s becomes %v", spec, got)
		}
	}
}

func TestWhoeverHasAHostKeepsIt(t *testing.T) {
	at := func(namespace string, minute int, hosts ...string) networkingv1.Ingress {
		made := networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "web", CreationTimestamp: metav1.NewTime(time.Unix(int64(60*minute), 0)),
		}}
		for _, host := range hosts {
			made.Spec.Rules = append(made.Spec.Rules, networkingv1.IngressRule{Host: host})
		}
		return made
	}
	mine := at("b", 5, "www.example.org")
	for name, test := range map[string]struct {
		wanted []string
		found  *networkingv1.Ingress
		other  networkingv1.Ingress
		taken  bool
	}{
		"nobody has it":                  {[]string{"www.example.org"}, nil, at("a", 1, "shop.example.org"), false},
		"another has it":                 {[]string{"www.example.org"}, nil, at("a", 9, "www.example.org"), true},
		"one in the same namespace":      {[]string{"www.example.org"}, nil, at("b", 1, "www.example.org"), false},
		"ours is older":                  {[]string{"www.example.org"}, &mine, at("a", 9, "www.example.org"), false},
		"ours is newer":                  {[]string{"www.example.org"}, &mine, at("a", 1, "www.example.org"), true},
		"of the same second, the first":  {[]string{"www.example.org"}, &mine, at("a", 5, "www.example.org"), true},
		"of the same second, the second": {[]string{"www.example.org"}, &mine, at("c", 5, "www.example.org"), false},
		"ours is older, without it":      {[]string{"www.example.org", "new.example.org"}, &mine, at("a", 9, "new.example.org"), true},
		"under a wildcard of another":    {[]string{"www.example.org"}, nil, at("a", 1, "*.example.org"), true},
		"a wildcard over another's":      {[]string{"*.example.org"}, nil, at("a", 1, "www.example.org"), true},
		"two labels below a wildcard":    {[]string{"a.b.example.org"}, nil, at("a", 1, "*.example.org"), false},
		"any host":                       {[]string{""}, nil, at("a", 1, ""), true},
		"any host, where one has one":    {[]string{""}, nil, at("a", 1, "www.example.org"), false},
	} {
		err := CheckHosts(test.wanted, "b", test.found, []networkingv1.Ingress{test.other, mine})
		denial, _ := errors.AsType[*Denial](err)
		if taken := denial != nil && denial.Reason == v1alpha1.ReasonHostTaken; taken != test.taken {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatIsAddedMakesNoDifference(t *testing.T) {
	wanted := map[string]any{"spec": map[string]any{"size": int64(3), "list": []any{map[string]any{"a": "b"}}, "off": false}}
	for name, test := range map[string]struct {
		found string
		want  bool
	}{
		"the same":               {`{"spec": {"size": 3, "list": [{"a": "b"}], "off": false}}`, true},
		"with defaults":          {`{"spec": {"size": 3, "list": [{"a": "b", "c": 1}], "off": false, "more": {}}, "status": {}}`, true},
		"another size":           {`{"spec": {"size": 4, "list": [{"a": "b"}], "off": false}}`, false},
		"on":                     {`{"spec": {"size": 3, "list": [{"a": "b"}], "off": true}}`, false},
		"a longer list":          {`{"spec": {"size": 3, "list": [{"a": "b"}, {}], "off": false}}`, false},
		"without a field":        {`{"spec": {"size": 3, "list": [{"a": "b"}]}}`, false},
		"a text instead of that": {`{"spec": "size"}`, false},
	} {
		found, err := decode(test.found)
		if err != nil {
			t.Fatal(err)
		}
		if got := Includes(found, wanted); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// FuzzMake looks for an object that a provider would make with metadata of the peer's choice, or that crashes it.
func FuzzMake(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"spec": {"rules": [{"host": "www.example.org"}]}}`, `{"metadata": {"finalizers": ["x"]}}`, `null`, `{"spec": {"hostnames": [1]}}`,
	} {
		f.Add("Widget", text)
		f.Add("Ingress", text)
		f.Add("HTTPRoute", text)
	}
	groups := map[string]string{"Widget": "example.org", "Ingress": "networking.k8s.io", "HTTPRoute": HTTPRoute.Group}
	f.Fuzz(func(t *testing.T, kind, text string) {
		made, err := Make(asking(groups[kind], "v1", kind, text), terms())
		if err != nil {
			return
		}
		owner := metav1.GetControllerOf(made)
		if made.GetNamespace() != "shop-lubeck" || made.GetName() != "one" || len(made.GetFinalizers()) > 0 || owner == nil || owner.UID != "u-2" {
			t.Errorf("%s becomes %v", text, made.Object["metadata"])
		}
	})
}
