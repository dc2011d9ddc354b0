package kubelet

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// What a pod's status is written at most: as often as it takes to start a pod at once, and then once a second. A provider
// whose pod flaps costs our API server no more than that.
const (
	writesAtOnce    = 6
	writesPerSecond = 1
)

// A writePace bounds how often the status of each pod is written. What it remembers is of no other use. The zero value is
// ready.
type writePace struct {
	mu    sync.Mutex
	byPod map[types.UID]*rate.Limiter
	sweep int // how many pods to remember before those are forgotten that have been quiet
}

// firstSweep is how many pods are remembered at least.
const firstSweep = 1024

// wait returns how long the next write of the pod must wait. If that is not at all, it counts as done.
func (p *writePace) wait(pod types.UID, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	limiter := p.byPod[pod]
	if limiter == nil {
		p.forget(now)
		limiter = rate.NewLimiter(writesPerSecond, writesAtOnce)
		p.byPod[pod] = limiter
	}
	reservation := limiter.ReserveN(now, 1)
	delay := reservation.DelayFrom(now)
	if delay > 0 {
		reservation.CancelAt(now)
	}
	return delay
}

// forget drops the pods that may write as if they had never written.
func (p *writePace) forget(now time.Time) {
	if p.byPod == nil {
		p.byPod = map[types.UID]*rate.Limiter{}
	}
	if len(p.byPod) < max(p.sweep, firstSweep) {
		return
	}
	for pod, limiter := range p.byPod {
		if limiter.TokensAt(now) >= writesAtOnce {
			delete(p.byPod, pod)
		}
	}
	p.sweep = 2 * len(p.byPod)
}
