// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespaceMappingSpec asks a provider for a twin of a namespace.
// +kubebuilder:validation:XValidation:rule="has(self.twin) == has(oldSelf.twin) && (!has(self.twin) || self.twin == oldSelf.twin)",message="twin is immutable: another name needs another NamespaceMapping"
type NamespaceMappingSpec struct {
	// homeNamespace is the namespace of the consumer that needs a twin.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="homeNamespace is immutable"
	HomeNamespace string `json:"homeNamespace"`

	// twin is the name that the consumer asks for. By default the provider makes one. It cannot change: another name is
	// another NamespaceMapping.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Twin string `json:"twin,omitempty"`
}

// NamespaceMappingStatus is the provider's answer.
type NamespaceMappingStatus struct {
	// conditions: Ready (the twin namespace exists and the consumer may use it).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the answer speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// twin is the name of the namespace at the provider.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Twin string `json:"twin,omitempty"`
}

// NamespaceMapping asks a provider for a namespace that stands for one of the consumer's, and reports its name. It
// lives in the consumer's tenant namespace at the provider and is called like the consumer's namespace.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hmap,categories=hanse
// +kubebuilder:printcolumn:name="Home",type=string,JSONPath=`.spec.homeNamespace`
// +kubebuilder:printcolumn:name="Twin",type=string,JSONPath=`.status.twin`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.homeNamespace",message="a NamespaceMapping must be called like its homeNamespace"
type NamespaceMapping struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the consumer asks for.
	// +required
	Spec NamespaceMappingSpec `json:"spec"`
	// status is the provider's answer.
	// +optional
	Status NamespaceMappingStatus `json:"status,omitempty"`
}

// TwinEnds says whether the provider is deleting the twin.
func (m *NamespaceMapping) TwinEnds() bool {
	ready := meta.FindStatusCondition(m.Status.Conditions, ConditionReady)
	return !m.DeletionTimestamp.IsZero() ||
		ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason == ReasonNamespaceTerminating
}

// NamespaceMappingList is a list of namespace mappings.
// +kubebuilder:object:root=true
type NamespaceMappingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NamespaceMapping `json:"items"`
}
