package overlay

import "net/netip"

// A Mapping is one range of a cluster, and the range of the same length in which another cluster sees it. The two are equal
// where nothing is translated.
type Mapping struct {
	Own  netip.Prefix // as its owner sees it
	Seen netip.Prefix // as the other cluster sees it
}

// A Tunnel is what WireGuard must know of one peer.
type Tunnel struct {
	Peer       string           // name of the Peer
	PublicKey  [32]byte         // Curve25519
	Endpoints  []netip.AddrPort // at which it may be reached, the best first; none if it dials us
	AllowedIPs []netip.Prefix   // exactly the ranges in which we see the peer
	Keepalive  bool             // somebody in between forgets connections on which nothing is sent
}

// A Translation is what the gateway translates for one peer.
type Translation struct {
	Peer string
	From []netip.Prefix // ranges in which we see the peer: they tell that a packet is of, or for, this peer
	Ours []Mapping      // our ranges as that peer sees them, where the two differ
	// Host is the address, as the peer sees it, that stands for whatever here has no address that the peer sees, such as nodes.
	// It is not valid if there is none.
	Host netip.Addr
}

// Permissions are what may pass the gateway between one peer and us. Whatever is not named may not.
type Permissions struct {
	Peer    string
	Theirs  []netip.Addr   // our pods there, as we see them: they reach all of Reached, and are reached by everything of ours
	Guests  []netip.Addr   // pods of the peer that run here: they are reached by all of the peer's, and reach all of the peer's
	Reached []netip.Prefix // our own ranges
	Open    []Opening
}

// An Opening lets one of the peer's ranges or addresses reach one of ours besides that, or the other way around.
type Opening struct {
	From, To netip.Prefix
}

// A Layout is what the gateway must have.
type Layout struct {
	Tunnels      []Tunnel
	Translations []Translation
	Permissions  []Permissions
	Nodes        []Node         // to which traffic for our own ranges goes
	Blackholes   []netip.Prefix // ranges of peers: nothing for them leaves but through the tunnel
	MTU          int            // of the tunnel
}

// A Node is a node of this cluster as the gateway sees it.
type Node struct {
	Name    string
	Address netip.Addr     // where its VXLAN is reached
	Inner   netip.Addr     // its address in the VXLAN
	Ranges  []netip.Prefix // of its pods; the node of the gateway has the Service ranges and all else, too
}

// A NodeLayout is what the fabric on one node must have.
type NodeLayout struct {
	Gateway  netip.Addr     // where the VXLAN of the active gateway is reached; not valid while none is active
	Inner    netip.Addr     // of this node in the VXLAN
	Through  netip.Addr     // of the gateway in the VXLAN
	Routes   []netip.Prefix // ranges of peers, all of which lead there
	Own      []netip.Prefix // ranges of our own pods and Services
	Services []netip.Prefix // those of Services
	Guarded  []Guests
	MTU      int
}

// Guests are the pods of one peer that run in this cluster.
type Guests struct {
	Peer string
	Pods []netip.Addr   // on any node
	Home []netip.Prefix // ranges in which the peer is seen
}
