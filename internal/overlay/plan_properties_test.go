// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// drawPeer draws a peer whose ranges and key often are those of another.
func drawPeer(t *rapid.T, name string) Peer {
	p := hamburg()
	p.Name, p.PublicKey = name, keyOf(rapid.ByteRange(0, 6).Draw(t, "key"))
	for range rapid.IntRange(0, 3).Draw(t, "ranges") {
		seen := drawRange(t)
		p.Theirs = append(p.Theirs, Mapping{seen, seen})
	}
	p.Theirs = p.Theirs[rapid.IntRange(0, 2).Draw(t, "without"):]
	for range rapid.IntRange(0, 3).Draw(t, "guests") {
		pod := Pod{rapid.SampledFrom([]string{"shop", "yard"}).Draw(t, "namespace"), netip.AddrFrom4([4]byte{10, 244, 1, rapid.Byte().Draw(t, "guest")})}
		p.Guests = append(p.Guests, pod)
		p.There = append(p.There, netip.AddrFrom4([4]byte{100, 64, 1, pod.Address.As4()[3]}))
	}
	p.ClusterID = rapid.SampledFrom([]string{"", "visby", "wismar", "stade"}).Draw(t, "id")
	for range rapid.IntRange(0, 3).Draw(t, "direct") {
		id, own := rapid.SampledFrom([]string{"", "visby", "wismar", "stade"}).Draw(t, "other"), hamburg().Theirs[0]
		seen := netip.PrefixFrom(drawRange(t).Addr(), own.Own.Bits()).Masked()
		p.TheirDirect = append(p.TheirDirect, ClusterRange{id, Mapping{own.Own, seen}})
		p.OurDirect = append(p.OurDirect, ClusterRange{id, Mapping{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("26.0.0.0/16")}})
		p.Behind = append(p.Behind, ClusterRange{id, Mapping{netip.MustParsePrefix("10.96.0.0/12"), own.Own}})
	}
	p.Answers = rapid.Bool().Draw(t, "answers")
	p.Openings = []v1alpha1.Opening{opening(allPeer, stock), opening(stock, shop)}
	return p
}

func drawState(t *rapid.T) State {
	s := cluster()
	for i := range rapid.IntRange(0, 8).Draw(t, "peers") {
		s.Peers = append(s.Peers, drawPeer(t, "p"+strconv.Itoa(i)))
	}
	s.OurPods = []Pod{{"stock", netip.MustParseAddr("10.244.1.9")}, {"stock", netip.MustParseAddr("10.244.1.3")}}
	return s
}

func TestNoTwoTunnelsShareARangeOrAKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		layout, conflicts := Plan(s)
		used, keys := newSpace(slices.Concat(s.Pods, s.Services)...), map[[32]byte]bool{s.Gateway.PublicKey: true}
		for _, tunnel := range layout.Tunnels {
			if keys[tunnel.PublicKey] {
				t.Fatalf("the key of %s is another's too", tunnel.Peer)
			}
			keys[tunnel.PublicKey] = true
			for _, p := range tunnel.AllowedIPs {
				if other, clash := used.overlapping(p); clash {
					t.Fatalf("%s of %s overlaps %s", p, tunnel.Peer, other)
				}
				used.add(p)
				if !slices.Contains(layout.Blackholes, p) {
					t.Fatalf("behind %s of %s is no blackhole", p, tunnel.Peer)
				}
			}
		}
		for _, p := range s.Peers {
			has := slices.ContainsFunc(layout.Tunnels, func(tunnel Tunnel) bool { return tunnel.Peer == p.Name })
			told := slices.ContainsFunc(conflicts, func(c Conflict) bool { return c.Peer == p.Name })
			if !has && !told {
				t.Fatalf("%s has no tunnel, and nobody says why", p.Name)
			}
		}
		for _, node := range s.Nodes {
			if diff := cmp.Diff(layout.Blackholes, NodePlan(s, node.Name).Routes, byText); diff != "" {
				t.Fatalf("%s has other routes than the gateway has ranges:\n%s", node.Name, diff)
			}
		}
	})
}

func TestNoTwoDirectWaysShareARange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layout, _ := Plan(drawState(t))
		claimed := map[netip.Prefix]int{} // → by which way
		for i, d := range layout.Direct {
			for _, m := range slices.Concat(d.In.Sources, d.Out.Destinations) {
				if by, taken := claimed[m.Own]; taken && by != i || !m.wellFormed() {
					t.Fatalf("%v of %s at %s is another's too, or not one to one", m, d.Home, d.Peer)
				}
				claimed[m.Own] = i
			}
		}
	})
}

func TestTheSameStateInAnyOrderGivesTheSamePlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		layout, conflicts := Plan(s)
		node := NodePlan(s, "n1")

		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		random.Shuffle(len(s.Peers), func(i, j int) { s.Peers[i], s.Peers[j] = s.Peers[j], s.Peers[i] })
		random.Shuffle(len(s.Nodes), func(i, j int) { s.Nodes[i], s.Nodes[j] = s.Nodes[j], s.Nodes[i] })
		random.Shuffle(len(s.OurPods), func(i, j int) { s.OurPods[i], s.OurPods[j] = s.OurPods[j], s.OurPods[i] })
		for k := range s.Peers {
			p := &s.Peers[k]
			random.Shuffle(len(p.Guests), func(i, j int) { p.Guests[i], p.Guests[j] = p.Guests[j], p.Guests[i] })
			random.Shuffle(len(p.There), func(i, j int) { p.There[i], p.There[j] = p.There[j], p.There[i] })
			random.Shuffle(len(p.Ours), func(i, j int) { p.Ours[i], p.Ours[j] = p.Ours[j], p.Ours[i] })
		}
		again, conflictsAgain := Plan(s)
		if diff := cmp.Diff(layout, again, byText) + cmp.Diff(conflicts, conflictsAgain) + cmp.Diff(node, NodePlan(s, "n1"), byText); diff != "" {
			t.Fatal(diff)
		}
	})
}
