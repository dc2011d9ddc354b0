package advertisement

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

var errNotRunning = errors.New("the receiver is not running")

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// watches holds a mirror of the advertisements of each provider, and puts the peer whose mirror or link changes into
// the receiver's queue.
type watches struct {
	links    Links
	clock    clock.PassiveClock
	interval time.Duration // the least between two rings of one peer

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // the life of the mirrors, which is not that of a call
	queue   queue
	byPeer  map[string]*watch
	running sync.WaitGroup
}

// watch is the mirror of one provider's advertisements over one link.
type watch struct {
	link   Link
	mirror Mirror
	end    context.CancelFunc

	mu      sync.Mutex
	look    time.Time     // when the peer was, or will be, put into the queue
	message client.Object // the newest that we have looked at; nil if there was none
	since   time.Time     // when we have looked at it for the first time
}

// Start is a source of the receiver's controller: it is called before any Reconcile.
func (w *watches) Start(ctx context.Context, q queue) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ctx, w.queue, w.byPeer = ctx, q, map[string]*watch{}
	return nil
}

// Run ends when ctx and everything that the watches started have ended.
func (w *watches) Run(ctx context.Context) error {
	<-ctx.Done()
	w.mu.Lock()
	for peer, known := range w.byPeer {
		known.end()
		delete(w.byPeer, peer)
	}
	w.ctx = nil
	w.mu.Unlock()
	w.running.Wait()
	return nil
}

// of returns the watch of the peer over its present link, and starts it if need be.
func (w *watches) of(ctx context.Context, peer *v1alpha1.Peer) (*watch, error) {
	link, found := w.links.Get(peer.Name)
	if !found {
		var err error
		if link, err = w.links.Ensure(ctx, peer); err != nil {
			w.stop(peer.Name)
			return nil, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	known, found := w.byPeer[peer.Name]
	if found && known.link == link {
		return known, nil
	}
	if found {
		known.end()
		delete(w.byPeer, peer.Name)
	}
	return w.start(peer, link)
}

// present returns the watch of the peer, or nil if there is none.
func (w *watches) present(peer string) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byPeer[peer]
}

// start is called with the lock held.
func (w *watches) start(peer *v1alpha1.Peer, link Link) (*watch, error) {
	if w.ctx == nil || w.ctx.Err() != nil {
		return nil, errNotRunning
	}
	request := reconcile.Request{NamespacedName: types.NamespacedName{Name: peer.Name}}
	ctx, end := context.WithCancel(w.ctx)
	started := &watch{link: link, end: end}
	offer := types.NamespacedName{Namespace: link.TenantNamespace(), Name: peer.Spec.ClusterID}
	mirror, err := link.Watch(ctx, func(key types.NamespacedName) {
		if key == offer {
			received.Inc()
			started.ring(w.clock.Now(), w.interval, w.queue, request)
		}
	})
	if err != nil {
		end()
		return nil, err
	}
	started.mirror = mirror
	w.byPeer[peer.Name] = started
	w.running.Go(func() {
		select {
		case <-link.Done():
			w.queue.Add(request)
		case <-ctx.Done():
		}
	})
	return started, nil
}

// ring puts the peer into the queue at once, or if it was put there a moment ago when the interval is over. So the first
// change is seen without delay, and a peer that writes without end costs one look per interval, and no memory: a look
// that is still to come sees all changes before it.
func (w *watch) ring(now time.Time, interval time.Duration, q queue, request reconcile.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.look.After(now) {
		return
	}
	wait := max(0, w.look.Add(interval).Sub(now))
	w.look = now.Add(wait)
	if wait == 0 {
		q.Add(request)
		return
	}
	q.AddAfter(request, wait)
}

// newest returns the provider's advertisement, or nil. When it says something else than it did less than an interval ago,
// the one of before is returned, and for how long: what we write ourselves has us look again, so that a peer that writes
// without end would keep us writing.
func (w *watch) newest(key types.NamespacedName, now time.Time, interval time.Duration) (client.Object, time.Duration) {
	message, found := w.mirror.Get(key)
	if !found {
		message = nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !reflect.DeepEqual(specOf(w.message), specOf(message)) {
		if wait := w.since.Add(interval).Sub(now); wait > 0 {
			return w.message, wait
		}
		w.since = now
	}
	w.message = message
	return message, 0
}

func specOf(message client.Object) any {
	if raw, isRaw := message.(*unstructured.Unstructured); isRaw {
		return raw.Object["spec"]
	}
	return message
}

// ringAll puts all peers into the queue whose advertisements are watched.
func (w *watches) ringAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for peer := range w.byPeer {
		w.queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: peer}})
	}
}

// stop ends the watch of the peer.
func (w *watches) stop(peer string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known, found := w.byPeer[peer]; found {
		known.end()
		delete(w.byPeer, peer)
	}
}
