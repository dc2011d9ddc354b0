// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"net/netip"
	"slices"
)

// Seen returns the address as the other cluster sees it, and false if it is in none of the own ranges.
func Seen(mappings []Mapping, own netip.Addr) (netip.Addr, bool) {
	for _, m := range mappings {
		if m.Own.Contains(own) && m.wellFormed() {
			return move(own, m.Seen), true
		}
	}
	return netip.Addr{}, false
}

// Own returns the address as its own cluster sees it, and false if it is in none of the seen ranges.
func Own(mappings []Mapping, seen netip.Addr) (netip.Addr, bool) {
	for _, m := range mappings {
		if m.Seen.Contains(seen) && m.wellFormed() {
			return move(seen, m.Own), true
		}
	}
	return netip.Addr{}, false
}

// move replaces the front part of the address by that of the range.
func move(address netip.Addr, to netip.Prefix) netip.Addr {
	front, moved := to.Masked().Addr().AsSlice(), address.AsSlice()
	for i := range moved {
		host := hostBits(to, i)
		moved[i] = front[i]&^host | moved[i]&host
	}
	result, _ := netip.AddrFromSlice(moved)
	return result
}

// hostBits are those bits of a byte of the range's addresses in which they differ.
func hostBits(p netip.Prefix, index int) byte {
	return byte(1<<min(max((index+1)*8-p.Bits(), 0), 8) - 1)
}

// Last returns the last address of the range.
func Last(p netip.Prefix) netip.Addr {
	address := p.Masked().Addr().AsSlice()
	for i := range address {
		address[i] |= hostBits(p, i)
	}
	last, _ := netip.AddrFromSlice(address)
	return last
}

// wellFormed reports whether the mapping is one to one, and written in the one way in which it can be.
func (m Mapping) wellFormed() bool {
	return isRange(m.Own) && isRange(m.Seen) && m.Own.Bits() == m.Seen.Bits() && m.Own.Addr().BitLen() == m.Seen.Addr().BitLen()
}

func isRange(p netip.Prefix) bool { return p.IsValid() && p == p.Masked() && !p.Addr().Is4In6() }

// A space is what is taken: sorted ranges of which none overlaps another.
type space []netip.Prefix

func newSpace(ranges ...netip.Prefix) space {
	var s space
	for _, p := range sortedRanges(ranges) {
		if len(s) == 0 || !s[len(s)-1].Overlaps(p) { // what begins at one address is sorted by its length, the widest first
			s = append(s, p)
		}
	}
	return s
}

// Disjoint returns the ranges sorted and without host bits, without those that lie in another one.
func Disjoint(ranges []netip.Prefix) []netip.Prefix { return newSpace(ranges...) }

// add takes the range, whether or not some of it is taken.
func (s *space) add(p netip.Prefix) {
	if other, clash := s.overlapping(p); clash && other.Bits() <= p.Bits() {
		return // all of it is taken
	}
	at := s.find(p)
	end := at
	for end < len(*s) && p.Overlaps((*s)[end]) {
		end++
	}
	*s = slices.Replace(*s, at, end, p)
}

// find returns the index of the first range that does not begin before p.
func (s space) find(p netip.Prefix) int {
	at, _ := slices.BinarySearchFunc(s, p.Addr(), func(q netip.Prefix, address netip.Addr) int { return q.Addr().Compare(address) })
	return at
}

// overlapping returns the first range that overlaps p.
func (s space) overlapping(p netip.Prefix) (netip.Prefix, bool) {
	at := s.find(p)
	if at > 0 && s[at-1].Overlaps(p) {
		return s[at-1], true
	}
	if at < len(s) && s[at].Overlaps(p) {
		return s[at], true
	}
	return netip.Prefix{}, false
}

// pick returns the first range of that length in the pool of which nothing is taken.
func (s space) pick(pool netip.Prefix, bits int) (netip.Prefix, bool) {
	if bits < pool.Bits() || bits > pool.Addr().BitLen() {
		return netip.Prefix{}, false
	}
	candidate := netip.PrefixFrom(pool.Masked().Addr(), bits)
	for {
		other, clash := s.overlapping(candidate)
		if !clash {
			return candidate, true
		}
		// Whichever of the two is larger ends where a candidate may begin.
		next := Last(netip.PrefixFrom(candidate.Addr(), min(bits, other.Bits()))).Next()
		if !next.IsValid() || !pool.Contains(next) {
			return netip.Prefix{}, false
		}
		candidate = netip.PrefixFrom(next, bits)
	}
}

// prefixes returns the ranges that the texts mean, which must mean some.
func prefixes(texts ...string) []netip.Prefix {
	var ranges []netip.Prefix
	for _, text := range texts {
		ranges = append(ranges, netip.MustParsePrefix(text))
	}
	return ranges
}
