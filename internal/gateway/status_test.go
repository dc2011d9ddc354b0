// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/kernel"
	"github.com/hanse-dev/hanse/internal/overlay"
	"github.com/hanse-dev/hanse/internal/testkit"
)

var (
	there   = netip.MustParseAddrPort("203.0.113.7:51820")
	probe   = netip.MustParseAddr("240.0.0.0")
	dialed  = &overlay.Tunnel{Peer: "hamburg", Endpoints: []netip.AddrPort{there}, Probes: []netip.Addr{probe}, MTU: 1440}
	relayed = &overlay.Tunnel{Peer: "hamburg", Endpoints: []netip.AddrPort{there}, Through: []string{"bremen"}, Probes: []netip.Addr{probe}, MTU: 1328}
	waited  = &overlay.Tunnel{Peer: "hamburg", Probes: []netip.Addr{probe}, MTU: 1440}
	good    = measurement{alive: true, known: true, roundTrip: 1234 * time.Microsecond}
	silent  = measurement{known: true, loss: 100}
	shaken  = kernel.TunnelState{Peer: "hamburg", Endpoint: there, Handshake: testkit.Noon.Add(-time.Minute), Received: 123456, Sent: 99}
)

func TestConditionsOfATunnel(t *testing.T) {
	taken := overlay.Conflict{Peer: "hamburg", Reason: v1alpha1.ReasonKeyTaken, Message: "taken"}
	refused := overlay.Conflict{Peer: "hamburg", Reason: v1alpha1.ReasonEndpointRefused, Message: "refused"}
	unreachable := overlay.Conflict{Peer: "hamburg", Reason: v1alpha1.ReasonNoEndpoint, Message: "unreachable"}
	not6 := overlay.Conflict{Peer: "hamburg", Reason: v1alpha1.ReasonKernelUnsupported, Message: "not forwarded"}
	range4, range6 := netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd68:616e::/56")
	both, only6 := &overlay.Tunnel{Probes: dialed.Probes, AllowedIPs: []netip.Prefix{range4, range6}}, &overlay.Tunnel{AllowedIPs: []netip.Prefix{range6}}
	only6.Probes = dialed.Probes
	tests := map[string]struct {
		facts            facts
		connected, ready string // the reasons; the status is True if that is Ready
	}{
		"the peer answers": {facts{tunnel: dialed, state: shaken, measured: good}, v1alpha1.ReasonReady, v1alpha1.ReasonReady},
		"the peer answers, and an endpoint was left out": {
			facts{tunnel: dialed, state: shaken, measured: good, conflicts: []overlay.Conflict{refused}}, v1alpha1.ReasonReady, v1alpha1.ReasonEndpointRefused,
		},
		"the peer answers, and the kernel lacks something for another": {
			facts{tunnel: dialed, state: shaken, measured: good, failed: errors.New("broken")}, v1alpha1.ReasonReady, v1alpha1.ReasonPending,
		},
		"nothing is known yet":   {facts{tunnel: dialed}, v1alpha1.ReasonPending, v1alpha1.ReasonPending},
		"the peer never answers": {facts{tunnel: dialed, measured: silent}, v1alpha1.ReasonTunnelDown, v1alpha1.ReasonTunnelDown},
		"the peer never dials":   {facts{tunnel: waited, measured: silent}, v1alpha1.ReasonTunnelDown, v1alpha1.ReasonTunnelDown},
		"the peer fell silent":   {facts{tunnel: dialed, state: shaken, measured: silent}, v1alpha1.ReasonTunnelDown, v1alpha1.ReasonTunnelDown},
		"neither can reach the other": {
			facts{tunnel: waited, measured: silent, conflicts: []overlay.Conflict{unreachable}}, v1alpha1.ReasonNoEndpoint, v1alpha1.ReasonNoEndpoint,
		},
		"the only endpoint that the peer names is our own gateway": {
			facts{tunnel: waited, measured: silent, conflicts: []overlay.Conflict{refused}}, v1alpha1.ReasonEndpointRefused, v1alpha1.ReasonEndpointRefused,
		},
		"an endpoint is left out, and no other one answers": {
			facts{tunnel: dialed, measured: silent, conflicts: []overlay.Conflict{refused}}, v1alpha1.ReasonTunnelDown, v1alpha1.ReasonTunnelDown,
		},
		"neither can reach the other, and yet they meet": {
			facts{tunnel: waited, state: shaken, measured: good, conflicts: []overlay.Conflict{unreachable}}, v1alpha1.ReasonReady, v1alpha1.ReasonNoEndpoint,
		},
		"a third that both reach does not pass on packets": {
			facts{tunnel: relayed, measured: silent}, v1alpha1.ReasonTunnelDown, v1alpha1.ReasonTunnelDown,
		},
		"there can be no tunnel": {facts{conflicts: []overlay.Conflict{taken}}, v1alpha1.ReasonKeyTaken, v1alpha1.ReasonKeyTaken},
		"the peer answers, and IPv6 is not forwarded": {
			facts{tunnel: both, state: shaken, measured: good, conflicts: []overlay.Conflict{not6}}, v1alpha1.ReasonReady, v1alpha1.ReasonKernelUnsupported,
		},
		"the peer answers, and has nothing but IPv6, which is not forwarded": {
			facts{tunnel: only6, state: shaken, measured: good, conflicts: []overlay.Conflict{not6}},
			v1alpha1.ReasonKernelUnsupported, v1alpha1.ReasonKernelUnsupported,
		},
		"the kernel has no VXLAN": {
			facts{tunnel: dialed, failed: fmt.Errorf("make interface: %w", syscall.EOPNOTSUPP)}, v1alpha1.ReasonKernelUnsupported, v1alpha1.ReasonKernelUnsupported,
		},
		"the kernel has no TUN": {
			facts{tunnel: dialed, failed: fmt.Errorf("make: %w", &fs.PathError{Op: "stat", Path: "/dev/net/tun", Err: syscall.ENOENT})},
			v1alpha1.ReasonKernelUnsupported, v1alpha1.ReasonKernelUnsupported,
		},
		"the gateway cannot be set up": {facts{tunnel: dialed, failed: errors.New("broken")}, v1alpha1.ReasonTunnelDown, v1alpha1.ReasonTunnelDown},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			status := statusOf(test.facts, v1alpha1.ConnectionStatus{}, testkit.Noon)
			for kind, reason := range map[string]string{v1alpha1.ConditionConnected: test.connected, v1alpha1.ConditionReady: test.ready} {
				c := meta.FindStatusCondition(status.Conditions, kind)
				if c.Reason != reason || (c.Status == metav1.ConditionTrue) != (reason == v1alpha1.ReasonReady) || c.Message == "" {
					t.Errorf("%s is %s, %s (%s), want reason %s", kind, c.Status, c.Reason, c.Message, reason)
				}
			}
		})
	}
}

func TestItIsToldWhatKeepsGatewaysApart(t *testing.T) {
	for name, test := range map[string]struct {
		facts facts
		want  string
	}{
		"the peer is reached by another family":    {facts{tunnel: &overlay.Tunnel{Apart: true, Endpoints: dialed.Endpoints}}, "203.0.113.7:51820"},
		"we are reached by another family":         {facts{tunnel: &overlay.Tunnel{Apart: true}}, "of our endpoints"},
		"they have met, since somebody translates": {facts{tunnel: &overlay.Tunnel{Apart: true, Endpoints: dialed.Endpoints, Probes: dialed.Probes}, state: shaken}, "no longer answers"},
	} {
		t.Run(name, func(t *testing.T) {
			test.facts.measured = silent
			status := statusOf(test.facts, v1alpha1.ConnectionStatus{}, testkit.Noon)
			c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionConnected)
			if c.Reason != v1alpha1.ReasonTunnelDown || !strings.Contains(c.Message, test.want) {
				t.Errorf("got %s: %s", c.Reason, c.Message)
			}
		})
	}
}

func TestItIsToldThroughWhomATunnelLeads(t *testing.T) {
	direct := statusOf(facts{tunnel: dialed, state: shaken, measured: good}, v1alpha1.ConnectionStatus{}, testkit.Noon)
	through := statusOf(facts{tunnel: relayed, state: shaken, measured: good}, direct, testkit.Noon)
	again := statusOf(facts{tunnel: dialed, state: shaken, measured: good}, through, testkit.Noon)
	if direct.Through != "" || through.Through != "bremen" || again.Through != "" {
		t.Errorf("got %q, %q, and %q", direct.Through, through.Through, again.Through)
	}
}

func TestAGatewayThatTakesOverLeavesTheConditionUntilItKnowsBetter(t *testing.T) {
	before := statusOf(facts{tunnel: dialed, state: shaken, measured: good}, v1alpha1.ConnectionStatus{}, testkit.Noon)
	after := statusOf(facts{tunnel: dialed}, before, testkit.Noon.Add(time.Minute))
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

func TestAQuietTunnelCausesNoWrites(t *testing.T) {
	quiet := facts{tunnel: dialed, state: shaken, measured: good, throughput: 5000}
	before := statusOf(quiet, v1alpha1.ConnectionStatus{}, testkit.Noon)
	if diff := cmp.Diff("1.2ms", before.RoundTripTime.Duration.String()); diff != "" {
		t.Error(diff)
	}
	if before.ReceivedBytes.Value() != 120000 || before.SentBytes.Value() != 99 || before.Throughput.Value() != 5000 {
		t.Errorf("received %v, sent %v, throughput %v", before.ReceivedBytes, before.SentBytes, before.Throughput)
	}
	tests := map[string]struct {
		change func(*facts)
		writes bool
	}{
		"nothing changes":                    {func(*facts) {}, false},
		"a little traffic":                   {func(f *facts) { f.state.Received, f.throughput = 9999999, 1e9 }, false},
		"a handshake in the same minutes":    {func(f *facts) { f.state.Handshake = f.state.Handshake.Add(30 * time.Second) }, false},
		"a handshake after ten minutes":      {func(f *facts) { f.state.Handshake = f.state.Handshake.Add(10 * time.Minute) }, true},
		"a round trip that moves a little":   {func(f *facts) { f.measured.roundTrip += 900 * time.Microsecond }, false},
		"a round trip that moves by much":    {func(f *facts) { f.measured.roundTrip += 2 * time.Millisecond }, true},
		"one of a hundred is lost":           {func(f *facts) { f.measured.loss = 1 }, false},
		"two of a hundred are lost":          {func(f *facts) { f.measured.loss = 2 }, true},
		"the peer has moved":                 {func(f *facts) { f.state.Endpoint = netip.MustParseAddrPort("203.0.113.8:1") }, true},
		"the peer falls silent":              {func(f *facts) { f.measured.alive = false }, true},
		"the spec changes and nothing of it": {func(f *facts) { f.generation++ }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := quiet
			test.change(&f)
			if diff := cmp.Diff(before, statusOf(f, before, testkit.Noon.Add(time.Second))); (diff != "") != test.writes {
				t.Errorf("-before +after:\n%s", diff)
			}
		})
	}
}
