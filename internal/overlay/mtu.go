// SPDX-License-Identifier: Apache-2.0

package overlay

import "net/netip"

// What each packet carries along on its way: the headers of IPv4 or IPv6, of UDP, and of WireGuard or of VXLAN, in which
// there is a header of Ethernet.
const (
	wireGuard4 = 20 + 8 + 32
	wireGuard6 = 40 + 8 + 32
	vxlan4     = 20 + 8 + 8 + 14
	vxlan6     = 40 + 8 + 8 + 14
)

const (
	usualMTU = 1500  // of a link of which nothing is known
	leastMTU = 1280  // that every link has which takes IPv6
	mostMTU  = 65535 // that an IP packet has
)

// mtu returns that of all our links: the largest packet that passes both the tunnel and the VXLAN. Interfaces with IPv6 need
// 1,280, so where the gateway's own link is not much wider, the packets around those are sent in pieces.
func mtu(g Gateway) int {
	if len(g.Addresses) == 0 {
		return max(tunnelMTU(g.MTU, nil), leastMTU)
	}
	vxlan := vxlan4
	if g.Addresses[0].Is6() {
		vxlan = vxlan6
	}
	return max(min(tunnelMTU(g.MTU, g.Addresses), pathMTU(g.MTU)-vxlan), leastMTU)
}

// tunnelMTU returns the largest packet in a tunnel over a path that takes packets so large.
func tunnelMTU(path int, gateway []netip.Addr) int {
	if _, ok := ofFamily(gateway, netip.Addr.Is6); ok {
		return pathMTU(path) - wireGuard6 // nobody knows which family a peer comes by
	}
	return pathMTU(path) - wireGuard4
}

// relayedMTU returns the largest packet in a tunnel within a tunnel that takes packets so large. WireGuard fills up packets to a
// multiple of 16 bytes.
func relayedMTU(outer int, relay netip.Addr) int {
	around := wireGuard4
	if relay.Is6() {
		around = wireGuard6
	}
	return (outer - around) / 16 * 16
}

// pathMTU returns the measured MTU, made believable.
func pathMTU(measured int) int {
	if measured == 0 {
		return usualMTU
	}
	return min(max(measured, leastMTU), mostMTU)
}
