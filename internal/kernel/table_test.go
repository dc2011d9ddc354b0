// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"pgregory.net/rapid"

	"github.com/hanse-dev/hanse/internal/overlay"
)

// What is in a set is read back as it was written, whatever the order in which the kernel has it.
func TestElementsAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := families[rapid.IntRange(0, 1).Draw(t, "family")]
		s := f.newSet("set")
		ranges := rapid.Bool().Draw(t, "ranges")
		if ranges {
			s.ofPrefixes()
		}
		list := overlay.Disjoint(rapid.SliceOf(rapid.Custom(func(t *rapid.T) netip.Prefix { return drawPrefix(t, f, ranges) })).Draw(t, "prefixes"))
		s.addPrefixes(f, list, "")
		written := s.encode(missing(s.elements, nil))
		got := s.decode(rapid.Permutation(written).Draw(t, "order"))
		if diff := cmp.Diff(s.elements, got, cmp.AllowUnexported(element{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func drawPrefix(t *rapid.T, f family, ranges bool) netip.Prefix {
	bytes := rapid.SliceOfN(rapid.Byte(), int(f.address.Bytes), int(f.address.Bytes)).Draw(t, "address")
	a, _ := netip.AddrFromSlice(bytes)
	bits := a.BitLen()
	if ranges {
		bits = rapid.IntRange(0, bits).Draw(t, "bits")
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// The kernel itself must give back what it was given, at the ends of the address space too.
func TestKernelHasWhatWasWritten(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "tables")
	s.must(func() error {
		for _, list := range [][]netip.Prefix{
			prefixes("240.0.0.0/4", "0.0.0.0/8", "10.0.0.0/16", "10.1.0.0/16", "10.3.0.0/32"),
			prefixes("10.1.0.0/16", "255.255.255.255/32"),
			nil,
			prefixes("0.0.0.0/0"),
		} {
			ranges := ipv4.newSet("ranges").ofPrefixes()
			ranges.addPrefixes(ipv4, list, "")
			chains := ipv4.newSet("chains").ofPrefixes().toChains()
			chains.addPrefixes(ipv4, list, "target")
			values := ipv4.newSet("values").toAddresses()
			values.addAddresses(ipv4, []netip.Addr{addr("10.0.0.1"), addr("255.255.255.255")}, string(addr("10.0.0.2").AsSlice()))
			tables := table{family: nftables.TableFamilyINet, sets: []*set{ranges, chains, values}, chains: []*chain{{name: "target"}}}
			if err := tables.apply(); err != nil {
				return err
			}
			conn, err := nftables.New()
			if err != nil {
				return err
			}
			for i, set := range tables.sets {
				have, err := conn.GetSetElements(set.definition(tables.definition(), uint32(i+1)))
				if err != nil {
					return err
				}
				if diff := cmp.Diff(set.elements, set.decode(have), cmp.AllowUnexported(element{})); diff != "" {
					t.Errorf("%s of %v (-want +got):\n%s", set.name, list, diff)
				}
			}
		}
		return nil
	})
}

func TestTablesDependOnTheirContentsAlone(t *testing.T) {
	for _, f := range []nftables.TableFamily{nftables.TableFamilyINet, nftables.TableFamilyBridge} {
		one, err1 := table{family: f, chains: []*chain{{name: "a", rules: []expression{drop()}}, {name: "b"}}}.shape()
		other, err2 := table{family: f, chains: []*chain{{name: "b"}, {name: "a", rules: []expression{drop()}}}}.shape()
		changed, err3 := table{family: f, chains: []*chain{{name: "a", rules: []expression{accept()}}, {name: "b"}}}.shape()
		if err1 != nil || err2 != nil || err3 != nil || !slices.Equal(one, other) || slices.Equal(one, changed) {
			t.Errorf("%v %v %v: %v, %v and %v", err1, err2, err3, one, other, changed)
		}
	}
}
