// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestThePeersGatewayAsksOurNameServersForOurPodsThere(t *testing.T) {
	server, gateway, there := netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("240.0.0.0"), netip.MustParseAddr("100.64.1.5")
	tests := map[string]struct {
		there, servers []netip.Addr
		want           []Opening
	}{
		"where a pod of ours runs":        {[]netip.Addr{there}, []netip.Addr{server}, []Opening{{From: single([]netip.Addr{gateway}), To: single([]netip.Addr{server})}}},
		"where none runs":                 {nil, []netip.Addr{server}, nil},
		"no server that is not ours":      {[]netip.Addr{there}, []netip.Addr{netip.MustParseAddr("192.0.2.53")}, nil},
		"nobody while we know no servers": {[]netip.Addr{there}, nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, h := cluster(), hamburg()
			h.There, h.Probes = test.there, []netip.Addr{gateway}
			s.Peers, s.Nameservers = []Peer{h}, test.servers
			layout, _ := Plan(s)
			if diff := cmp.Diff(test.want, layout.Permissions[0].Open, byText); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestNothingLeavesForPeersThatAreGone(t *testing.T) {
	s := cluster()
	s.Peers = []Peer{hamburg()}
	s.Departed = prefixes("100.70.0.0/16", "100.64.0.0/16", "10.244.0.0/16") // of the last two one is hamburg's now, and one ours
	layout, _ := Plan(s)
	if diff := cmp.Diff(prefixes("100.64.0.0/16", "100.70.0.0/16", "240.0.0.0/12"), layout.Blackholes, byText); diff != "" {
		t.Errorf("at the gateway (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(layout.Blackholes, NodePlan(s, "n2").Routes, byText); diff != "" {
		t.Errorf("on nodes (-want +got):\n%s", diff)
	}
}
