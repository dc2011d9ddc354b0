package reflection

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A Kind is one whose objects at home have copies in twins.
type Kind string

// The kinds. Objects of the first two go because a pod refers to them, and those of the others with all pods of a namespace.
const (
	ConfigMap     Kind = "ConfigMap"
	Secret        Kind = "Secret"
	Service       Kind = "Service"
	EndpointSlice Kind = "EndpointSlice"
)

// Kinds returns all kinds, with or without those that a network between the clusters is needed for.
func Kinds(network bool) []Kind {
	if network {
		return []Kind{ConfigMap, Secret, Service, EndpointSlice}
	}
	return []Kind{ConfigMap, Secret}
}

// ByPods says whether objects of the kind go because a pod refers to them.
func (k Kind) ByPods() bool { return k == ConfigMap || k == Secret }

// Home is the kind of the objects at home.
func (k Kind) Home() schema.GroupVersionKind {
	if k == EndpointSlice {
		return discoveryv1.SchemeGroupVersion.WithKind(string(k))
	}
	return corev1.SchemeGroupVersion.WithKind(string(k))
}

// Twin is the kind of their copies in twins.
func (k Kind) Twin() schema.GroupVersionKind {
	if k == EndpointSlice {
		return v1alpha1.GroupVersion.WithKind("ShadowEndpointSlice")
	}
	return k.Home()
}
