// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/kernel"
	"github.com/hanse-dev/hanse/internal/testkit"
)

var (
	one   = netip.MustParseAddrPort("198.51.100.7:51820")
	other = netip.MustParseAddrPort("203.0.113.9:51820")
	third = netip.MustParseAddrPort("203.0.113.10:51820")
)

func TestAPeerThatComesFromTwoPlacesInTurnsIsTold(t *testing.T) {
	for name, test := range map[string]struct {
		from  []netip.AddrPort // one each second
		after time.Duration
		want  []netip.AddrPort
	}{
		"it stays where it is":                 {[]netip.AddrPort{one, one, one, one, one, one}, 0, nil},
		"it moves":                             {[]netip.AddrPort{one, one, other, other, other, other}, 0, nil},
		"its gateway is replaced, and again":   {[]netip.AddrPort{one, other, one, one, third}, 0, nil},
		"two gateways send in turns":           {[]netip.AddrPort{other, one, other, one, other}, 0, []netip.AddrPort{one, other}},
		"two send, and each several times":     {[]netip.AddrPort{one, one, other, other, one, one, other, one}, 0, []netip.AddrPort{one, other}},
		"three send":                           {[]netip.AddrPort{one, other, third, one, other}, 0, []netip.AddrPort{one, other, third}},
		"two have sent in turns a minute ago":  {[]netip.AddrPort{one, other, one, other, one}, time.Minute, nil},
		"its endpoint is not known in between": {[]netip.AddrPort{one, {}, one, {}, one, {}, one}, 0, nil},
		"it was never seen":                    {nil, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var m moves
			now := testkit.Noon
			for _, e := range test.from {
				now = now.Add(time.Second)
				m = m.note(e, now)
			}
			if diff := cmp.Diff(test.want, m.places(now.Add(test.after)), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Two clusters with one key, such as two copies of one machine, are told on the Connection, and are no trouble to other peers.
func TestTwoGatewaysOfAPeerThatBelieveTheyAreActiveAreTold(t *testing.T) {
	s := newStory(t, connectionTo("bremen", 8, "100.66.0.0/16", "100.66.0.1"))
	s.activate()
	s.mustStep(0)
	status := func(peer string) *v1alpha1.ConnectionStatus {
		return &testkit.Get[v1alpha1.Connection](s.Home, v1alpha1.TenantNamespace(peer), v1alpha1.ConnectionName).Status
	}
	ready := func(peer string) *metav1.Condition {
		return meta.FindStatusCondition(status(peer).Conditions, v1alpha1.ConditionReady)
	}
	look := func(from netip.AddrPort) {
		s.plane.states = []kernel.TunnelState{
			{Peer: "hamburg", Handshake: testkit.Noon, Endpoint: from}, {Peer: "bremen", Handshake: testkit.Noon, Endpoint: third},
		}
		s.answersFrom(func(netip.Addr) bool { return true })
		s.activate()
		s.mustStep(lookAfter)
	}
	for range 3 {
		look(one)
		look(other)
	}
	c := ready("hamburg")
	if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonEndpointFlaps ||
		!strings.Contains(c.Message, "from 198.51.100.7:51820 and 203.0.113.9:51820") {
		t.Errorf("Ready of hamburg is %+v", c)
	}
	if c := ready("bremen"); c.Status != metav1.ConditionTrue {
		t.Errorf("Ready of bremen is %+v", c)
	}

	before := status("hamburg")
	look(netip.MustParseAddrPort("203.0.113.77:1"))
	if diff := cmp.Diff(before, status("hamburg")); diff != "" {
		t.Errorf("a peer that moves all the time causes writes (-before +after):\n%s", diff)
	}

	for range 20 {
		look(other)
	}
	if c := ready("hamburg"); c.Status != metav1.ConditionTrue || status("hamburg").Endpoint != v1alpha1.HostPort(other.String()) {
		t.Errorf("when one has ended, Ready of hamburg is %+v, and its endpoint %s", c, status("hamburg").Endpoint)
	}
}
