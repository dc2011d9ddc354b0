// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/hanse-dev/hanse/internal/overlay"
	"github.com/hanse-dev/hanse/internal/relay"
)

// relayedMTU is what is left of innerMTU in the tunnel to a relay.
const relayedMTU = 1312

// relayPorts are where bremen takes in what is for others.
var relayPorts = map[string]uint16{"lubeck": 17001, "hamburg": 17002}

// relayedTunnel is a tunnel that leads through bremen.
func (c *cluster) relayedTunnel(p *cluster, from []netip.Prefix) overlay.Tunnel {
	relay := c.world.clusters[2]
	return overlay.Tunnel{
		Peer: p.name, PublicKey: p.key.PublicKey(), AllowedIPs: from, MTU: relayedMTU, Through: []string{relay.name},
		Endpoints: []netip.AddrPort{netip.AddrPortFrom(c.seen(relay, gatewayAddresses[0]), relayPorts[p.name])},
	}
}

// relaying adds what a layout must have for gateways that only dial.
func (c *cluster) relaying(layout overlay.Layout) overlay.Layout {
	if len(c.world.clusters) < 3 {
		return layout
	}
	relay := c.world.clusters[2]
	if c.dialsOnly {
		layout.Relaying = []netip.Addr{c.seen(relay, gatewayAddresses[0])}
	}
	if c != relay {
		return layout
	}
	for _, p := range c.world.clusters {
		if p.dialsOnly {
			r := overlay.Relayed{Peer: p.name, Address: c.seen(p, gatewayAddresses[0]), Port: relayPorts[p.name], Bandwidth: 1 << 30}
			layout.Relayed, layout.Relaying = append(layout.Relayed, r), append(layout.Relaying, r.Address)
		}
	}
	return layout
}

// newRelayedLeague is a league in which lubeck and hamburg reach each other through bremen alone.
func newRelayedLeague(t *testing.T) *league {
	t.Helper()
	l := newLeague(t)
	l.lubeck.dialsOnly, l.hamburg.dialsOnly = true, true
	l.apply()
	passing := relay.New(time.Now)
	t.Cleanup(passing.Stop)
	l.bremen.pod.must(func() error { return passing.Update(l.bremen.layout().Relayed, gatewayAddresses) })
	return l
}

func TestGatewaysThatOnlyDialMeetThroughARelay(t *testing.T) {
	t.Parallel()
	l := newRelayedLeague(t)
	guest, home := l.lubeck.seen(l.hamburg, podAddress(1, 20)), l.hamburg.seen(l.lubeck, podAddress(2, 10))
	questions := []question{
		{"home to guest", l.home1, guest, true, netip.Addr{}},
		{"home to guest by IPv6", l.home1, l.lubeck.seen(l.hamburg, podAddress6(1, 20)), true, netip.Addr{}},
		{"guest to home", l.guest2, home, true, netip.Addr{}},
	}
	inside, outside := l.bremen.pod.watch(tunnelLink), l.watch("br0")
	check(t, questions)
	// A megabyte takes seconds through three tunnels that run with the race detector on a busy machine.
	if err := size(l.home1.ask("tcp", guest, 1<<17, patient)); err != nil {
		t.Errorf("a hundred packets: %v", err)
	}
	passed := 0
	for _, p := range append(inside(), outside()...) {
		if bytes.Contains(p, []byte("qqqqqqqqqqqqqqqq")) {
			t.Fatalf("bremen sees % x", p[:min(len(p), 100)])
		}
		passed++
	}
	if passed < 100 {
		t.Errorf("only %d packets were seen", passed)
	}
}

// Else the relay could have its own tunnel led through itself.
func TestARelayIsNoPeerOfTheTunnelsThatItPassesOn(t *testing.T) {
	t.Parallel()
	l := newRelayedLeague(t)
	for w, want := range map[*wireGuard]wgtypes.Key{
		l.lubeck.gateway.direct: l.bremen.key.PublicKey(), l.lubeck.gateway.relayed: l.hamburg.key.PublicKey(),
	} {
		peers, err := w.peers()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := peers[want]; !ok || len(peers) != 1 {
			t.Errorf("peers of %s are %v", w.name, peers)
		}
	}
}

func TestTunnelsLeaveTheRelayWhenTheyNeedItNoMore(t *testing.T) {
	t.Parallel()
	l := newRelayedLeague(t)
	questions := []question{{"home to guest", l.home1, l.lubeck.seen(l.hamburg, podAddress(1, 20)), true, netip.Addr{}}}
	check(t, questions)
	l.lubeck.dialsOnly, l.hamburg.dialsOnly = false, false
	l.apply()
	check(t, questions)
	if l.lubeck.gateway.relayed.device != nil || l.lubeck.pod.do(func() error { return setUp(relayedLink) }) == nil {
		t.Errorf("interface %s is still there", relayedLink)
	}
}
