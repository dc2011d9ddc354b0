// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Family is a kind of addresses, by the word that nft(8) has for it.
type Family string

// The kinds of addresses that there are.
const (
	IPv4 Family = "ip"
	IPv6 Family = "ip6"
)

// FamilyOf is the kind of an address.
func FamilyOf(address netip.Addr) Family {
	if address.Is4() {
		return IPv4
	}
	return IPv6
}

// custom is what clusters have of a family unless something else is said, and what may be said.
type custom struct {
	pods, services                    netip.Prefix
	shortestPods, longestPods         int
	shortestServices, longestServices int
	node                              int // length of the prefix of each node's range of pods
}

// The bounds are those of Kubernetes: it gives at most 2^16 ranges to nodes, and takes at most 2^20 addresses for Services.
var customs = map[Family]custom{
	IPv4: {netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("10.96.0.0/12"), 8, 22, 8, 24, 24},
	IPv6: {netip.MustParsePrefix("fd00:10:244::/56"), netip.MustParsePrefix("fd00:10:96::/112"), 48, 62, 108, 120, 64},
}

// NodeRange is the length of the prefix of each node's range of pod addresses.
func NodeRange(family Family) int { return customs[family].node }

// Ranges are a range of addresses, or one of each family. The first is of the cluster's main family.
type Ranges []netip.Prefix

// DefaultRanges are the ranges of pods and of Services of a cluster with these families: ipv4, ipv6 or dual.
func DefaultRanges(families string) (pods, services Ranges, err error) {
	chosen, ok := map[string][]Family{"ipv4": {IPv4}, "ipv6": {IPv6}, "dual": {IPv4, IPv6}}[families]
	if !ok {
		return nil, nil, fmt.Errorf("%q: want ipv4, ipv6 or dual", families)
	}
	for _, family := range chosen {
		pods = append(pods, customs[family].pods)
		services = append(services, customs[family].services)
	}
	return pods, services, nil
}

// ParseRanges reads ranges, with a comma between two.
func ParseRanges(text string) (Ranges, error) {
	var ranges Ranges
	for one := range strings.SplitSeq(text, ",") {
		prefix, err := netip.ParsePrefix(one)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, prefix)
	}
	return ranges, nil
}

// String is how flags of Kubernetes have it.
func (r Ranges) String() string {
	texts := make([]string, len(r))
	for i, prefix := range r {
		texts[i] = prefix.String()
	}
	return strings.Join(texts, ",")
}

// MarshalText is for files: one range is written as it is.
func (r Ranges) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (r *Ranges) UnmarshalText(text []byte) error {
	var err error
	*r, err = ParseRanges(string(text))
	return err
}

// Families are those of the ranges, in their order.
func (r Ranges) Families() []Family {
	families := make([]Family, len(r))
	for i, prefix := range r {
		families[i] = FamilyOf(prefix.Addr())
	}
	return families
}

// nth are the nth addresses of each range.
func (r Ranges) nth(n int) []netip.Addr {
	addresses := make([]netip.Addr, len(r))
	for i, prefix := range r {
		addresses[i] = prefix.Masked().Addr()
		for range n {
			addresses[i] = addresses[i].Next()
		}
	}
	return addresses
}

func (r Ranges) overlaps(other netip.Prefix) bool { return slices.ContainsFunc(r, other.Overlaps) }

func (o Options) validateFamilies() error {
	pods, services := o.PodCIDR.Families(), o.ServiceCIDR.Families()
	switch {
	case !slices.Equal(pods, services):
		return fmt.Errorf("pod CIDR %s and service CIDR %s: want the same families in the same order", o.PodCIDR, o.ServiceCIDR)
	case len(pods) == 0 || len(pods) > 2 || len(pods) == 2 && pods[0] == pods[1]:
		return fmt.Errorf("pod CIDR %s: want one range, or one of each family", o.PodCIDR)
	}
	for i, family := range pods {
		allowed := customs[family]
		if err := validateCIDR("pod", o.PodCIDR[i], allowed.shortestPods, allowed.longestPods); err != nil {
			return err
		}
		if err := validateCIDR("service", o.ServiceCIDR[i], allowed.shortestServices, allowed.longestServices); err != nil {
			return err
		}
	}
	return nil
}

func validateCIDR(name string, cidr netip.Prefix, shortest, longest int) error {
	switch {
	case cidr != cidr.Masked():
		return fmt.Errorf("%s CIDR %s: not a network's address, want %s", name, cidr, cidr.Masked())
	case cidr.Bits() < shortest || cidr.Bits() > longest:
		return fmt.Errorf("%s CIDR %s: want a prefix of /%d to /%d", name, cidr, shortest, longest)
	}
	return nil
}

func (o Options) validateRanges() error {
	for _, services := range o.ServiceCIDR {
		if o.PodCIDR.overlaps(services) {
			return fmt.Errorf("pod CIDR %s and service CIDR %s overlap", o.PodCIDR, o.ServiceCIDR)
		}
	}
	for slot := range Slot(Slots) {
		for _, family := range []Family{IPv4, IPv6} {
			if nodes := slot.Subnet(family); o.PodCIDR.overlaps(nodes) || o.ServiceCIDR.overlaps(nodes) {
				return fmt.Errorf("pod CIDR %s or service CIDR %s overlaps %s: there, or in what follows, nodes have their addresses",
					o.PodCIDR, o.ServiceCIDR, Slot(0).Subnet(family))
			}
		}
	}
	nodes := o.Workers + o.SimulatedNodes
	for _, pods := range o.PodCIDR {
		size := NodeRange(FamilyOf(pods.Addr()))
		if room := 1 << max(0, size-pods.Bits()); nodes > room {
			return fmt.Errorf("%d nodes do not fit into pod CIDR %s, which has %d ranges of /%d: ask for a bigger one, like 10.0.0.0/10",
				nodes, pods, room, size)
		}
	}
	return nil
}
