// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/kernel"
	"github.com/hanse-dev/hanse/internal/overlay"
)

// facts are what is known of the tunnel to one peer.
type facts struct {
	generation int64
	conflicts  []overlay.Conflict
	direct     []string        // Peers whose pods here and there reach each other through it
	tunnel     *overlay.Tunnel // nil if there can be none
	failed     error           // what the kernel could not be made to do, if there is anything
	state      kernel.TunnelState
	measured   measurement
	throughput int64            // bytes within the best second lately, one way
	places     []netip.AddrPort // between which the peer's endpoint goes back and forth; none if it does not
}

// silent reports whether the peer agreed on keys with us, and does not answer any more.
func (f *facts) silent() bool {
	return f.tunnel != nil && f.measured.known && !f.measured.alive && !f.state.Handshake.IsZero()
}

// handshakeStep is what the time of a handshake is cut to. What is written with it is written no more often than that.
const handshakeStep = 10 * time.Minute

// statusOf returns what the status of a Connection must say. It is what it was before if nothing moved by much.
func statusOf(f facts, before v1alpha1.ConnectionStatus, now time.Time) v1alpha1.ConnectionStatus {
	s := *before.DeepCopy()
	s.ObservedGeneration, s.Direct = f.generation, f.direct
	connected := connection(f, before)
	for _, c := range []metav1.Condition{connected, readiness(f, connected, before)} {
		c.ObservedGeneration, c.LastTransitionTime = f.generation, metav1.NewTime(now)
		meta.SetStatusCondition(&s.Conditions, c)
	}
	if f.tunnel != nil {
		s.MTU = int32(f.tunnel.MTU) //nolint:gosec // a size of packets
	}
	if f.state.Endpoint.IsValid() && len(f.places) == 0 {
		s.Endpoint, s.Through = v1alpha1.HostPort(f.state.Endpoint.String()), through(f)
	}
	if f.measured.roundTrip > 0 {
		was := time.Duration(0)
		if s.RoundTripTime != nil {
			was = s.RoundTripTime.Duration
		}
		if moved(int64(was), int64(f.measured.roundTrip), int64(time.Millisecond)) || s.RoundTripTime == nil {
			s.RoundTripTime = &metav1.Duration{Duration: time.Duration(exchange.Rounded(int64(f.measured.roundTrip)))}
		}
	}
	if f.measured.known && (s.LossPercent == nil || moved(int64(*s.LossPercent), int64(f.measured.loss), 1)) {
		s.LossPercent = &f.measured.loss
	}
	count(&s, f)
	return s
}

// through returns the peer that passes packets on, if one does.
func through(f facts) string {
	if f.tunnel == nil {
		return ""
	}
	for i, relay := range f.tunnel.Through {
		if f.tunnel.Endpoints[i] == f.state.Endpoint {
			return relay
		}
	}
	return ""
}

// count writes what is counted, whenever the handshake has moved.
func count(s *v1alpha1.ConnectionStatus, f facts) {
	handshake := metav1.NewTime(f.state.Handshake.Truncate(handshakeStep))
	if f.state.Handshake.IsZero() || s.LastHandshake.Equal(&handshake) {
		return
	}
	s.LastHandshake = &handshake
	s.ReceivedBytes, s.SentBytes = amount(f.state.Received), amount(f.state.Sent)
	if s.Throughput == nil || moved(s.Throughput.Value(), f.throughput, 0) {
		s.Throughput = amount(f.throughput)
	}
}

func amount(n int64) *resource.Quantity {
	return resource.NewQuantity(exchange.Rounded(n), resource.DecimalSI)
}

// moved reports whether a number differs by more than a quarter and that much.
func moved(before, after, least int64) bool {
	by := max(before-after, after-before)
	return by > before/4 && by > least
}

// connection is whether the peer's gateway answers through the tunnel.
func connection(f facts, before v1alpha1.ConnectionStatus) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionConnected, Status: metav1.ConditionFalse}
	was := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionConnected)
	switch {
	case kernel.Unsupported(f.failed):
		c.Reason = v1alpha1.ReasonKernelUnsupported
		c.Message = "The kernel of the gateway's node lacks WireGuard and TUN, VXLAN, or nftables: load the modules, or run the gateway on another node"
	case f.tunnel == nil && len(f.conflicts) > 0:
		c.Reason, c.Message = f.conflicts[0].Reason, f.conflicts[0].Message
	case without6(f) != nil:
		c.Reason, c.Message = without6(f).Reason, without6(f).Message
	case alive(f):
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ConditionReady, "The peer's gateway answers through the tunnel"
	case !f.measured.known && was != nil && was.ObservedGeneration == f.generation:
		return *was // a gateway that has just taken over knows no better
	case !f.measured.known && f.failed == nil:
		c.Reason, c.Message = v1alpha1.ReasonPending, "The tunnel is being made"
	case undialled(f) != nil:
		c.Reason, c.Message = undialled(f).Reason, undialled(f).Message
	default:
		c.Reason, c.Message = v1alpha1.ReasonTunnelDown, whyDown(f)
	}
	return c
}

// alive reports whether echoes come back, or, if the peer has no address to ask, whether the two agree on keys.
func alive(f facts) bool {
	if f.tunnel == nil || len(f.tunnel.Probes) > 0 {
		return f.measured.alive
	}
	return !f.state.Handshake.IsZero()
}

func whyDown(f facts) string {
	switch {
	case f.failed != nil:
		return "This cluster's gateway could not be set up; its log says why"
	case f.tunnel.Relayed():
		return "Neither of the two gateways can be reached by the other, and the peer's does not answer through the gateway of peer " +
			strings.Join(f.tunnel.Through, " or ") + ": see whether that relays for the peer, too (spec.network.relayBandwidth there)"
	case f.state.Handshake.IsZero() && f.tunnel.Apart:
		return apart(f.tunnel)
	case f.state.Handshake.IsZero() && len(f.tunnel.Endpoints) == 0:
		return "The peer's gateway has not dialled ours: see whether UDP gets to an endpoint of ours"
	case f.state.Handshake.IsZero():
		return "The peer's gateway answers at none of its endpoints: see whether UDP gets to " + text(f.tunnel.Endpoints) + ", and whether a gateway runs there"
	default:
		return "The peer's gateway no longer answers through the tunnel"
	}
}

// apart says why two gateways cannot meet that have no family of addresses in common.
func apart(t *overlay.Tunnel) string {
	const remedy = ": give the one that is to be dialled an endpoint of the other family, IPv4 or IPv6, with gateway.endpoints of its Helm values"
	if len(t.Endpoints) == 0 {
		return "The peer's gateway has no address of the family of our endpoints, and tells of no endpoint itself" + remedy
	}
	return "The peer's gateway is reached at " + text(t.Endpoints) + ", and this cluster's has no address of that family" + remedy
}

func join(endpoints []netip.AddrPort) string {
	var all []string
	for _, e := range endpoints {
		all = append(all, e.String())
	}
	return strings.Join(all, " and ")
}

// text names the first endpoint, and how many there are.
func text(endpoints []netip.AddrPort) string {
	all := endpoints[0].String()
	if len(endpoints) > 1 {
		all += " and " + strconv.Itoa(len(endpoints)-1) + " more"
	}
	return all
}

// undialled returns why no endpoint of a peer is dialled, nil if one is.
func undialled(f facts) *overlay.Conflict {
	if f.tunnel == nil || len(f.tunnel.Endpoints) > 0 {
		return nil
	}
	for _, reason := range []string{v1alpha1.ReasonNoEndpoint, v1alpha1.ReasonEndpointRefused} {
		if i := slices.IndexFunc(f.conflicts, func(c overlay.Conflict) bool { return c.Reason == reason }); i >= 0 {
			return &f.conflicts[i]
		}
	}
	return nil
}

// readiness is whether the peer is connected, and nothing of the spec was left out.
func readiness(f facts, connected metav1.Condition, before v1alpha1.ConnectionStatus) metav1.Condition {
	c := connected
	c.Type = v1alpha1.ConditionReady
	was := meta.FindStatusCondition(before.Conditions, c.Type)
	switch {
	case len(f.places) > 0 && was != nil && was.Reason == v1alpha1.ReasonEndpointFlaps:
		return *was // a peer that names ever other places causes no writes
	case len(f.places) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonEndpointFlaps
		c.Message = fmt.Sprintf("What the peer's gateway sends comes in turns from %s, so that packets for it get lost: two of its gateways "+
			"believe that they are active, somebody has a copy of its key, or a NAT changes its address all the time. Have its administrator "+
			"see which gateways run, and change the key if it may have been copied",
			join(f.places))
	case connected.Status != metav1.ConditionTrue:
	case f.failed != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonPending, "Not all could be set up at this cluster's gateway; its log says why"
	case len(f.conflicts) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, f.conflicts[0].Reason, f.conflicts[0].Message
	}
	return c
}
