// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Ingresses returns what a twin gets of the Ingresses of a namespace: ShadowObjects, by their own names.
func Ingresses(all []networkingv1.Ingress, reach Reach) map[string]Copy {
	copies := map[string]Copy{}
	for i := range all {
		source := &all[i]
		stays := reach.Stays(source)
		if source.DeletionTimestamp != nil || IsCopy(source) || stays != "" && !isSkipped(source) {
			continue
		}
		made := Copy{Source: Source{UID: source.UID, Stays: stays}}
		if stays == "" {
			made = ingressCopy(source)
		}
		made.Source.Name = source.Name
		copies[ShadowName(Ingress, source.Name)] = made
	}
	return copies
}

func ingressCopy(source *networkingv1.Ingress) Copy {
	spec := ingressOf(&source.Spec)
	stays := foreignBackend(&spec)
	out, err := shadowOf(source, Ingress, Ingress.Home(), map[string]any{"spec": spec})
	if refusal, refused := errors.AsType[Refusal](err); refused {
		stays = refusal
	}
	if stays != "" {
		return Copy{Source: Source{UID: source.UID, Stays: stays}}
	}
	return signed(source, out)
}

// ingressOf returns the spec of the copy. A table in the tests says what becomes of each field, and why.
func ingressOf(from *networkingv1.IngressSpec) networkingv1.IngressSpec {
	return networkingv1.IngressSpec{DefaultBackend: from.DefaultBackend, TLS: from.TLS, Rules: from.Rules}
}

// foreignBackend says why an Ingress does not go that leads to something else than a Service.
func foreignBackend(spec *networkingv1.IngressSpec) Refusal {
	isForeign := func(b networkingv1.IngressBackend) bool { return b.Resource != nil }
	if slices.ContainsFunc(backendsOf(spec), isForeign) {
		return "one of its backends is no Service"
	}
	return ""
}

func backendsOf(spec *networkingv1.IngressSpec) []networkingv1.IngressBackend {
	var all []networkingv1.IngressBackend
	if spec.DefaultBackend != nil {
		all = append(all, *spec.DefaultBackend)
	}
	for _, rule := range spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for _, path := range rule.HTTP.Paths {
			all = append(all, path.Backend)
		}
	}
	return all
}

// TLSSecrets returns the names of the Secrets that those of the Ingresses need that have copies, sorted.
func TLSSecrets(all []networkingv1.Ingress, reach Reach) []string {
	names := map[string]bool{}
	copies := Ingresses(all, reach)
	for i := range all {
		if copies[ShadowName(Ingress, all[i].Name)].Object == nil {
			continue
		}
		for _, tls := range all[i].Spec.TLS {
			if tls.SecretName != "" {
				names[tls.SecretName] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// AddressedAt returns the peers at which an Ingress says that it is reached.
func AddressedAt(ingress metav1.Object) []string {
	var peers []string
	for key := range ingress.GetAnnotations() {
		if peer, found := strings.CutPrefix(key, v1alpha1.AnnotationAddressAt); found {
			peers = append(peers, peer)
		}
	}
	slices.Sort(peers)
	return peers
}

// AddressAnnotation is the annotation that says, on an Ingress, at which addresses it is reached at the peer.
func AddressAnnotation(peer string) string { return v1alpha1.AnnotationAddressAt + peer }

// AddressesOf returns at which addresses the load balancer of the object is reached, as an Ingress says.
func AddressesOf(object *unstructured.Unstructured) []string {
	entries, _, err := unstructured.NestedSlice(object.Object, "status", "loadBalancer", "ingress")
	if err != nil {
		return nil
	}
	var addresses []string
	for _, entry := range entries[:min(len(entries), v1alpha1.MaxShadowAddresses)] {
		entry, _ := entry.(map[string]any)
		for _, key := range []string{"ip", "hostname"} {
			if text, ok := entry[key].(string); ok && text != "" && len(addresses) < v1alpha1.MaxShadowAddresses {
				addresses = append(addresses, text)
			}
		}
	}
	return addresses
}
