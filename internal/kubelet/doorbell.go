package kubelet

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// request asks the pod controller to look at the pod of that name, here and at the peer.
type request struct {
	Peer, Namespace, Name string
}

// A doorbell is the source by which changes over there reach a controller. It keeps what rang before the controller
// started. The zero value is ready.
type doorbell[T comparable] struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[T]
	early map[T]int // what rang → how urgently
}

// Start is called by the controller before its workers.
func (d *doorbell[T]) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[T]) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = queue
	for item, priority := range d.early {
		d.add(item, priority)
	}
	d.early = nil
	return nil
}

// ring has the controller look at the item.
func (d *doorbell[T]) ring(item T) { d.ringAt(item, 0) }

// ringLow has it look at the item when there is nothing else to look at, such as at what is most likely as it should be.
func (d *doorbell[T]) ringLow(item T) { d.ringAt(item, handler.LowPriority) }

func (d *doorbell[T]) ringAt(item T, priority int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queue != nil {
		d.add(item, priority)
		return
	}
	if d.early == nil {
		d.early = map[T]int{}
	}
	if was, known := d.early[item]; !known || priority > was {
		d.early[item] = priority
	}
}

func (d *doorbell[T]) add(item T, priority int) {
	if queue, ok := d.queue.(priorityqueue.PriorityQueue[T]); ok {
		queue.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, item)
		return
	}
	d.queue.Add(item)
}
