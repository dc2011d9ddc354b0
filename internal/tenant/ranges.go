// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// ranges are addresses that a peer's pods must not reach.
type ranges []netip.Prefix

// privateIPv4 and privateIPv6 are ranges that are not of the world outside: private ones, those of shared, local and
// looped back addresses, those in which peers are seen, and the addresses under which clouds tell machines their credentials.
var (
	privateIPv4 = prefixes("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16",
		"172.16.0.0/12", "192.168.0.0/16", "240.0.0.0/4")
	privateIPv6 = prefixes("::1/128", "fc00::/7", "fe80::/10")
)

func prefixes(texts ...string) ranges {
	var out ranges
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// inside returns those private ranges, and of ours the ones of the same kind that they do not cover, sorted.
func (r ranges) inside(private ranges) []string {
	all := slices.Clone(private)
	for _, p := range r {
		// A range that is everything cannot be an exception.
		if p.Bits() > 0 && p.Addr().Is4() == private[0].Addr().Is4() {
			all = append(all, p.Masked())
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	var out []string
	var kept ranges
	for _, p := range all {
		// A range that covers it comes before it.
		if !kept.cover(p) {
			kept, out = append(kept, p), append(out, p.String())
		}
	}
	return out
}

// ownRanges returns the ranges of our own pods, nodes and Services.
func (r *mappingReconciler) ownRanges(ctx context.Context) (ranges, error) {
	own := slices.Clone(ranges(r.config.PodCIDRs))
	nodes := &corev1.NodeList{}
	if err := r.client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	for i := range nodes.Items {
		own = append(own, rangesOfNode(&nodes.Items[i])...)
	}
	services := &networkingv1.ServiceCIDRList{}
	// Clusters older than 1.33 have no such kind.
	if err := r.live.List(ctx, services); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("list ServiceCIDRs: %w", err)
	}
	for i := range services.Items {
		own = append(own, prefixes(services.Items[i].Spec.CIDRs...)...)
	}
	return own, nil
}

// rangesOfNode returns the ranges of the Node and its pods. A virtual node has none here.
func rangesOfNode(o client.Object) ranges {
	node, ok := o.(*corev1.Node)
	if !ok || node.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode {
		return nil
	}
	own := prefixes(append([]string{node.Spec.PodCIDR}, node.Spec.PodCIDRs...)...)
	for _, address := range node.Status.Addresses {
		ip, err := netip.ParseAddr(address.Address)
		if err == nil && address.Type == corev1.NodeInternalIP {
			own = append(own, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	return own
}

// public says whether some of the ranges are not private anyway.
func (r ranges) public() bool {
	return slices.ContainsFunc(r, func(p netip.Prefix) bool {
		return !privateIPv4.cover(p) && !privateIPv6.cover(p)
	})
}

func (r ranges) cover(p netip.Prefix) bool {
	return slices.ContainsFunc(r, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Overlaps(p) })
}
