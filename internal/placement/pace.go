package placement

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A pace keeps looks at the same thing apart: the first is taken at once, and however many are asked for in the interval
// after it, one is taken at its end. It is used by one worker.
type pace struct {
	interval time.Duration
	next     map[reconcile.Request]time.Time // request → when the next look may be taken
}

func newPace(interval time.Duration) *pace {
	return &pace{interval: interval, next: map[reconcile.Request]time.Time{}}
}

// wait returns how long to wait for the next look. If that is no time at all, the look counts as taken.
func (p *pace) wait(request reconcile.Request, now time.Time) time.Duration {
	if wait := p.next[request].Sub(now); wait > 0 {
		return min(wait, p.interval) // a clock that was set back must not stop us
	}
	p.next[request] = now.Add(p.interval)
	return 0
}

func (p *pace) forget(request reconcile.Request) { delete(p.next, request) }
