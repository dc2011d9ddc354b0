// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"reflect"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

// ingressFields says what becomes of each field of spec.
var ingressFields = []fieldLine{
	{"ingressClassName", left, "it names a class of home. The provider sets the one that it has for this consumer, or its default"},
	{"defaultBackend", kept, "where the provider lets this consumer have any host"},
	{"tls", kept, "its Secrets come along. The provider must let this consumer have its hosts"},
	{"rules", kept, "the provider must let this consumer have their hosts. With a backend that is no Service there is no copy"},
}

// wholeIngress has a value in every field.
func wholeIngress() networkingv1.IngressSpec {
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
		Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80},
	}}
	return networkingv1.IngressSpec{
		IngressClassName: new("internal"), DefaultBackend: &backend,
		TLS: []networkingv1.IngressTLS{{Hosts: []string{"www.example.org"}, SecretName: "certificate"}},
		Rules: []networkingv1.IngressRule{{Host: "www.example.org", IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", PathType: new(networkingv1.PathTypePrefix), Backend: backend,
			}}},
		}}},
	}
}

// TestEachFieldOfAnIngressIsDecidedAbout fails when a new version of Kubernetes has one that the table does not know.
func TestEachFieldOfAnIngressIsDecidedAbout(t *testing.T) {
	source := wholeIngress()
	expectFields(t, ingressFields, reflect.ValueOf(source), reflect.ValueOf(ingressOf(&source)))
}

const ingressPageHead = `# What becomes of each field of an Ingress

An Ingress of an offloaded namespace has a copy at each provider that runs pods of the namespace and lets this cluster have its hosts.
The copy is made from the fields in this table of ` + "`spec`" + `, written by ` + "`go test ./internal/reflection -run TestPage -update`" + `, and holds for
Kubernetes 1.37. Its status is the provider's, its labels are those without a domain of Kubernetes or Hanse, and annotations stay at home.
[How Ingresses are reflected](../how-to/ingresses-of-offloaded-namespaces.md) says the rest.

| field | | |
|---|---|---|
`

func TestPageOfIngresses(t *testing.T) {
	expectPage(t, "ingress-fields.md", pageOf(ingressPageHead, ingressFields))
}
