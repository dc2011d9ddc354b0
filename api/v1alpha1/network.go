// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import corev1 "k8s.io/api/core/v1"

// Network is what a cluster tells a peer of its network. The provider tells it in the spec of an Advertisement, and the
// consumer in its status. "The other cluster" is the one that this is told.
type Network struct {
	// podCIDRs are the ranges of the cluster's pods, as the cluster itself sees them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	PodCIDRs []CIDR `json:"podCIDRs,omitempty"`

	// serviceCIDRs are the ranges of the cluster's Services, as the cluster itself sees them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	ServiceCIDRs []CIDR `json:"serviceCIDRs,omitempty"`

	// relayedCIDRs are ranges in which the cluster sees others, and to which it passes on what the other cluster sends there. So
	// its pods in two clusters reach each other through their home, and pods that it has sent on reach theirs.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	RelayedCIDRs []CIDR `json:"relayedCIDRs,omitempty"`

	// behind are those of relayedCIDRs in which the cluster sees pods at its providers, each with the provider and its range. If the other
	// cluster is connected with that provider too, pods of the cluster that run at the two may reach each other directly.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Behind []ClusterRange `json:"behind,omitempty"`

	// nameservers are the addresses of the cluster's DNS within these ranges, at most one of each family.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	Nameservers []IP `json:"nameservers,omitempty"`

	// gateway is the gateway through which the other cluster reaches these ranges. None means that there is no network
	// between the two.
	// +optional
	Gateway *Gateway `json:"gateway,omitempty"`

	// mappings say in which ranges the cluster sees those of the other cluster.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Mappings []RangeMapping `json:"mappings,omitempty"`

	// direct are ranges from which the cluster takes in what pods at the other cluster send directly to pods here, where both are pods of
	// the same third cluster, their home: each with the home, a range of the other cluster, and where those pods there are seen.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Direct []ClusterRange `json:"direct,omitempty"`
}

const (
	// MaxCIDRs is how many ranges of pods a cluster may have, and again of Services.
	MaxCIDRs = 8
	// MaxRelayedCIDRs is how many ranges of others a cluster may pass traffic on to.
	MaxRelayedCIDRs = 16
	// MaxDirect is from how many ranges a cluster takes in what pods of third clusters at a peer send directly.
	MaxDirect = 16
)

// Protocols of gateways.
const (
	// ProtocolWireGuard is how two gateways talk.
	ProtocolWireGuard = "wireguard"
	// ProtocolRelay means that the gateway passes on packets of WireGuard between the other cluster and others to which it says
	// so too.
	ProtocolRelay = "relay"
)

// Gateway is how the gateway of a cluster is reached.
type Gateway struct {
	// publicKey is the key of the gateway (Curve25519), in base64.
	// +required
	// +kubebuilder:validation:MaxLength=44
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{43}=$`
	PublicKey string `json:"publicKey"`

	// endpoints are where the gateway is reached from outside, such as 203.0.113.7:51820, the best first. None means that
	// it only dials.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Endpoints []HostPort `json:"endpoints,omitempty"`

	// protocols are what the gateway speaks, the best first. Hanse knows wireguard, which is the default, and relay: the
	// gateway passes on packets between the other cluster and others to which it says so too.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=32
	// +kubebuilder:validation:items:Pattern=`^[a-z][-a-z0-9]*$`
	Protocols []string `json:"protocols,omitempty"`

	// addresses are the gateway's own within the ranges of its cluster, at most one of each family. It answers echo requests
	// there that come through the tunnel, and whatever has no address within the ranges, such as a node, shows as one of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	Addresses []IP `json:"addresses,omitempty"`
}

// RangeMapping is a range of a cluster, and the range in which another cluster sees it. They are equal where the addresses
// are the same for both. Else the front part of each address is replaced.
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.own) || !isCIDR(self.seen) || cidr(self.own).prefixLength() == cidr(self.seen).prefixLength() && cidr(self.own).ip().family() == cidr(self.seen).ip().family()",message="own and seen must be of the same family and length, such as 10.244.0.0/16 and 100.64.0.0/16"
type RangeMapping struct {
	// own is the range as the cluster sees it whose range it is.
	// +required
	Own CIDR `json:"own"`

	// seen is the range of the same length in which the other cluster sees it.
	// +required
	Seen CIDR `json:"seen"`
}

// ClusterRange is a range and where it is seen, with a third cluster that it has to do with.
type ClusterRange struct {
	// clusterID is the id of that cluster.
	// +required
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ClusterID string `json:"clusterID"`

	RangeMapping `json:",inline"`
}

// CIDR is a range of addresses.
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",message="a range must be a CIDR without host bits, such as 10.244.0.0/16"
type CIDR string

// IP is an address.
// +kubebuilder:validation:MaxLength=39
// +kubebuilder:validation:XValidation:rule="isIP(self)",message="an address must be an IP address, such as 10.96.0.10"
type IP string

// HostPort is an address or a name, and a port.
// +kubebuilder:validation:MaxLength=259
// +kubebuilder:validation:Pattern=`^(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z]([-0-9A-Za-z.]*[0-9A-Za-z])?):[1-9][0-9]{0,4}$`
type HostPort string

// Opening lets the pods of one namespace open connections to those of another. Without openings, the pods of a peer that run
// here talk with their own cluster and with each other, our pods at the peer talk with all that is ours, and nothing else
// passes.
// +kubebuilder:validation:XValidation:rule="has(self.from.peerNamespace) != has(self.to.peerNamespace)",message="one side of an opening must be a peerNamespace, and the other a namespace of this cluster"
type Opening struct {
	// from is whose pods open connections.
	// +required
	From OpeningSide `json:"from"`

	// to is whose pods are reached.
	// +required
	To OpeningSide `json:"to"`

	// ports are those of the pods that are reached. By default all are, of all protocols.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Ports []OpeningPort `json:"ports,omitempty"`
}

// OpeningPort is a port, a range of ports, or all ports of a protocol, as in a NetworkPolicy. Ports have no names here.
// +kubebuilder:validation:XValidation:rule="!has(self.endPort) || has(self.port)",message="endPort is the last port of a range that begins with port: set port too"
// +kubebuilder:validation:XValidation:rule="!has(self.endPort) || !has(self.port) || self.endPort >= self.port",message="endPort must not be less than port"
type OpeningPort struct {
	// protocol is TCP (the default), UDP or SCTP.
	// +optional
	// +kubebuilder:default=TCP
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol corev1.Protocol `json:"protocol,omitempty"`

	// port is the port, or the first one of a range. By default all ports of the protocol are open.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// endPort is the last port of a range, and not less than port. By default there is only one port.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	EndPort int32 `json:"endPort,omitempty"`
}

// OpeningSide is one side of an opening.
// +kubebuilder:validation:XValidation:rule="has(self.namespace) != has(self.peerNamespace)",message="name either a namespace or a peerNamespace"
type OpeningSide struct {
	// namespace is one of this cluster: all pods in it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`

	// peerNamespace is one of the peer: all pods of it that run here. The value * means everything of the peer: all its pods
	// that run here, and all that reaches this cluster through the tunnel, since there nobody can tell namespaces apart.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?|\*)$`
	PeerNamespace string `json:"peerNamespace,omitempty"`
}

// AllPeerNamespaces as the peerNamespace of an opening means everything of the peer.
const AllPeerNamespaces = "*"
