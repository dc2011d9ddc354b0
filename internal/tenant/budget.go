// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// How often messages of one consumer, such as ShadowPods, are written for the sake of events alone: when many pods of a Deployment cannot start,
// each has something to tell at once, and then so many each second. Without a bound, a consumer whose pods fail in a new way
// all the time would keep our API server and our etcd busy.
const (
	eventWritesPerSecond = 10
	eventWritesAtOnce    = 200
)

// eventBudgets bound those writes, for each consumer by itself.
type eventBudgets struct {
	perSecond rate.Limit
	atOnce    int

	mu     sync.Mutex
	byPeer map[string]*rate.Limiter
}

func newEventBudgets(perSecond rate.Limit, atOnce int) *eventBudgets {
	return &eventBudgets{perSecond: perSecond, atOnce: atOnce, byPeer: map[string]*rate.Limiter{}}
}

// turn takes a turn to write for a message of the peer, now or later.
func (b *eventBudgets) turn(peer string, now time.Time) *rate.Reservation {
	b.mu.Lock()
	defer b.mu.Unlock()
	limiter := b.byPeer[peer]
	if limiter == nil {
		limiter = rate.NewLimiter(b.perSecond, b.atOnce)
		b.byPeer[peer] = limiter
	}
	return limiter.ReserveN(now, 1)
}

// untilTurn returns how long the message has to wait until it may be written for events alone. It keeps its turn, so that
// each pod of a consumer with many has one, and none is looked at in vain.
func (p *eventPace) untilTurn(budgets *eventBudgets, peer string, now time.Time) time.Duration {
	if p.turn == nil {
		p.turn = budgets.turn(peer, now)
	}
	return p.turn.DelayFrom(now)
}

// endTurn says that the events are written. A turn that was not needed is given back.
func (p *eventPace) endTurn(now time.Time) {
	if p.turn != nil && p.turn.DelayFrom(now) > 0 {
		p.turn.CancelAt(now)
	}
	p.turn = nil
}
