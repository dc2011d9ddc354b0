package kubelet

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// request asks the pod controller to look at the pod of that name, here and at the peer.
type request struct {
	Peer, Namespace, Name string
}

// A doorbell is the source by which changes over there reach the pod controller. It keeps what rang before the
// controller started. The zero value is ready.
type doorbell struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[request]
	early map[request]struct{}
}

// Start is called by the controller before its workers.
func (d *doorbell) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = queue
	for req := range d.early {
		queue.Add(req)
	}
	d.early = nil
	return nil
}

func (d *doorbell) ring(req request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queue != nil {
		d.queue.Add(req)
		return
	}
	if d.early == nil {
		d.early = map[request]struct{}{}
	}
	d.early[req] = struct{}{}
}
