// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// MaxShadowObjectBytes is the largest object, as JSON, that a provider takes in a ShadowObject.
	MaxShadowObjectBytes = 256 << 10
	// MaxShadowStatusBytes is the largest status, as JSON, that a provider tells of an object.
	MaxShadowStatusBytes = 16 << 10
	// MaxShadowAddresses is how many addresses of an object a provider tells.
	MaxShadowAddresses = 8
)

// ShadowObjectSpec is an object of any kind that a provider shall make.
// +kubebuilder:validation:XValidation:rule="self.group == oldSelf.group && self.kind == oldSelf.kind && self.name == oldSelf.name",message="group, kind and name cannot change: another object needs another ShadowObject"
type ShadowObjectSpec struct {
	// group is the API group of the object, such as networking.k8s.io.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Group string `json:"group"`

	// version is the version of the group in which the object is written.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+$`
	Version string `json:"version"`

	// kind of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]+$`
	Kind string `json:"kind"`

	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`

	// object is the object as JSON, without apiVersion, kind, metadata and status. Its labels are those of this ShadowObject. At
	// most 256 KiB.
	// +required
	// +kubebuilder:validation:MaxLength=262144
	Object string `json:"object"`

	// statusBack asks for the status of the object. By default it stays at the provider.
	// +optional
	StatusBack bool `json:"statusBack,omitempty"`
}

// ShadowObjectStatus is the provider's answer.
type ShadowObjectStatus struct {
	// conditions: Applied says whether the object is there as asked for, and if not, why and what helps.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the answer speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// addresses are those at which the object is reached: IP addresses and host names of the load balancer of an Ingress.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=253
	Addresses []string `json:"addresses,omitempty"`

	// object is the status of the object as JSON, where spec.statusBack asks for it. A status of more than 16 KiB is left out, which
	// the message of condition Applied says.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Object string `json:"object,omitempty"`
}

// ShadowObject has a provider make an object of a kind to which peers have no rights themselves: an Ingress, or one of the kinds that
// the provider allows the peer. It lies in a twin namespace.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hobject,categories=hanse
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.kind`
// +kubebuilder:printcolumn:name="Object",type=string,JSONPath=`.spec.name`
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ShadowObject struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the consumer asks for.
	// +required
	Spec ShadowObjectSpec `json:"spec"`
	// status is the provider's answer.
	// +optional
	Status ShadowObjectStatus `json:"status,omitempty"`
}

// ShadowObjectList is a list of ShadowObjects.
// +kubebuilder:object:root=true
type ShadowObjectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ShadowObject `json:"items"`
}
