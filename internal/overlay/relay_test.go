// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// behindNAT is lubeck with a gateway that only dials, and peers: riga, which only dials too, and hamburg, which both reach.
func behindNAT(change func(relay *Peer)) State {
	s := cluster()
	s.Gateway.Endpoints = nil
	relay := hamburg()
	relay.Relays = true
	change(&relay)
	s.Peers = []Peer{riga(), relay}
	return s
}

func TestTunnelsOfTwoThatOnlyDialLeadThroughAPeerOfBoth(t *testing.T) {
	relays := func(*Peer) {}
	through := netip.AddrPortFrom(netip.MustParseAddr("240.0.0.0"), relayPort(riga().PublicKey))
	for name, test := range map[string]struct {
		state     State
		through   []string
		endpoints []netip.AddrPort
		mtu       int
		conflict  bool
	}{
		"it relays":                        {behindNAT(relays), []string{"hamburg"}, []netip.AddrPort{through}, 1328, false},
		"only smaller packets get to it":   {behindNAT(func(p *Peer) { p.Fits = 1280 }), []string{"hamburg"}, []netip.AddrPort{through}, 1216, false},
		"it does not":                      {behindNAT(func(p *Peer) { p.Relays = false }), nil, nil, 1390, true},
		"nobody dials it either":           {behindNAT(func(p *Peer) { p.Endpoints = nil }), nil, nil, 1390, true},
		"it has no tunnel":                 {behindNAT(func(p *Peer) { p.PublicKey = [32]byte{} }), nil, nil, 1390, true},
		"it tells of no address":           {behindNAT(func(p *Peer) { p.Probes = nil }), nil, nil, 1390, true},
		"its address is not of its ranges": {behindNAT(func(p *Peer) { p.Probes = addresses("10.60.0.0") }), nil, nil, 1390, true},
		"our gateway is reached by the peer": {func() State {
			s := behindNAT(relays)
			s.Gateway.Endpoints = endpoints("192.0.2.1:51820")
			return s
		}(), nil, nil, 1390, false},
	} {
		t.Run(name, func(t *testing.T) {
			layout, conflicts := Plan(test.state)
			at := slices.IndexFunc(layout.Tunnels, func(tunnel Tunnel) bool { return tunnel.Peer == "riga" })
			want := Tunnel{
				Peer: "riga", PublicKey: keyOf(3), AllowedIPs: prefixes("10.50.0.0/16", "10.60.0.0/16"), Keepalive: true,
				Probes: addresses("10.60.0.0"), MTU: test.mtu, Through: test.through, Endpoints: test.endpoints,
			}
			if diff := cmp.Diff(want, layout.Tunnels[at], byText); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			told := slices.ContainsFunc(conflicts, func(c Conflict) bool { return c.Peer == "riga" && c.Reason == "NoEndpoint" })
			if told != test.conflict {
				t.Errorf("conflicts are %v", conflicts)
			}
			if from := layout.Relaying; len(from) != len(test.through) {
				t.Errorf("packets that are passed on are taken from %v", from)
			}
		})
	}
}

func TestOurGatewayPassesOnPacketsOfPeersThatHaveABandwidth(t *testing.T) {
	s := cluster()
	first, second, third, unknown := hamburg(), riga(), riga(), riga()
	first.RelayBandwidth, second.RelayBandwidth, unknown.RelayBandwidth = 1000, 2000, 3000
	third.Name, third.PublicKey, third.Theirs, third.Probes = "tallinn", keyOf(4), maps("10.70.0.0/16=10.70.0.0/16"), addresses("10.70.0.0")
	unknown.Name, unknown.PublicKey, unknown.Theirs, unknown.Probes = "visby", keyOf(5), maps("10.80.0.0/16=10.80.0.0/16"), nil
	s.Peers = []Peer{first, second, third, unknown}
	want := []Relayed{
		{"hamburg", netip.MustParseAddr("240.0.0.0"), relayPort(keyOf(2)), 1000},
		{"riga", netip.MustParseAddr("10.60.0.0"), relayPort(keyOf(3)), 2000},
	}
	layout, conflicts := Plan(s)
	if diff := cmp.Diff(want, layout.Relayed, byText); diff != "" || len(conflicts) > 0 {
		t.Errorf("conflicts %v (-want +got):\n%s", conflicts, diff)
	}
	if diff := cmp.Diff(addresses("10.60.0.0", "240.0.0.0"), layout.Relaying, byText); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	s.Gateway.Endpoints = nil
	layout, conflicts = Plan(s)
	reasons := map[string]int{}
	for _, c := range conflicts {
		reasons[c.Peer+" "+c.Reason]++
	}
	if len(layout.Relayed) > 0 || reasons["hamburg NoRelay"] != 1 || reasons["riga NoRelay"] != 1 {
		t.Errorf("a gateway that only dials relays for %v, conflicts %v", layout.Relayed, conflicts)
	}
}

func TestTwoPeersWithOnePortAreNotMixedUp(t *testing.T) {
	s := cluster()
	s.Peers = []Peer{hamburg(), riga()}
	for i := range s.Peers {
		s.Peers[i].RelayBandwidth = 1000
	}
	for n := 0; relayPort(s.Peers[1].PublicKey) != relayPort(s.Peers[0].PublicKey); n++ {
		s.Peers[1].PublicKey = [32]byte{1: byte(n), 2: byte(n >> 8), 3: byte(n >> 16), 31: 9}
	}
	layout, conflicts := Plan(s)
	if len(layout.Relayed) != 1 || layout.Relayed[0].Peer != "hamburg" || len(conflicts) != 1 || conflicts[0].Peer != "riga" || conflicts[0].Reason != "NoRelay" {
		t.Errorf("relayed are %v, conflicts %v", layout.Relayed, conflicts)
	}
}

func TestRelayPortsAreBehindThatOfGateways(t *testing.T) {
	for n := range 1000 {
		if port := relayPort([32]byte{byte(n), byte(n >> 8)}); port <= RelayedPort || port > LastRelayPort {
			t.Errorf("got %d", port)
		}
	}
}
