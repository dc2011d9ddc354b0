// SPDX-License-Identifier: Apache-2.0

package overlay

import "net/netip"

// A Mapping is one range of a cluster, and the range of the same length in which another cluster sees it. The two are equal
// where nothing is translated.
type Mapping struct {
	Own  netip.Prefix // as its owner sees it
	Seen netip.Prefix // as the other cluster sees it
}

// A ClusterRange is a mapping that has to do with a third cluster, by its id.
type ClusterRange struct {
	ClusterID string
	Mapping
}

// A Tunnel is what WireGuard must know of one peer.
type Tunnel struct {
	Peer      string           // name of the Peer
	PublicKey [32]byte         // Curve25519
	Endpoints []netip.AddrPort // at which it may be reached, the best first; none if it dials us
	// Apart says that neither gateway, by the ranges of its cluster, has a family of addresses in which the other one is reached. It is
	// dialled all the same, since something in between may translate.
	Apart      bool
	Connected  bool           // with the gateway that was active before, so that the peer does not know that there is a new one
	Through    []string       // Peers that pass packets on at the endpoints, in their order; none if the two gateways talk directly
	AllowedIPs []netip.Prefix // exactly the ranges in which we see the peer, and from which it sends directly for others
	Keepalive  bool           // somebody in between forgets connections on which nothing is sent
	MTU        int            // the largest packet in the tunnel that this peer's path takes whole: at most Layout.MTU, and maybe below 1,280
	Probes     []netip.Addr   // of the peer's gateway, as we see it: it answers echo requests there
}

// Relayed says whether packets of the tunnel are passed on by the gateways of others.
func (t Tunnel) Relayed() bool { return len(t.Through) > 0 }

// A Translation is what the gateway translates for one peer.
type Translation struct {
	Peer string
	From []netip.Prefix // ranges in which we see the peer: they tell that a packet is of, or for, this peer
	// Ours are our ranges as that peer sees them, where the two differ. Ranges of other peers that we relay are among them, also
	// where the two are the same: what the peer sends there comes out of the tunnel and goes into it again.
	Ours []Mapping
	// Hosts are the addresses, as the peer sees them, that stand for whatever here has no address that the peer sees, such as
	// nodes: at most one of each family. They are those of Layout.Addresses, so they stay the same whichever gateway is active.
	Hosts []netip.Addr
	// Questions are the name servers of others, as this peer sees them through us. The gateway takes for itself what comes for
	// port 53 of them: pods ask there that were sent on to this peer.
	Questions []netip.Addr
}

// Permissions are what may pass the gateway between one peer and us. Whatever is not named may not. All addresses are as
// this cluster sees them: after the translation of destinations, and before that of sources.
type Permissions struct {
	Peer string
	// Theirs are our pods there: they reach all of Reached, and are reached by everything of ours. They reach, and are reached
	// by, Theirs of other peers too: these are our pods as well.
	Theirs  []netip.Addr
	Guests  []netip.Addr   // pods of the peer that run here: they are reached by all of the peer's, and reach all of the peer's
	SentOn  []netip.Addr   // pods of the peer that we have sent on to others: they reach, and are reached by, the same and Guests
	Reached []netip.Prefix // our own ranges
	Open    []Opening
}

// An Opening lets some ranges or addresses open connections to others besides that: from the peer to us, from us to the peer,
// or, on a node, between guests and our own pods.
type Opening struct {
	From, To []netip.Prefix
	Ports    []PortRange // of To; none means all of all protocols
}

// A PortRange is some ports of a protocol, from the first to the last.
type PortRange struct {
	Protocol    byte // its number in IP
	First, Last uint16
}

// A Layout is what the active gateway must have.
type Layout struct {
	Tunnels      []Tunnel
	Translations []Translation
	Permissions  []Permissions
	Nodes        []Node         // to which traffic for our own ranges goes that came out of the tunnel
	Blackholes   []netip.Prefix // ranges of peers: nothing for them leaves but through the tunnel
	// Addresses are the gateway's own, within our Service ranges, at most one of each family: local to the gateway, which
	// answers echo requests that peers send there. No Service ever gets them.
	Addresses []netip.Addr
	// Resolvers are the name servers of peers, as we see them. The gateway takes for itself what pods send to port 53 of them.
	Resolvers []netip.Addr
	MTU       int // of the tunnel, and of the VXLAN
	Relayed   []Relayed
	Direct    []Direct
	// Relaying are gateways of peers, as we see them, from which packets of WireGuard come through the tunnel, to the ports from
	// RelayedPort to LastRelayPort of Addresses.
	Relaying []netip.Addr
}

// A Direct is how pods of one home that run here and those of it that run at another peer reach each other without the home. For
// pods and rules it is the way through home: packets have other addresses in the tunnel to the peer alone.
type Direct struct {
	Home, Peer string
	// In is what becomes of the addresses of packets that the peer sends this way, and Out of those that guests send, from what they
	// would be on the way through home. Out is empty while guests take the latter.
	In, Out Rewriting
	// Guests are the pods of home that run here, as home sees them. Nothing else goes this way, or comes by it.
	Guests []netip.Addr
}

// A Rewriting gives addresses within Own of each mapping the front part of Seen.
type Rewriting struct{ Sources, Destinations []Mapping }

// A Node is a node of this cluster as the gateway sees it.
type Node struct {
	Name    string
	Address netip.Addr // where its VXLAN is reached
	// Inner are the node's own addresses, at most one of each family. They are the next hops in the VXLAN, and what comes out
	// of the tunnel for them goes there too. One of them is Address. So packets of the VXLAN itself must leave by the device
	// below it, and routes to nodes must not be used by what the gateway says for itself.
	Inner  []netip.Addr
	Ranges []netip.Prefix // of its pods; the node of the gateway has the Service ranges and all else, too
}

// A NodeLayout is what the fabric on one node must have.
type NodeLayout struct {
	// Gateway is where the VXLAN of the active gateway is reached. While none is active it is not valid, and what is for Routes
	// is dropped.
	Gateway netip.Addr
	Inner   []netip.Addr   // of this node: the source of what the node itself sends there; at most one of each family
	Through []netip.Addr   // of the gateway: the next hops in the VXLAN; at most one of each family
	Routes  []netip.Prefix // ranges of peers, all of which lead there
	Own     []netip.Prefix // ranges of our own pods and Services
	Here    []netip.Prefix // ranges of the pods on this node
	// Services are those of Services.
	Services []netip.Prefix
	// Closed are what guests do not reach: our own ranges, our nodes, and what nodes alone may ask, such as metadata of a cloud.
	Closed  []netip.Prefix
	Guarded []Guests
	MTU     int // of the VXLAN: that of Layout
}

// Guests are the pods of one peer that run in this cluster.
type Guests struct {
	Peer string
	Pods []netip.Addr   // on any node, and those that were sent on
	Home []netip.Prefix // ranges in which the peer is seen, and cluster IPs of the copies of its Services
	Open []Opening      // between Pods and our own pods
}
