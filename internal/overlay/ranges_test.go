// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestPick(t *testing.T) {
	tests := map[string]struct {
		pool  string
		bits  int
		taken []netip.Prefix
		want  string // "" is none
	}{
		"the first of an empty pool":        {pool: "100.64.0.0/10", bits: 16, want: "100.64.0.0/16"},
		"behind what is taken":              {pool: "100.64.0.0/10", bits: 16, taken: prefixes("100.64.0.0/16", "100.65.0.0/16"), want: "100.66.0.0/16"},
		"in a gap":                          {pool: "100.64.0.0/10", bits: 16, taken: prefixes("100.66.0.0/16", "100.64.0.0/16"), want: "100.65.0.0/16"},
		"not around a single address":       {pool: "100.64.0.0/10", bits: 16, taken: prefixes("100.64.3.7/32"), want: "100.65.0.0/16"},
		"behind one that is larger":         {pool: "100.64.0.0/10", bits: 24, taken: prefixes("100.64.0.0/12"), want: "100.80.0.0/24"},
		"behind one that begins before":     {pool: "100.64.0.0/10", bits: 16, taken: prefixes("100.0.0.0/9"), want: ""},
		"others do not matter":              {pool: "100.64.0.0/10", bits: 16, taken: prefixes("10.0.0.0/8", "fd00::/8"), want: "100.64.0.0/16"},
		"the pool itself":                   {pool: "100.64.0.0/10", bits: 10, want: "100.64.0.0/10"},
		"larger than the pool":              {pool: "100.64.0.0/10", bits: 9},
		"longer than an address":            {pool: "100.64.0.0/10", bits: 33},
		"a full pool":                       {pool: "10.0.0.0/30", bits: 31, taken: prefixes("10.0.0.0/31", "10.0.0.3/32")},
		"the last addresses there are":      {pool: "255.255.255.252/30", bits: 32, taken: prefixes("255.255.255.252/31", "255.255.255.254/31")},
		"IPv6":                              {pool: "fd68:616e:7365::/48", bits: 56, taken: prefixes("fd68:616e:7365::/56"), want: "fd68:616e:7365:100::/56"},
		"a pool that is not written neatly": {pool: "100.64.3.7/10", bits: 16, want: "100.64.0.0/16"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := newSpace(test.taken...).pick(netip.MustParsePrefix(test.pool), test.bits)
			if ok != (test.want != "") || ok && got.String() != test.want {
				t.Errorf("got %s, %t, want %q", got, ok, test.want)
			}
		})
	}
}

// drawNear draws ranges that mostly lie in 10.0.0.0/26, or around it.
func drawNear(t *rapid.T) netip.Prefix {
	address := netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "address")})
	return netip.PrefixFrom(address, rapid.IntRange(20, 32).Draw(t, "length")).Masked()
}

func TestWhatIsPickedIsTheFirstThatIsFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool := netip.MustParsePrefix("10.0.0.0/26")
		bits := rapid.IntRange(26, 32).Draw(t, "bits")
		taken := rapid.SliceOfN(rapid.Custom(drawNear), 0, 12).Draw(t, "taken")
		free := func(p netip.Prefix) bool {
			for _, other := range taken {
				if other.Overlaps(p) {
					return false
				}
			}
			return true
		}
		got, ok := newSpace(taken...).pick(pool, bits)
		if ok && (!free(got) || got.Bits() != bits || got != got.Masked() || !pool.Overlaps(got)) {
			t.Fatalf("picked %s", got)
		}
		for host := 0; host < 64; host += 1 << (32 - bits) {
			candidate := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(host)}), bits)
			if free(candidate) {
				if candidate != got {
					t.Fatalf("picked %s, %t, but %s is the first that is free", got, ok, candidate)
				}
				return
			}
		}
		if ok {
			t.Fatalf("picked %s where nothing is free", got)
		}
	})
}

func TestASpaceIsSortedAndKnowsAllThatIsTaken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		taken := rapid.SliceOfN(rapid.Custom(drawNear), 0, 20).Draw(t, "taken")
		s := newSpace(taken...)
		for i := range s {
			if i > 0 && !s[i-1].Addr().Less(s[i].Addr()) {
				t.Fatalf("%v is not sorted", s)
			}
			if i > 0 && s[i-1].Overlaps(s[i]) {
				t.Fatalf("%s overlaps %s", s[i-1], s[i])
			}
		}
		asked := drawNear(t)
		overlaps := false
		for _, p := range taken {
			overlaps = overlaps || p.Overlaps(asked)
		}
		if _, got := s.overlapping(asked); got != overlaps {
			t.Fatalf("%v overlaps %s: %t", s, asked, got)
		}
	})
}

func TestTranslation(t *testing.T) {
	mappings := maps("10.244.0.0/16=100.64.0.0/16", "10.96.0.0/12=240.16.0.0/12", "fd00:1::/47=fd68:616e::/47")
	tests := map[string]struct{ own, seen string }{
		"a pod":                        {"10.244.1.7", "100.64.1.7"},
		"a Service":                    {"10.96.0.10", "240.16.0.10"},
		"the last Service":             {"10.111.255.255", "240.31.255.255"},
		"a pod of IPv6":                {"fd00:1:1::7", "fd68:616e:1::7"},
		"an address that is no pod's":  {own: "10.245.0.1"},
		"an address that nobody sees":  {seen: "100.65.0.1"},
		"an address of another family": {own: "fd00:3::1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			own, _ := netip.ParseAddr(test.own)
			seen, _ := netip.ParseAddr(test.seen)
			if got, ok := Seen(mappings, own); own.IsValid() && (ok != seen.IsValid() || got != seen) {
				t.Errorf("%s is seen as %s, %t", own, got, ok)
			}
			if got, ok := Own(mappings, seen); seen.IsValid() && (ok != own.IsValid() || got != own) {
				t.Errorf("%s is %s, %t", seen, got, ok)
			}
		})
	}
}

func TestTranslationIsOneToOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.IntRange(0, 128).Draw(t, "bits")
		draw := func(name string) netip.Addr {
			var bytes [16]byte
			copy(bytes[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name))
			return netip.AddrFrom16(bytes)
		}
		own, seen := netip.PrefixFrom(draw("own"), bits).Masked(), netip.PrefixFrom(draw("seen"), bits).Masked()
		mappings := []Mapping{{own, seen}}
		address := move(draw("address"), own)
		there, ok := Seen(mappings, address)
		if !ok || !seen.Contains(there) {
			t.Fatalf("%s of %s is seen as %s, outside of %s", address, own, there, seen)
		}
		if back, ok := Own(mappings, there); !ok || back != address {
			t.Fatalf("%s became %s and then %s", address, there, back)
		}
	})
}

func TestPrefixesWithinOthersAreLeftOut(t *testing.T) {
	same := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	for name, test := range map[string]struct{ all, want []netip.Prefix }{
		"none":            {nil, nil},
		"beside others":   {prefixes("10.1.0.0/16", "10.0.0.0/16"), prefixes("10.0.0.0/16", "10.1.0.0/16")},
		"the same twice":  {prefixes("10.0.0.0/16", "10.0.0.0/16"), prefixes("10.0.0.0/16")},
		"several in one":  {prefixes("10.2.0.0/16", "10.1.0.0/16", "10.0.0.0/8"), prefixes("10.0.0.0/8")},
		"both families":   {prefixes("::/0", "0.0.0.0/0", "fd00::/8"), prefixes("0.0.0.0/0", "::/0")},
		"nested in order": {prefixes("10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "11.0.0.0/8"), prefixes("10.0.0.0/8", "11.0.0.0/8")},
	} {
		if diff := cmp.Diff(test.want, Disjoint(test.all), same); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
