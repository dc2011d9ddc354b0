// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const maxArchitectures = 8

// A Description is what offers say of a cluster besides quantities. It names no node.
type Description struct {
	// Stock is the images on the nodes. What of it a consumer may know, Images says.
	Stock []StockedImage
	// Offer has the fields of an offer that are the same for all consumers, and no others.
	Offer v1alpha1.AdvertisementSpec
}

// Describe returns what the schedulable nodes of the ledger have in common: see Stock and CommonLabels. The
// version is that of the oldest node: what it cannot do, the cluster cannot promise.
func (l *Ledger) Describe(labelKeys, imagePatterns []string) Description {
	var nodes []*corev1.Node
	for _, node := range l.nodes {
		if schedulable(node) {
			nodes = append(nodes, node)
		}
	}
	return Description{Stock: Stock(nodes, imagePatterns), Offer: v1alpha1.AdvertisementSpec{
		Labels:            CommonLabels(nodes, labelKeys),
		Architectures:     architectures(nodes),
		KubernetesVersion: oldestVersion(nodes),
	}}
}

// CommonLabels returns those of the labels that all nodes carry with the same value.
func CommonLabels(nodes []*corev1.Node, keys []string) map[string]v1alpha1.Text {
	common := map[string]v1alpha1.Text{}
	for _, key := range keys {
		differs := func(node *corev1.Node) bool {
			value, found := node.Labels[key]
			return !found || value != nodes[0].Labels[key]
		}
		if len(nodes) > 0 && !slices.ContainsFunc(nodes, differs) {
			common[key] = v1alpha1.Text(nodes[0].Labels[key])
		}
	}
	return common
}

func architectures(nodes []*corev1.Node) []string {
	set := sets.New[string]()
	for _, node := range nodes {
		set.Insert(node.Status.NodeInfo.Architecture)
	}
	sorted := sets.List(set.Delete(""))
	return sorted[:min(len(sorted), maxArchitectures)]
}

func oldestVersion(nodes []*corev1.Node) string {
	var oldest *version.Version
	var text string
	for _, node := range nodes {
		kubelet, err := version.ParseGeneric(node.Status.NodeInfo.KubeletVersion)
		if err != nil {
			continue
		}
		if oldest == nil || kubelet.LessThan(oldest) {
			oldest, text = kubelet, "v"+kubelet.String()
		}
	}
	return text
}

const (
	// A cluster gets more nodes: a prefix that just covers today's would soon be wrong, so it is widened to at least
	// these.
	leastBits4, leastBits6 = 16, 48
	// Ranges so far apart that only a huge prefix covers them are no pod range of one cluster.
	hugeBits4, hugeBits6 = 8, 24
)

// PodCIDRs guesses the pod ranges of a cluster, IPv4 first: for each family the smallest prefix that covers the pod ranges
// of all nodes, and at least a /16 (IPv6: a /48) as far as there are no nodes in it, and nothing of the others, which are ranges of
// Services. It leaves out a family where nodes have no ranges, or ranges too far apart; then an administrator has to name it.
func PodCIDRs(nodes []*corev1.Node, others []netip.Prefix) []v1alpha1.CIDR {
	var found []v1alpha1.CIDR
	for _, family := range []struct {
		has         func(netip.Addr) bool
		least, huge int
	}{{netip.Addr.Is4, leastBits4, hugeBits4}, {netip.Addr.Is6, leastBits6, hugeBits6}} {
		var prefixes []netip.Prefix
		for _, node := range nodes {
			for _, text := range slices.Concat(node.Spec.PodCIDRs, []string{node.Spec.PodCIDR}) {
				if prefix, err := netip.ParsePrefix(text); err == nil && family.has(prefix.Addr()) {
					prefixes = append(prefixes, prefix)
				}
			}
		}
		if len(prefixes) == 0 {
			continue
		}
		if prefix, ok := cover(prefixes, family.huge); ok {
			found = append(found, v1alpha1.CIDR(widen(prefix, family.least, slices.Concat(others, addressesOf(nodes))).String()))
		}
	}
	return found
}

// cover returns the smallest prefix that covers all of them, if it is not huge.
func cover(prefixes []netip.Prefix, huge int) (netip.Prefix, bool) {
	bits := prefixes[0].Bits()
	for _, prefix := range prefixes {
		bits = min(bits, prefix.Bits())
	}
	for ; bits >= huge; bits-- {
		covering := netip.PrefixFrom(prefixes[0].Addr(), bits).Masked()
		if !slices.ContainsFunc(prefixes, func(prefix netip.Prefix) bool { return !covering.Contains(prefix.Addr()) }) {
			return covering, true
		}
	}
	return netip.Prefix{}, false
}

// widen returns the prefix with so few bits, or the shortest between that overlaps none of the others.
func widen(prefix netip.Prefix, bits int, others []netip.Prefix) netip.Prefix {
	for prefix.Bits() > bits {
		wider := netip.PrefixFrom(prefix.Addr(), prefix.Bits()-1).Masked()
		if slices.ContainsFunc(others, wider.Overlaps) {
			return prefix
		}
		prefix = wider
	}
	return prefix
}

// addressesOf returns a range for each address that a node has.
func addressesOf(nodes []*corev1.Node) []netip.Prefix {
	var all []netip.Prefix
	for _, node := range nodes {
		for _, address := range node.Status.Addresses {
			if ip, err := netip.ParseAddr(address.Address); err == nil {
				all = append(all, netip.PrefixFrom(ip, ip.BitLen()))
			}
		}
	}
	return all
}
