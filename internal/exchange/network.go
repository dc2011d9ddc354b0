// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// OwnNetwork is what this cluster knows of its own network, and tells each peer as far as that is the peer's business.
type OwnNetwork struct {
	// Network is what all peers are told, but for its RelayedCIDRs: those are the ranges in which we see the pods of our
	// providers.
	v1alpha1.Network

	// ConsumerCIDRs are the ranges in which we see the pods and Services of our consumers, if we send their pods on.
	ConsumerCIDRs []v1alpha1.CIDR `json:"consumerCIDRs,omitempty"`

	// Homes are our consumers that have pods at other providers, too, which they have named.
	Homes []Home `json:"homes,omitempty"`

	// SendsOn says that we send pods of our consumers on to our providers.
	SendsOn bool `json:"sendsOn,omitempty"`
}

// A Home is a consumer of ours, with its other providers.
type Home struct {
	ClusterID string   `json:"clusterID"`
	Providers []string `json:"providers"` // their ids
}

// HomesOf returns the ids of those homes that have pods at that cluster too.
func (n *OwnNetwork) HomesOf(provider string) []string {
	var ids []string
	for _, h := range n.Homes {
		if provider != "" && slices.Contains(h.Providers, provider) {
			ids = append(ids, h.ClusterID)
		}
	}
	return ids
}

// NetworkData returns what this cluster knows of its network as the data of ConfigMap v1alpha1.OwnNetwork.
func NetworkData(network *OwnNetwork) (map[string]string, error) {
	text, err := json.Marshal(network)
	return map[string]string{v1alpha1.OwnNetworkKey: string(text)}, err
}

// ParseNetwork reads such data.
func ParseNetwork(data map[string]string) (*OwnNetwork, error) {
	network := &OwnNetwork{}
	if err := json.Unmarshal([]byte(data[v1alpha1.OwnNetworkKey]), network); err != nil {
		return nil, fmt.Errorf("read key %s: %w", v1alpha1.OwnNetworkKey, err)
	}
	return network, nil
}

// NetworkFor returns what this cluster tells a peer of those roles of its own network: what it relays to others than that
// peer, how it sees the peer, and whether it passes on packets for it. Without a gateway only the ranges are worth telling.
func NetworkFor(own *OwnNetwork, spec *v1alpha1.PeerSpec, mappings []v1alpha1.RangeMapping) *v1alpha1.Network {
	network := own.Network
	network.RelayedCIDRs, network.Behind = nil, nil
	if own.Gateway == nil {
		return &network
	}
	network.Mappings = mappings
	if spec.Network != nil && spec.Network.RelayBandwidth != nil && len(own.Gateway.Endpoints) > 0 {
		network.Gateway = own.Gateway.DeepCopy()
		network.Gateway.Protocols = append(network.Gateway.Protocols, v1alpha1.ProtocolRelay)
	}
	for _, relayed := range own.relayedTo(spec.Roles) {
		itself := slices.ContainsFunc(mappings, func(m v1alpha1.RangeMapping) bool { return m.Seen == relayed })
		if !itself && !slices.Contains(network.RelayedCIDRs, relayed) && len(network.RelayedCIDRs) < v1alpha1.MaxRelayedCIDRs {
			network.RelayedCIDRs = append(network.RelayedCIDRs, relayed)
		}
	}
	for _, b := range own.Behind {
		if slices.Contains(spec.Roles, v1alpha1.RoleProvider) && slices.Contains(network.RelayedCIDRs, b.Seen) {
			network.Behind = append(network.Behind, b)
		}
	}
	return &network
}

// relayedTo returns to which ranges we pass on what a peer of those roles sends. Pods that run at a provider reach those at our
// other providers, and their home if that is a consumer of ours. A consumer reaches its pods that we have sent on. Of what is
// behind a peer nothing is relayed, so that no range goes around in a circle.
func (n *OwnNetwork) relayedTo(roles []v1alpha1.PeerRole) []v1alpha1.CIDR {
	switch {
	case slices.Contains(roles, v1alpha1.RoleProvider):
		return slices.Concat(n.RelayedCIDRs, n.ConsumerCIDRs)
	case n.SendsOn:
		return n.RelayedCIDRs
	default:
		return nil
	}
}

// JudgeAnswer checks what a consumer has told of its network in the status of an advertisement, as Judge checks what a
// provider tells.
func JudgeAnswer(network *v1alpha1.Network) error { return judgeNetwork("status.network", network) }

// judgeNetwork checks that ranges and addresses are written as such. Whether this cluster can use them is another question:
// then the offer is good, and only the network is not.
func judgeNetwork(field string, network *v1alpha1.Network) error {
	if network == nil {
		return nil
	}
	err := cmp.Or(
		judgeEach(field+".podCIDRs", network.PodCIDRs, isRange, "a CIDR without host bits, such as 10.244.0.0/16"),
		judgeEach(field+".serviceCIDRs", network.ServiceCIDRs, isRange, "a CIDR without host bits, such as 10.96.0.0/12"),
		judgeEach(field+".relayedCIDRs", network.RelayedCIDRs, isRange, "a CIDR without host bits, such as 100.64.0.0/16"),
		judgeEach(field+".nameservers", network.Nameservers, isAddress, "an IP address, such as 10.96.0.10"),
		judgeMappings(field+".mappings", network.Mappings),
		judgeMappings(field+".behind", rangesOf(network.Behind)),
		judgeMappings(field+".direct", rangesOf(network.Direct)),
	)
	if err == nil && network.Gateway != nil {
		err = judgeEach(field+".gateway.addresses", network.Gateway.Addresses, isAddress, "an IP address, such as 10.96.0.0")
	}
	return err
}

func judgeMappings(field string, mappings []v1alpha1.RangeMapping) error {
	for i, m := range mappings {
		own, seen := rangeOf(m.Own), rangeOf(m.Seen)
		if !own.IsValid() || !seen.IsValid() || own.Bits() != seen.Bits() || own.Addr().BitLen() != seen.Addr().BitLen() {
			return refused(v1alpha1.ReasonInvalidField, "%s[%d] maps %s to %s: both must be CIDRs of the same family and length, "+
				"such as 10.244.0.0/16 and 100.64.0.0/16", field, i, quoted(string(m.Own)), quoted(string(m.Seen)))
		}
	}
	return nil
}

func rangesOf(all []v1alpha1.ClusterRange) []v1alpha1.RangeMapping {
	var mappings []v1alpha1.RangeMapping
	for _, r := range all {
		mappings = append(mappings, r.RangeMapping)
	}
	return mappings
}

func judgeEach[Text ~string](field string, texts []Text, valid func(Text) bool, form string) error {
	for i, text := range texts {
		if !valid(text) {
			return refused(v1alpha1.ReasonInvalidField, "%s is %s: it must be %s", fmt.Sprintf("%s[%d]", field, i), quoted(string(text)), form)
		}
	}
	return nil
}

func isRange(text v1alpha1.CIDR) bool { return rangeOf(text).IsValid() }

// rangeOf returns the range that the text means, and none if the text means none, or could be written in another way.
func rangeOf(text v1alpha1.CIDR) netip.Prefix {
	prefix, err := netip.ParsePrefix(string(text))
	if err != nil || prefix != prefix.Masked() || prefix.Addr().Is4In6() {
		return netip.Prefix{}
	}
	return prefix
}

func isAddress(text v1alpha1.IP) bool {
	address, err := netip.ParseAddr(string(text))
	return err == nil && !address.Is4In6() && address.Zone() == ""
}
