// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hanse-dev/hanse/internal/overlay"
)

func TestLargePacketsAndEchoesPass(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	guest, guest6 := l.lubeck.seen(l.hamburg, podAddress(2, 20)), l.lubeck.seen(l.hamburg, podAddress6(2, 20))
	home := l.hamburg.seen(l.lubeck, podAddress(2, 10))
	for name, f := range map[string]func() error{
		"a megabyte by TCP":                 func() error { return size(l.home1.ask("tcp", guest, 1<<20, patient)) },
		"a megabyte by TCP over IPv6":       func() error { return size(l.home1.ask("tcp", guest6, 1<<20, patient)) },
		"a megabyte by TCP from the peer":   func() error { return size(l.guest1.ask("tcp", home, 1<<20, patient)) },
		"a datagram in fragments":           func() error { return size(l.home1.ask("udp", guest, 9000, patient)) },
		"a datagram in fragments over IPv6": func() error { return size(l.home1.ask("udp", guest6, 9000, patient)) },
		"an echo":                           func() error { return l.home1.ping(guest, 56, patient) },
		"a large echo":                      func() error { return l.guest1.ping(home, 3000, patient) },
		"an echo of the peer's gateway": func() error {
			return l.lubeck.pod.ping(l.lubeck.seen(l.hamburg, gatewayAddresses[0]), 56, patient)
		},
	} {
		if err := f(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func size(_ netip.Addr, err error) error { return err }

// A path that takes less than the interface does is known by the peer's routes alone: hosts on both sides send 1,500 bytes.
func TestSegmentsFitTheSmallestPath(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	for _, c := range l.clusters {
		layout := c.layout()
		for i := range layout.Tunnels {
			layout.Tunnels[i].MTU = 1280
		}
		c.applyGateway(layout)
	}
	const headers4, headers6 = 20 + 20, 40 + 20
	for _, q := range []struct {
		from *space
		to   netip.Addr
		want int
	}{
		{l.home2, l.lubeck.seen(l.hamburg, podAddress(1, 20)), 1280 - headers4},
		{l.home2, l.lubeck.seen(l.hamburg, podAddress6(1, 20)), 1280 - headers6},
		{l.guest2, l.hamburg.seen(l.lubeck, podAddress(1, 10)), 1280 - headers4},
		{l.guest2, l.hamburg.seen(l.lubeck, podAddress6(1, 10)), 1280 - headers6},
	} {
		got, err := q.from.segment(q.to)
		if err != nil || got > q.want {
			t.Errorf("%s sends %s segments of %d bytes (%v), want at most %d", q.from.name, q.to, got, err, q.want)
		}
	}
}

// segment returns the size of the segments that a TCP connection to a server sends.
func (s *space) segment(to netip.Addr) (bytes int, err error) {
	err = s.do(func() error {
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(to, talkPort).String(), patient) //nolint:noctx // has a timeout
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			return err
		}
		var failed error
		err = raw.Control(func(fd uintptr) { bytes, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG) })
		return errors.Join(err, failed)
	})
	return bytes, err
}

func TestServicesAnswerThroughTheNodeThatChoseTheEndpoint(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	near, behind := addr("10.96.0.11"), addr("10.96.0.12")
	l.lubeck.service(near, podAddress(1, 10))
	l.lubeck.service(behind, podAddress(2, 10))
	check(t, []question{
		{"Service of home", l.guest1, l.hamburg.seen(l.lubeck, near), true, netip.Addr{}},
		{"Service of home behind another node", l.guest2, l.hamburg.seen(l.lubeck, behind), true, netip.Addr{}},
	})
}

// A Service of home has an endpoint at a peer: kube-proxy on each node sends there what it is asked.
func TestServicesReachEndpointsAtPeers(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	service := addr("10.96.0.13")
	l.lubeck.service(service, l.lubeck.seen(l.hamburg, podAddress(2, 20)))
	check(t, []question{
		{"Service with an endpoint at a peer", l.home1, service, true, l.hamburg.seen(l.lubeck, podAddress(1, 10))},
		{"the same from a peer", l.far, l.bremen.seen(l.lubeck, service), true, netip.Addr{}},
	})
}

// Where kube-proxy leads what a guest sends to a copy of a Service, the guard judges again.
func TestGuestsReachCopiesOfServicesOfTheirHome(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	atHome, here, elsewhere, closed := addr("10.96.0.21"), addr("10.96.0.22"), addr("10.96.0.23"), addr("10.96.0.24")
	l.hamburg.service(atHome, l.hamburg.seen(l.lubeck, podAddress(2, 10)))
	l.hamburg.service(here, podAddress(2, 20))
	l.hamburg.service(elsewhere, podAddress(2, 40)) // a pod of hamburg's own
	l.hamburg.service(closed, podAddress(2, 20))    // no copy
	for _, n := range l.hamburg.nodes {
		layout := l.hamburg.nodeLayout(n)
		for i := range layout.Guarded {
			if layout.Guarded[i].Peer == "lubeck" {
				layout.Guarded[i].Home = append(layout.Guarded[i].Home, prefixes("10.96.0.21/32", "10.96.0.22/32", "10.96.0.23/32")...)
			}
		}
		n.space.must(func() error { return n.fabric.Apply(layout) })
	}
	check(t, []question{
		{"a copy whose endpoint is at home", l.guest1, atHome, true, netip.Addr{}},
		{"a copy whose endpoint is here", l.guest1, here, true, netip.Addr{}},
		{"a copy that leads to somebody else", l.guest1, elsewhere, false, netip.Addr{}},
		{"a Service that is no copy", l.guest1, closed, false, netip.Addr{}},
	})
}

func TestGatewayTakesQuestionsForNameServersOfPeers(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	resolver := l.hamburg.seen(l.lubeck, addr("10.96.0.10"))
	layout := l.hamburg.layout()
	layout.Resolvers = []netip.Addr{resolver, l.hamburg.seen(l.lubeck, addr("fd10:96::a"))}
	l.hamburg.applyGateway(layout)
	for _, a := range gatewayAddresses {
		l.hamburg.pod.serveAt(netip.AddrPortFrom(a, dnsPort))
	}
	for _, to := range layout.Resolvers {
		for _, network := range []string{"tcp", "udp"} {
			want := podAddress(2, 20)
			if to.Is6() {
				want = podAddress6(2, 20)
			}
			seen, err := l.guest2.askAt(network, netip.AddrPortFrom(to, dnsPort), 100, patient)
			if err != nil || seen != want {
				t.Errorf("%s by %s: the gateway sees %s (%v), want %s", to, network, seen, err, want)
			}
		}
	}
}

func TestOpeningsLetConnectionsBeMadeOneWay(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	seenHome, seenOwn := l.hamburg.seen(l.lubeck, podAddress(1, 10)), l.lubeck.seen(l.hamburg, podAddress(1, 40))
	l.openSomething()
	l.apply()
	none := netip.Addr{}
	check(t, []question{
		{"home to own pod", l.home1, seenOwn, true, seenHome},
		{"own pod to home", l.own1, seenHome, false, none},
		{"another of home to own pod", l.home2, seenOwn, false, none},
		{"guest to own pod", l.guest1, podAddress(2, 40), true, podAddress(1, 20)},
		{"own pod to guest", l.own2, podAddress(1, 20), false, none},
		{"another own pod to guest", l.own1, podAddress(2, 20), true, podAddress(1, 40)},
		{"guest to another own pod", l.guest2, podAddress(1, 40), false, none},
	})
	l.hamburg.open["lubeck"] = nil
	l.apply()
	check(t, []question{{"home to own pod, closed again", l.home1, seenOwn, false, none}})
}

// openSomething opens home1 to own1 through the gateways, and guest1 to own2 and own1 to guest2 on the nodes.
func (l *league) openSomething() {
	l.hamburg.open["lubeck"] = []overlay.Opening{
		{From: []netip.Prefix{netip.PrefixFrom(l.hamburg.seen(l.lubeck, podAddress(1, 10)), 32)}, To: prefixes("10.244.1.40/32", "10.244.1.0/26")},
	}
	l.lubeck.open["hamburg"] = []overlay.Opening{
		{From: prefixes("10.244.1.10/32"), To: []netip.Prefix{netip.PrefixFrom(l.lubeck.seen(l.hamburg, podAddress(1, 40)), 32)}},
	}
	l.hamburg.openHere["lubeck"] = []overlay.Opening{
		{From: prefixes("10.244.1.20/32"), To: prefixes("10.244.2.40/32", "fd10::/64")},
		{From: prefixes("10.244.1.40/32"), To: prefixes("10.244.2.20/32")},
	}
}
