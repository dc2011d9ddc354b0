// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func of3rd(clusterID string, texts ...string) []ClusterRange {
	var ranges []ClusterRange
	for _, m := range maps(texts...) {
		ranges = append(ranges, ClusterRange{clusterID, m})
	}
	return ranges
}

func TestRangesFromWhichPeersSendDirectly(t *testing.T) {
	request := Request{Peer: "a", Pods: prefixes("10.244.0.0/16"), Services: prefixes("10.96.0.0/12"), Homes: []string{"wismar", "visby", "visby"}}
	changed := func(change func(*Request)) Request {
		r := request
		change(&r)
		return r
	}
	tests := map[string]struct {
		request Request
		pools   []netip.Prefix
		want    []ClusterRange
	}{
		"one for each home": {
			request: request,
			want:    slices.Concat(of3rd("visby", "10.244.0.0/16=240.16.0.0/16"), of3rd("wismar", "10.244.0.0/16=240.17.0.0/16")),
		},
		"they stay": {
			request: changed(func(r *Request) { r.HasDirect = of3rd("wismar", "10.244.0.0/16=240.16.0.0/16") }),
			want:    slices.Concat(of3rd("visby", "10.244.0.0/16=240.17.0.0/16"), of3rd("wismar", "10.244.0.0/16=240.16.0.0/16")),
		},
		"but not one that is in use": {changed(func(r *Request) { r.Homes, r.HasDirect = r.Homes[:1], of3rd("wismar", "10.244.0.0/16=172.20.0.0/16") }), nil, of3rd("wismar", "10.244.0.0/16=240.16.0.0/16")},
		"nor one of another size": {changed(func(r *Request) {
			r.Homes, r.HasDirect = r.Homes[:1], []ClusterRange{{"wismar", Mapping{r.Pods[0], netip.MustParsePrefix("240.16.0.0/17")}}}
		}), nil, of3rd("wismar", "10.244.0.0/16=240.16.0.0/16")},
		"none for a home that is gone":         {changed(func(r *Request) { r.Homes, r.HasDirect = nil, of3rd("wismar", "10.244.0.0/16=240.16.0.0/16") }), nil, nil},
		"none where the pool is used up":       {request, prefixes("240.0.0.0/12"), nil},
		"none in the pool of the other family": {request, prefixes("240.0.0.0/12", "fd68:616e::/32"), nil},
		"all while the peer's ranges are not known": {
			request: Request{Peer: "a", HasDirect: of3rd("wismar", "10.244.0.0/16=240.16.0.0/16")},
			want:    of3rd("wismar", "10.244.0.0/16=240.16.0.0/16"),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pools := Pools{Pods: prefixes("100.64.0.0/14"), Services: test.pools}
			if test.pools == nil {
				pools.Services = prefixes("240.0.0.0/10")
			}
			grants, conflicts := Allocate(prefixes("10.244.0.0/16", "10.96.0.0/12", "172.20.0.0/16"), pools, []Request{test.request})
			expectConflicts(t, nil, conflicts)
			if diff := cmp.Diff(test.want, grants[0].Direct, byText); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPeerSendsDirectlyFromNoMoreRangesThanAMessageHolds(t *testing.T) {
	r := Request{Peer: "a", Pods: prefixes("10.244.0.0/16")}
	for i := range v1alpha1.MaxDirect + 5 {
		r.Homes = append(r.Homes, fmt.Sprintf("home-%d", i))
	}
	grants, conflicts := Allocate(nil, DefaultPools(), []Request{r})
	expectConflicts(t, nil, conflicts)
	if got := len(grants[0].Direct); got != v1alpha1.MaxDirect {
		t.Errorf("there are %d", got)
	}
}

// home is lubeck as hamburg sees it, with pods at bremen, too. It has one at hamburg.
func home() Peer {
	p := Peer{
		Name: "lubeck", ClusterID: "c-lubeck", PublicKey: keyOf(5), Endpoints: endpoints("203.0.113.5:51820"), Probes: addresses("240.0.0.0"),
		Theirs: maps("10.244.0.0/16=100.64.0.0/16", "10.96.0.0/12=240.0.0.0/12", "100.65.0.0/16=100.66.0.0/16"),
		Ours:   maps("10.244.0.0/16=100.64.0.0/16", "10.96.0.0/12=240.0.0.0/12"),
		Behind: of3rd("c-bremen", "10.244.0.0/16=100.65.0.0/16"),
	}
	p.Guests = []Pod{{"shop", netip.MustParseAddr("10.244.2.5")}}
	return p
}

// bremen is the other provider of lubeck, as hamburg sees it.
func bremen() Peer {
	return Peer{
		Name: "bremen", ClusterID: "c-bremen", PublicKey: keyOf(6), Endpoints: endpoints("203.0.113.6:51820"), Probes: addresses("240.16.0.0"),
		Theirs:      maps("10.244.0.0/16=100.67.0.0/16", "10.96.0.0/12=240.16.0.0/12"),
		Ours:        maps("10.244.0.0/16=100.68.0.0/16", "10.96.0.0/12=240.16.0.0/12"),
		TheirDirect: of3rd("c-lubeck", "10.244.0.0/16=240.32.0.0/16"), OurDirect: of3rd("c-lubeck", "10.244.0.0/16=240.48.0.0/16"),
		Answers: true,
	}
}

func TestGuestsOfOneHomeAtTwoProvidersReachEachOtherDirectly(t *testing.T) {
	in := Rewriting{Sources: maps("240.32.0.0/16=100.66.0.0/16"), Destinations: maps("100.68.0.0/16=100.64.0.0/16")}
	out := Rewriting{Sources: maps("100.64.0.0/16=240.48.0.0/16"), Destinations: maps("100.66.0.0/16=100.67.0.0/16")}
	way := func(in, out Rewriting) []Direct {
		return []Direct{{Home: "lubeck", Peer: "bremen", In: in, Out: out, Guests: addresses("100.64.2.5")}}
	}
	tests := map[string]struct {
		change func(home, peer *Peer)
		want   []Direct
	}{
		"both ways": {func(_, _ *Peer) {}, way(in, out)},
		"in alone while the peer's gateway does not answer": {func(_, peer *Peer) { peer.Answers = false }, way(in, Rewriting{})},
		"in alone until the peer has a range for us":        {func(_, peer *Peer) { peer.OurDirect = nil }, way(in, Rewriting{})},
		"in alone if that range cannot be":                  {func(_, peer *Peer) { peer.OurDirect[0].Seen = netip.MustParsePrefix("240.48.0.0/17") }, way(in, Rewriting{})},
		"in alone if that range is for another home":        {func(_, peer *Peer) { peer.OurDirect[0].ClusterID = "c-riga" }, way(in, Rewriting{})},
		"out alone while we have no range for the peer":     {func(_, peer *Peer) { peer.TheirDirect = nil }, way(Rewriting{Destinations: in.Destinations}, out)},
		"not if our range is in use":                        {func(_, peer *Peer) { peer.TheirDirect[0].Seen = netip.MustParsePrefix("10.244.0.0/16") }, way(Rewriting{Destinations: in.Destinations}, out)},
		"not if home does not say who is behind its range":  {func(home, _ *Peer) { home.Behind = nil }, nil},
		"not if home says that somebody else is":            {func(home, _ *Peer) { home.Behind[0].ClusterID = "c-riga" }, nil},
		"not if it names no range of the peer's":            {func(home, _ *Peer) { home.Behind[0].Own = netip.MustParsePrefix("10.245.0.0/16") }, nil},
		"not if it names no range that it relays":           {func(home, _ *Peer) { home.Behind[0].Seen = netip.MustParsePrefix("100.99.0.0/16") }, nil},
		"not if nobody knows which cluster the peer is":     {func(home, peer *Peer) { home.Behind[0].ClusterID, peer.ClusterID = "", "" }, nil},
		"not if there is no tunnel to the peer":             {func(_, peer *Peer) { peer.PublicKey = [32]byte{} }, nil},
		"not if home itself is named":                       {func(home, _ *Peer) { home.Behind[0].ClusterID = home.ClusterID }, nil},
		"once if home says it twice":                        {func(home, _ *Peer) { home.Behind = append(home.Behind, home.Behind...) }, way(in, out)},
		"to the first of two if home says two of one range": {func(home, _ *Peer) {
			home.Behind = append(home.Behind, of3rd("c-riga", "10.244.0.0/16=100.65.0.0/16")...)
		}, way(in, out)},
		"although the tunnel to home is none that can be used": {func(home, _ *Peer) { home.Endpoints = nil }, way(in, out)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, home, peer := cluster(), home(), bremen()
			test.change(&home, &peer)
			s.Peers = []Peer{home, peer}
			layout, _ := Plan(s)
			if diff := cmp.Diff(test.want, layout.Direct, byText); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNothingGoesDirectlyThroughARelay(t *testing.T) {
	s, home, peer := cluster(), home(), bremen()
	s.Gateway.Endpoints, peer.Endpoints, home.Relays = nil, nil, true
	s.Peers = []Peer{home, peer}
	layout, _ := Plan(s)
	if len(layout.Direct) != 1 || len(layout.Direct[0].Out.Sources) > 0 || len(layout.Tunnels[0].Through) != 1 {
		t.Errorf("got %+v, with the tunnels %+v", layout.Direct, layout.Tunnels)
	}
}

func TestRangesFromWhichAPeerSendsAreItsAloneAndLeadNowhereElse(t *testing.T) {
	s, other := cluster(), bremen()
	other.Name, other.PublicKey, other.ClusterID = "stade", keyOf(7), "c-stade"
	other.Theirs, other.TheirDirect = maps("10.244.0.0/16=100.70.0.0/16"), of3rd("c-lubeck", "10.244.0.0/16=240.32.0.0/16")
	s.Peers = []Peer{home(), bremen(), other}
	layout, _ := Plan(s)
	direct := netip.MustParsePrefix("240.32.0.0/16")
	if !slices.Contains(layout.Tunnels[0].AllowedIPs, direct) || slices.Contains(layout.Tunnels[2].AllowedIPs, direct) {
		t.Errorf("the range is not bremen's alone: %+v", layout.Tunnels)
	}
	if slices.Contains(layout.Translations[0].From, direct) {
		t.Error("what comes from there passes as bremen's own")
	}
	if !slices.Contains(layout.Blackholes, direct) || !slices.Contains(NodePlan(s, "n2").Routes, direct) {
		t.Error("what is sent there may leave in the clear")
	}
}

// What one provider sends directly the other one takes in as what would have come through home.
func TestADirectWayLeadsWhereTheWayThroughHomeDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods := prefixes("10.244.0.0/16")
		random := func(name string) netip.Prefix {
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{100, rapid.Byte().Draw(t, name), 0, 0}), 16)
		}
		// The ranges are those in which the first sees the second.
		homeHamburg, homeBremen, hamburgBremen, bremenHamburg := random("hh"), random("hb"), random("xb"), random("xh")
		behindAtHamburg, behindAtBremen, directAtHamburg, directAtBremen := random("bh"), random("bb"), random("dh"), random("db")
		state := func(self, other string, home, homeOther, other2, otherSelf, behind, direct, otherDirect netip.Prefix) Layout {
			s := cluster()
			h, p := Peer{Name: "lubeck", ClusterID: "lubeck", PublicKey: keyOf(5)}, Peer{Name: other, ClusterID: other, PublicKey: keyOf(6), Answers: true}
			h.Theirs, h.Ours = []Mapping{{homeOther, behind}}, append([]Mapping{{pods[0], home}}, maps("10.96.0.0/12=240.0.0.0/12")...)
			h.Behind, h.Guests = []ClusterRange{{other, Mapping{pods[0], homeOther}}}, []Pod{{self, netip.MustParseAddr("10.244.1.1")}}
			p.Theirs, p.Ours = []Mapping{{pods[0], other2}}, append([]Mapping{{pods[0], otherSelf}}, maps("10.96.0.0/12=240.0.0.0/12")...)
			p.TheirDirect, p.OurDirect = []ClusterRange{{"lubeck", Mapping{pods[0], direct}}}, []ClusterRange{{"lubeck", Mapping{pods[0], otherDirect}}}
			s.Peers = []Peer{h, p}
			layout, _ := Plan(s)
			return layout
		}
		hamburg := state("hamburg", "bremen", homeHamburg, homeBremen, hamburgBremen, bremenHamburg, behindAtHamburg, directAtHamburg, directAtBremen)
		bremen := state("bremen", "hamburg", homeBremen, homeHamburg, bremenHamburg, hamburgBremen, behindAtBremen, directAtBremen, directAtHamburg)
		if len(hamburg.Direct) == 0 || len(bremen.Direct) == 0 || len(hamburg.Direct[0].Out.Sources) == 0 || len(bremen.Direct[0].In.Sources) == 0 {
			return // ranges of one cluster overlap
		}
		out, in := hamburg.Direct[0].Out, bremen.Direct[0].In
		from, to := netip.MustParseAddr("10.244.1.1"), netip.MustParseAddr("10.244.2.2")
		source, _ := Seen(out.Sources, move(from, homeHamburg))
		destination, _ := Seen(out.Destinations, move(to, behindAtHamburg))
		source, knownSource := Seen(in.Sources, source)
		destination, knownDestination := Seen(in.Destinations, destination)
		if !knownSource || !knownDestination || source != move(from, behindAtBremen) || destination != move(to, homeBremen) {
			t.Fatalf("%s → %s arrives as %s → %s", from, to, source, destination)
		}
	})
}
