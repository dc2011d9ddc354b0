// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func addresses(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func endpoints(texts ...string) []netip.AddrPort {
	var all []netip.AddrPort
	for _, text := range texts {
		all = append(all, netip.MustParseAddrPort(text))
	}
	return all
}

func keyOf(b byte) [32]byte { return [32]byte{b} }

// cluster is lubeck with two nodes, before it has peers.
func cluster() State {
	return State{
		Pods: prefixes("10.244.0.0/16"), Services: prefixes("10.96.0.0/12"),
		Gateway: Gateway{
			Node: "n1", Addresses: addresses("10.244.1.2"), PublicKey: keyOf(1), Endpoints: endpoints("192.0.2.1:51820"), MTU: 1450,
		},
		Nodes: []Host{
			{Name: "n2", Addresses: addresses("192.168.7.2"), PodCIDRs: prefixes("10.244.2.0/24")},
			{Name: "n1", Addresses: addresses("192.168.7.1"), PodCIDRs: prefixes("10.244.1.0/24")},
		},
	}
}

// hamburg is a peer that uses the same ranges.
func hamburg() Peer {
	return Peer{
		Name: "hamburg", PublicKey: keyOf(2), Endpoints: endpoints("203.0.113.7:51820"),
		Theirs: maps("10.244.0.0/16=100.64.0.0/16", "10.96.0.0/12=240.0.0.0/12"),
		Ours:   maps("10.244.0.0/16=100.65.0.0/16", "10.96.0.0/12=240.16.0.0/12"),
		Probes: addresses("240.0.0.0"), Resolvers: addresses("240.0.0.10"),
	}
}

// riga is a peer whose ranges are nobody else's, and which only dials.
func riga() Peer {
	return Peer{
		Name: "riga", PublicKey: keyOf(3), Theirs: maps("10.50.0.0/16=10.50.0.0/16", "10.60.0.0/16=10.60.0.0/16"),
		Ours: maps("10.244.0.0/16=10.244.0.0/16", "10.96.0.0/12=10.96.0.0/12"), Probes: addresses("10.60.0.0"),
	}
}

func TestPlanOfTwoPeers(t *testing.T) {
	s := cluster()
	h := hamburg()
	h.There = addresses("100.64.2.8", "100.64.2.7", "100.64.2.7", "10.244.1.9") // the last is a lie
	h.Guests = []Pod{{"shop", netip.MustParseAddr("10.244.2.5")}, {"shop", netip.MustParseAddr("8.8.8.8")}}
	h.Fits = 1216
	s.Peers = []Peer{riga(), h}

	want := Layout{
		Tunnels: []Tunnel{
			{
				Peer: "hamburg", PublicKey: keyOf(2), Endpoints: endpoints("203.0.113.7:51820"),
				AllowedIPs: prefixes("100.64.0.0/16", "240.0.0.0/12"), MTU: 1216, Probes: addresses("240.0.0.0"),
			},
			{Peer: "riga", PublicKey: keyOf(3), AllowedIPs: prefixes("10.50.0.0/16", "10.60.0.0/16"), Keepalive: true, MTU: 1390, Probes: addresses("10.60.0.0")},
		},
		Translations: []Translation{
			{
				Peer: "hamburg", From: prefixes("100.64.0.0/16", "240.0.0.0/12"),
				Ours: maps("10.96.0.0/12=240.16.0.0/12", "10.244.0.0/16=100.65.0.0/16"), Hosts: addresses("240.16.0.0"),
			},
			{Peer: "riga", From: prefixes("10.50.0.0/16", "10.60.0.0/16"), Hosts: addresses("10.96.0.0")},
		},
		Permissions: []Permissions{
			{
				Peer: "hamburg", Theirs: addresses("100.64.2.7", "100.64.2.8"), Guests: addresses("10.244.2.5"),
				Reached: prefixes("10.96.0.0/12", "10.244.0.0/16"),
			},
			{Peer: "riga", Reached: prefixes("10.96.0.0/12", "10.244.0.0/16")},
		},
		Nodes: []Node{
			{
				Name: "n1", Address: netip.MustParseAddr("192.168.7.1"), Inner: addresses("192.168.7.1"),
				Ranges: prefixes("10.96.0.0/12", "10.244.0.0/16", "10.244.1.0/24"),
			},
			{Name: "n2", Address: netip.MustParseAddr("192.168.7.2"), Inner: addresses("192.168.7.2"), Ranges: prefixes("10.244.2.0/24")},
		},
		Blackholes: prefixes("10.50.0.0/16", "10.60.0.0/16", "100.64.0.0/16", "240.0.0.0/12"),
		Addresses:  addresses("10.96.0.0"), Resolvers: addresses("240.0.0.10"), MTU: 1390,
	}
	got, conflicts := Plan(s)
	if diff := cmp.Diff(want, got, byText); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	expectConflicts(t, nil, conflicts)
}

func TestWhatWeRelayIsTranslatedForThePeerThatSendsIt(t *testing.T) {
	s := cluster()
	h := hamburg()
	h.Ours = append(h.Ours, maps("10.50.0.0/16=100.72.0.0/16", "10.60.0.0/16=10.60.0.0/16", "100.64.0.0/16=100.73.0.0/16", "10.51.0.0/16=100.74.0.0/16")...)
	s.Peers = []Peer{h, riga()}
	layout, conflicts := Plan(s)
	expectConflicts(t, nil, conflicts)
	// What riga is seen in is relayed, also as it is; what hamburg itself is seen in would come back to it, and the third is nobody's.
	want := maps("10.50.0.0/16=100.72.0.0/16", "10.60.0.0/16=10.60.0.0/16", "10.96.0.0/12=240.16.0.0/12", "10.244.0.0/16=100.65.0.0/16")
	if diff := cmp.Diff(want, layout.Translations[0].Ours, byText); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPlanOfANode(t *testing.T) {
	s := cluster()
	s.Closed = prefixes("192.168.7.9/32")
	h := hamburg()
	h.Guests = []Pod{{"shop", netip.MustParseAddr("10.244.2.5")}, {"shop", netip.MustParseAddr("10.244.1.5")}}
	h.Services = []Service{
		{Home: HomeService{"shop", "web"}, Twin: "shop-hamburg", Addresses: addresses("10.97.1.2")},
		{Home: HomeService{"shop", "db"}, Twin: "shop-hamburg"},
		{Home: HomeService{"shop", "x"}, Twin: "shop-hamburg", Addresses: addresses("10.244.1.9")}, // which is no cluster IP
	}
	s.Peers = []Peer{h, riga()}
	closed := prefixes(
		"10.96.0.0/12", "10.244.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "169.254.0.0/16", "192.0.0.192/32", "192.168.7.1/32",
		"192.168.7.2/32", "192.168.7.9/32", "fd00:ec2::254/128", "fd20:ce::254/128", "fe80::/10",
	)
	want := NodeLayout{
		Gateway: netip.MustParseAddr("10.244.1.2"), Inner: addresses("192.168.7.2"), Through: addresses("10.244.1.2"),
		Routes: prefixes("10.50.0.0/16", "10.60.0.0/16", "100.64.0.0/16", "240.0.0.0/12"),
		Own:    prefixes("10.96.0.0/12", "10.244.0.0/16"), Here: prefixes("10.244.2.0/24"), Services: prefixes("10.96.0.0/12"), Closed: closed,
		Guarded: []Guests{{Peer: "hamburg", Pods: addresses("10.244.1.5", "10.244.2.5"), Home: prefixes("10.97.1.2/32", "100.64.0.0/16", "240.0.0.0/12")}},
		MTU:     1390,
	}
	if diff := cmp.Diff(want, NodePlan(s, "n2"), byText); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	s.Gateway.Node = ""
	want.Gateway, want.Inner, want.Through = netip.Addr{}, nil, nil
	if diff := cmp.Diff(want, NodePlan(s, "n2"), byText); diff != "" {
		t.Errorf("while no gateway is active, routes and the guard stay (-want +got):\n%s", diff)
	}
}

func TestPlanOfADualStackCluster(t *testing.T) {
	s := cluster()
	s.Pods, s.Services = append(s.Pods, prefixes("fd00:10::/56")...), append(s.Services, prefixes("fd00:96::/112")...)
	s.Gateway.Addresses = addresses("fd00:10:0:1::2", "10.244.1.2")
	for i, address := range addresses("fd00:7::2", "fd00:7::1") {
		s.Nodes[i].Addresses = append(s.Nodes[i].Addresses, address)
	}
	h := hamburg()
	h.Ours = append(h.Ours, maps("fd00:10::/56=fd68:616e::/56", "fd00:96::/112=fd00:96::/112")...)
	s.Peers = []Peer{h}
	got, conflicts := Plan(s)
	expectConflicts(t, nil, conflicts)
	wantNodes := []Node{
		{
			Name: "n1", Address: netip.MustParseAddr("fd00:7::1"), Inner: addresses("192.168.7.1", "fd00:7::1"),
			Ranges: prefixes("10.96.0.0/12", "10.244.0.0/16", "10.244.1.0/24", "fd00:10::/56", "fd00:96::/112"),
		},
		{Name: "n2", Address: netip.MustParseAddr("fd00:7::2"), Inner: addresses("192.168.7.2", "fd00:7::2"), Ranges: prefixes("10.244.2.0/24")},
	}
	if diff := cmp.Diff(wantNodes, got.Nodes, byText); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(addresses("10.96.0.0", "fd00:96::"), got.Addresses, byText); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(addresses("240.16.0.0", "fd00:96::"), got.Translations[0].Hosts, byText); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
	node := NodePlan(s, "n1")
	if diff := cmp.Diff(addresses("10.244.1.2", "fd00:10:0:1::2"), node.Through, byText); diff != "" || got.MTU != 1450-80 || node.MTU != got.MTU {
		t.Errorf("MTU %d and %d, through (-want +got):\n%s", got.MTU, node.MTU, diff)
	}
}

func TestWhatCannotBeUsedIsLeftOutAndNobodyElseSuffers(t *testing.T) {
	tests := map[string]struct {
		change    func(s *State, bad *Peer)
		conflict  string
		connected bool // all the same
		endpoints []netip.AddrPort
		open      []netip.Prefix // what no route leads to
	}{
		"a peer with no key": {
			change: func(_ *State, bad *Peer) { bad.PublicKey = [32]byte{} }, conflict: "bad NoPeerGateway no key",
		},
		"a peer with our key": {
			change: func(s *State, bad *Peer) { bad.PublicKey = s.Gateway.PublicKey }, conflict: "bad KeyTaken our own",
		},
		"a peer with another's key, whose name comes first": {
			change:   func(s *State, bad *Peer) { s.Peers[0].Name, bad.PublicKey = "all", keyOf(2) },
			conflict: `bad KeyTaken that of peer "all"`,
		},
		"a peer of which no range is known": {
			change: func(_ *State, bad *Peer) { bad.Theirs = nil }, conflict: "bad Pending No range", open: prefixes("100.70.0.0/16"),
		},
		"a peer that is seen in our ranges": {
			change:   func(_ *State, bad *Peer) { bad.Theirs[0] = maps("10.244.0.0/16=10.100.0.0/16")[0] },
			conflict: "bad NoAddressRange 10.100.0.0/16, in which the peer is seen, overlaps 10.96.0.0/12", open: prefixes("100.70.0.0/16"),
		},
		"a peer that is seen where another is, whose name comes first": {
			change: func(s *State, bad *Peer) {
				s.Peers[0].Name = "all"
				bad.Theirs[0] = maps("10.244.0.0/24=100.64.9.0/24")[0]
			},
			conflict: "bad NoAddressRange overlaps 100.64.0.0/16", open: prefixes("100.70.0.0/16"),
		},
		"a peer that is seen everywhere": {
			change:   func(_ *State, bad *Peer) { bad.Theirs[0] = maps("0.0.0.0/0=0.0.0.0/0")[0] },
			conflict: "bad NoAddressRange 0.0.0.0/0", open: prefixes("100.70.0.0/16"),
		},
		"a peer that is seen in a range of another size": {
			change:   func(_ *State, bad *Peer) { bad.Theirs[0].Own = netip.MustParsePrefix("10.0.0.0/8") },
			conflict: "bad NetworkRefused 10.0.0.0/8 cannot be seen in 100.70.0.0/16", open: prefixes("100.70.0.0/16"),
		},
		"a peer that has not said how it sees us": {
			change: func(_ *State, bad *Peer) { bad.Ours = nil }, conflict: "bad Pending in which range it sees 10.96.0.0/12",
		},
		"a peer that sees us in one range twice": {
			change:   func(_ *State, bad *Peer) { bad.Ours[0].Seen = netip.MustParsePrefix("240.40.0.0/16") },
			conflict: "bad NetworkRefused overlap",
		},
		"a peer whose endpoint is our own gateway": {
			change:    func(_ *State, bad *Peer) { bad.Endpoints = endpoints("192.0.2.1:51820", "203.0.113.9:1") },
			conflict:  "bad EndpointRefused 192.0.2.1:51820 of the peer's gateway is not dialled: it is our own gateway",
			connected: true, endpoints: endpoints("203.0.113.9:1"),
		},
		"a peer whose endpoint is one of our nodes": {
			change:   func(_ *State, bad *Peer) { bad.Endpoints = endpoints("192.168.7.2:10250") },
			conflict: "bad EndpointRefused lies in this cluster", connected: true,
		},
		"a peer whose endpoint is one of our nodes in disguise": {
			change:   func(_ *State, bad *Peer) { bad.Endpoints = endpoints("[::ffff:192.168.7.2]:10250") },
			conflict: "bad EndpointRefused lies in this cluster", connected: true,
		},
		"a peer whose endpoint is one of our Services": {
			change:   func(_ *State, bad *Peer) { bad.Endpoints = endpoints("10.96.0.10:53") },
			conflict: "bad EndpointRefused lies in 10.96.0.0/12", connected: true,
		},
		"a peer whose endpoint is behind a tunnel": {
			change:   func(_ *State, bad *Peer) { bad.Endpoints = endpoints("100.64.3.3:51820") },
			conflict: "bad EndpointRefused lies in 100.64.0.0/16", connected: true,
		},
		"a peer whose endpoint is this host": {
			change:   func(_ *State, bad *Peer) { bad.Endpoints = endpoints("127.0.0.1:6443") },
			conflict: "bad EndpointRefused lies in 127.0.0.0/8", connected: true,
		},
		"a peer whose endpoint is a metadata service": {
			change:   func(_ *State, bad *Peer) { bad.Endpoints = endpoints("169.254.169.254:80") },
			conflict: "bad EndpointRefused lies in 169.254.0.0/16", connected: true,
		},
		"a peer whose endpoint is everybody": {
			change:   func(_ *State, bad *Peer) { bad.Endpoints = endpoints("[ff02::1]:51820") },
			conflict: "bad EndpointRefused lies in ff00::/8", connected: true,
		},
		"a peer without a port": {
			change:   func(_ *State, bad *Peer) { bad.Endpoints = endpoints("203.0.113.9:0") },
			conflict: "bad EndpointRefused no address and port", connected: true,
		},
		"a peer without an endpoint while we have none": {
			change: func(s *State, bad *Peer) {
				s.Gateway.Endpoints, s.Peers[0].Endpoints, bad.Endpoints = nil, endpoints("203.0.113.7:51820"), nil
			},
			conflict: "bad NoEndpoint Neither", connected: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := cluster()
			bad := Peer{
				Name: "bad", PublicKey: keyOf(9), Theirs: maps("10.244.0.0/16=100.70.0.0/16"),
				Ours: maps("10.244.0.0/16=100.71.0.0/16", "10.96.0.0/12=240.32.0.0/12"),
			}
			s.Peers = []Peer{hamburg(), bad}
			test.change(&s, &s.Peers[1])
			layout, conflicts := Plan(s)
			expectConflicts(t, []string{test.conflict}, conflicts)

			at := slices.IndexFunc(layout.Tunnels, func(p Tunnel) bool { return p.Peer == "bad" })
			if (at >= 0) != test.connected {
				t.Errorf("tunnels are %+v", layout.Tunnels)
			}
			if at >= 0 {
				if diff := cmp.Diff(test.endpoints, layout.Tunnels[at].Endpoints, byText); diff != "" {
					t.Errorf("endpoints (-want +got):\n%s", diff)
				}
			}
			if !slices.Contains(layout.Blackholes, netip.MustParsePrefix("100.70.0.0/16")) != (len(test.open) > 0) {
				t.Errorf("blackholes are %s", layout.Blackholes)
			}
			s.Peers = s.Peers[:1]
			alone, _ := Plan(s)
			at = slices.IndexFunc(layout.Tunnels, func(p Tunnel) bool { return p.Peer != "bad" })
			if diff := cmp.Diff(alone.Tunnels[0], layout.Tunnels[at], byText) +
				cmp.Diff(alone.Translations[0], layout.Translations[at], byText) +
				cmp.Diff(alone.Permissions[0], layout.Permissions[at], byText); diff != "" {
				t.Errorf("the other peer suffers (-alone +with):\n%s", diff)
			}
		})
	}
}

func TestMTU(t *testing.T) {
	tests := map[string]struct {
		gateway Gateway
		fits    int
		want    int // of all links
		tunnel  int
	}{
		"a link of which nothing is known": {gateway: Gateway{Addresses: addresses("10.244.1.2")}, want: 1440, tunnel: 1440},
		"a usual link":                     {gateway: Gateway{Addresses: addresses("10.244.1.2"), MTU: 1500}, want: 1440, tunnel: 1440},
		"a gateway with IPv6":              {gateway: Gateway{Addresses: addresses("10.244.1.2", "fd00::2"), MTU: 1500}, want: 1420, tunnel: 1420},
		"a gateway of IPv6":                {gateway: Gateway{Addresses: addresses("fd00::2"), MTU: 1500}, want: 1420, tunnel: 1420},
		"jumbo frames":                     {gateway: Gateway{Addresses: addresses("10.244.1.2"), MTU: 9000}, want: 8940, tunnel: 8940},
		"a narrow path":                    {gateway: Gateway{Addresses: addresses("10.244.1.2"), MTU: 1500}, fits: 1216, want: 1440, tunnel: 1216},
		"a path wider than our link":       {gateway: Gateway{Addresses: addresses("10.244.1.2"), MTU: 1450}, fits: 8940, want: 1390, tunnel: 1390},
		"a narrow link":                    {gateway: Gateway{Addresses: addresses("10.244.1.2"), MTU: 1280}, fits: 1216, want: 1280, tunnel: 1216},
		"no gateway":                       {want: 1440, tunnel: 1440},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := cluster()
			test.gateway.Node, test.gateway.PublicKey = "n1", keyOf(1)
			h := hamburg()
			h.Fits = test.fits
			s.Gateway, s.Peers = test.gateway, []Peer{h}
			layout, _ := Plan(s)
			if layout.MTU != test.want || layout.Tunnels[0].MTU != test.tunnel || NodePlan(s, "n2").MTU != test.want {
				t.Errorf("got %d, the tunnel %d, nodes %d", layout.MTU, layout.Tunnels[0].MTU, NodePlan(s, "n2").MTU)
			}
		})
	}
}
