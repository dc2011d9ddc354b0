// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"net/netip"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A State is what this cluster knows of its network: all that plans are made of. The order of its lists means nothing, but
// for endpoints, and for the addresses of a node or a gateway, of which the first of each family counts.
type State struct {
	Pods, Services []netip.Prefix // our own ranges
	Gateway        Gateway
	Nodes          []Host
	Peers          []Peer
	// OurPods are our own pods, as far as they are in namespaces that openings name.
	OurPods []Pod
	// Nameservers are our own ones: where pods of ours run at a peer, its gateway asks these for them.
	Nameservers []netip.Addr
	// Departed are ranges in which peers were seen that are no more: what is still sent there is dropped, unless they are another's by now.
	Departed []netip.Prefix
	// Closed are ranges and addresses that guests must not reach besides our own ranges, our nodes and what clouds keep for
	// nodes, such as those of our API server.
	Closed []netip.Prefix
}

// A Gateway is the active one of this cluster.
type Gateway struct {
	Node      string           // on which it runs; empty while none is active
	Addresses []netip.Addr     // of its pod; its VXLAN is reached at the first
	PublicKey [32]byte         // of WireGuard
	Endpoints []netip.AddrPort // at which peers reach it; none if it only dials
	MTU       int              // of its own link; 0 if it is not known
}

// A Host is a real node of this cluster.
type Host struct {
	Name      string
	Addresses []netip.Addr   // at which other nodes reach it
	PodCIDRs  []netip.Prefix // of its pods, as far as its CNI keeps to them
}

// A Peer is what a Connection says, and the pods that belong to it.
type Peer struct {
	Name         string
	ClusterID    string
	PublicKey    [32]byte
	Endpoints    []netip.AddrPort // resolved, the best first
	Theirs, Ours []Mapping
	// TheirDirect are ranges from which the peer sends what its guests send directly to guests of the same home here, and OurDirect those
	// from which we do: each with the home. Behind are ranges in which the peer sees its pods at its other providers.
	TheirDirect, OurDirect, Behind []ClusterRange
	Probes                         []netip.Addr // of the peer's gateway, as we see it
	Resolvers                      []netip.Addr // the peer's name servers, as we see them
	Relays                         bool         // its gateway passes on packets between ours and those of others
	// RelayBandwidth is how many bytes a second our gateway passes on for the peer.
	RelayBandwidth int64
	Answers        bool         // its gateway does, through the tunnel
	Connected      bool         // with whichever gateway of ours is active, or was until now
	Fits           int          // the largest packet in the tunnel that gets through whole, as measured; 0 if that is not known
	There          []netip.Addr // our pods at the peer, as we see them
	Guests         []Pod        // its pods that run here, each with the namespace of the peer that it belongs to
	SentOn         []netip.Addr // its pods that we have sent on to other peers, as we see them there
	Services       []Service    // copies of its Services, in its twins here
	Openings       []v1alpha1.Opening
	// Exported are what the peer reaches here because it is exported to it, and Imported what we reach there.
	Exported, Imported []v1alpha1.ServicePath
}

// A Service is the copy of one of a peer's home.
type Service struct {
	Home      HomeService
	Twin      string       // the namespace here
	Addresses []netip.Addr // its cluster IPs; none if it is headless
}

// A Pod is one address of a pod.
type Pod struct {
	Namespace string
	Address   netip.Addr
}
