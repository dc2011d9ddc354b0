// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

var byText = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })

func TestNamesOfEndpointsAreLookedUpBesides(t *testing.T) {
	answers := map[string][]netip.Addr{"gw.example.org": {netip.MustParseAddr("::ffff:203.0.113.9"), netip.MustParseAddr("203.0.113.8")}}
	changes := 0
	n := newNames(clocktesting.NewFakeClock(testkit.Noon), func() { changes++ })
	n.lookup = func(_ context.Context, _, host string) ([]netip.Addr, error) {
		if answers[host] == nil {
			return nil, errors.New("no such name")
		}
		return append([]netip.Addr(nil), answers[host]...), nil
	}
	asked := map[string][]v1alpha1.HostPort{
		"hamburg": {"gw.example.org:51820", "203.0.113.7:1", "nowhere.example.org:1"}, "bremen": {"[2001:db8::1]:2", "not an endpoint"},
	}
	known := map[string][]netip.AddrPort{"hamburg": {netip.MustParseAddrPort("203.0.113.7:1")}, "bremen": {netip.MustParseAddrPort("[2001:db8::1]:2")}}
	if diff := cmp.Diff(known, n.resolve(asked), byText); diff != "" {
		t.Errorf("before names are known (-want +got):\n%s", diff)
	}
	n.lookUp(t.Context())
	n.lookUp(t.Context())
	if changes != 1 {
		t.Errorf("%d changes were told, want one", changes)
	}
	known["hamburg"] = append([]netip.AddrPort{netip.MustParseAddrPort("203.0.113.8:51820"), netip.MustParseAddrPort("203.0.113.9:51820")}, known["hamburg"]...)
	answers = nil // a name server that is down changes nothing
	n.lookUp(t.Context())
	if diff := cmp.Diff(known, n.resolve(asked), byText); diff != "" {
		t.Errorf("when names are known (-want +got):\n%s", diff)
	}
	n.resolve(nil)
	if len(n.wanted()) != 0 {
		t.Errorf("names are looked up that no peer has: %v", n.wanted())
	}
}
