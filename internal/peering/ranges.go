package peering

import (
	"net/netip"
	"slices"
)

// pickRange returns the first range of that length in the pool that overlaps none of those that are taken.
func pickRange(pool netip.Prefix, bits int, taken []netip.Prefix) (netip.Prefix, bool) {
	if bits < pool.Bits() || bits > pool.Addr().BitLen() {
		return netip.Prefix{}, false
	}
	candidate := netip.PrefixFrom(pool.Masked().Addr(), bits)
	// In the order of their first addresses, each has to be compared once: the candidate only moves up.
	for _, other := range slices.SortedFunc(slices.Values(taken), byFirstAddress) {
		if !candidate.Overlaps(other) {
			continue
		}
		// Whichever of the two is larger ends where a candidate may begin.
		next := lastOf(wider(candidate, other)).Next()
		if !next.IsValid() || !pool.Contains(next) {
			return netip.Prefix{}, false
		}
		candidate = netip.PrefixFrom(next, bits)
	}
	return candidate, true
}

func byFirstAddress(a, b netip.Prefix) int { return a.Masked().Addr().Compare(b.Masked().Addr()) }

func wider(a, b netip.Prefix) netip.Prefix {
	if a.Bits() < b.Bits() {
		return a
	}
	return b
}

// lastOf returns the last address of the range.
func lastOf(p netip.Prefix) netip.Addr {
	address := p.Masked().Addr().AsSlice()
	for i := range address {
		hostBits := min(max((i+1)*8-p.Bits(), 0), 8)
		address[i] |= byte(1<<hostBits - 1)
	}
	last, _ := netip.AddrFromSlice(address)
	return last
}

// overlapping returns the first of the ranges that overlaps p.
func overlapping(p netip.Prefix, ranges []netip.Prefix) (netip.Prefix, bool) {
	at := slices.IndexFunc(ranges, p.Overlaps)
	if at < 0 {
		return netip.Prefix{}, false
	}
	return ranges[at], true
}

// parseRanges returns those of the texts that are ranges.
func parseRanges(texts ...string) []netip.Prefix {
	var ranges []netip.Prefix
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			ranges = append(ranges, p.Masked())
		}
	}
	return ranges
}
