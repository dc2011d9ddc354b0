// SPDX-License-Identifier: Apache-2.0

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
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// pageSize is how many objects are listed at once, so that a page of ordinary ones stays far below maxList.
	pageSize = 100
	// leastPage is how many of the largest objects are listed at once.
	leastPage = 2
)

// A Subject is what can be followed at a peer: objects of one kind. Its identity matters: whoever follows the same Subject
// in the same namespace of a peer shares one mirror. So each Subject is a variable of the package that follows it.
type Subject struct {
	// Example is of the kind. It may be unstructured, and should be where one undecodable object must not hide the others.
	// If it is a PartialObjectMetadata, nothing but the metadata comes over the link.
	Example client.Object
	// Labels select some of the objects. By default all.
	Labels labels.Selector
	// Trim takes off an object what nobody reads, before it is kept. By default its managed fields alone are taken off.
	Trim func(client.Object)
	// MostObjects and MostBytes bound, within the Budget of the peer, how many objects of one namespace are kept, and how large
	// each may be when it is trimmed. By default the Budget is the only bound.
	MostObjects, MostBytes int
}

// Mappings are our NamespaceMappings at a peer. Each says which twin namespace one of our namespaces has there. Kubernetes
// itself is made for 10,000 namespaces in a cluster, and few of them are offloaded to the same peer.
var Mappings = &Subject{Example: &v1alpha1.NamespaceMapping{}, MostObjects: 5000, MostBytes: 64 << 10}

// Requests are our Requests at a peer.
var Requests = &Subject{Example: &v1alpha1.Request{}}

// A Mirror is a read-only copy of the objects of one Subject in one namespace of a peer, kept up to date by a watch. A
// peer that answers nonsense, or nothing, leaves the mirror as it was; Err says why.
type Mirror struct {
	link      *Link
	subject   *Subject
	kind      schema.GroupVersionKind
	namespace string                     // at the peer
	name      string                     // of the one object that is mirrored, or "" for all
	home      string                     // our namespace whose twin that is, or "" in our tenant namespace
	changed   func(types.NamespacedName) // of Watch alone
	pace      *rate.Limiter
	ctx       context.Context //nolint:containedctx // the life of the mirror itself, not that of a call
	end       context.CancelFunc
	synced    chan struct{}

	mu      sync.RWMutex
	objects map[types.NamespacedName]client.Object
	moved   time.Time // when an object came, changed or went
	held    usage     // what the objects take
	pause   pause
	behind  bool   // something was too much, so that all must be listed again
	stop    func() // ends the watch, nil before the first
	err     error
	failed  chan struct{} // closed while there is an err
}

// newMirror returns a mirror that ends with ctx, and is empty until it is started.
func (l *Link) newMirror(ctx context.Context, of *Subject, namespace string) (*Mirror, error) {
	kind, err := apiutil.GVKForObject(of.Example, l.links.config.Scheme)
	if err != nil {
		return nil, fmt.Errorf("find the kind to watch: %w", err)
	}
	if namespace == "" {
		return nil, errors.New("watch " + kind.Kind + ": a peer is watched by namespace only")
	}
	m := &Mirror{
		link: l, subject: of, kind: kind, namespace: namespace,
		// A server that ends every watch at once must not keep us busy.
		pace:    rate.NewLimiter(2, 10),
		synced:  make(chan struct{}),
		objects: map[types.NamespacedName]client.Object{},
		failed:  make(chan struct{}),
	}
	m.ctx, m.end = context.WithCancel(ctx)
	context.AfterFunc(m.ctx, func() { l.books.close(m) })
	return m, nil
}

// start begins to fill the mirror.
func (m *Mirror) start() {
	if m.link.ctx.Err() != nil {
		m.report("watch", ErrClosed)
		return
	}
	m.link.feed(m.ctx, &Feed{m})
}

// Get returns the object of that key. The caller must not change it.
func (m *Mirror) Get(key types.NamespacedName) (client.Object, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	object, ok := m.objects[key]
	return object, ok
}

// Named returns the object of that name. The caller must not change it.
func (m *Mirror) Named(name string) (client.Object, bool) {
	return m.Get(types.NamespacedName{Namespace: m.namespace, Name: name})
}

// Namespace returns the namespace at the peer that is mirrored.
func (m *Mirror) Namespace() string { return m.namespace }

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

// Len returns how many objects there are.
func (m *Mirror) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.objects)
}

// Quiet returns for how long nothing in the mirror has changed.
func (m *Mirror) Quiet() time.Duration {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.now().Sub(m.moved)
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
	case <-m.ctx.Done():
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
	if err != nil {
		m.link.hasFailed()
	}
}

// put keeps the object, if the budget of the peer has room for it.
func (m *Mirror) put(key types.NamespacedName, object client.Object) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fits(object); err != nil {
		return err
	}
	now := m.held.plus(usage{sizeOf(object), 1})
	if before, known := m.objects[key]; known {
		now = now.minus(usage{sizeOf(before), 1})
	}
	if err := m.link.books.charge(m, now); err != nil {
		return err
	}
	m.objects[key], m.held, m.moved = object, now, m.now()
	return nil
}

// fits returns an error if the object is larger than one of its Subject may be.
func (m *Mirror) fits(object client.Object) error {
	if most := m.subject.MostBytes; most > 0 && sizeOf(object) > most {
		return m.link.books.exceeded()
	}
	return nil
}

func (m *Mirror) remove(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, known := m.objects[key]
	if !known {
		return
	}
	m.held = m.held.minus(usage{sizeOf(before), 1})
	_ = m.link.books.charge(m, m.held) // less always fits
	delete(m.objects, key)
	m.moved = m.now()
}

// expect makes room for a list that is to replace what the mirror holds.
func (m *Mirror) expect(listed usage) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.link.books.charge(m, usage{max(m.held.bytes, listed.bytes), max(m.held.objects, listed.objects)})
}

// exceed has everything listed again after a pause that grows, since the peer sends more than is taken.
func (m *Mirror) exceed(err error) {
	if tooMuch(err) && m.ctx.Err() == nil {
		m.link.books.exceeds(m)
	}
	m.report("read", err)
	m.mu.Lock()
	_ = m.link.books.charge(m, m.held)
	m.behind, m.pause = true, m.pause.next(m.now())
	stop := m.stop
	m.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// waitForPause waits until the mirror may list again.
func (m *Mirror) waitForPause(ctx context.Context) error {
	m.mu.Lock()
	m.behind = false
	pause := m.pause
	m.mu.Unlock()
	return pause.wait(ctx, m.now())
}

func (m *Mirror) isBehind() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.behind
}

// watched notes by what the objects are watched.
func (m *Mirror) watched(by watch.Interface) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stop = by.Stop
}

func (m *Mirror) now() time.Time { return m.link.links.config.Clock.Now() }

// replace keeps the objects and no others, if the budget of the peer has room for them, and tells which have changed: after
// the first time, all of the mirror.
func (m *Mirror) replace(objects map[types.NamespacedName]client.Object) error {
	held := usage{objects: len(objects)}
	for _, object := range objects {
		held.bytes += sizeOf(object)
	}
	m.mu.Lock()
	if err := m.link.books.charge(m, held); err != nil {
		m.mu.Unlock()
		return err
	}
	old := m.objects
	m.objects, m.held, m.moved = objects, held, m.now()
	m.mu.Unlock()
	m.link.books.fits(m)
	first := !m.HasSynced()
	if first {
		close(m.synced)
	}
	if !first || m.changed != nil {
		for _, key := range differing(old, objects) {
			m.tell(key)
		}
	}
	if first {
		m.link.synced(m)
	}
	return nil
}

// tell has everybody look at the object that wants to know of it.
func (m *Mirror) tell(key types.NamespacedName) {
	if m.changed != nil {
		m.changed(key)
		return
	}
	m.link.changed(m, key.Name)
}

// differing returns the keys of the objects that are in only one of the maps, or in another version.
func differing(a, b map[types.NamespacedName]client.Object) []types.NamespacedName {
	var keys []types.NamespacedName
	for key := range a {
		if _, kept := b[key]; !kept {
			keys = append(keys, key)
		}
	}
	for key, object := range b {
		before, known := a[key]
		if !known || before.GetResourceVersion() != object.GetResourceVersion() || before.GetUID() != object.GetUID() {
			keys = append(keys, key)
		}
	}
	return keys
}

// Watch mirrors the Subject in the namespace at the peer until ctx ends or the link is closed, and calls changed for each
// object that may have changed. It is for Transports, which make another link of this one: controllers use Follow and
// Changes, by which all who follow the same share one mirror.
func (l *Link) Watch(
	ctx context.Context, of *Subject, namespace string, changed func(types.NamespacedName),
) (*Mirror, error) {
	m, err := l.newMirror(ctx, of, namespace)
	if err != nil {
		return nil, err
	}
	if l.ctx.Err() != nil {
		m.end()
		return nil, ErrClosed
	}
	m.changed = changed
	context.AfterFunc(l.ctx, m.end)
	m.start()
	return m, nil
}
