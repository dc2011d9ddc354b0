// SPDX-License-Identifier: Apache-2.0

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
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/hanse-dev/hanse/internal/overlay"
)

// An element is a key of a set, or a range of keys, with its value if the set is a map. All are bytes as the kernel has them.
type element struct {
	first, last string // the same unless the set has ranges
	value       string // an address, or the name of a chain
}

// A set is a set or a map of addresses. Its keys are no pairs and its values no ranges, because nft of many distributions ends
// when it is to list what is made of those.
type set struct {
	name     string
	key      nftables.SetDatatype
	ranges   bool                 // keys are prefixes
	value    nftables.SetDatatype // no name if this is no map
	elements map[element]struct{}
}

// newSet makes a set of single addresses. Its methods make something else of it.
func (f family) newSet(name string) *set {
	return &set{name: name + f.suffix, key: f.address, elements: map[element]struct{}{}}
}

func (s *set) ofPrefixes() *set {
	s.ranges = true
	return s
}

// toAddresses makes it a map.
func (s *set) toAddresses() *set {
	s.value = s.key
	return s
}

// toChains makes it a map that says to which chain a packet jumps.
func (s *set) toChains() *set {
	s.value = nftables.TypeVerdict
	return s
}

// addAddresses adds those of the family.
func (s *set) addAddresses(f family, all []netip.Addr, value string) {
	for _, a := range all {
		if f.is(a) {
			s.elements[element{string(a.AsSlice()), string(a.AsSlice()), value}] = struct{}{}
		}
	}
}

// addPrefixes adds those of the family, without those that lie in another one.
func (s *set) addPrefixes(f family, all []netip.Prefix, value string) {
	for _, p := range f.prefixes(all) {
		s.elements[element{string(p.Addr().AsSlice()), string(overlay.Last(p).AsSlice()), value}] = struct{}{}
	}
}

// definition is the set as the kernel is to have it, without its elements.
func (s *set) definition(table *nftables.Table, id uint32) *nftables.Set {
	return &nftables.Set{
		Table: table, ID: id, Name: s.name, KeyType: s.key, Interval: s.ranges, IsMap: s.value.Name != "", DataType: s.value,
	}
}

// shape tells sets of different definitions apart. The library takes the type of verdicts for that of keys when it reads.
func shape(d *nftables.Set) string {
	if d.DataType.Name == nftables.TypeVerdict.Name || d.KeyType.Name == nftables.TypeVerdict.Name {
		return fmt.Sprintf("%s %t to chains", d.Name, d.Interval)
	}
	return fmt.Sprintf("%s %t %s %s", d.Name, d.Interval, d.KeyType.Name, d.DataType.Name)
}

// encode writes elements as the kernel wants them. A range is two elements for it, its beginning and where the next one could
// begin, unless that is beyond the last address.
func (s *set) encode(elements []element) []nftables.SetElement {
	var all []nftables.SetElement
	for _, e := range elements {
		begin := nftables.SetElement{Key: []byte(e.first), Val: []byte(e.value)}
		if s.value.Name == nftables.TypeVerdict.Name {
			begin.VerdictData = &expr.Verdict{Kind: expr.VerdictJump, Chain: e.value}
		}
		all = append(all, begin)
		if next, ok := after(e.last); ok && s.ranges {
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
		highest, value := e.Key, string(e.Val)
		switch {
		case s.ranges && i+1 < len(all):
			highest = before(all[i+1].Key)
		case s.ranges:
			highest = bytes.Repeat([]byte{0xff}, len(e.Key))
		}
		if s.value.Name == nftables.TypeVerdict.Name {
			value = chainOf(e.Val)
		}
		found[element{string(e.Key), string(highest), value}] = struct{}{}
	}
	return found
}

// chainOf returns the chain of a verdict, which the library leaves as it came.
func chainOf(verdict []byte) string {
	attributes, err := netlink.NewAttributeDecoder(verdict)
	if err != nil {
		return ""
	}
	for attributes.Next() {
		if attributes.Type() == unix.NFTA_VERDICT_CHAIN {
			return attributes.String()
		}
	}
	return ""
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
