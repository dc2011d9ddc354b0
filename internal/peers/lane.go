// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"sync"
	"time"
)

const (
	// slowCall is how long an API server takes for an answer if something is wrong.
	slowCall = time.Second
	// soonestTry and latestTry bound how soon a call is tried again for which there was no room.
	soonestTry = 20 * time.Millisecond
	latestTry  = 5 * time.Second
	// callWeight is the weight of the newest call in how long calls take, as in section 2 of RFC 6298.
	callWeight = 8
)

// A lane has room for so many calls to one peer at once, and for fewer while one of them has waited for longer than slowCall.
type lane struct {
	most, mostSlow int

	mu    sync.Mutex
	calls map[*call]struct{}
	took  time.Duration // how long calls take, smoothed
	turn  time.Time     // when the last call that was refused is to be tried again
}

// A call is a request that waits for its answer, or other work that keeps a worker.
type call struct{ began time.Time }

func newLane(most, mostSlow int) *lane {
	return &lane{most: max(most, 1), mostSlow: max(mostSlow, 1), calls: map[*call]struct{}{}}
}

// begin makes room for a call, which ends when end is called. Nobody waits for room: a worker that waited for this peer would
// be missing for others, so that its call is refused with a BusyError.
func (l *lane) begin(now func() time.Time) (end func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	made := &call{now()}
	if err := l.refuse(made.began); err != nil {
		return nil, err
	}
	l.calls[made] = struct{}{}
	return func() { l.end(made, now()) }, nil
}

// busy returns a BusyError if there is no room for a call.
func (l *lane) busy(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refuse(now)
}

// refuse is called with the mutex held.
func (l *lane) refuse(now time.Time) error {
	limit := l.most
	for waiting := range l.calls {
		if now.Sub(waiting.began) > slowCall {
			limit = l.mostSlow
			break
		}
	}
	if len(l.calls) < limit {
		return nil
	}
	// Those that were refused come back one after the other, as fast as the peer answers, instead of all together.
	l.turn = later(l.turn, now).Add(l.took / time.Duration(limit))
	after := max(l.turn.Sub(now), soonestTry)
	if after > latestTry {
		l.turn, after = now, latestTry // those behind share the time with those before
	}
	return &BusyError{after}
}

func (l *lane) end(made *call, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, waits := l.calls[made]; waits {
		delete(l.calls, made)
		l.took += (now.Sub(made.began) - l.took) / callWeight
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
