// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// A Budget says what one peer may cost this process at most. A peer that exceeds it harms nobody but itself.
type Budget struct {
	// HeldBytes and HeldObjects bound what all mirrors of the peer hold together, or receive to hold. The largest peers that
	// were measured have 10,000 pods, whose records take less than half of the defaults.
	HeldBytes, HeldObjects int
	// LeastBytes is how many of HeldBytes a peer has that runs no pods of ours, and PodBytes how many more for each one that it
	// runs (see Config.Pods): a peer may not tell more of pods than there are. By default it has all of HeldBytes.
	LeastBytes, PodBytes int
	// ReceivedBytes bounds what of all answers together has arrived and is not yet decoded. An ordinary page of a list has
	// less than a tenth of the default.
	ReceivedBytes int
	// ListBytes bounds what a list, or one page of it, takes when it is decoded. A page of pods takes a third of the default.
	ListBytes int
	// BytesPerSecond bounds how much is read for mirrors over time, so that a peer that sends without pause takes only a part
	// of a processor. As much as the peer may have here may come at once. What is more waits on its way.
	BytesPerSecond int
	// Lists is how many lists are asked for at once. One after the other is decoded.
	Lists int
	// Calls bounds how many requests to the peer wait for an answer, besides watches and streams. The default is half of the
	// workers of the largest controller. SlowCalls is the bound while one of them has waited for longer than slowCall: what
	// hangs keeps only so many workers from others.
	Calls, SlowCalls int
	// Aside is how many workers do something at once that nobody at home waits for, such as to take back what the peer has and
	// home has not asked for (see Link.Aside). A peer may invent as much of that as it likes.
	Aside int
	// FlapsPerSecond bounds how often something at home is written because the peer changed its mind again (see Links.Pace).
	FlapsPerSecond int
	// EventsPerSecond bounds how many events are written at home because of what the peer tells, over time, and EventsAtOnce
	// how many may come at once: two for each pod of a burst (see Links.MayTell).
	EventsPerSecond, EventsAtOnce int
}

// DefaultBudget is the default of Config.Budget.
var DefaultBudget = Budget{
	HeldBytes: 64 << 20, HeldObjects: 25_000, LeastBytes: 8 << 20, PodBytes: 8 << 10,
	ReceivedBytes: 6 << 20, ListBytes: 20 << 20, BytesPerSecond: 4 << 20, Lists: 4, Calls: 16, SlowCalls: 2, Aside: 1, FlapsPerSecond: 20, EventsPerSecond: 50, EventsAtOnce: 2000,
}

const (
	// firstPause and lastPause are for how long nothing is read for a mirror that went over the budget: at first and at last.
	firstPause = time.Second
	lastPause  = 5 * time.Minute
	// podsFresh is for how long it is believed how many pods the peer runs.
	podsFresh = 5 * time.Second
)

// A ledger keeps the accounts of one peer, over all links to it.
type ledger struct {
	limit    Budget
	pods     func() int // how many of ours the peer runs
	now      func() time.Time
	mu       sync.Mutex
	room     int       // bytes that may be held, as far as was found out
	found    time.Time // when that was
	held     usage
	accounts map[*Mirror]usage // what each mirror holds, or receives to hold
	received int
	over     map[*Mirror]bool

	calls  *lane         // requests that wait for an answer
	aside  *lane         // work that nobody at home waits for
	reads  *rate.Limiter // bytes that are read for mirrors
	lists  turns
	decode turns
	flaps  *rate.Limiter
	calm   *rate.Limiter // what may have to wait of a peer that does not flap
	tells  time.Time     // for how long it is told that the peer flaps
	events *rate.Limiter
	paces  map[types.UID]*rate.Limiter
	forget int // how many paces to remember before those are forgotten that have been quiet
}

// A usage is what something takes.
type usage struct{ bytes, objects int }

func (u usage) plus(v usage) usage  { return usage{u.bytes + v.bytes, u.objects + v.objects} }
func (u usage) minus(v usage) usage { return usage{u.bytes - v.bytes, u.objects - v.objects} }

func newLedger(limit Budget, pods func() int, now func() time.Time) *ledger {
	room := min(cmp.Or(limit.LeastBytes, limit.HeldBytes), limit.HeldBytes)
	return &ledger{
		limit: limit, pods: pods, now: now, room: room, accounts: map[*Mirror]usage{}, over: map[*Mirror]bool{},
		calls: newLane(limit.Calls, limit.SlowCalls), aside: newLane(limit.Aside, limit.Aside),
		reads: rate.NewLimiter(rate.Limit(limit.BytesPerSecond), room),
		lists: newTurns(limit.Lists), decode: newTurns(1),
		flaps:  rate.NewLimiter(rate.Limit(limit.FlapsPerSecond), limit.FlapsPerSecond),
		calm:   rate.NewLimiter(calmPerSecond, calmAtOnce),
		events: rate.NewLimiter(rate.Limit(limit.EventsPerSecond), limit.EventsAtOnce),
		paces:  map[types.UID]*rate.Limiter{},
	}
}

// ledger returns the accounts of the peer.
func (l *Links) ledger(peer string) *ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ledgers[peer] == nil {
		l.ledgers[peer] = l.newLedger(peer)
	}
	return l.ledgers[peer]
}

// newLedger returns accounts of the peer, "" for one that is none yet.
func (l *Links) newLedger(peer string) *ledger {
	return newLedger(l.config.Budget, func() int { return l.config.Pods(peer) }, l.config.Clock.Now)
}

// OverBudget returns ErrOverBudget, with what to do, while the peer sends more than is taken from one peer. Its message is
// the same for as long as that lasts.
func (l *Links) OverBudget(peer string) error {
	l.mu.Lock()
	books := l.ledgers[peer]
	l.mu.Unlock()
	if books == nil {
		return nil
	}
	books.mu.Lock()
	defer books.mu.Unlock()
	for m := range books.over {
		if m.ctx.Err() == nil {
			return books.exceeded()
		}
	}
	return nil
}

func (b *ledger) exceeded() error {
	return fmt.Errorf("%w: at most %d objects and %d MiB are held for one peer, less where it runs few pods, fewer and smaller ones "+
		"of some kinds, and %d MiB are received at a time: ask its administrator what it has there for this cluster",
		ErrOverBudget, b.limit.HeldObjects, b.limit.HeldBytes>>20, b.limit.ReceivedBytes>>20)
}

// charge has the account of the mirror say what it takes now, unless that is more than there is room for. A mirror that
// has ended, whose account is closed or will be, is not charged any more.
func (b *ledger) charge(m *Mirror, now usage) error {
	if b.wouldHold(m, now) > b.limit.LeastBytes {
		b.findRoom()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.ctx.Err() != nil {
		return nil
	}
	before := b.accounts[m]
	after := b.held.minus(before).plus(now)
	grows := now.bytes > before.bytes || now.objects > before.objects
	tooMany := m.subject.MostObjects > 0 && now.objects > m.subject.MostObjects
	if grows && (tooMany || after.bytes > b.room || after.objects > b.limit.HeldObjects) {
		return b.exceeded()
	}
	b.accounts[m], b.held = now, after
	return nil
}

// wouldHold returns how many bytes the peer would hold, were it so.
func (b *ledger) wouldHold(m *Mirror, now usage) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held.minus(b.accounts[m]).plus(now).bytes
}

// findRoom finds out how much the peer may have, unless that was found lately or does not depend on its pods.
func (b *ledger) findRoom() {
	b.mu.Lock()
	known := b.limit.LeastBytes == 0 || !b.found.IsZero() && b.now().Sub(b.found) < podsFresh
	b.mu.Unlock()
	if known {
		return
	}
	room := b.limit.LeastBytes + b.pods()*b.limit.PodBytes // without the mutex: it reads a cache
	b.mu.Lock()
	defer b.mu.Unlock()
	b.room, b.found = min(room, b.limit.HeldBytes), b.now()
	switch burst := b.reads.Burst(); {
	case b.room >= 2*burst: // as when this process has just started: what it reads first must not wait
		b.reads = rate.NewLimiter(b.reads.Limit(), b.room)
	case b.room < burst:
		b.reads.SetBurstAt(b.found, b.room)
	}
}

// exceeds says that the mirror could not be read within the budget.
func (b *ledger) exceeds(m *Mirror) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over[m] = true
}

// fits says that the mirror could be read within the budget.
func (b *ledger) fits(m *Mirror) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.over, m)
}

// close ends the account of the mirror.
func (b *ledger) close(m *Mirror) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = b.held.minus(b.accounts[m])
	delete(b.accounts, m)
	delete(b.over, m)
}

// How often an object at home is written because of what a peer tells: as often as it takes to start a pod at once, and then
// once a second.
const (
	writesAtOnce    = 6
	writesPerSecond = 1
	// firstSweep is how many objects are remembered at least.
	firstSweep = 1024
	// calmAtOnce and calmPerSecond are how many writes may have to wait until the peer is said to flap, and flapsTold is for
	// how long that is said after the last one.
	calmAtOnce    = 30
	calmPerSecond = 0.5
	flapsTold     = time.Minute
)

// Pace returns how long a write of an object at home must wait that is due to news of the peer. If that is not at all, the
// write counts as done. Each object may be written some times at once and then once a second. A write of an object that has
// used that up is a flap, and all flaps of a peer together are bounded too: a provider whose pods flap costs our API server
// and our etcd no more than that, while the many writes of a burst of new pods wait for nothing.
func (l *Links) Pace(peer string, object types.UID) time.Duration {
	books, now := l.ledger(peer), l.config.Clock.Now()
	delay := books.pace(object, now)
	if delay > 0 && books.waited(now) {
		l.publishLink(peer)
	}
	return delay
}

// Flaps says for how long yet, if at all, it is to be told that the peer changes its mind so often that its news waits. When
// that begins, LinkChanges tells.
func (l *Links) Flaps(peer string) time.Duration {
	books := l.ledger(peer)
	books.mu.Lock()
	defer books.mu.Unlock()
	return max(0, books.tells.Sub(l.config.Clock.Now()))
}

// waited notes that a write had to wait, and says whether the peer flaps since then.
func (b *ledger) waited(now time.Time) (begins bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calm.AllowN(now, 1) {
		return false
	}
	begins = !now.Before(b.tells)
	b.tells = now.Add(flapsTold)
	return begins
}

func (b *ledger) pace(object types.UID, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	limiter := b.paces[object]
	if limiter == nil {
		b.forgetQuiet(now)
		limiter = rate.NewLimiter(writesPerSecond, writesAtOnce)
		b.paces[object] = limiter
	}
	flaps := limiter.TokensAt(now) < 2
	if delay := delayOf(limiter, now); delay > 0 {
		return delay
	}
	if !flaps {
		return 0
	}
	return delayOf(b.flaps, now)
}

// MayTell says whether one more event may be written at home that is due to news of the peer, which counts as written then.
func (l *Links) MayTell(peer string) bool {
	return l.ledger(peer).events.AllowN(l.config.Clock.Now(), 1)
}

// delayOf returns how long the next write must wait, which counts as done if that is not at all.
func delayOf(limiter *rate.Limiter, now time.Time) time.Duration {
	reservation := limiter.ReserveN(now, 1)
	delay := reservation.DelayFrom(now)
	if delay > 0 {
		reservation.CancelAt(now)
	}
	return delay
}

// forgetQuiet drops the objects that may be written as if they had never been.
func (b *ledger) forgetQuiet(now time.Time) {
	if len(b.paces) < max(b.forget, firstSweep) {
		return
	}
	for object, limiter := range b.paces {
		if limiter.TokensAt(now) >= writesAtOnce {
			delete(b.paces, object)
		}
	}
	b.forget = 2 * len(b.paces)
}

// A pause is for how long nothing is read for a mirror that went over the budget.
type pause struct {
	last  time.Duration
	until time.Time
}

// next returns the pause behind this one: twice as long, unless this one is long over.
func (p pause) next(now time.Time) pause {
	long := firstPause
	if p.last > 0 && now.Sub(p.until) < lastPause {
		long = min(2*p.last, lastPause)
	}
	return pause{last: long, until: now.Add(long)}
}

// wait waits until the pause is over.
func (p pause) wait(ctx context.Context, now time.Time) error { return waitFor(ctx, p.until.Sub(now)) }

// tooMuch says whether the error is that the peer sends more than is taken.
func tooMuch(err error) bool { return errors.Is(err, ErrOverBudget) || errors.Is(err, ErrTooLarge) }
