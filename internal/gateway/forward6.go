// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/netip"
	"slices"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/overlay"
)

// forward6 has the kernel forward IPv6 if this cluster and a peer have it. Where that is not possible, it returns what is wrong
// with each of these peers, and nothing of others.
func (g *Gateway) forward6(state overlay.State, layout overlay.Layout) []overlay.Conflict {
	if !slices.ContainsFunc(slices.Concat(state.Pods, state.Services), is6) {
		return nil
	}
	var conflicts []overlay.Conflict
	for _, t := range layout.Tunnels {
		if slices.ContainsFunc(t.AllowedIPs, is6) {
			conflicts = append(conflicts, overlay.Conflict{Peer: t.Peer, Reason: v1alpha1.ReasonKernelUnsupported})
		}
	}
	if len(conflicts) == 0 {
		return nil
	}
	err := g.plane.Forward6()
	if err == nil {
		return nil
	}
	for i := range conflicts {
		conflicts[i].Message = "No packets of IPv6 pass, because the gateway of this cluster does not forward them: " + err.Error()
	}
	return conflicts
}

func is6(p netip.Prefix) bool { return p.Addr().Is6() }

func is4(p netip.Prefix) bool { return p.Addr().Is4() }

// without6 returns why nothing passes to a peer that has IPv6 alone, nil of any other.
func without6(f facts) *overlay.Conflict {
	i := slices.IndexFunc(f.conflicts, func(c overlay.Conflict) bool { return c.Reason == v1alpha1.ReasonKernelUnsupported })
	if i < 0 || f.tunnel == nil || slices.ContainsFunc(f.tunnel.AllowedIPs, is4) {
		return nil
	}
	return &f.conflicts[i]
}
