package reflector

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// lull is how long something that is not urgent waits, so that what comes together is looked at once.
const lull = 200 * time.Millisecond

// A doorbell is a source by which code outside a controller's watches asks it to look at something. It keeps what is
// asked before the controller starts. The zero value is ready.
type doorbell[T comparable] struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[T]
	early map[T]struct{}
}

// Start is called by the controller before its workers.
func (d *doorbell[T]) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[T]) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = queue
	for req := range d.early {
		queue.Add(req)
	}
	d.early = nil
	return nil
}

// ring asks at once.
func (d *doorbell[T]) ring(req T) { d.ringAfter(req, 0) }

// later asks when what happens just now may be over.
func (d *doorbell[T]) later(req T) { d.ringAfter(req, lull) }

func (d *doorbell[T]) ringAfter(req T, delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queue != nil {
		d.queue.AddAfter(req, delay)
		return
	}
	if d.early == nil {
		d.early = map[T]struct{}{}
	}
	d.early[req] = struct{}{}
}
