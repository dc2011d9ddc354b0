// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"encoding/binary"
	"net/netip"
)

// packet is what the relay must know of an IP packet.
type packet struct {
	source, destination netip.Addr
	length              int
}

// Positions and values in the headers of Ethernet and IP.
const (
	ethernetHeader = 14
	typeIPv4       = 0x0800
	typeIPv6       = 0x86dd
	headerIPv4     = 20
	headerIPv6     = 40
	protocolICMPv6 = 58
)

// Types of ICMPv6 by which neighbours find each other: from router solicitation to redirect.
const (
	firstNeighbour = 133
	lastNeighbour  = 137
)

// parse reads the IP packet in a frame. It takes none for one that does not travel beyond the bridge: ARP and its like, and
// what is for several receivers.
func parse(frame []byte) (packet, bool) {
	if len(frame) < ethernetHeader || frame[0]&1 != 0 { // the bit of group addresses
		return packet{}, false
	}
	ip := frame[ethernetHeader:]
	found := packet{length: len(ip)}
	switch kind := binary.BigEndian.Uint16(frame[12:]); {
	case kind == typeIPv4 && len(ip) >= headerIPv4:
		found.source = netip.AddrFrom4([4]byte(ip[12:16]))
		found.destination = netip.AddrFrom4([4]byte(ip[16:20]))
	case kind == typeIPv6 && len(ip) >= headerIPv6 && !isNeighbour(ip):
		found.source = netip.AddrFrom16([16]byte(ip[8:24]))
		found.destination = netip.AddrFrom16([16]byte(ip[24:40]))
	default:
		return packet{}, false
	}
	return found, true
}

func isNeighbour(ip []byte) bool {
	return ip[6] == protocolICMPv6 && len(ip) > headerIPv6 &&
		ip[headerIPv6] >= firstNeighbour && ip[headerIPv6] <= lastNeighbour
}
