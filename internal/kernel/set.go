//go:build linux

package kernel

import (
	"bytes"
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
)

// An element is a key of a set, or a range of keys, with its value if the set is a map. All are bytes as the kernel has them.
type element struct {
	first, last string // the same unless the set has ranges
	value       string
}

// A set is a set or a map of addresses, or of pairs of addresses.
type set struct {
	name     string
	key      nftables.SetDatatype
	fields   int  // addresses in a key
	ranges   bool // keys are prefixes
	value    int  // length of values; 0 if this is no map
	elements map[element]struct{}
}

// newSet makes a set of single addresses. Its methods make something else of it.
func (f family) newSet(name string) *set {
	return &set{name: name + f.suffix, key: f.address, fields: 1, elements: map[element]struct{}{}}
}

func (s *set) ofPrefixes() *set {
	s.ranges = true
	return s
}

func (s *set) ofPairs() *set {
	s.fields = 2
	return s
}

// toAddresses makes a map of it, each value of which is made of so many addresses.
func (s *set) toAddresses(count int) *set {
	s.value = count * int(s.key.Bytes)
	return s
}

func (s *set) addAddress(key netip.Addr, value ...netip.Addr) {
	s.add([]netip.Addr{key}, []netip.Addr{key}, value)
}

func (s *set) addPrefix(key netip.Prefix, value ...netip.Addr) {
	s.add([]netip.Addr{key.Masked().Addr()}, []netip.Addr{last(key)}, value)
}

func (s *set) addPair(a, b netip.Prefix, value ...netip.Addr) {
	s.add([]netip.Addr{a.Masked().Addr(), b.Masked().Addr()}, []netip.Addr{last(a), last(b)}, value)
}

// addAddresses adds those of the family.
func (s *set) addAddresses(f family, all []netip.Addr) {
	for _, a := range all {
		if f.is(a) {
			s.addAddress(a)
		}
	}
}

// addPairs adds each of one with each of the other.
func (s *set) addPairs(one, other []netip.Prefix) {
	for _, a := range one {
		for _, b := range other {
			s.addPair(a, b)
		}
	}
}

func (s *set) add(lowest, highest, value []netip.Addr) {
	s.elements[element{concat(lowest), concat(highest), concat(value)}] = struct{}{}
}

func concat(addresses []netip.Addr) string {
	var all []byte
	for _, a := range addresses {
		all = append(all, a.AsSlice()...)
	}
	return string(all)
}

// definition is the set as the kernel is to have it, without its elements.
func (s *set) definition(table *nftables.Table, id uint32) *nftables.Set {
	d := &nftables.Set{Table: table, ID: id, Name: s.name, KeyType: s.key, Interval: s.ranges}
	if s.fields == 2 {
		d.KeyType = nftables.MustConcatSetType(s.key, s.key)
		d.Concatenation = true
	}
	if s.value > 0 {
		d.IsMap, d.DataType = true, s.key
		d.DataType.Bytes = uint32(s.value) //nolint:gosec // two addresses at most
	}
	return d
}

// shape tells sets of different definitions apart.
func shape(d *nftables.Set) string {
	return fmt.Sprintf("%s %d %t %t %d", d.Name, d.KeyType.Bytes, d.Interval, d.IsMap, d.DataType.Bytes)
}

// encode writes elements as the kernel wants them. A range of single addresses is two elements for it, its beginning and
// where the next one could begin, unless that is beyond the last address. A range of pairs is one element.
func (s *set) encode(elements []element) []nftables.SetElement {
	var all []nftables.SetElement
	for _, e := range elements {
		begin := nftables.SetElement{Key: []byte(e.first), Val: []byte(e.value)}
		if s.ranges && s.fields == 2 {
			begin.KeyEnd = []byte(e.last)
		}
		all = append(all, begin)
		if next, ok := after(e.last); ok && s.ranges && s.fields == 1 {
			all = append(all, nftables.SetElement{Key: next, IntervalEnd: true})
		}
	}
	return all
}

// decode reads what the kernel has, the other way around.
func (s *set) decode(all []nftables.SetElement) map[element]struct{} {
	found := map[element]struct{}{}
	slices.SortFunc(all, compareElements)
	for i, e := range all {
		if e.IntervalEnd {
			continue
		}
		highest := e.Key
		switch {
		case s.ranges && s.fields == 2:
			highest = e.KeyEnd
		case s.ranges && i+1 < len(all):
			highest = before(all[i+1].Key)
		case s.ranges:
			highest = bytes.Repeat([]byte{0xff}, len(e.Key))
		}
		found[element{string(e.Key), string(highest), string(e.Val)}] = struct{}{}
	}
	return found
}

// compareElements sorts by key, and the end of a range before the next range, which may begin at the same key.
func compareElements(a, b nftables.SetElement) int {
	if c := bytes.Compare(a.Key, b.Key); c != 0 {
		return c
	}
	if a.IntervalEnd == b.IntervalEnd {
		return 0
	}
	if a.IntervalEnd {
		return -1
	}
	return 1
}

// missing returns the elements of one that the other lacks, sorted.
func missing(one, other map[element]struct{}) []element {
	var found []element
	for e := range maps.Keys(one) {
		if _, ok := other[e]; !ok {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b element) int { return strings.Compare(a.first+a.last, b.first+b.last) })
	return found
}

func after(key string) ([]byte, bool) {
	next := new(big.Int).Add(new(big.Int).SetBytes([]byte(key)), big.NewInt(1))
	if next.BitLen() > len(key)*8 {
		return nil, false
	}
	return next.FillBytes(make([]byte, len(key))), true
}

func before(key []byte) []byte {
	previous := new(big.Int).Sub(new(big.Int).SetBytes(key), big.NewInt(1))
	return previous.FillBytes(make([]byte, len(key)))
}
