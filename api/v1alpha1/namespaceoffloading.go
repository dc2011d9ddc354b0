package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OffloadingStrategy says where the pods of a namespace may run.
// +kubebuilder:validation:Enum=Local;Remote;LocalAndRemote
type OffloadingStrategy string

const (
	// StrategyLocal runs pods on the nodes of this cluster only.
	StrategyLocal OffloadingStrategy = "Local"
	// StrategyRemote runs pods on virtual nodes only.
	StrategyRemote OffloadingStrategy = "Remote"
	// StrategyLocalAndRemote runs pods on the nodes of this cluster while they have room, then on virtual nodes.
	StrategyLocalAndRemote OffloadingStrategy = "LocalAndRemote"
)

// NamespaceOffloadingSpec says how the pods of a namespace are offloaded.
type NamespaceOffloadingSpec struct {
	// strategy says where new pods of the namespace may run. By default LocalAndRemote: on the nodes of this cluster
	// while they have room, then on virtual nodes.
	// +optional
	// +kubebuilder:default=LocalAndRemote
	Strategy OffloadingStrategy `json:"strategy,omitempty"`

	// clusterSelector selects, by the labels of their virtual nodes, the clusters that pods may be offloaded to. By
	// default all.
	// +optional
	ClusterSelector *ClusterSelector `json:"clusterSelector,omitempty"`
}

// ClusterSelector selects clusters by the labels of their virtual nodes. All of it must match.
type ClusterSelector struct {
	// matchLabels are labels with the values that they must have.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.size() <= 317 && !format.qualifiedName().validate(key).hasValue())",message="every key must be a label key, such as topology.kubernetes.io/region"
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// matchExpressions are further requirements.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MatchExpressions []ClusterSelectorRequirement `json:"matchExpressions,omitempty"`
}

// LabelValue is the value of a label.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
type LabelValue string

// ClusterSelectorRequirement is a requirement on one label of a virtual node.
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",message="operators In and NotIn need values; Exists and DoesNotExist take none"
type ClusterSelectorRequirement struct {
	// key is the label.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="key must be a label key, such as topology.kubernetes.io/region"
	Key string `json:"key"`

	// operator says how the label's value and values relate.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`

	// values are needed by In and NotIn, and by no other operator.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Values []LabelValue `json:"values,omitempty"`
}

// ClusterOffloading says how the offloading of a namespace to one peer stands.
type ClusterOffloading struct {
	// peer is the name of the Peer.
	// +required
	// +kubebuilder:validation:MaxLength=40
	Peer string `json:"peer"`

	// twin is the namespace over there.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Twin string `json:"twin,omitempty"`

	// state is Ready when pods can be offloaded to that peer, else Pending or Refused.
	// +required
	// +kubebuilder:validation:Enum=Ready;Pending;Refused
	State string `json:"state"`

	// message explains a state that is not Ready.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// NamespaceOffloadingStatus says how the offloading of a namespace stands.
type NamespaceOffloadingStatus struct {
	// conditions: Ready (every selected peer has a twin of this namespace).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// clusters are the peers that the selector matches, sorted by name; at most 1,000 are listed.
	// +optional
	// +listType=map
	// +listMapKey=peer
	// +kubebuilder:validation:MaxItems=1000
	Clusters []ClusterOffloading `json:"clusters,omitempty"`
}

// NamespaceOffloading lets the pods of its namespace run in other clusters. It must be called "offloading", so that a
// namespace has at most one.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hoff,categories=hanse
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.strategy`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Clusters",type=string,JSONPath=`.status.clusters[*].peer`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'offloading'",message="a NamespaceOffloading must be called \"offloading\", so that a namespace has at most one"
type NamespaceOffloading struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how the pods of the namespace are offloaded.
	// +optional
	// +kubebuilder:default={}
	Spec NamespaceOffloadingSpec `json:"spec,omitempty"`
	// status says how the offloading stands.
	// +optional
	Status NamespaceOffloadingStatus `json:"status,omitempty"`
}

// NamespaceOffloadingList is a list of namespace offloadings.
// +kubebuilder:object:root=true
type NamespaceOffloadingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NamespaceOffloading `json:"items"`
}
