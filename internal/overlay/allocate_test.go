// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

var byText = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

// maps returns the mappings that texts such as "10.244.0.0/16=100.64.0.0/16" mean.
func maps(texts ...string) []Mapping {
	var mappings []Mapping
	for _, text := range texts {
		own, seen, _ := strings.Cut(text, "=")
		mappings = append(mappings, Mapping{netip.MustParsePrefix(own), netip.MustParsePrefix(seen)})
	}
	return mappings
}

func TestAllocate(t *testing.T) {
	ours := []string{"10.244.0.0/16", "10.96.0.0/12", "192.168.7.3/32"}
	pools := Pools{Pods: prefixes("100.64.0.0/14", "fd68:616e::/46"), Services: prefixes("240.0.0.0/10")}
	usual := func(name string) Request {
		return Request{Peer: name, Pods: prefixes("10.244.0.0/16"), Services: prefixes("10.96.0.0/12")}
	}
	tests := map[string]struct {
		requests  []Request
		want      []Grant
		conflicts []string // peer, reason and a part of the message
	}{
		"nobody": {},
		"what overlaps ours is seen in a pool": {
			requests: []Request{usual("a")},
			want:     []Grant{{Peer: "a", Mappings: maps("10.244.0.0/16=100.64.0.0/16", "10.96.0.0/12=240.0.0.0/12")}},
		},
		"what overlaps nothing is seen as it is": {
			requests: []Request{{Peer: "a", Pods: prefixes("10.50.0.0/16", "fd12::/48"), Services: prefixes("172.20.0.0/16")}},
			want:     []Grant{{Peer: "a", Mappings: maps("10.50.0.0/16=10.50.0.0/16", "fd12::/48=fd12::/48", "172.20.0.0/16=172.20.0.0/16")}},
		},
		"what is relayed is seen as pods are": {
			requests: []Request{{Peer: "a", Pods: prefixes("10.244.0.0/16"), Relayed: prefixes("10.96.0.0/16", "100.66.0.0/16")}},
			want:     []Grant{{Peer: "a", Mappings: maps("10.244.0.0/16=100.64.0.0/16", "10.96.0.0/16=100.65.0.0/16", "100.66.0.0/16=100.66.0.0/16")}},
		},
		"what is relayed and its relay sees as it sees Services is seen as Services are": {
			requests: []Request{{Peer: "a", Pods: prefixes("10.244.0.0/16"), Relayed: prefixes("240.0.0.0/12")}},
			want:     []Grant{{Peer: "a", Mappings: maps("10.244.0.0/16=100.64.0.0/16", "240.0.0.0/12=240.0.0.0/12")}},
		},
		"what overlaps one of our nodes is seen in a pool": {
			requests: []Request{{Peer: "a", Pods: prefixes("192.168.0.0/16")}},
			want:     []Grant{{Peer: "a", Mappings: maps("192.168.0.0/16=100.64.0.0/16")}},
		},
		"what may be somebody's on the Internet is seen in a pool": {
			requests: []Request{{Peer: "a", Pods: prefixes("8.8.0.0/16", "2001:db8:1::/48"), Services: prefixes("240.9.0.0/16")}},
			want:     []Grant{{Peer: "a", Mappings: maps("8.8.0.0/16=100.64.0.0/16", "2001:db8:1::/48=fd68:616e::/48", "240.9.0.0/16=240.0.0.0/16")}},
		},
		"what a cloud keeps for itself is seen in a pool": {
			requests: []Request{{Peer: "a", Pods: prefixes("100.100.100.0/24", "fd00:ec2::/48")}},
			want:     []Grant{{Peer: "a", Mappings: maps("100.100.100.0/24=100.64.0.0/24", "fd00:ec2::/48=fd68:616e::/48")}},
		},
		"of two peers with one range, one is seen in a pool": {
			requests: []Request{{Peer: "b", Pods: prefixes("10.50.0.0/16")}, {Peer: "a", Pods: prefixes("10.50.0.0/16")}},
			want:     []Grant{{Peer: "a", Mappings: maps("10.50.0.0/16=10.50.0.0/16")}, {Peer: "b", Mappings: maps("10.50.0.0/16=100.64.0.0/16")}},
		},
		"a peer keeps what it has, and others go around": {
			requests: []Request{usual("a"), {Peer: "b", Pods: prefixes("10.244.0.0/16"), Has: maps("10.244.0.0/16=100.64.0.0/16")}},
			want: []Grant{
				{Peer: "a", Mappings: maps("10.244.0.0/16=100.65.0.0/16", "10.96.0.0/12=240.0.0.0/12")}, {Peer: "b", Mappings: maps("10.244.0.0/16=100.64.0.0/16")},
			},
		},
		"a peer keeps what it has outside of the pools": {
			requests: []Request{{Peer: "a", Pods: prefixes("10.244.0.0/16"), Has: maps("10.244.0.0/16=10.9.0.0/16")}},
			want:     []Grant{{Peer: "a", Mappings: maps("10.244.0.0/16=10.9.0.0/16")}},
		},
		"a peer keeps what it has while it announces nothing": {
			requests: []Request{{Peer: "a", Has: maps("10.244.0.0/16=100.66.0.0/16")}},
			want:     []Grant{{Peer: "a", Mappings: maps("10.244.0.0/16=100.66.0.0/16")}},
		},
		"a peer does not keep what this cluster uses now": {
			requests: []Request{{Peer: "a", Pods: prefixes("10.244.0.0/16"), Has: maps("10.244.0.0/16=10.100.0.0/16")}},
			want:     []Grant{{Peer: "a", Mappings: maps("10.244.0.0/16=100.64.0.0/16")}},
		},
		"a peer that changes its range gets another for it": {
			requests: []Request{{Peer: "a", Pods: prefixes("10.244.0.0/20"), Has: maps("10.244.0.0/16=100.65.0.0/16")}},
			want:     []Grant{{Peer: "a", Mappings: maps("10.244.0.0/20=100.64.0.0/20")}},
		},
		"two peers that have the same": {
			requests: []Request{
				{Peer: "b", Pods: prefixes("10.244.0.0/16"), Has: maps("10.244.0.0/16=100.66.0.0/16")},
				{Peer: "a", Pods: prefixes("10.244.0.0/16"), Has: maps("10.244.0.0/16=100.66.0.0/16")},
			},
			want: []Grant{{Peer: "a", Mappings: maps("10.244.0.0/16=100.66.0.0/16")}, {Peer: "b", Mappings: maps("10.244.0.0/16=100.64.0.0/16")}},
		},
		"what is asked for": {
			requests: []Request{{Peer: "a", Pods: prefixes("10.244.0.0/16"), Has: maps("10.244.0.0/16=100.64.0.0/16"), Asked: maps("10.244.0.0/16=10.7.0.0/16")}},
			want:     []Grant{{Peer: "a", Mappings: maps("10.244.0.0/16=10.7.0.0/16")}},
		},
		"what is asked for before the peer announces it": {
			requests: []Request{{Peer: "a", Asked: maps("10.244.0.0/16=10.7.0.0/16")}},
			want:     []Grant{{Peer: "a", Mappings: maps("10.244.0.0/16=10.7.0.0/16")}},
		},
		"what is asked for of a range that the peer does not have": {
			requests: []Request{{Peer: "a", Pods: prefixes("10.50.0.0/16"), Asked: maps("10.51.0.0/16=10.7.0.0/16")}},
			want:     []Grant{{Peer: "a", Mappings: maps("10.50.0.0/16=10.50.0.0/16")}},
		},
		"what is asked for and is ours": {
			requests:  []Request{{Peer: "a", Pods: prefixes("10.244.0.0/16"), Asked: maps("10.244.0.0/16=10.97.0.0/16")}},
			want:      []Grant{{Peer: "a", Mappings: nil}},
			conflicts: []string{"a NoAddressRange asks for 10.97.0.0/16, which overlaps 10.96.0.0/12"},
		},
		"what is asked for and is another peer's": {
			requests: []Request{
				{Peer: "a", Pods: prefixes("10.244.0.0/16"), Asked: maps("10.244.0.0/16=100.65.0.0/16")},
				{Peer: "b", Pods: prefixes("10.244.0.0/16"), Has: maps("10.244.0.0/16=100.65.0.0/16")},
			},
			want:      []Grant{{Peer: "a", Mappings: nil}, {Peer: "b", Mappings: maps("10.244.0.0/16=100.65.0.0/16")}},
			conflicts: []string{"a NoAddressRange which overlaps 100.65.0.0/16"},
		},
		"what is asked for of another size": {
			requests:  []Request{{Peer: "a", Pods: prefixes("10.244.0.0/16"), Asked: []Mapping{{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("10.7.0.0/17")}}}},
			want:      []Grant{{Peer: "a", Mappings: nil}},
			conflicts: []string{"a NoAddressRange same family and length as 10.244.0.0/16"},
		},
		"what is asked for where hosts are": {
			requests:  []Request{{Peer: "a", Pods: prefixes("10.244.0.0/16"), Asked: maps("10.244.0.0/16=127.0.0.0/16")}},
			want:      []Grant{{Peer: "a", Mappings: nil}},
			conflicts: []string{"a NoAddressRange overlaps 127.0.0.0/8"},
		},
		"an exhausted pool takes nothing from others": {
			requests: []Request{
				{Peer: "a", Pods: prefixes("10.244.0.0/15"), Has: maps("10.244.0.0/15=100.64.0.0/15")},
				{Peer: "b", Pods: prefixes("10.244.0.0/15"), Has: maps("10.244.0.0/15=100.66.0.0/15")},
				{Peer: "c", Pods: prefixes("10.244.0.0/16"), Services: prefixes("10.96.0.0/12")},
			},
			want: []Grant{
				{Peer: "a", Mappings: maps("10.244.0.0/15=100.64.0.0/15")}, {Peer: "b", Mappings: maps("10.244.0.0/15=100.66.0.0/15")}, {Peer: "c", Mappings: maps("10.96.0.0/12=240.0.0.0/12")},
			},
			conflicts: []string{"c NoAddressRange No range as large as 10.244.0.0/16 is free"},
		},
		"a range larger than every pool": {
			requests:  []Request{{Peer: "a", Pods: prefixes("10.0.0.0/8")}},
			want:      []Grant{{Peer: "a", Mappings: nil}},
			conflicts: []string{"a NoAddressRange No range as large as 10.0.0.0/8"},
		},
		"a refused announcement leaves the peer what it has": {
			requests:  []Request{{Peer: "a", Pods: prefixes("0.0.0.0/0"), Has: maps("10.244.0.0/16=100.64.0.0/16")}, usual("b")},
			want:      []Grant{{Peer: "a", Mappings: maps("10.244.0.0/16=100.64.0.0/16")}, {Peer: "b", Mappings: maps("10.244.0.0/16=100.65.0.0/16", "10.96.0.0/12=240.0.0.0/12")}},
			conflicts: []string{"a NetworkRefused 0.0.0.0/0 is too wide"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			grants, conflicts := Allocate(prefixes(ours...), pools, test.requests)
			if diff := cmp.Diff(test.want, grants, byText); diff != "" {
				t.Errorf("grants (-want +got):\n%s", diff)
			}
			expectConflicts(t, test.conflicts, conflicts)
		})
	}
}

// expectConflicts compares conflicts with texts of a peer, a reason and a part of the message.
func expectConflicts(t *testing.T, want []string, got []Conflict) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d conflicts, want %d: %+v", len(got), len(want), got)
	}
	for i, c := range got {
		parts := strings.SplitN(want[i], " ", 3)
		if c.Peer != parts[0] || c.Reason != parts[1] || !strings.Contains(c.Message, parts[2]) {
			t.Errorf("conflict %+v, want %s", c, want[i])
		}
	}
}

func TestHostileAnnouncementsAreRefused(t *testing.T) {
	tests := map[string]struct {
		pods, services []netip.Prefix
		names          string // what the message must name; empty if nothing is wrong
	}{
		"the usual":                  {pods: prefixes("10.244.0.0/16"), services: prefixes("10.96.0.0/12")},
		"both families":              {pods: prefixes("10.244.0.0/16", "fd00:10:244::/56"), services: prefixes("10.96.0.0/16", "fd00:10:96::/112")},
		"as many as may be":          {pods: many(8), services: nil},
		"everything":                 {pods: prefixes("0.0.0.0/0"), names: "0.0.0.0/0 is too wide"},
		"everything of IPv6":         {pods: prefixes("::/0"), names: "::/0 is too wide"},
		"half of everything":         {services: prefixes("128.0.0.0/1"), names: "128.0.0.0/1 is too wide"},
		"all unique local addresses": {pods: prefixes("fc00::/7"), names: "fc00::/7 is too wide"},
		"a pool of IPv6":             {pods: prefixes("fd00::/32"), names: "fd00::/32 is too wide"},
		"four as wide as may be":     {pods: prefixes("10.0.0.0/8", "11.0.0.0/8"), services: prefixes("12.0.0.0/8", "13.0.0.0/8")},
		"all of a pool in pieces": {
			pods: prefixes("10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8", "13.0.0.0/8"), services: prefixes("14.0.0.0/24"), names: "too wide together",
		},
		"all of a pool of IPv6 in pieces": {
			pods:     prefixes("fd00::/40", "fd00:0:100::/40", "fd00:0:200::/40", "fd00:0:300::/40"),
			services: prefixes("fd00:0:400::/48"), names: "too wide together",
		},
		"this network":            {pods: prefixes("0.0.0.0/8"), names: "0.0.0.0/8"},
		"hosts themselves":        {pods: prefixes("127.0.0.0/24"), names: "127.0.0.0/8"},
		"a host itself of IPv6":   {pods: prefixes("::1/128"), names: "::1/128"},
		"a metadata service":      {pods: prefixes("169.254.169.254/32"), names: "169.254.0.0/16"},
		"links":                   {pods: prefixes("fe80::/64"), names: "fe80::/10"},
		"groups":                  {pods: prefixes("239.1.0.0/16"), names: "224.0.0.0/4"},
		"groups of IPv6":          {pods: prefixes("ff02::/64"), names: "ff00::/8"},
		"everybody on the link":   {pods: prefixes("255.0.0.0/8"), names: "255.255.255.255/32"},
		"two that overlap":        {pods: prefixes("10.244.0.0/16", "10.244.9.0/24"), names: "10.244.0.0/16 and 10.244.9.0/24 overlap"},
		"pods among Services":     {pods: prefixes("10.96.3.0/24"), services: prefixes("10.96.0.0/12"), names: "overlap"},
		"one twice":               {pods: prefixes("10.244.0.0/16", "10.244.0.0/16"), names: "overlap"},
		"ten thousand":            {pods: many(10_000), names: "10000 ranges of pods"},
		"nine of Services":        {services: many(9), names: "9 ranges of Services"},
		"a range with host bits":  {pods: prefixes("10.244.0.7/16"), names: "10.244.0.7/16 is none"},
		"a range of two families": {pods: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 112)}, names: "is none"},
		"no range":                {pods: []netip.Prefix{{}}, names: "is none"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			grants, conflicts := Allocate(nil, DefaultPools(), []Request{{Peer: "a", Pods: test.pods, Services: test.services}})
			if test.names == "" {
				expectConflicts(t, nil, conflicts)
				return
			}
			expectConflicts(t, []string{"a NetworkRefused " + test.names}, conflicts)
			if len(grants[0].Mappings) > 0 {
				t.Errorf("got %v", grants)
			}
		})
	}
}

func many(count int) []netip.Prefix {
	var ranges []netip.Prefix
	for i := range count {
		ranges = append(ranges, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24))
	}
	return ranges
}

func TestHowAPeerSeesUs(t *testing.T) {
	own := prefixes("10.244.0.0/16", "10.96.0.0/12")
	good := maps("10.96.0.0/12=240.16.0.0/12", "10.244.0.0/16=100.65.0.0/16")
	tests := map[string]struct {
		said     []Mapping
		want     []Mapping
		conflict string
	}{
		"both ranges, in our order": {said: good, want: maps("10.244.0.0/16=100.65.0.0/16", "10.96.0.0/12=240.16.0.0/12")},
		"as they are":               {said: maps("10.244.0.0/16=10.244.0.0/16", "10.96.0.0/12=10.96.0.0/12"), want: maps("10.244.0.0/16=10.244.0.0/16", "10.96.0.0/12=10.96.0.0/12")},
		"one that is not ours":      {said: append(maps("8.0.0.0/8=9.0.0.0/8"), good...), want: maps("10.244.0.0/16=100.65.0.0/16", "10.96.0.0/12=240.16.0.0/12")},
		"one that we relay": {
			said: append(maps("100.64.0.0/16=100.70.0.0/16"), good...),
			want: maps("10.244.0.0/16=100.65.0.0/16", "10.96.0.0/12=240.16.0.0/12", "100.64.0.0/16=100.70.0.0/16"),
		},
		"one that we relay, in one of ours": {said: append(maps("100.64.0.0/16=240.17.0.0/16"), good...), conflict: "a NetworkRefused overlap"},
		"nothing yet":                       {conflict: "a Pending 10.244.0.0/16"},
		"one of two":                        {said: maps("10.244.0.0/16=100.65.0.0/16"), conflict: "a Pending 10.96.0.0/12"},
		"a part of one":                     {said: maps("10.244.0.0/17=100.65.0.0/17"), conflict: "a Pending 10.244.0.0/16"},
		"one of another size":               {said: []Mapping{{own[0], netip.MustParsePrefix("100.65.0.0/17")}}, conflict: "a NetworkRefused 100.65.0.0/17"},
		"one of another family":             {said: []Mapping{{own[0], netip.MustParsePrefix("fd00::/16")}}, conflict: "a NetworkRefused fd00::/16"},
		"one that is a host":                {said: maps("10.244.0.0/16=127.1.0.0/16"), conflict: "a NetworkRefused 127.1.0.0/16"},
		"one that is a group":               {said: maps("10.244.0.0/16=224.1.0.0/16"), conflict: "a NetworkRefused 224.1.0.0/16"},
		"both in one":                       {said: maps("10.244.0.0/16=240.17.0.0/16", "10.96.0.0/12=240.16.0.0/12"), conflict: "a NetworkRefused overlap"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, conflict := Ours("a", own, prefixes("100.64.0.0/16"), test.said)
			if diff := cmp.Diff(test.want, got, byText); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if test.conflict == "" {
				if conflict != nil {
					t.Errorf("conflict %+v", conflict)
				}
				return
			}
			if conflict == nil {
				t.Fatal("no conflict")
			}
			expectConflicts(t, []string{test.conflict}, []Conflict{*conflict})
		})
	}
}

// drawRange draws one of few ranges, so that ranges of one draw often overlap those of another.
func drawRange(t *rapid.T) netip.Prefix {
	first := rapid.SampledFrom([]byte{10, 100, 8, 127, 240}).Draw(t, "first")
	address := netip.AddrFrom4([4]byte{first, rapid.Byte().Draw(t, "second") & 0x7f, 0, 0})
	return netip.PrefixFrom(address, rapid.IntRange(7, 18).Draw(t, "bits")).Masked()
}

func drawRequest(t *rapid.T, name string) Request {
	r := Request{
		Peer: name, Pods: rapid.SliceOfN(rapid.Custom(drawRange), 0, 3).Draw(t, "pods"),
		Services: rapid.SliceOfN(rapid.Custom(drawRange), 0, 2).Draw(t, "services"),
	}
	for _, own := range slices.Concat(r.Pods, r.Services) {
		for _, mappings := range []*[]Mapping{&r.Has, &r.Asked} {
			if rapid.IntRange(0, 3).Draw(t, "other") == 0 {
				*mappings = append(*mappings, Mapping{own, netip.PrefixFrom(drawRange(t).Addr(), own.Bits()).Masked()})
			}
		}
	}
	r.Homes = rapid.SliceOfN(rapid.SampledFrom([]string{"wismar", "visby"}), 0, 3).Draw(t, "homes")
	for _, own := range r.Pods {
		if rapid.IntRange(0, 3).Draw(t, "direct") == 0 {
			r.HasDirect = append(r.HasDirect, ClusterRange{"visby", Mapping{own, netip.PrefixFrom(drawRange(t).Addr(), own.Bits()).Masked()}})
		}
	}
	return r
}

func drawRequests(t *rapid.T) []Request {
	var requests []Request
	for i := range rapid.IntRange(0, 12).Draw(t, "peers") {
		requests = append(requests, drawRequest(t, string(rune('a'+i))))
	}
	return requests
}

func TestAllocationsKeepTheirPromises(t *testing.T) {
	pools := Pools{Pods: prefixes("100.64.0.0/12"), Services: prefixes("240.0.0.0/12")}
	rapid.Check(t, func(t *rapid.T) {
		taken := rapid.SliceOfN(rapid.Custom(drawRange), 0, 5).Draw(t, "taken")
		requests := drawRequests(t)
		grants, conflicts := Allocate(taken, pools, requests)

		used := newSpace(taken...)
		for i, r := range sortedRequests(requests) {
			g := grants[i]
			if g.Peer != r.Peer {
				t.Fatalf("grant %d is for %s, want %s", i, g.Peer, r.Peer)
			}
			for _, m := range g.Mappings {
				if other, clash := used.overlapping(m.Seen); clash {
					t.Fatalf("%s is seen in %s, which overlaps %s", g.Peer, m.Seen, other)
				}
				if !m.wellFormed() {
					t.Fatalf("%s has %v, which is not one to one", g.Peer, m)
				}
				used.add(m.Seen)
			}
			for _, d := range g.Direct {
				if other, clash := used.overlapping(d.Seen); clash || !d.wellFormed() {
					t.Fatalf("%s sends directly from %v, which overlaps %s or is not one to one", g.Peer, d, other)
				}
				used.add(d.Seen)
			}
			told := slices.ContainsFunc(conflicts, func(c Conflict) bool { return c.Peer == g.Peer })
			if complete := len(g.Mappings) == len(r.Pods)+len(r.Services); !complete && !told && len(r.Pods)+len(r.Services) > 0 {
				t.Fatalf("%s lacks a range, and nobody says why: %v", g.Peer, g.Mappings)
			}
		}
	})
}

func sortedRequests(requests []Request) []Request {
	return slices.SortedFunc(slices.Values(requests), func(x, y Request) int { return strings.Compare(x.Peer, y.Peer) })
}

func TestAnAllocationNeverChangesWhileThePeerKeepsItsRange(t *testing.T) {
	pools := Pools{Pods: prefixes("100.64.0.0/12"), Services: prefixes("240.0.0.0/12")}
	rapid.Check(t, func(t *rapid.T) {
		taken := rapid.SliceOfN(rapid.Custom(drawRange), 0, 5).Draw(t, "taken")
		requests := sortedRequests(drawRequests(t))
		before, _ := Allocate(taken, pools, requests)
		for i := range requests {
			requests[i].Has, requests[i].HasDirect = before[i].Mappings, before[i].Direct
		}
		// Others come, under names that come before and after, and want what these have.
		more := drawRequests(t)
		for i := range more {
			more[i].Peer = rapid.SampledFrom([]string{"0", "z"}).Draw(t, "side") + more[i].Peer
			more[i].Has, more[i].HasDirect = nil, nil
		}
		after, _ := Allocate(taken, pools, append(more, requests...))
		for _, g := range before {
			at := slices.IndexFunc(after, func(other Grant) bool { return other.Peer == g.Peer })
			for _, m := range g.Mappings {
				if !slices.Contains(after[at].Mappings, m) {
					t.Fatalf("%s had %v and has %v now", g.Peer, m, after[at].Mappings)
				}
			}
			for _, d := range g.Direct {
				if !slices.Contains(after[at].Direct, d) {
					t.Fatalf("%s had %v and has %v now", g.Peer, d, after[at].Direct)
				}
			}
		}
	})
}

func TestTheOrderOfRequestsDoesNotMatter(t *testing.T) {
	pools := Pools{Pods: prefixes("100.64.0.0/12"), Services: prefixes("240.0.0.0/12")}
	rapid.Check(t, func(t *rapid.T) {
		requests := drawRequests(t)
		grants, conflicts := Allocate(nil, pools, requests)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		random.Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
		again, conflictsAgain := Allocate(nil, pools, requests)
		if diff := cmp.Diff(grants, again, byText) + cmp.Diff(conflicts, conflictsAgain); diff != "" {
			t.Fatal(diff)
		}
	})
}
