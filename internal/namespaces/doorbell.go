package namespaces

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A doorbell is a source by which code outside a controller's watches asks it to look at something. It keeps what is
// asked before the controller starts. The zero value works.
type doorbell struct {
	delay time.Duration // requests are gathered for so long

	mu    sync.Mutex
	ctx   context.Context //nolint:containedctx // the controller's, for what outlives one Reconcile
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	early []reconcile.Request
}

// Start is called by the controller before its workers.
func (d *doorbell) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ctx, d.queue = ctx, queue
	for _, request := range d.early {
		queue.AddAfter(request, d.delay)
	}
	d.early = nil
	return nil
}

func (d *doorbell) ring(requests ...reconcile.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, request := range requests {
		if d.queue == nil {
			d.early = append(d.early, request)
			continue
		}
		d.queue.AddAfter(request, d.delay)
	}
}

// lifetime is the context of the controller, for work that outlives one Reconcile.
func (d *doorbell) lifetime() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ctx
}
