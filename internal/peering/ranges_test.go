package peering

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func TestPickRange(t *testing.T) {
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
			got, ok := pickRange(netip.MustParsePrefix(test.pool), test.bits, test.taken)
			if ok != (test.want != "") || ok && got.String() != test.want {
				t.Errorf("got %s, %t, want %q", got, ok, test.want)
			}
		})
	}
}

func TestPickedRangesAreFreeAndInThePool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool := netip.MustParsePrefix("10.0.0.0/26")
		bits := rapid.IntRange(26, 32).Draw(t, "bits")
		var taken []netip.Prefix
		for range rapid.IntRange(0, 12).Draw(t, "count") {
			address := netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "address")})
			taken = append(taken, netip.PrefixFrom(address, rapid.IntRange(20, 32).Draw(t, "length")).Masked())
		}
		got, ok := pickRange(pool, bits, taken)
		free := func(p netip.Prefix) bool {
			_, clash := overlapping(p, taken)
			return !clash
		}
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

func TestCompatible(t *testing.T) {
	tests := []struct {
		a, b string
		want bool
	}{
		{"v0.1.0", "v0.1.0", true},
		{"v0.1.0", "v0.2.7", true},
		{"v0.3.0", "v0.2.0-rc.1", true},
		{"v0.1.0", "v0.3.0", false},
		{"v1.0.0", "v0.9.0", false},
		{"dev", "dev", true},
		{"dev", "v0.1.0", false},
		{"nonsense", "v0.1.0", false},
	}
	for _, test := range tests {
		if got := compatible(test.a, test.b); got != test.want {
			t.Errorf("compatible(%q, %q) = %t", test.a, test.b, got)
		}
		if compatible(test.a, test.b) != compatible(test.b, test.a) {
			t.Errorf("%q and %q do not agree", test.a, test.b)
		}
	}
}
