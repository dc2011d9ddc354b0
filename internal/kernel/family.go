// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/hanse-dev/hanse/internal/overlay"
)

// A family is what differs between IPv4 and IPv6.
type family struct {
	af        int // of sockets, routes and neighbours
	ethertype uint16
	suffix    string                // of the names of sets and chains
	address   nftables.SetDatatype  // of sets
	saddr     uint32                // where the source address begins in the header
	daddr     uint32                // where the destination address begins in the header
	icmp      byte                  // protocol number
	errors    [][2]byte             // types of ICMP about packets that did not arrive, from the lowest to the highest
	is        func(netip.Addr) bool // belongs to this family
}

var (
	ipv4 = family{
		af: unix.AF_INET, ethertype: unix.ETH_P_IP, suffix: "4", address: nftables.TypeIPAddr,
		saddr: 12, daddr: 16, icmp: unix.IPPROTO_ICMP, errors: [][2]byte{{3, 3}, {11, 12}}, is: netip.Addr.Is4,
	}
	ipv6 = family{
		af: unix.AF_INET6, ethertype: unix.ETH_P_IPV6, suffix: "6", address: nftables.TypeIP6Addr,
		saddr: 8, daddr: 24, icmp: unix.IPPROTO_ICMPV6, errors: [][2]byte{{1, 4}}, is: netip.Addr.Is6,
	}
	families = []family{ipv4, ipv6}
)

// first returns the first of the addresses that is of this family, or one that is not valid.
func (f family) first(addresses []netip.Addr) netip.Addr {
	for _, a := range addresses {
		if f.is(a) {
			return a
		}
	}
	return netip.Addr{}
}

// addresses returns those of this family.
func (f family) addresses(all []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return !f.is(a) })
}

// prefixes returns those of this family, without those that lie in another one of them.
func (f family) prefixes(all []netip.Prefix) []netip.Prefix {
	var mine []netip.Prefix
	for _, p := range all {
		if f.is(p.Addr()) {
			mine = append(mine, p.Masked())
		}
	}
	return overlay.Disjoint(mine)
}

// familiesOf returns the families that there are prefixes of.
func familiesOf(prefixes []netip.Prefix) []family {
	var used []family
	for _, f := range families {
		if len(f.prefixes(prefixes)) > 0 {
			used = append(used, f)
		}
	}
	return used
}
