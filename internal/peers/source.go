// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"maps"
	"slices"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// A Change tells that something that is followed may be another than before.
type Change struct {
	// Link is the way to the peer.
	Link *Link
	// Mirror shows what it is now.
	Mirror *Mirror
	// Name is that of the object, or "" when the mirror has synced, so that all of it is new.
	Name string
}

// Home returns our namespace in whose twin the change is, or "" if it is in our tenant namespace at the peer.
func (c Change) Home() string { return c.Mirror.home }

// A Queue takes what a controller is to reconcile.
type Queue[R comparable] struct {
	workqueue.TypedRateLimitingInterface[R]
}

// AddLow adds what is looked at when there is nothing else, such as what is most likely as it should be.
func (q Queue[R]) AddLow(request R) {
	low := handler.LowPriority
	if queue, ok := q.TypedRateLimitingInterface.(priorityqueue.PriorityQueue[R]); ok {
		queue.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, request)
		return
	}
	q.Add(request)
}

// Changes returns a source for a controller. For each change of the Subject at any peer enqueue is called, and once for
// each mirror that has synced before the controller starts. It is called without any lock of this package, so that it may
// follow something else; it must not wait for anything, and may be called by several at a time.
func Changes[R comparable](
	links *Links, of *Subject, enqueue func(ctx context.Context, change Change, queue Queue[R]),
) source.TypedSource[R] {
	return source.TypedFunc[R](func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[R]) error {
		to := Queue[R]{queue}
		links.subscribe(ctx, &subscription{changed: func(change Change) {
			if change.Mirror.subject == of {
				enqueue(ctx, change, to)
			}
		}})
		return nil
	})
}

// LinkChanges returns a source for a controller. Whenever a link is made, closed, or in another State than before, enqueue
// is called with the name of its peer, and once for each link that is there when the controller starts. It is called without
// any lock of this package; it must not wait for anything, and may be called by several at a time.
func LinkChanges[R comparable](
	links *Links, enqueue func(ctx context.Context, peer string, queue Queue[R]),
) source.TypedSource[R] {
	return source.TypedFunc[R](func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[R]) error {
		to := Queue[R]{queue}
		links.subscribe(ctx, &subscription{linked: func(peer string) { enqueue(ctx, peer, to) }})
		return nil
	})
}

// A subscription is one source that has been started.
type subscription struct {
	changed func(Change)
	linked  func(peer string)
}

// subscribe tells the source what is there, and what changes until ctx ends.
func (l *Links) subscribe(ctx context.Context, s *subscription) {
	l.subscribing.Lock()
	l.subscriptions[s] = struct{}{}
	l.subscribing.Unlock()
	context.AfterFunc(ctx, func() {
		l.subscribing.Lock()
		defer l.subscribing.Unlock()
		delete(l.subscriptions, s)
	})
	for _, link := range l.all() {
		if s.linked != nil {
			s.linked(link.peer)
			continue
		}
		for _, m := range link.synchronized() {
			s.changed(Change{Link: link, Mirror: m})
		}
	}
}

func (l *Links) publish(change Change) {
	for _, s := range l.subscribers() {
		if s.changed != nil {
			s.changed(change)
		}
	}
}

func (l *Links) publishLink(peer string) {
	for _, s := range l.subscribers() {
		if s.linked != nil {
			s.linked(peer)
		}
	}
}

// subscribers returns the sources that have been started.
func (l *Links) subscribers() []*subscription {
	l.subscribing.RLock()
	defer l.subscribing.RUnlock()
	return slices.Collect(maps.Keys(l.subscriptions))
}

// synchronized returns all mirrors that have synced.
func (l *Link) synchronized() []*Mirror {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []*Mirror
	for _, m := range l.mirrors {
		if m.HasSynced() {
			found = append(found, m)
		}
	}
	for _, mirrors := range l.twins {
		for _, m := range mirrors {
			if m.HasSynced() {
				found = append(found, m)
			}
		}
	}
	return found
}
