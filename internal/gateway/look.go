// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/kernel"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/overlay"
)

// look says hello to peers that do not answer, and writes how all are.
func (g *Gateway) look(ctx context.Context, now time.Time) error {
	a := &g.active
	if a.network.Own == nil {
		return nil
	}
	dialled := g.dial(now)
	states, err := g.plane.Tunnels()
	if err != nil {
		return errors.Join(dialled, err)
	}
	found, overdue := g.facts(states, now), g.lease.overdue(now)
	if overdue && superseded(found) {
		ctrl.LoggerFrom(ctx).Info("Giving up: the lease cannot be renewed, and no peer answers any more. Is there another active gateway?")
		g.lease.giveUp()
		return g.standBy(ctx)
	}
	a.lookAt = soonest(a.lookAt, found)
	if g.waysChanged() {
		g.changed()
	}
	failed := []error{dialled}
	if !overdue { // else another one may have taken over, from which that would take the peers
		failed = append(failed, g.redial(found, now))
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout) // for all peers together, since the tunnels wait meanwhile
	defer cancel()
	for peer, f := range found {
		failed = append(failed, g.report(ctx, peer, f, now))
	}
	return errors.Join(failed...)
}

// soonest returns when to look again: then, or when the next peer counts as dead if that is before, since it is told at once.
func soonest(at time.Time, found map[string]*facts) time.Time {
	for _, f := range found {
		if until := f.measured.until; !until.IsZero() && until.Before(at) {
			at = until
		}
	}
	return at
}

// superseded reports whether it seems that another gateway has taken over: peers that agreed on keys with us have fallen silent, and none
// answers. A peer answers only the gateway with which it has agreed on keys last.
func superseded(found map[string]*facts) bool {
	silent := 0
	for _, f := range found {
		if f.measured.alive {
			return false
		}
		if f.silent() {
			silent++
		}
	}
	return silent > 0
}

// waysChanged says whether larger or smaller packets get through to a peer than when the plan was made, or some do that did not, or
// none do any more.
func (g *Gateway) waysChanged() bool {
	return slices.ContainsFunc(g.active.network.Peers, func(p overlay.Peer) bool {
		fits, answers := g.measured(p.Probes)
		return fits != p.Fits || answers != p.Answers
	})
}

// measured returns the largest packet that gets through to the gateway of those addresses, and whether it answers.
func (g *Gateway) measured(probes []netip.Addr) (fits int, answers bool) {
	return g.probes.fits(probes), slices.ContainsFunc(probes, func(a netip.Addr) bool { return g.probes.measure(a).alive })
}

// facts returns what is known of the tunnel to each peer.
func (g *Gateway) facts(states []kernel.TunnelState, now time.Time) map[string]*facts {
	a := &g.active
	found := map[string]*facts{}
	for peer, c := range a.network.Connections {
		found[peer] = &facts{generation: c.Generation, failed: a.failed}
	}
	for _, c := range a.conflicts {
		if f := found[c.Peer]; f != nil {
			f.conflicts = append(f.conflicts, c)
		}
	}
	for i := range a.layout.Tunnels {
		t := &a.layout.Tunnels[i]
		f := found[t.Peer]
		f.tunnel, f.direct = t, a.layout.DirectThrough(t.Peer)
		for _, address := range t.Probes {
			f.measured = better(f.measured, g.probes.measure(address))
		}
	}
	if a.rates == nil {
		a.rates, a.moves = map[string]*rate{}, map[string]moves{}
	}
	for _, s := range states {
		if a.rates[s.Peer] == nil {
			a.rates[s.Peer] = &rate{}
		}
		if f := found[s.Peer]; f != nil {
			f.state, f.throughput = s, a.rates[s.Peer].note(s, now)
			if f.measured.alive { // else it is we who try its endpoints
				a.moves[s.Peer] = a.moves[s.Peer].note(s.Endpoint, now)
			}
			f.places = a.moves[s.Peer].places(now)
			countTunnel(s)
		}
	}
	return found
}

// better returns that of two measurements which knows more, and is shorter.
func better(a, b measurement) measurement {
	switch {
	case a.alive != b.alive:
		if a.alive {
			return a
		}
		return b
	case !a.known || b.known && b.roundTrip < a.roundTrip:
		return b
	default:
		return a
	}
}

// redial gives peers up, at the endpoint in use, that agreed on keys with us and have fallen silent.
func (g *Gateway) redial(found map[string]*facts, now time.Time) error {
	if g.active.redialled == nil {
		g.active.redialled = map[string]time.Time{}
	}
	var failed []error
	for peer, f := range found {
		if !f.silent() {
			delete(g.active.redialled, peer)
			continue
		}
		if now.Sub(g.active.redialled[peer]) < redialAfter || now.Sub(f.state.Handshake) < redialAfter {
			continue
		}
		g.active.redialled[peer] = now
		failed = append(failed, g.plane.Redial(peer, now))
	}
	return errors.Join(failed...)
}

// report writes how the tunnel to a peer is, if that is not what its Connection says.
func (g *Gateway) report(ctx context.Context, peer string, f *facts, now time.Time) error {
	c := g.latest(ctx, peer)
	if c == nil {
		return nil
	}
	status := statusOf(*f, c.Status, now)
	if equality.Semantic.DeepEqual(status, c.Status) {
		return nil
	}
	err := local.ApplyStatus(ctx, g.client, fieldOwner, c, &status)
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("tell how the tunnel to peer %q is: %w", peer, err)
	}
	return nil
}

// latest returns the Connection as the cache has it now, nil if it is not the one that the plan was made of.
func (g *Gateway) latest(ctx context.Context, peer string) *v1alpha1.Connection {
	c := &v1alpha1.Connection{}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer), Name: v1alpha1.ConnectionName}
	if err := g.reader.Client.Get(ctx, key, c); err != nil || c.UID != g.active.network.Connections[peer].UID {
		return nil
	}
	return c
}

// A rate is how much goes through a tunnel.
type rate struct {
	at    time.Time
	last  kernel.TunnelState
	best  int64 // bytes within a second, one way
	since time.Time
}

// note returns the most that went through within a second since the last handshakeStep, or in the one before as long as that is more.
func (r *rate) note(s kernel.TunnelState, now time.Time) int64 {
	took := now.Sub(r.at).Seconds()
	if !r.at.IsZero() && took > 0 {
		most := max(s.Received-r.last.Received, s.Sent-r.last.Sent, 0)
		per := int64(float64(most) / max(took, 1))
		if now.Sub(r.since) >= handshakeStep {
			r.best, r.since = 0, now
		}
		r.best = max(r.best, per)
	}
	r.since = cmp.Or(r.since, now)
	r.at, r.last = now, s
	return r.best
}
