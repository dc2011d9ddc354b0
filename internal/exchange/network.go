package exchange

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

const (
	// A cluster gets more nodes: a prefix that just covers today's would soon be wrong, so it is widened to at least
	// these.
	leastBits4, leastBits6 = 16, 48
	// Ranges so far apart that only a huge prefix covers them are no pod range of one cluster.
	hugeBits4, hugeBits6 = 8, 24
)

// PodCIDR guesses the pod range of a cluster: the smallest prefix that covers the pod ranges of all nodes, and at least
// a /16 (IPv6: a /48). IPv4 comes first where nodes have both. It finds none where nodes have no ranges, or ranges too
// far apart; then an administrator has to name it.
func PodCIDR(nodes []*corev1.Node) (netip.Prefix, bool) {
	var four, six []netip.Prefix
	for _, node := range nodes {
		for _, text := range slices.Concat(node.Spec.PodCIDRs, []string{node.Spec.PodCIDR}) {
			prefix, err := netip.ParsePrefix(text)
			switch {
			case err != nil:
				continue
			case prefix.Addr().Is4():
				four = append(four, prefix)
			default:
				six = append(six, prefix)
			}
		}
	}
	if len(four) > 0 {
		return cover(four, leastBits4, hugeBits4)
	}
	return cover(six, leastBits6, hugeBits6)
}

func cover(prefixes []netip.Prefix, least, huge int) (netip.Prefix, bool) {
	if len(prefixes) == 0 {
		return netip.Prefix{}, false
	}
	bits := min(prefixes[0].Bits(), least)
	for _, prefix := range prefixes {
		bits = min(bits, prefix.Bits())
	}
	for ; bits >= huge; bits-- {
		covering := netip.PrefixFrom(prefixes[0].Addr(), bits).Masked()
		if containsAll(covering, prefixes) {
			return covering, true
		}
	}
	return netip.Prefix{}, false
}

func containsAll(covering netip.Prefix, prefixes []netip.Prefix) bool {
	for _, prefix := range prefixes {
		if !covering.Contains(prefix.Addr()) {
			return false
		}
	}
	return true
}
