// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/hanse-dev/hanse/internal/overlay"
)

// directWays are those to the other provider of lubeck.
func (c *cluster) directWays() []overlay.Direct {
	var all []overlay.Direct
	for _, peer := range c.world.clusters {
		taken, known := c.direct[peer.name]
		if !known {
			continue
		}
		home := c.world.clusters[0]
		d := overlay.Direct{Home: home.name, Peer: peer.name}
		for i := range podRanges {
			behind, seen := c.sees(home)[len(podRanges)+len(serviceRanges)+i].Seen, home.seesItself(c)[i].Seen
			d.In.Sources = append(d.In.Sources, overlay.Mapping{Own: c.takesIn(peer)[i], Seen: behind})
			d.In.Destinations = append(d.In.Destinations, overlay.Mapping{Own: peer.seesItself(c)[i].Seen, Seen: seen})
			if taken {
				d.Out.Sources = append(d.Out.Sources, overlay.Mapping{Own: seen, Seen: peer.takesIn(c)[i]})
				d.Out.Destinations = append(d.Out.Destinations, overlay.Mapping{Own: behind, Seen: c.seesItself(peer)[i].Seen})
			}
		}
		for _, g := range c.guests[home.name] {
			d.Guests = append(d.Guests, home.seen(c, g))
		}
		all = append(all, d)
	}
	return all
}

// takesIn are the ranges from which it takes in what guests of lubeck at the peer send.
func (c *cluster) takesIn(peer *cluster) []netip.Prefix {
	n := 10*c.number + peer.number
	return prefixes(fmt.Sprintf("26.%d.0.0/16", n), fmt.Sprintf("fd68:616e:7367:%d00::/56", n))
}

// A directLeague is a league in which pods of lubeck at hamburg and at bremen reach each other directly. At both there are pods of
// others, too.
type directLeague struct {
	*league
	ofBremen *space // bremen's own
}

func newDirectLeague(t *testing.T) *directLeague {
	t.Helper()
	l := &directLeague{league: newLeague(t)}
	l.ofBremen = l.bremen.newPod("own", 1, 40).serve()
	l.take(true)
	return l
}

// take has both providers take the direct way, or that through home.
func (l *directLeague) take(way bool) {
	l.hamburg.pod.t.Helper()
	l.hamburg.direct, l.bremen.direct = map[string]bool{"bremen": way}, map[string]bool{"hamburg": way}
	l.apply()
}

// atHamburg and atBremen are addresses of pods of lubeck at the other one of the two.
func (l *directLeague) atHamburg(ofBremen netip.Addr) netip.Addr {
	return l.hamburg.seen(l.lubeck, l.lubeck.seen(l.bremen, ofBremen))
}

func (l *directLeague) atBremen(ofHamburg netip.Addr) netip.Addr {
	return l.bremen.seen(l.lubeck, l.lubeck.seen(l.hamburg, ofHamburg))
}

// leaves asks both ways, in both families.
func (l *directLeague) leaves() []question {
	var all []question
	for _, address := range []func(node, last int) netip.Addr{podAddress, podAddress6} {
		far, guest1, guest2 := l.atHamburg(address(2, 20)), l.atBremen(address(1, 20)), l.atBremen(address(2, 20))
		all = append(all,
			question{"leaf to leaf", l.guest1, far, true, guest1},
			question{"leaf on another node to leaf", l.guest2, far, true, guest2},
			question{"leaf to leaf", l.far, guest1, true, far},
		)
	}
	return all
}

// cutHome ends the gateway of lubeck.
func (l *directLeague) cutHome() {
	l.lubeck.pod.t.Helper()
	l.lubeck.ask((*Gateway).Remove)
}

func TestLeavesTalkDirectlyWhileHomeIsAway(t *testing.T) {
	t.Parallel()
	l := newDirectLeague(t)
	l.cutHome()
	check(t, l.leaves())
	far, far6 := l.atHamburg(podAddress(2, 20)), l.atHamburg(podAddress6(2, 20))
	for name, f := range map[string]func() error{
		"a megabyte by TCP":               func() error { return size(l.guest1.ask("tcp", far, 1<<20, patient)) },
		"a megabyte by TCP over IPv6":     func() error { return size(l.guest1.ask("tcp", far6, 1<<20, patient)) },
		"a datagram in fragments":         func() error { return size(l.guest1.ask("udp", far, 9000, patient)) },
		"one in fragments over IPv6":      func() error { return size(l.guest1.ask("udp", far6, 9000, patient)) },
		"an echo":                         func() error { return l.guest1.ping(far, 56, patient) },
		"a large echo the other way":      func() error { return l.far.ping(l.atBremen(podAddress(1, 20)), 3000, patient) },
		"an error of ICMP":                func() error { return refused(l.guest1, far) },
		"an error of ICMPv6":              func() error { return refused(l.guest1, far6) },
		"an error of ICMP the other way":  func() error { return refused(l.far, l.atBremen(podAddress(2, 20))) },
		"an error of ICMPv6 on that node": func() error { return refused(l.far, l.atBremen(podAddress6(1, 20))) },
	} {
		if err := f(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// refused asks where nobody listens, again and again, and returns an error unless the answer is that nobody does.
func refused(from *space, to netip.Addr) error {
	const nobody = 9
	return from.do(func() error {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, nobody)))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		for end := time.Now().Add(patient); time.Now().Before(end); {
			_, err := c.Write([]byte("anybody?"))
			if err == nil {
				_ = c.SetReadDeadline(time.Now().Add(impatient))
				_, err = c.Read(make([]byte, 1))
			}
			if errors.Is(err, unix.ECONNREFUSED) {
				return nil
			}
		}
		return errors.New("it is not said that nobody listens")
	})
}

func TestNothingElseGoesTheDirectWay(t *testing.T) {
	t.Parallel()
	l := newDirectLeague(t)
	l.bremen.guests["hamburg"] = []netip.Addr{podAddress(2, 50), podAddress6(2, 50)}
	ofHamburg := l.bremen.newPod("of-hamburg", 2, 50).serve()
	l.apply()
	none := netip.Addr{}
	check(t, append(l.leaves(), []question{
		{"a pod of hamburg to its own pod at bremen", l.own1, l.hamburg.seen(l.bremen, podAddress(2, 50)), true, none},
		{"home to leaf", l.home1, l.lubeck.seen(l.bremen, podAddress(2, 20)), true, l.bremen.seen(l.lubeck, podAddress(1, 10))},

		{"a pod of hamburg to a leaf", l.own1, l.atHamburg(podAddress(2, 20)), false, none},
		{"a pod of hamburg to a leaf by IPv6", l.own1, l.atHamburg(podAddress6(2, 20)), false, none},
		{"a node of hamburg to a leaf", l.hamburg.nodes[0].space, l.atHamburg(podAddress(2, 20)), false, none},
		{"a guest of another home to a leaf", l.foreign, l.atHamburg(podAddress(2, 20)), false, none},
		{"a guest of another home to a leaf, as its home is called", l.foreign, l.hamburg.seen(l.bremen, podAddress(2, 20)), false, none},
		{"a pod of hamburg at bremen to a leaf", ofHamburg, l.atBremen(podAddress(1, 20)), false, none},
		{"a pod of bremen to a leaf", l.ofBremen, l.atBremen(podAddress(1, 20)), false, none},
		{"a pod of bremen to a leaf, as hamburg is called", l.ofBremen, l.bremen.seen(l.hamburg, podAddress(1, 20)), false, none},
		{"a leaf to a pod of bremen", l.guest1, l.atHamburg(podAddress(1, 40)), false, none},
		{"a leaf to a pod of bremen by IPv6", l.guest1, l.atHamburg(podAddress6(1, 40)), false, none},
		{"a leaf to a pod of bremen, as bremen is called", l.guest1, l.hamburg.seen(l.bremen, podAddress(1, 40)), false, none},
		{"a leaf to a leaf, as bremen is called", l.guest1, l.hamburg.seen(l.bremen, podAddress(2, 20)), false, none},
		{"a leaf to a pod of hamburg at bremen", l.guest1, l.atHamburg(podAddress(2, 50)), false, none},
		{"a leaf to a guest of another home", l.far, l.atBremen(podAddress(2, 30)), false, none},
		{"a leaf to a pod of hamburg", l.far, l.atBremen(podAddress(1, 40)), false, none},
	}...))
}

// Opened is what an administrator opens to home. A provider of home is not home.
func TestWhatIsOpenedToAHomeIsNotOpenedToItsProviders(t *testing.T) {
	t.Parallel()
	l := newDirectLeague(t)
	l.hamburg.open["lubeck"] = []overlay.Opening{{From: seenRanges(l.hamburg.sees(l.lubeck)), To: prefixes("10.244.1.40/32")}}
	l.lubeck.open["hamburg"] = []overlay.Opening{{From: prefixes("10.244.1.10/32"), To: []netip.Prefix{netip.PrefixFrom(l.lubeck.seen(l.hamburg, podAddress(1, 40)), 32)}}}
	l.apply()
	check(t, []question{
		{"home to the pod that is opened to it", l.home1, l.lubeck.seen(l.hamburg, podAddress(1, 40)), true, netip.Addr{}},
		{"a leaf to that pod", l.far, l.atBremen(podAddress(1, 40)), false, netip.Addr{}},
	})
}

func TestStreamsLiveOnWhenTheirWayChanges(t *testing.T) {
	t.Parallel()
	l := newDirectLeague(t)
	for _, c := range l.clusters {
		c.pod.must(Liberal)
	}
	check(t, l.leaves()) // so there are sessions
	l.take(false)
	var talks []*talk
	for _, w := range []struct {
		from *space
		to   netip.Addr
	}{
		{l.guest1, l.atHamburg(podAddress(2, 20))},
		{l.guest2, l.atHamburg(podAddress6(2, 20))},
		{l.far, l.atBremen(podAddress(1, 20))},
		{l.far, l.atBremen(podAddress6(2, 20))},
	} {
		talks = append(talks, newTalk(t, w.from, w.to))
	}
	for _, way := range []struct {
		name            string
		hamburg, bremen bool
	}{
		{"direct", true, true},
		{"through home again", false, false},
		{"direct for one of the two", true, false},
		{"direct for the other", false, true},
		{"direct for both", true, true},
		{"through home at last", false, false},
	} {
		l.hamburg.direct, l.bremen.direct = map[string]bool{"bremen": way.hamburg}, map[string]bool{"hamburg": way.bremen}
		l.apply()
		for i, talk := range talks {
			if err := talk.repeat(1 << 20); err != nil {
				t.Errorf("%s, talk %d: %v", way.name, i, err)
			}
		}
	}
}

// repeat has the server repeat so many bytes.
func (k *talk) repeat(size int) error {
	if err := k.SetDeadline(time.Now().Add(patient)); err != nil {
		return err
	}
	said := bytes.Repeat([]byte("r"), size)
	var saying sync.WaitGroup
	saying.Go(func() { _, _ = k.Write(said) })
	_, err := io.ReadFull(k.Reader, make([]byte, size))
	saying.Wait()
	return err
}

// The tunnel that leads to the other provider may be of another interface than that which leads home.
func TestLeavesTalkDirectlyWhileHomeIsReachedThroughARelay(t *testing.T) {
	t.Parallel()
	l := &directLeague{league: newRelayedLeague(t)}
	l.take(true)
	l.cutHome()
	check(t, l.leaves())
}

func TestAHostileProviderReachesNothingButLeaves(t *testing.T) {
	t.Parallel()
	l := newDirectLeague(t)
	check(t, l.leaves())
	layout := l.bremen.layout()
	for i := range layout.Tunnels {
		if layout.Tunnels[i].Peer == "hamburg" {
			layout.Tunnels[i].AllowedIPs = append(layout.Tunnels[i].AllowedIPs, prefixes("10.244.0.0/16", "25.12.0.0/16", "100.76.0.0/16")...)
		}
	}
	l.bremen.applyGateway(layout)
	l.bremen.pod.must(func() error { return removeTable(nftables.TableFamilyINet) })

	seenAt := func(pod netip.Addr) netip.Addr { return l.bremen.seen(l.hamburg, pod) }
	leaf := addr("26.23.2.20") // of bremen
	packets := []struct {
		payload  string
		from, to netip.Addr
		arrives  bool
	}{
		{"to a leaf", leaf, seenAt(podAddress(1, 20)), true},
		{"to a pod of hamburg", leaf, seenAt(podAddress(1, 40)), false},
		{"to a guest of bremen", leaf, seenAt(podAddress(2, 30)), false},
		{"to a leaf, as home calls it", leaf, l.lubeck.seen(l.hamburg, podAddress(1, 20)), false},
		{"to a leaf, as it is called there", leaf, podAddress(1, 20), false},
		{"to a leaf from bremen", l.hamburg.seen(l.bremen, podAddress(2, 20)), seenAt(podAddress(1, 20)), false},
		{"to a leaf from home", l.hamburg.seen(l.lubeck, podAddress(1, 10)), seenAt(podAddress(1, 20)), false},
		{"to a leaf from behind home", l.atHamburg(podAddress(2, 20)), seenAt(podAddress(1, 20)), false},
		{"to home", leaf, l.hamburg.seen(l.lubeck, podAddress(1, 10)), false},
	}
	watched := []*space{l.guest1, l.own1, l.foreign, l.home1}
	var heard []func() [][]byte
	for _, s := range watched {
		heard = append(heard, s.watch("eth0"))
	}
	for _, p := range packets {
		l.bremen.pod.must(func() error { return sendRaw(p.from, p.to, p.payload) })
	}
	last := l.hamburg.seen(l.lubeck, podAddress(1, 10))
	check(t, []question{{"guest to home", l.guest1, last, true, netip.Addr{}}}) // behind which all has arrived
	var arrived [][]byte
	for _, all := range heard {
		arrived = slices.Concat(arrived, all())
	}
	for _, p := range packets {
		if got := contain(arrived, p.payload); got != p.arrives {
			t.Errorf("that a packet %s arrives is %t", p.payload, got)
		}
	}
}
