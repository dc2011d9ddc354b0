// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Ports of UDP at the addresses of gateways in the tunnel.
const (
	// RelayedPort is where a gateway takes in packets of WireGuard that another gateway passes on.
	RelayedPort = 16384
	// LastRelayPort is the last one behind RelayedPort at which a gateway takes in what it passes on: one for each peer to which
	// it does.
	LastRelayPort = 32767
)

// A Relayed is a peer for which our gateway passes on packets of WireGuard.
type Relayed struct {
	Peer      string
	Address   netip.Addr // of its gateway, as we see it
	Port      uint16     // of ours: what others send there is for the peer, and what the peer sends to others comes from there
	Bandwidth int64      // bytes a second that the peer may send
}

// relayPort returns the port at which a relay takes in what is for the gateway of that key. It follows from the key alone, so a
// relay need not tell anybody whom it knows.
func relayPort(key [32]byte) uint16 {
	const ports = LastRelayPort - RelayedPort
	hash := sha256.Sum256(key[:])
	return uint16(RelayedPort + 1 + binary.BigEndian.Uint32(hash[:])%ports)
}

// relayed returns the peers for which our gateway passes on packets, sorted by name.
func (m *muster) relayed() []Relayed {
	var all []Relayed
	holders := map[uint16]string{}
	for _, p := range m.members {
		address, known := gatewayOf(p)
		port := relayPort(p.PublicKey)
		switch holder := holders[port]; {
		case !p.connected || p.RelayBandwidth <= 0 || !known:
		case len(m.Gateway.Endpoints) == 0:
			m.cannotRelay(p, "our own gateway cannot be reached from outside")
		case holder != "":
			m.cannotRelay(p, fmt.Sprintf("its key leads to the same port as that of peer %q: one of the two must make another key", holder))
		default:
			holders[port] = p.Name
			all = append(all, Relayed{Peer: p.Name, Address: address, Port: port, Bandwidth: p.RelayBandwidth})
		}
	}
	return all
}

func (m *muster) cannotRelay(p *member, why string) {
	m.conflicts = append(m.conflicts, Conflict{p.Name, v1alpha1.ReasonNoRelay, "Nothing is passed on for the peer (spec.network.relayBandwidth): " + why})
}

// gatewayOf returns the first address of the peer's gateway in the tunnel.
func gatewayOf(p *member) (netip.Addr, bool) {
	addresses := sortedWithin(p.seen, p.Probes)
	if len(addresses) == 0 {
		return netip.Addr{}, false
	}
	return addresses[0], true
}

// findRelays finds those that pass on packets to peers whose gateways neither dial ours nor are dialled.
func (m *muster) findRelays() {
	for _, p := range m.members {
		if !p.connected || len(p.Endpoints) > 0 || len(m.Gateway.Endpoints) > 0 {
			continue
		}
		for _, other := range m.members {
			if _, known := gatewayOf(other); known && other.connected && other.Relays && len(other.Endpoints) > 0 {
				p.relays = append(p.relays, other)
			}
		}
		if len(p.relays) == 0 {
			m.conflicts = append(m.conflicts, Conflict{
				p.Name, v1alpha1.ReasonNoEndpoint, "Neither of the two gateways can be reached by the other: make one reachable from outside, " +
					"or have a peer of both relay for both (spec.network.relayBandwidth of Peers)",
			})
		}
	}
}

// leadThrough has the tunnel go through the gateways of others, if it must.
func (m *muster) leadThrough(t *Tunnel, p *member, most int) {
	for _, relay := range p.relays {
		address, _ := gatewayOf(relay)
		t.Through = append(t.Through, relay.Name)
		t.Endpoints = append(t.Endpoints, netip.AddrPortFrom(address, relayPort(p.PublicKey)))
		t.MTU = min(t.MTU, relayedMTU(relay.fitting(most), address))
	}
}

// relaying returns the gateways of peers, as we see them, from which packets of WireGuard come through the tunnel: to be passed
// on, or passed on to us.
func relaying(layout Layout) []netip.Addr {
	var all []netip.Addr
	for _, r := range layout.Relayed {
		all = append(all, r.Address)
	}
	for _, t := range layout.Tunnels {
		for i := range t.Through {
			all = append(all, t.Endpoints[i].Addr())
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}
