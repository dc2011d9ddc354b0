// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// only6 makes the cluster one of IPv6 alone.
func only6(s *State) {
	s.Pods, s.Services = prefixes("fd00:10::/56"), prefixes("fd00:96::/112")
	s.Gateway.Addresses, s.Gateway.Endpoints = addresses("fd00:10:0:1::2"), endpoints("[2001:db8::1]:51820")
	for i, address := range addresses("fd00:7::2", "fd00:7::1") {
		s.Nodes[i].Addresses = []netip.Addr{address}
	}
}

// of6 makes the peer one of IPv6 alone. Its only endpoint stays.
func of6(p *Peer) {
	p.Theirs = maps("fd00:10::/56=fd68:616e::/56", "fd00:96::/112=fd68:616e:1::/112")
	p.Probes, p.Resolvers = addresses("fd68:616e:1::"), addresses("fd68:616e:1::a")
}

// hamburg6 is hamburg as a cluster of IPv6 alone sees it.
func hamburg6() Peer {
	p := hamburg()
	of6(&p)
	p.Ours = maps("fd00:10::/56=fd00:10::/56", "fd00:96::/112=fd00:96::/112")
	return p
}

func TestPlanOfAClusterOfIPv6Alone(t *testing.T) {
	s := cluster()
	only6(&s)
	s.Peers = []Peer{hamburg6()}
	got, conflicts := Plan(s)
	expectConflicts(t, nil, conflicts)
	wantNodes := []Node{
		{Name: "n1", Address: netip.MustParseAddr("fd00:7::1"), Inner: addresses("fd00:7::1"), Ranges: prefixes("10.244.1.0/24", "fd00:10::/56", "fd00:96::/112")},
		{Name: "n2", Address: netip.MustParseAddr("fd00:7::2"), Inner: addresses("fd00:7::2"), Ranges: prefixes("10.244.2.0/24")},
	}
	if diff := cmp.Diff(wantNodes, got.Nodes, byText); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(addresses("fd00:96::"), got.Addresses, byText); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	node := NodePlan(s, "n1")
	if diff := cmp.Diff(addresses("fd00:10:0:1::2"), node.Through, byText); diff != "" || node.Gateway != node.Through[0] {
		t.Errorf("the gateway is %s, through (-want +got):\n%s", node.Gateway, diff)
	}
}

func TestEndpointsOfAFamilyThatTheGatewayHasAreDialledFirst(t *testing.T) {
	both := endpoints("203.0.113.7:1", "[2001:db8::7]:1", "203.0.113.8:1", "[2001:db8::8]:1")
	tests := map[string]struct {
		gateway []netip.Addr
		want    []netip.AddrPort
	}{
		"a gateway of IPv4 alone":      {addresses("10.244.1.2"), endpoints("203.0.113.7:1", "203.0.113.8:1", "[2001:db8::7]:1", "[2001:db8::8]:1")},
		"a gateway of IPv6 alone":      {addresses("fd00:10::2"), endpoints("[2001:db8::7]:1", "[2001:db8::8]:1", "203.0.113.7:1", "203.0.113.8:1")},
		"a gateway of both":            {addresses("fd00:10::2", "10.244.1.2"), both},
		"a gateway that is not active": {nil, both},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := cluster()
			h := hamburg()
			s.Gateway.Addresses, h.Endpoints = test.gateway, slices.Clone(both)
			s.Peers = []Peer{h}
			got, _ := Plan(s)
			if diff := cmp.Diff(test.want, got.Tunnels[0].Endpoints, byText); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestGatewaysThatHaveNoFamilyInCommonAreApart(t *testing.T) {
	const four, six = "203.0.113.7:1", "[2001:db8::7]:1"
	tests := map[string]struct {
		gateway      []netip.Addr
		ours, theirs []netip.AddrPort
		peer6        bool // its ranges are of IPv6 alone
		want         bool
	}{
		"each dials the other":                      {addresses("10.244.1.2"), endpoints("192.0.2.1:1"), endpoints(four), false, false},
		"IPv4 here, and IPv6 there":                 {addresses("10.244.1.2"), nil, endpoints(six), false, true},
		"IPv6 here, and IPv4 there":                 {addresses("fd00:10::2"), nil, endpoints(four), false, true},
		"both here":                                 {addresses("10.244.1.2", "fd00:10::2"), nil, endpoints(six), true, false},
		"one of their endpoints can be dialled":     {addresses("10.244.1.2"), nil, endpoints(four, six), false, false},
		"only the peer dials, and has IPv6 alone":   {addresses("10.244.1.2", "fd00:10::2"), endpoints("192.0.2.1:1"), nil, true, true},
		"only the peer dials, and has our family":   {addresses("10.244.1.2"), endpoints("192.0.2.1:1"), nil, false, false},
		"neither is reached, which is another case": {addresses("10.244.1.2"), nil, nil, true, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := cluster()
			s.Gateway.Addresses, s.Gateway.Endpoints = test.gateway, test.ours
			h := hamburg()
			if test.peer6 {
				of6(&h)
			}
			h.Endpoints = test.theirs
			s.Peers = []Peer{h}
			got, _ := Plan(s)
			if got.Tunnels[0].Apart != test.want || !slices.Equal(got.Tunnels[0].Endpoints, test.theirs) {
				t.Errorf("got %+v", got.Tunnels[0])
			}
		})
	}
}

func TestPodsWhoseHomeHasNoDNSOfTheirFamilyAreTold(t *testing.T) {
	dual := func(s *State) {
		s.Pods, s.Services = append(s.Pods, prefixes("fd00:10::/56")...), append(s.Services, prefixes("fd00:96::/112")...)
		s.Peers[0].Ours = append(s.Peers[0].Ours, hamburg6().Ours...)
		s.Peers[0].There, s.Peers[0].Guests = addresses("fd68:616e::5"), []Pod{{"shop", netip.MustParseAddr("10.244.2.5")}}
		of6(&s.Peers[0])
	}
	tests := map[string]struct {
		change func(*State)
		want   []string
	}{
		"our DNS has both":             {func(s *State) { s.Nameservers = addresses("10.96.0.10", "fd00:96::a") }, nil},
		"our DNS has the wrong one":    {func(s *State) { s.Nameservers = addresses("10.96.0.10") }, []string{"hamburg NoCommonFamily Our pods at the peer"}},
		"that is nobody's matter":      {func(s *State) { s.Nameservers, s.Peers[0].There = addresses("10.96.0.10"), nil }, nil},
		"we have told of no DNS":       {func(*State) {}, nil},
		"theirs has the wrong one":     {func(s *State) { s.Peers[0].Resolvers = addresses("240.0.0.10") }, []string{"hamburg NoCommonFamily Pods of the peer here"}},
		"theirs has it, and no guests": {func(s *State) { s.Peers[0].Resolvers, s.Peers[0].Guests = addresses("240.0.0.10"), nil }, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := cluster()
			s.Peers = []Peer{hamburg()}
			dual(&s)
			test.change(&s)
			got, conflicts := Plan(s)
			expectConflicts(t, test.want, conflicts)
			if len(got.Tunnels) != 1 {
				t.Errorf("tunnels are %+v", got.Tunnels)
			}
		})
	}
}

func TestClustersWithoutACommonFamilyAreNotConnected(t *testing.T) {
	four, six := told(), told()
	six.PodCIDRs, six.ServiceCIDRs = []v1alpha1.CIDR{"fd00:10::/56"}, []v1alpha1.CIDR{"fd00:96::/112"}
	both := told()
	both.PodCIDRs, both.ServiceCIDRs = append(both.PodCIDRs, six.PodCIDRs...), append(both.ServiceCIDRs, six.ServiceCIDRs...)
	own4, own6 := prefixes("10.244.0.0/16", "10.96.0.0/12"), prefixes("fd00:10::/56", "fd00:96::/112")
	tests := map[string]struct {
		own  []netip.Prefix
		told *v1alpha1.Network
		want bool // that there is no family in common
	}{
		"IPv4 and IPv4": {own4, four, false}, "IPv6 and IPv6": {own6, six, false},
		"IPv4 and IPv6": {own4, six, true}, "IPv6 and IPv4": {own6, four, true},
		"IPv4 and both": {own4, both, false}, "both and IPv6": {slices.Concat(own4, own6), six, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, conflict := Connect(Grant{Peer: "hamburg", Mappings: hamburg().Theirs}, test.own, nil, test.told)
			if got := conflict != nil && conflict.Reason == v1alpha1.ReasonNoCommonFamily; got != test.want {
				t.Errorf("conflict %+v", conflict)
			}
		})
	}
}

func TestOfAPeerOfBothFamiliesThoseAddressesAreUsedThatWeHave(t *testing.T) {
	n := told()
	n.PodCIDRs, n.ServiceCIDRs = append(n.PodCIDRs, "fd00:10::/56"), append(n.ServiceCIDRs, "fd00:96::/112")
	n.Nameservers, n.Gateway.Addresses = []v1alpha1.IP{"10.96.0.10", "fd00:96::a"}, []v1alpha1.IP{"10.96.0.0", "fd00:96::"}
	n.Mappings = []v1alpha1.RangeMapping{{Own: "fd00:10::/56", Seen: "fd00:10::/56"}, {Own: "fd00:96::/112", Seen: "fd00:96::/112"}}
	granted := Grant{Peer: "hamburg", Mappings: slices.Concat(hamburg().Theirs, hamburg6().Theirs)}
	spec, conflict := Connect(granted, prefixes("fd00:10::/56", "fd00:96::/112"), nil, n)
	if conflict != nil {
		t.Fatalf("conflict %+v", conflict)
	}
	want := [][]v1alpha1.IP{{"fd68:616e:1::a"}, {"fd68:616e:1::"}}
	if diff := cmp.Diff(want, [][]v1alpha1.IP{spec.Nameservers, spec.GatewayAddresses}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	n.Nameservers = n.Nameservers[:1]
	if spec, _ = Connect(granted, prefixes("fd00:10::/56", "fd00:96::/112"), nil, n); len(spec.Nameservers) != 1 {
		t.Errorf("a DNS of the other family is named all the same, or pods would ask ours: %v", spec.Nameservers)
	}
}
