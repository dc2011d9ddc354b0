// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hanse-dev/hanse/internal/overlay"
)

// A portQuestion is one to a port that is answered, or must not be.
type portQuestion struct {
	network string
	port    uint16
	size    int
	open    bool
}

func TestOpeningsOfPortsOpenNoOthers(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	for _, own := range []*space{l.own1, l.own2} {
		for _, port := range []uint16{8081, 8090, 8092, 8093} {
			own.serveAt(netip.AddrPortFrom(netip.IPv6Unspecified(), port))
		}
	}
	l.openPorts(overlay.PortRange{Protocol: unix.IPPROTO_TCP, First: talkPort, Last: talkPort},
		overlay.PortRange{Protocol: unix.IPPROTO_UDP, First: 8081, Last: 8081},
		overlay.PortRange{Protocol: unix.IPPROTO_TCP, First: 8090, Last: 8092})
	l.askEverywhere([]portQuestion{
		{"tcp", talkPort, 1 << 16, true},
		{"udp", talkPort, 100, false},
		{"tcp", 8081, 100, false},
		{"udp", 8081, 100, true},
		{"udp", 8081, 9000, true}, // in fragments
		{"udp", talkPort, 9000, false},
		{"tcp", 8090, 100, true},
		{"tcp", 8092, 100, true},
		{"tcp", 8093, 100, false},
	})

	l.openPorts(overlay.PortRange{Protocol: unix.IPPROTO_UDP, First: 0, Last: 65535})
	l.askEverywhere([]portQuestion{
		{"tcp", talkPort, 100, false},
		{"udp", talkPort, 100, true},
		{"udp", 8093, 9000, true},
	})
}

// openPorts opens these ports of own1 to home1 through the gateways, and those of own1 and own2 to guest1 on the nodes.
func (l *league) openPorts(ports ...overlay.PortRange) {
	home, own := hosts(podAddress(1, 10), podAddress6(1, 10)), hosts(podAddress(1, 40), podAddress6(1, 40))
	l.lubeck.open["hamburg"] = []overlay.Opening{{From: home, To: l.lubeck.allSeen(l.hamburg, own), Ports: ports}}
	l.hamburg.open["lubeck"] = []overlay.Opening{{From: l.hamburg.allSeen(l.lubeck, home), To: own, Ports: ports}}
	l.hamburg.openHere["lubeck"] = []overlay.Opening{{
		From: hosts(podAddress(1, 20), podAddress6(1, 20)), Ports: ports,
		To: append(own, hosts(podAddress(2, 40), podAddress6(2, 40))...),
	}}
	l.apply()
}

// askEverywhere asks each question on each way that is open, all at the same time. The other way is closed.
func (l *league) askEverywhere(questions []portQuestion) {
	l.t.Helper()
	var asking sync.WaitGroup
	for _, way := range []struct {
		name string
		from *space
		to   netip.Addr
	}{
		{"through the gateways", l.home1, l.lubeck.seen(l.hamburg, podAddress(1, 40))},
		{"through the gateways over IPv6", l.home1, l.lubeck.seen(l.hamburg, podAddress6(1, 40))},
		{"on one bridge", l.guest1, podAddress(1, 40)},
		{"on one bridge over IPv6", l.guest1, podAddress6(1, 40)},
		{"between nodes", l.guest1, podAddress(2, 40)},
		{"between nodes over IPv6", l.guest1, podAddress6(2, 40)},
	} {
		for _, q := range questions {
			asking.Go(func() { q.check(l.t, way.name, way.from, way.to) })
		}
	}
	for _, q := range []question{
		{"back to home", l.own1, l.hamburg.seen(l.lubeck, podAddress(1, 10)), false, netip.Addr{}},
		{"back to the guest", l.own2, podAddress(1, 20), false, netip.Addr{}},
	} {
		asking.Go(func() { q.check(l.t, "tcp") })
	}
	asking.Wait()
}

func (q portQuestion) check(t testing.TB, way string, from *space, to netip.Addr) {
	t.Helper()
	limit := impatient
	if q.open {
		limit = patient
	}
	_, err := from.askAt(q.network, netip.AddrPortFrom(to, q.port), q.size, limit)
	if q.open && err != nil {
		t.Errorf("%s: %d bytes to %s port %d get no answer: %v", way, q.size, q.network, q.port, err)
	}
	if !q.open && !isSilence(err) {
		t.Errorf("%s: %s port %d: %v, want silence", way, q.network, q.port, err)
	}
}

func (c *cluster) allSeen(other *cluster, own []netip.Prefix) []netip.Prefix {
	var all []netip.Prefix
	for _, p := range own {
		all = append(all, hosts(c.seen(other, p.Addr()))...)
	}
	return all
}

func hosts(addresses ...netip.Addr) []netip.Prefix {
	var all []netip.Prefix
	for _, a := range addresses {
		all = append(all, netip.PrefixFrom(a, a.BitLen()))
	}
	return all
}
