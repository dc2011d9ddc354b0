//go:build linux

package kernel

import (
	"net/netip"
	"slices"
)

// disjoint returns the prefixes sorted, without those that lie in another one. Prefixes overlap in no other way.
func disjoint(prefixes []netip.Prefix) []netip.Prefix {
	var kept []netip.Prefix
	for _, p := range slices.SortedFunc(slices.Values(prefixes), netip.Prefix.Compare) {
		if len(kept) == 0 || !kept[len(kept)-1].Overlaps(p) {
			kept = append(kept, p)
		}
	}
	return kept
}

// last is the highest address of a prefix.
func last(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	highest, _ := netip.AddrFromSlice(bytes)
	return highest
}
