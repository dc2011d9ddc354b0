package peers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

const (
	// pageSize is how many objects are listed at once, so that a page of ordinary ones stays far below maxList.
	pageSize = 500
	// maxMirrored bounds how many objects a peer can make one mirror hold.
	maxMirrored = 50_000
)

// A Mirror is a read-only copy of the objects of one kind in one namespace of a peer, kept up to date by a watch. A
// peer that answers nonsense, or nothing, leaves the mirror as it was; Err says why.
type Mirror struct {
	namespace string
	selector  labels.Selector     // nil for all objects
	trim      func(client.Object) // nil for nothing
	kind      schema.GroupVersionKind
	link      *Link
	changed   func(types.NamespacedName)
	pace      *rate.Limiter
	done      <-chan struct{}
	synced    chan struct{}

	mu      sync.RWMutex
	objects map[types.NamespacedName]client.Object
	err     error
	failed  chan struct{} // closed while there is an err
}

// Watch mirrors the objects of the example's kind in the namespace over there until ctx ends or the link is closed.
// The example may be unstructured, and should be where one undecodable object must not hide the others. If it is a
// PartialObjectMetadata, nothing but the metadata comes over the link. Each time an object appears, changes or goes,
// changed is called with its key, one call at a time; it must not block.
func (l *Link) Watch(
	ctx context.Context, example client.Object, namespace string, changed func(types.NamespacedName),
) (*Mirror, error) {
	return l.WatchSelected(ctx, example, Selection{Namespace: namespace}, changed)
}

// A Selection says which objects of a peer to mirror.
type Selection struct {
	// Namespace is the one that they are in. It must be set.
	Namespace string
	// Labels select some of them. By default all.
	Labels labels.Selector
	// Trim takes off an object what nobody reads, before it is kept. By default its managed fields alone are taken off.
	Trim func(client.Object)
}

// WatchSelected is Watch for the selected objects alone.
func (l *Link) WatchSelected(
	ctx context.Context, example client.Object, of Selection, changed func(types.NamespacedName),
) (*Mirror, error) {
	namespace := of.Namespace
	kind, err := apiutil.GVKForObject(example, l.links.config.Scheme)
	if err != nil {
		return nil, fmt.Errorf("find the kind to watch: %w", err)
	}
	if namespace == "" {
		return nil, errors.New("watch " + kind.Kind + ": a peer is watched by namespace only")
	}
	mirrorCtx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(l.ctx, cancel)
	m := &Mirror{
		namespace: namespace, selector: of.Labels, trim: of.Trim, kind: kind, link: l, changed: changed, done: mirrorCtx.Done(),
		// A server that ends every watch at once must not keep us busy.
		pace:    rate.NewLimiter(2, 10),
		synced:  make(chan struct{}),
		objects: map[types.NamespacedName]client.Object{},
		failed:  make(chan struct{}),
	}
	source := &source{mirror: m, example: example}
	reflector := cache.NewReflectorWithOptions(source, example, &store{m}, cache.ReflectorOptions{
		Name: "mirror of peer " + l.peer,
		// A peer that is back is to be known about within two seconds.
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.5, Cap: 500 * time.Millisecond, Steps: 10},
	})
	reflector.WatchListPageSize = pageSize
	started := l.links.run(func() {
		defer cancel()
		defer stop()
		reflector.RunWithContext(mirrorCtx)
	})
	if !started || l.ctx.Err() != nil {
		cancel()
		return nil, ErrClosed
	}
	return m, nil
}

// Get returns the object of that key. The caller must not change it.
func (m *Mirror) Get(key types.NamespacedName) (client.Object, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	object, ok := m.objects[key]
	return object, ok
}

// List returns all objects in no particular order. The caller must not change them.
func (m *Mirror) List() []client.Object {
	m.mu.RLock()
	defer m.mu.RUnlock()
	objects := make([]client.Object, 0, len(m.objects))
	for _, object := range m.objects {
		objects = append(objects, object)
	}
	return objects
}

// HasSynced reports whether the objects that were there at the start are in the mirror.
func (m *Mirror) HasSynced() bool {
	select {
	case <-m.synced:
		return true
	default:
		return false
	}
}

// WaitForSync waits until the mirror has synced, and returns an error with the cause if ctx or the mirror ends before.
func (m *Mirror) WaitForSync(ctx context.Context) error {
	select {
	case <-m.synced:
		return nil
	case <-m.done:
		return errors.Join(ErrClosed, m.Err())
	case <-ctx.Done():
		return errors.Join(ctx.Err(), m.Err())
	}
}

// Err returns why the mirror is not up to date, as far as it knows: the error of the last attempt to read from the
// peer, or nil after one that succeeded.
func (m *Mirror) Err() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.err
}

// Failed returns a channel that is closed as soon as Err is not nil: at once, if it is not nil now.
func (m *Mirror) Failed() <-chan struct{} {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.failed
}

// report keeps the outcome of an attempt to read from the peer.
func (m *Mirror) report(attempt string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	if err != nil {
		err = fmt.Errorf("%s %s in namespace %s of the peer: %w", attempt, m.kind.Kind, m.namespace, classify(err))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.err == nil && err != nil:
		close(m.failed)
	case m.err != nil && err == nil:
		m.failed = make(chan struct{})
	}
	m.err = err
}
