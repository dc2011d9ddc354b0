// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Whatever a peer tells of its endpoints, each address of an EndpointSlice lies where this cluster sees the peer, and none is ready while
// the tunnel to it is down.
func FuzzSliceFor(f *testing.F) {
	for _, address := range []string{"100.64.1.2", "169.254.169.254", "127.0.0.1", "224.0.0.1", "::ffff:100.64.1.2", "fd00::1", "100.64.1.02"} {
		seed, err := json.Marshal(v1alpha1.ShadowEndpointSliceSpec{
			Service: "web", AddressType: "IPv4", Endpoints: []v1alpha1.ShadowEndpoint{{Addresses: []string{address}, Ready: new(true)}},
		})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed, true)
	}
	seen := prefixes("100.64.0.0/16", "fd00::/48")
	f.Fuzz(func(t *testing.T, spec []byte, connected bool) {
		shadow := webAtHome()
		shadow.Spec = v1alpha1.ShadowEndpointSliceSpec{}
		if json.Unmarshal(spec, &shadow.Spec) != nil {
			return
		}
		got, why := sliceFor(shadow, seen, connected)
		if again, _ := sliceFor(shadow, seen, connected); (got == nil) == (why == "") || cmp.Diff(got, again) != "" {
			t.Fatalf("%v for %q, and then %v", got, why, again)
		}
		if got == nil {
			return
		}
		for i := range got.Endpoints {
			expectAtPeer(t, &got.Endpoints[i], seen, connected)
		}
	})
}

// expectAtPeer checks that the endpoint lies where the peer is seen, names nothing of this cluster, and is ready only if the peer is
// connected.
func expectAtPeer(t *testing.T, e *discoveryv1.Endpoint, seen []netip.Prefix, connected bool) {
	t.Helper()
	if e.NodeName != nil || e.TargetRef != nil || !connected && (*e.Conditions.Ready || *e.Conditions.Serving) {
		t.Errorf("endpoint %v", *e)
	}
	for _, text := range e.Addresses {
		address, err := netip.ParseAddr(text)
		if err != nil || !slices.ContainsFunc(seen, func(p netip.Prefix) bool { return p.Contains(address) }) {
			t.Errorf("endpoint at %q", text)
		}
	}
}
