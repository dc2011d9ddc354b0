// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// numbered are so many peers that all use the same ranges, each with ten of its pods here and ten of ours there.
func numbered(count int) State {
	s := cluster()
	var requests []Request
	for i := range count {
		requests = append(requests, Request{Peer: fmt.Sprintf("p%04d", i), Pods: prefixes("10.244.0.0/16"), Services: prefixes("10.96.0.0/16")})
	}
	grants, _ := Allocate(slices.Concat(s.Pods, s.Services), roomy(), requests)
	for i, g := range grants {
		p := hamburg()
		p.Name, p.Theirs, p.PublicKey = g.Peer, g.Mappings, [32]byte{1, byte(i >> 8), byte(i), 1}
		for j := range byte(10) {
			p.There = append(p.There, move(netip.AddrFrom4([4]byte{0, 0, 1, j}), g.Mappings[0].Seen))
			var guest [4]byte
			binary.BigEndian.PutUint32(guest[:], 10<<24|244<<16|uint32(i*10)+uint32(j))
			p.Guests = append(p.Guests, Pod{"shop", netip.AddrFrom4(guest)})
		}
		s.Peers = append(s.Peers, p)
	}
	return s
}

// roomy are pools for a thousand peers.
func roomy() Pools {
	return Pools{Pods: prefixes("100.64.0.0/10", "248.0.0.0/5"), Services: prefixes("240.0.0.0/5")}
}

var counts = []int{1, 100, 1000}

func BenchmarkPlan(b *testing.B) {
	for _, count := range counts {
		b.Run(fmt.Sprintf("peers=%d", count), func(b *testing.B) {
			s := numbered(count)
			if layout, conflicts := Plan(s); len(layout.Tunnels) != count || len(conflicts) > 0 {
				b.Fatalf("%d tunnels, conflicts %v", len(layout.Tunnels), conflicts)
			}
			b.ReportAllocs()
			for b.Loop() {
				Plan(s)
			}
		})
	}
}

func BenchmarkNodePlan(b *testing.B) {
	for _, count := range counts {
		b.Run(fmt.Sprintf("peers=%d", count), func(b *testing.B) {
			s := numbered(count)
			b.ReportAllocs()
			for b.Loop() {
				NodePlan(s, "n1")
			}
		})
	}
}

// Of all peers one is new, which is the usual case.
func BenchmarkAllocate(b *testing.B) {
	for _, count := range counts {
		b.Run(fmt.Sprintf("peers=%d", count), func(b *testing.B) {
			s := numbered(count)
			requests := []Request{{Peer: "new", Pods: prefixes("10.244.0.0/16"), Services: prefixes("10.96.0.0/16")}}
			for _, p := range s.Peers {
				requests = append(requests, Request{Peer: p.Name, Pods: prefixes("10.244.0.0/16"), Services: prefixes("10.96.0.0/16"), Has: p.Theirs})
			}
			if grants, conflicts := Allocate(s.Services, roomy(), requests); len(conflicts) > 0 || len(grants) != count+1 {
				b.Fatalf("%d grants, conflicts %v", len(grants), conflicts)
			}
			b.ReportAllocs()
			for b.Loop() {
				Allocate(s.Services, roomy(), requests)
			}
		})
	}
}
