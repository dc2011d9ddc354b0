// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A Kind is one whose objects at home have copies in twins.
type Kind string

// The kinds. Objects of the first two go because a pod refers to them, and those of the others with all pods of a namespace. Kinds
// that administrators list have the names of ListedKind.Name.
const (
	ConfigMap     Kind = "ConfigMap"
	Secret        Kind = "Secret"
	Service       Kind = "Service"
	EndpointSlice Kind = "EndpointSlice"
	Ingress       Kind = "Ingress"
)

// Kinds returns all kinds that are not listed, with or without those that a network between the clusters is needed for.
func Kinds(network bool) []Kind {
	if network {
		return []Kind{ConfigMap, Secret, Service, EndpointSlice, Ingress}
	}
	return []Kind{ConfigMap, Secret}
}

// ByPods says whether objects of the kind go because a pod refers to them.
func (k Kind) ByPods() bool { return k == ConfigMap || k == Secret }

// Twin is the kind of the copies in twins.
func (k Kind) Twin() schema.GroupVersionKind {
	switch k {
	case ConfigMap, Secret, Service:
		return corev1.SchemeGroupVersion.WithKind(string(k))
	case EndpointSlice:
		return v1alpha1.GroupVersion.WithKind("ShadowEndpointSlice")
	case Ingress:
	}
	return v1alpha1.GroupVersion.WithKind("ShadowObject")
}

// ByProvider says whether the copies are ShadowObjects, of which the provider makes the objects.
func (k Kind) ByProvider() bool { return k.Twin().Kind == "ShadowObject" }

// Home is the kind of the objects at home. Listed kinds know their own.
func (k Kind) Home() schema.GroupVersionKind {
	switch k {
	case EndpointSlice:
		return discoveryv1.SchemeGroupVersion.WithKind(string(k))
	case Ingress:
		return networkingv1.SchemeGroupVersion.WithKind(string(k))
	case ConfigMap, Secret, Service:
	}
	return corev1.SchemeGroupVersion.WithKind(string(k))
}
