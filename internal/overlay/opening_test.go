// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func opening(from, to v1alpha1.OpeningSide) v1alpha1.Opening {
	return openingOf(from, to)
}

func openingOf(from, to v1alpha1.OpeningSide, ports ...v1alpha1.OpeningPort) v1alpha1.Opening {
	return v1alpha1.Opening{From: from, To: to, Ports: ports}
}

var (
	stock   = v1alpha1.OpeningSide{Namespace: "stock"}
	shop    = v1alpha1.OpeningSide{PeerNamespace: "shop"}
	allPeer = v1alpha1.OpeningSide{PeerNamespace: "*"}
)

func TestOpenings(t *testing.T) {
	guest, other := netip.MustParseAddr("10.244.2.5"), netip.MustParseAddr("10.244.2.6")
	server := netip.MustParseAddr("10.244.1.9")
	home := prefixes("100.64.0.0/16", "240.0.0.0/12")
	ports := []PortRange{{6, 80, 80}, {17, 0, 65535}, {132, 1000, 65535}}
	tests := map[string]struct {
		openings        []v1alpha1.Opening
		gateway, onNode []Opening
	}{
		"none": {},
		"from one of the peer's namespaces": {
			openings: []v1alpha1.Opening{opening(shop, stock)},
			onNode:   []Opening{{From: single([]netip.Addr{guest}), To: single([]netip.Addr{server})}},
		},
		"to one of the peer's namespaces": {
			openings: []v1alpha1.Opening{opening(stock, shop)},
			onNode:   []Opening{{From: single([]netip.Addr{server}), To: single([]netip.Addr{guest})}},
		},
		"from all of the peer": {
			openings: []v1alpha1.Opening{opening(allPeer, stock)},
			gateway:  []Opening{{From: home, To: single([]netip.Addr{server})}},
			onNode:   []Opening{{From: single([]netip.Addr{guest, other}), To: single([]netip.Addr{server})}},
		},
		"to a namespace without pods": {
			openings: []v1alpha1.Opening{opening(allPeer, v1alpha1.OpeningSide{Namespace: "empty"})},
			gateway:  []Opening{{From: home, To: single(nil)}},
			onNode:   []Opening{{From: single([]netip.Addr{guest, other}), To: single(nil)}},
		},
		"from a namespace without pods": {
			openings: []v1alpha1.Opening{opening(v1alpha1.OpeningSide{PeerNamespace: "empty"}, stock)},
			onNode:   []Opening{{From: single(nil), To: single([]netip.Addr{server})}},
		},
		"to some ports": {
			openings: []v1alpha1.Opening{openingOf(allPeer, stock,
				v1alpha1.OpeningPort{Port: 80}, v1alpha1.OpeningPort{Protocol: "UDP"}, v1alpha1.OpeningPort{Protocol: "SCTP", Port: 1000, EndPort: 65535},
			)},
			gateway: []Opening{{home, single([]netip.Addr{server}), ports}},
			onNode:  []Opening{{single([]netip.Addr{guest, other}), single([]netip.Addr{server}), ports}},
		},
		"to ports that the API does not allow": {openings: []v1alpha1.Opening{
			openingOf(allPeer, stock, v1alpha1.OpeningPort{Protocol: "ICMP"}), openingOf(allPeer, stock, v1alpha1.OpeningPort{Port: 65536}),
			openingOf(allPeer, stock, v1alpha1.OpeningPort{Port: 1, EndPort: 65536}), openingOf(allPeer, stock, v1alpha1.OpeningPort{Port: -1}),
		}},
		"between nobody": {openings: []v1alpha1.Opening{{}, opening(shop, allPeer), opening(stock, stock)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := cluster()
			h := hamburg()
			h.Openings, h.Guests = test.openings, []Pod{{"yard", other}, {"shop", guest}}
			s.Peers = []Peer{h}
			s.OurPods = []Pod{{"stock", server}, {"stock", netip.MustParseAddr("192.168.7.1")}, {"secret", netip.MustParseAddr("10.244.1.8")}}
			layout, _ := Plan(s)
			if diff := cmp.Diff(test.gateway, layout.Permissions[0].Open, byText); diff != "" {
				t.Errorf("at the gateway (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.onNode, NodePlan(s, "n2").Guarded[0].Open, byText); diff != "" {
				t.Errorf("on nodes (-want +got):\n%s", diff)
			}
		})
	}
}

// What is exported to a peer, all of it reaches; what is imported from there, all our pods do.
func TestPathsOfExportedServices(t *testing.T) {
	guest, server := netip.MustParseAddr("10.244.2.5"), netip.MustParseAddr("10.244.1.9")
	s, h := cluster(), hamburg()
	h.Guests = []Pod{{"shop", guest}}
	web, none := []v1alpha1.OpeningPort{{Protocol: "TCP", Port: 80}}, []v1alpha1.OpeningPort{{Protocol: "ICMP"}}
	h.Exported = []v1alpha1.ServicePath{{Namespace: "stock", Ports: web}, {Namespace: "stock", Ports: none}, {Namespace: "stock"}}
	h.Imported = []v1alpha1.ServicePath{{Namespace: "shop", Ports: web}}
	s.Peers, s.OurPods = []Peer{h}, []Pod{{"stock", server}}
	ports, home := []PortRange{{6, 80, 80}}, prefixes("100.64.0.0/16", "240.0.0.0/12")
	here, there := single([]netip.Addr{server}), single([]netip.Addr{guest})
	layout, _ := Plan(s)
	if diff := cmp.Diff([]Opening{{home, here, ports}, {sortedRanges(s.Pods), home, ports}}, layout.Permissions[0].Open, byText); diff != "" {
		t.Errorf("at the gateway (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Opening{{there, here, ports}, {sortedRanges(s.Pods), there, ports}}, NodePlan(s, "n2").Guarded[0].Open, byText); diff != "" {
		t.Errorf("on nodes (-want +got):\n%s", diff)
	}
}
