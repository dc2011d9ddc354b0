package exchange

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

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
