// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/internal/topology"
)

const (
	// handOverTimeout is how long a gateway that is to end goes on until there is another one. There may be none, or it has yet to start, or
	// the API server is slow; and the kubelet kills after 30 s.
	handOverTimeout = 10 * time.Second
	// lingerFor is how long it goes on at most when there is: a peer that only dials does not look for the other one before this one is
	// silent.
	lingerFor = time.Second
)

// handOver keeps the tunnels of an active gateway that is to end, until nodes and peers have moved to the next one. It has released the
// lease.
func (g *Gateway) handOver(ctx context.Context) {
	if !g.active.announced {
		return
	}
	ticker := g.config.Clock.NewTicker(beat)
	defer ticker.Stop()
	reader := topology.Reader{Client: g.client, Namespace: g.config.Namespace} // the cache has ended
	for h := newHandover(g.config.Clock.Now()); ; <-ticker.C() {
		next, received := g.successor(ctx, reader), g.received()
		if h.over(g.config.Clock.Now(), next != "", received) {
			ctrl.LoggerFrom(ctx).Info("This gateway ends", "next", next)
			return
		}
	}
}

// successor returns the pod of the gateway that nodes are told of, unless that is this one or cannot be read.
func (g *Gateway) successor(ctx context.Context, reader topology.Reader) string {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	active, err := reader.Active(ctx)
	if err != nil || active.Pod == g.config.Pod {
		return ""
	}
	return active.Pod
}

// received returns how many bytes have come through all tunnels.
func (g *Gateway) received() (sum int64) {
	states, _ := g.plane.Tunnels() // what cannot be read has nothing to wait for
	for _, s := range states {
		sum += s.Received
	}
	return sum
}

// A handover is how far it is.
type handover struct {
	until    time.Time
	next     bool // there is another gateway
	received int64
	at       time.Time // when something was last received
}

func newHandover(now time.Time) handover { return handover{until: now.Add(handOverTimeout), at: now} }

// over notes what is seen, and says whether the gateway has no more to do: there is another one, and peers, which send a probe each
// probeInterval, send none here; or it has waited long enough.
func (h *handover) over(now time.Time, next bool, received int64) bool {
	if next && !h.next {
		h.next, h.until = true, now.Add(lingerFor)
	}
	if received != h.received {
		h.received, h.at = received, now
	}
	return !now.Before(h.until) || h.next && now.Sub(h.at) > probeInterval
}
