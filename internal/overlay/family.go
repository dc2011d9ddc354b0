// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// ofFamily returns the first of the addresses that is of the family.
func ofFamily(addresses []netip.Addr, family func(netip.Addr) bool) (netip.Addr, bool) {
	for _, address := range addresses {
		if family(address) {
			return address, true
		}
	}
	return netip.Addr{}, false
}

// oneOfEach returns the first address of each family, IPv4 first.
func oneOfEach(addresses []netip.Addr) []netip.Addr {
	var one []netip.Addr
	for _, family := range []func(netip.Addr) bool{netip.Addr.Is4, netip.Addr.Is6} {
		if address, ok := ofFamily(addresses, family); ok {
			one = append(one, address)
		}
	}
	return one
}

// hasFamily reports whether there is a range of the family of the address.
func hasFamily(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Addr().Is4() == a.Is4() })
}

// anyOfFamily reports whether one of the endpoints is of a family of the ranges.
func anyOfFamily(ranges []netip.Prefix, endpoints ...netip.AddrPort) bool {
	return slices.ContainsFunc(endpoints, func(e netip.AddrPort) bool { return hasFamily(ranges, e.Addr().Unmap()) })
}

// usable returns those of the addresses that are of a family of the ranges, and all if none is.
func usable(ranges []netip.Prefix, addresses []v1alpha1.IP) []v1alpha1.IP {
	fit := slices.DeleteFunc(slices.Clone(addresses), func(text v1alpha1.IP) bool {
		a, err := netip.ParseAddr(string(text))
		return err != nil || !hasFamily(ranges, a)
	})
	if len(fit) == 0 {
		return addresses
	}
	return fit
}

// unlike says that the ranges of a peer and ours are of different families, if that is so.
func unlike(peer string, own, theirs []netip.Prefix) *Conflict {
	if len(own) == 0 || len(theirs) == 0 || slices.ContainsFunc(theirs, func(p netip.Prefix) bool { return hasFamily(own, p.Addr()) }) {
		return nil
	}
	return &Conflict{peer, v1alpha1.ReasonNoCommonFamily, fmt.Sprintf("Pods and Services of the peer have %s alone, and ours have %s alone, "+
		"so nothing can pass between them: one of the two clusters needs both", family(theirs[0].Addr()), family(own[0].Addr()))}
}

// family is what people call it.
func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}
