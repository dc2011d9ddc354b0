// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// A HomeNetwork is how the pods of one namespace reach their home, where a network leads there.
type HomeNetwork struct {
	// Namespace is that of the pod at home.
	Namespace string
	// Nameservers are the addresses of home's DNS, as the provider sees them. There is at least one.
	Nameservers []string
	// Seen tells how the provider sees an address of home.
	Seen AddressMap
}

const (
	// apiServerName is in the certificate of every API server. Its address at home would be that of somebody else here.
	apiServerName = "kubernetes.default.svc"
	apiServerPort = "443"

	// clusterDomain is what names of Services end with, at home and almost everywhere.
	clusterDomain = "cluster.local"

	// What the API server takes of nameservers, search domains, and characters of all of these.
	maxNameservers, maxSearches, maxSearchChars = 3, 32, 2048
)

// lead has names mean in the pod what they mean at home, the API server's among them. A pod whose author wants other DNS than that
// of the cluster keeps it, and knows no API server. So does one that has been led home by a cluster that sent it on.
func (h *HomeNetwork) lead(spec *corev1.PodSpec) {
	switch {
	case h == nil:
		return
	case spec.DNSPolicy == corev1.DNSNone && spec.DNSConfig != nil && h.Seen != nil:
		h.translate(spec.DNSConfig.Nameservers)
		return
	case !usesClusterDNS(spec.DNSPolicy):
		return
	}
	asked := ptr.Deref(spec.DNSConfig, corev1.PodDNSConfig{})
	spec.DNSPolicy = corev1.DNSNone
	spec.DNSConfig = &corev1.PodDNSConfig{
		Nameservers: firstOf(maxNameservers, h.Nameservers, asked.Nameservers),
		Searches: searchable(firstOf(maxSearches, []string{
			h.Namespace + ".svc." + clusterDomain, "svc." + clusterDomain, clusterDomain,
		}, asked.Searches)),
		Options: asked.Options,
	}
	if !slices.ContainsFunc(asked.Options, func(o corev1.PodDNSConfigOption) bool { return o.Name == "ndots" }) {
		spec.DNSConfig.Options = append([]corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("5")}}, asked.Options...)
	}
	forEachContainer(spec, func(c *corev1.Container) {
		setFirst(c, corev1.EnvVar{Name: apiServerVariables[1], Value: apiServerPort})
		setFirst(c, corev1.EnvVar{Name: apiServerVariables[0], Value: apiServerName})
	})
}

// translate replaces addresses of home by those that the provider sees.
func (h *HomeNetwork) translate(addresses []string) {
	for i, text := range addresses {
		if address, err := netip.ParseAddr(text); err == nil {
			if seen, ok := h.Seen(address); ok {
				addresses[i] = seen.String()
			}
		}
	}
}

// usesClusterDNS says whether a kubelet would have the pod ask the DNS of the cluster, where the pod is not on the network of its
// node.
func usesClusterDNS(p corev1.DNSPolicy) bool {
	return p == "" || p == corev1.DNSClusterFirst || p == corev1.DNSClusterFirstWithHostNet
}

// firstOf returns the texts of both lists, each once and at most that many.
func firstOf(most int, lists ...[]string) []string {
	var all []string
	for _, text := range slices.Concat(lists...) {
		if !slices.Contains(all, text) && len(all) < most {
			all = append(all, text)
		}
	}
	return all
}

// searchable leaves out those at the end that do not fit.
func searchable(domains []string) []string {
	chars := -1 // there is a space between two
	for i, domain := range domains {
		if chars += len(domain) + 1; chars > maxSearchChars {
			return domains[:i]
		}
	}
	return domains
}

// setFirst sets a variable of the container that the author has not set, before all that may refer to it.
func setFirst(c *corev1.Container, v corev1.EnvVar) {
	if !slices.ContainsFunc(c.Env, func(set corev1.EnvVar) bool { return set.Name == v.Name }) {
		c.Env = slices.Concat([]corev1.EnvVar{v}, c.Env)
	}
}
