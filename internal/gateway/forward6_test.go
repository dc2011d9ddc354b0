// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/overlay"
)

func TestOnlyPeersOfIPv6AreToldThatItIsNotForwarded(t *testing.T) {
	ranges := func(texts ...string) (all []netip.Prefix) {
		for _, text := range texts {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	dual, single := ranges("10.244.0.0/16", "fd00:10:244::/56"), ranges("10.244.0.0/16")
	layout := overlay.Layout{Tunnels: []overlay.Tunnel{
		{Peer: "hamburg", AllowedIPs: ranges("100.64.0.0/16", "fd68:616e::/56")}, {Peer: "bremen", AllowedIPs: ranges("100.65.0.0/16")},
	}}
	tests := map[string]struct {
		own     []netip.Prefix
		failure error
		told    []string
	}{
		"IPv6 is forwarded":                             {dual, nil, nil},
		"IPv6 is not forwarded":                         {dual, errors.New("read-only"), []string{"hamburg"}},
		"this cluster has no IPv6 that could be missed": {single, errors.New("read-only"), nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := &Gateway{plane: &fakePlane{failure6: test.failure}}
			var told []string
			for _, c := range g.forward6(overlay.State{Pods: test.own}, layout) {
				told = append(told, c.Peer)
				if c.Reason != v1alpha1.ReasonKernelUnsupported || c.Message == "" {
					t.Errorf("got %+v", c)
				}
			}
			if diff := cmp.Diff(test.told, told); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
		})
	}
}
