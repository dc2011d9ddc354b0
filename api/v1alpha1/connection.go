// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConnectionName is the name of every Connection.
const ConnectionName = "hanse"

// ConnectionSpec is what our gateway must know of a peer. All that the peer said of itself has been checked.
type ConnectionSpec struct {
	// clusterID is the id of the peer.
	// +optional
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ClusterID string `json:"clusterID,omitempty"`

	// publicKey is the key of the peer's gateway (Curve25519), in base64.
	// +required
	// +kubebuilder:validation:MaxLength=44
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{43}=$`
	PublicKey string `json:"publicKey"`

	// endpoints are where the peer's gateway is reached, the best first. None means that it dials ours.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Endpoints []HostPort `json:"endpoints,omitempty"`

	// theirs are the ranges of the peer, and those that it relays, and in which this cluster sees them. Packets from the tunnel must come from these.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Theirs []RangeMapping `json:"theirs,omitempty"`

	// ours are the ranges of this cluster, and those that it relays, and in which the peer sees them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Ours []RangeMapping `json:"ours,omitempty"`

	// behind are ranges in which the peer sees its pods at its other providers, each with the provider and its range.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Behind []ClusterRange `json:"behind,omitempty"`

	// theirDirect are ranges of the peer, and those from which packets come that pods of third clusters there send directly to pods of
	// the same cluster here.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	TheirDirect []ClusterRange `json:"theirDirect,omitempty"`

	// ourDirect are ranges of this cluster, and those from which the peer takes in what pods of third clusters here send so.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	OurDirect []ClusterRange `json:"ourDirect,omitempty"`

	// gatewayAddresses are the addresses of the peer's gateway in the tunnel, as this cluster sees them. Our gateway measures
	// the connection with echo requests to them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	GatewayAddresses []IP `json:"gatewayAddresses,omitempty"`

	// nameservers are the addresses of the peer's DNS, as this cluster sees them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	Nameservers []IP `json:"nameservers,omitempty"`

	// openings are what is open between namespaces, as the Peer says in spec.network.open.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Openings []Opening `json:"openings,omitempty"`

	// exported are what pods of the peer reach here because it is exported to the peer. The controller of multi-cluster Services writes this.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Exported []ServicePath `json:"exported,omitempty"`

	// imported are what our pods reach of the peer because it is imported from there. The controller of multi-cluster Services writes this.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Imported []ServicePath `json:"imported,omitempty"`

	// relays is whether the peer's gateway passes on packets between ours and those of others.
	// +optional
	Relays bool `json:"relays,omitempty"`

	// relayBandwidth is how many bytes a second our gateway passes on for the peer, as the Peer says in
	// spec.network.relayBandwidth.
	// +optional
	RelayBandwidth *resource.Quantity `json:"relayBandwidth,omitempty"`
}

// ServicePath is what is open because Services of a namespace are exported.
type ServicePath struct {
	// namespace is that of the Services.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`

	// ports are those of their endpoints.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Ports []OpeningPort `json:"ports"`
}

// ConnectionStatus says how the tunnel to a peer is. What is measured is rounded, and written only when it has moved by much
// or a condition changes, so that a quiet tunnel causes no writes.
type ConnectionStatus struct {
	// conditions: Connected (the peer's gateway answers through the tunnel; the reason says why if it does not) and Ready (the
	// same, and nothing of spec had to be left out).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// endpoint is the address of the peer's gateway that is in use, as the newest packets came from it.
	// +optional
	Endpoint HostPort `json:"endpoint,omitempty"`

	// through is the Peer whose gateway passes the packets on, which it cannot read. It is empty if the two gateways talk directly.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Through string `json:"through,omitempty"`

	// direct are the Peers whose pods at this cluster and at the peer reach each other through this tunnel now, and not through their
	// home. Their ways back are for the peer to choose.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	Direct []string `json:"direct,omitempty"`

	// lastHandshake is when the two gateways agreed on keys last, cut to ten minutes. A living tunnel does so every two
	// minutes, so it is written about every ten.
	// +optional
	LastHandshake *metav1.Time `json:"lastHandshake,omitempty"`

	// roundTripTime is how long an echo request through the tunnel takes, rounded to two digits. It is written when it moves
	// by more than a quarter and 1 ms.
	// +optional
	RoundTripTime *metav1.Duration `json:"roundTripTime,omitempty"`

	// lossPercent is how many of a hundred echo requests were not answered within the last minutes, rounded up. It is written
	// when it moves by more than a quarter and 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	LossPercent *int32 `json:"lossPercent,omitempty"`

	// throughput is the most that went through the tunnel within a second lately, one way, in bytes per second, rounded to
	// two digits. It is written, at most every ten minutes, when it moves by more than a quarter.
	// +optional
	Throughput *resource.Quantity `json:"throughput,omitempty"`

	// receivedBytes is how much came out of the tunnel since it was made, rounded to two digits and written with lastHandshake.
	// The metrics of the gateway have the exact number.
	// +optional
	ReceivedBytes *resource.Quantity `json:"receivedBytes,omitempty"`

	// sentBytes is how much went into the tunnel, as receivedBytes is.
	// +optional
	SentBytes *resource.Quantity `json:"sentBytes,omitempty"`

	// mtu is the largest packet in bytes that passes the tunnel whole.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	MTU int32 `json:"mtu,omitempty"`
}

// Connection is the tunnel to one peer. It lives in the peer's tenant namespace, and each of the two clusters has its own.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hconn,categories=hanse
// +kubebuilder:printcolumn:name="Connected",type=string,JSONPath=`.status.conditions[?(@.type=="Connected")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Connected")].reason`
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.endpoint`
// +kubebuilder:printcolumn:name="RTT",type=string,JSONPath=`.status.roundTripTime`
// +kubebuilder:printcolumn:name="Loss",type=integer,JSONPath=`.status.lossPercent`
// +kubebuilder:printcolumn:name="Through",type=string,priority=1,JSONPath=`.status.through`
// +kubebuilder:printcolumn:name="Direct",type=string,priority=1,JSONPath=`.status.direct`
// +kubebuilder:printcolumn:name="MTU",type=integer,priority=1,JSONPath=`.status.mtu`
// +kubebuilder:printcolumn:name="Handshake",type=date,priority=1,JSONPath=`.status.lastHandshake`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'hanse'",message="the only name that a Connection may have is hanse"
type Connection struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what our gateway must know of the peer, by the manager.
	// +required
	Spec ConnectionSpec `json:"spec"`
	// status is how the tunnel is, by the gateway.
	// +optional
	Status ConnectionStatus `json:"status,omitempty"`
}

// ConnectionList is a list of connections.
// +kubebuilder:object:root=true
type ConnectionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Connection `json:"items"`
}

// Connected says whether the gateway of this cluster has a tunnel to that of the peer that works. Of a Connection that goes it says no.
func (c *Connection) Connected() bool {
	return c.DeletionTimestamp.IsZero() && meta.IsStatusConditionTrue(c.Status.Conditions, ConditionConnected)
}
