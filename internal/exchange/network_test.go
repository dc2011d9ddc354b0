package exchange

import (
	"fmt"
	"testing"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestOwnNetworkIsReadAsItWasWritten(t *testing.T) {
	own := &v1alpha1.Network{
		PodCIDRs: []v1alpha1.CIDR{"10.244.0.0/16"}, Gateway: &v1alpha1.Gateway{PublicKey: "key", Endpoints: []v1alpha1.HostPort{"[2001:db8::1]:51820"}},
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

func TestNoMoreIsRelayedThanAPeerTakes(t *testing.T) {
	own := &v1alpha1.Network{Gateway: &v1alpha1.Gateway{}}
	for i := range v1alpha1.MaxRelayedCIDRs + 2 {
		own.RelayedCIDRs = append(own.RelayedCIDRs, v1alpha1.CIDR(fmt.Sprintf("100.%d.0.0/16", 64+i)))
	}
	first := []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: own.RelayedCIDRs[0]}}
	expectEqual(t, own.RelayedCIDRs[:16], NetworkFor(own, nil, true).RelayedCIDRs)
	expectEqual(t, own.RelayedCIDRs[1:17], NetworkFor(own, first, true).RelayedCIDRs)
	expectEqual(t, []v1alpha1.CIDR(nil), NetworkFor(own, first, false).RelayedCIDRs)
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
		"a range that is none":      {PodCIDRs: []v1alpha1.CIDR{"everything"}},
		"an address that is none":   {Gateway: &v1alpha1.Gateway{Addresses: []v1alpha1.IP{"here"}}},
		"a mapping of another size": {Mappings: []v1alpha1.RangeMapping{{Own: "10.0.0.0/16", Seen: "10.0.0.0/8"}}},
	} {
		if JudgeAnswer(bad) == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
