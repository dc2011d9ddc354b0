// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestOwnNetworkIsReadAsItWasWritten(t *testing.T) {
	own := &OwnNetwork{
		Network: v1alpha1.Network{
			PodCIDRs: []v1alpha1.CIDR{"10.244.0.0/16"}, Gateway: &v1alpha1.Gateway{PublicKey: "key", Endpoints: []v1alpha1.HostPort{"[2001:db8::1]:51820"}},
		},
		ConsumerCIDRs: []v1alpha1.CIDR{"100.64.0.0/16"}, SendsOn: true,
	}
	data, err := NetworkData(own)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseNetwork(data)
	if err != nil {
		t.Fatal(err)
	}
	expectEqual(t, own, got)
	for _, text := range []string{"", "network", `{"podCIDRs": 1}`} {
		if _, err := ParseNetwork(map[string]string{v1alpha1.OwnNetworkKey: text}); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

var (
	asProvider = []v1alpha1.PeerRole{v1alpha1.RoleProvider}
	asConsumer = []v1alpha1.PeerRole{v1alpha1.RoleConsumer}
)

func TestEachPeerIsToldOfTheOthersThatItReachesThroughUs(t *testing.T) {
	const provider, pods, services = v1alpha1.CIDR("100.64.0.0/16"), v1alpha1.CIDR("100.65.0.0/16"), v1alpha1.CIDR("240.0.0.0/16")
	own := OwnNetwork{
		Network:       v1alpha1.Network{Gateway: &v1alpha1.Gateway{}, RelayedCIDRs: []v1alpha1.CIDR{provider}},
		ConsumerCIDRs: []v1alpha1.CIDR{pods, services},
	}
	for name, test := range map[string]struct {
		roles   []v1alpha1.PeerRole
		sendsOn bool
		seen    v1alpha1.CIDR // in which we see the peer itself
		want    []v1alpha1.CIDR
	}{
		"a provider is told of the others, and of consumers": {asProvider, true, "100.70.0.0/16", []v1alpha1.CIDR{provider, pods, services}},
		"but not of itself":                                     {asProvider, true, provider, []v1alpha1.CIDR{pods, services}},
		"a consumer is told of providers":                       {asConsumer, true, "100.70.0.0/16", []v1alpha1.CIDR{provider}},
		"unless pods stay here":                                 {asConsumer, false, "100.70.0.0/16", nil},
		"who is both is told what a provider is told, but once": {slices.Concat(asConsumer, asProvider), true, pods, []v1alpha1.CIDR{provider, services}},
		"who is neither is told nothing":                        {nil, false, "100.70.0.0/16", nil},
	} {
		t.Run(name, func(t *testing.T) {
			own := own
			own.SendsOn = test.sendsOn
			told := NetworkFor(&own, &v1alpha1.PeerSpec{Roles: test.roles}, []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: test.seen}})
			expectEqual(t, test.want, told.RelayedCIDRs)
		})
	}
}

func TestProvidersAloneAreToldWhoIsBehindTheRangesThatTheyAreTold(t *testing.T) {
	behind := func(id string, seen v1alpha1.CIDR) v1alpha1.ClusterRange {
		return v1alpha1.ClusterRange{ClusterID: id, RangeMapping: v1alpha1.RangeMapping{Own: "10.244.0.0/16", Seen: seen}}
	}
	own := &OwnNetwork{SendsOn: true, Network: v1alpha1.Network{
		Gateway: &v1alpha1.Gateway{}, RelayedCIDRs: []v1alpha1.CIDR{"100.64.0.0/16", "100.65.0.0/16"},
		Behind: []v1alpha1.ClusterRange{behind("bremen", "100.64.0.0/16"), behind("visby", "100.65.0.0/16")},
	}}
	itself := []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: "100.65.0.0/16"}}
	expectEqual(t, own.Behind[:1], NetworkFor(own, &v1alpha1.PeerSpec{Roles: asProvider}, itself).Behind)
	expectEqual(t, []v1alpha1.ClusterRange(nil), NetworkFor(own, &v1alpha1.PeerSpec{Roles: asConsumer}, nil).Behind)
	own.Gateway = nil
	expectEqual(t, []v1alpha1.ClusterRange(nil), NetworkFor(own, &v1alpha1.PeerSpec{Roles: asProvider}, nil).Behind)
}

func TestHomesOfAProviderAreThoseThatHaveNamedIt(t *testing.T) {
	own := &OwnNetwork{Homes: []Home{{"lubeck", []string{"bremen", "visby"}}, {"riga", []string{"visby"}}, {"stade", []string{""}}}}
	for provider, want := range map[string][]string{"bremen": {"lubeck"}, "visby": {"lubeck", "riga"}, "wismar": nil, "": nil} {
		expectEqual(t, want, own.HomesOf(provider))
	}
}

func TestPeersAreToldThatTheGatewayRelaysForThem(t *testing.T) {
	some := resource.MustParse("10M")
	wireguard, both := []string{v1alpha1.ProtocolWireGuard}, []string{v1alpha1.ProtocolWireGuard, v1alpha1.ProtocolRelay}
	for name, test := range map[string]struct {
		endpoints []v1alpha1.HostPort
		network   *v1alpha1.PeerNetwork
		want      []string
	}{
		"not by default":                      {[]v1alpha1.HostPort{"192.0.2.1:51820"}, nil, wireguard},
		"nor without a bandwidth":             {[]v1alpha1.HostPort{"192.0.2.1:51820"}, &v1alpha1.PeerNetwork{}, wireguard},
		"with one":                            {[]v1alpha1.HostPort{"192.0.2.1:51820"}, &v1alpha1.PeerNetwork{RelayBandwidth: &some}, both},
		"but for a gateway that nobody dials": {nil, &v1alpha1.PeerNetwork{RelayBandwidth: &some}, wireguard},
	} {
		t.Run(name, func(t *testing.T) {
			own := &OwnNetwork{Network: v1alpha1.Network{Gateway: &v1alpha1.Gateway{Protocols: wireguard, Endpoints: test.endpoints}}}
			expectEqual(t, test.want, NetworkFor(own, &v1alpha1.PeerSpec{Network: test.network}, nil).Gateway.Protocols)
			expectEqual(t, wireguard, own.Gateway.Protocols)
		})
	}
}

func TestNoMoreIsRelayedThanAPeerTakes(t *testing.T) {
	own := &OwnNetwork{Network: v1alpha1.Network{Gateway: &v1alpha1.Gateway{}}}
	for i := range v1alpha1.MaxRelayedCIDRs + 2 {
		own.RelayedCIDRs = append(own.RelayedCIDRs, v1alpha1.CIDR(fmt.Sprintf("100.%d.0.0/16", 64+i)))
	}
	own.ConsumerCIDRs = own.RelayedCIDRs[:1]
	first := []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: own.RelayedCIDRs[0]}}
	expectEqual(t, own.RelayedCIDRs[:16], NetworkFor(own, &v1alpha1.PeerSpec{Roles: asProvider}, nil).RelayedCIDRs)
	expectEqual(t, own.RelayedCIDRs[1:17], NetworkFor(own, &v1alpha1.PeerSpec{Roles: asProvider}, first).RelayedCIDRs)
	if len(own.RelayedCIDRs) != 18 || own.RelayedCIDRs[0] != "100.64.0.0/16" {
		t.Error("what all peers are told was changed")
	}
}

func TestAnswersOfConsumersAreChecked(t *testing.T) {
	good := &v1alpha1.Network{PodCIDRs: []v1alpha1.CIDR{"10.244.0.0/16"}, Gateway: &v1alpha1.Gateway{Addresses: []v1alpha1.IP{"10.96.0.0"}}}
	if err := JudgeAnswer(good); err != nil {
		t.Errorf("refused: %v", err)
	}
	for name, bad := range map[string]*v1alpha1.Network{
		"a range that is none":                    {PodCIDRs: []v1alpha1.CIDR{"everything"}},
		"an address that is none":                 {Gateway: &v1alpha1.Gateway{Addresses: []v1alpha1.IP{"here"}}},
		"a range behind it that is none":          {Behind: []v1alpha1.ClusterRange{{ClusterID: "visby"}}},
		"a range that is direct, of another size": {Direct: []v1alpha1.ClusterRange{{RangeMapping: v1alpha1.RangeMapping{Own: "10.0.0.0/16", Seen: "10.0.0.0/8"}}}},
		"a mapping of another size":               {Mappings: []v1alpha1.RangeMapping{{Own: "10.0.0.0/16", Seen: "10.0.0.0/8"}}},
	} {
		if JudgeAnswer(bad) == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
