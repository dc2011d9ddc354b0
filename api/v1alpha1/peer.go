package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PeerRole says what a peer is to this cluster.
// +kubebuilder:validation:Enum=Provider;Consumer
type PeerRole string

const (
	// RoleProvider means that this cluster may run pods in the peer.
	RoleProvider PeerRole = "Provider"
	// RoleConsumer means that the peer may run pods in this cluster.
	RoleConsumer PeerRole = "Consumer"
)

// PeerSpec says which cluster a peer is and what it is to us.
type PeerSpec struct {
	// clusterID is the id of the foreign cluster, as its own administrator set it. It cannot change: a cluster with
	// another id is another peer.
	// +required
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterID is immutable: make another Peer for another cluster"
	ClusterID string `json:"clusterID"`

	// roles says what the peer is to this cluster: Provider (this cluster may run pods there), Consumer (it may run
	// pods here), or both.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Roles []PeerRole `json:"roles"`

	// remappedPodCIDR is the range in which this cluster sees the pods of the peer. It must not overlap any range
	// that this cluster uses, and must be as large as the peer's pod range. By default Hanse picks a free one.
	// +optional
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="remappedPodCIDR must be a CIDR, such as 10.200.0.0/16"
	RemappedPodCIDR string `json:"remappedPodCIDR,omitempty"`
}

// PeerStatus says how the relation with a peer stands.
type PeerStatus struct {
	// conditions: Reachable, Authenticated, Compatible, Advertised, Connected, and Ready, which sums them up (without
	// Connected, as long as there is no network fabric).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// version is the version of Hanse that the peer runs.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`

	// remappedPodCIDR is the range in which this cluster sees the pods of the peer.
	// +optional
	// +kubebuilder:validation:MaxLength=43
	RemappedPodCIDR string `json:"remappedPodCIDR,omitempty"`

	// roundTripTime is how long a request to the peer's API server takes, rounded. It is written only when it moves
	// by a lot.
	// +optional
	RoundTripTime *metav1.Duration `json:"roundTripTime,omitempty"`
}

// Peer is a foreign cluster that this one knows: which it is, and what it may do here or we may do there.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=hpeer,categories=hanse
// +kubebuilder:printcolumn:name="Cluster ID",type=string,JSONPath=`.spec.clusterID`
// +kubebuilder:printcolumn:name="Roles",type=string,JSONPath=`.spec.roles`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="RTT",type=string,priority=1,JSONPath=`.status.roundTripTime`
// +kubebuilder:printcolumn:name="Version",type=string,priority=1,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="the name of a Peer must be a DNS label of at most 40 characters"
type Peer struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which cluster the peer is and what it is to us.
	// +required
	Spec PeerSpec `json:"spec"`
	// status says how the relation with the peer stands.
	// +optional
	Status PeerStatus `json:"status,omitempty"`
}

// HasRole reports whether the peer has the role.
func (p *Peer) HasRole(role PeerRole) bool { return slices.Contains(p.Spec.Roles, role) }

// PeerList is a list of peers.
// +kubebuilder:object:root=true
type PeerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Peer `json:"items"`
}
