// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Feed is the side of a mirror that is written to, by whoever reads from the peer. Its methods are called one at a time.
// Objects that are not of the mirrored namespace, or have no name, are what no API server sends, and are passed over.
type Feed struct{ mirror *Mirror }

// Subject returns what is to be fed.
func (f *Feed) Subject() *Subject { return f.mirror.subject }

// Namespace returns the namespace at the peer that the objects are to be from.
func (f *Feed) Namespace() string { return f.mirror.namespace }

// Go runs work that feeds in a goroutine of its own, which must end when the mirror does. The links wait for it.
func (f *Feed) Go(work func()) { f.mirror.link.links.run(work) }

// Put shows the object, which the feed may change, in its newest version.
func (f *Feed) Put(object client.Object) {
	key, ok := f.accept(object)
	if !ok {
		return
	}
	if err := f.mirror.put(key, object); err != nil {
		f.mirror.exceed(err)
		return
	}
	f.mirror.tell(key)
}

// Delete shows the object no longer.
func (f *Feed) Delete(key types.NamespacedName) {
	f.mirror.remove(key)
	f.mirror.tell(key)
}

// Replace shows the objects and no others. The mirror counts as synced from now on.
func (f *Feed) Replace(list []client.Object) {
	objects := make(map[types.NamespacedName]client.Object, len(list))
	for _, object := range list {
		if key, ok := f.accept(object); ok {
			objects[key] = object
		}
	}
	if err := f.mirror.replace(objects); err != nil {
		f.mirror.exceed(err)
	}
}

// Fail has the mirror say why it is not up to date, until Fail is called with nil.
func (f *Feed) Fail(err error) { f.mirror.report("read", err) }

// accept reports whether the object belongs into the mirror, and takes off what nobody reads.
func (f *Feed) accept(object client.Object) (types.NamespacedName, bool) {
	wanted := f.mirror.name == "" || object.GetName() == f.mirror.name
	if object.GetNamespace() != f.mirror.namespace || object.GetName() == "" || !wanted {
		return types.NamespacedName{}, false
	}
	object.SetManagedFields(nil) // nobody reads them, and they are often half of an object
	if f.mirror.subject.Trim != nil {
		f.mirror.subject.Trim(object)
	}
	return client.ObjectKeyFromObject(object), true
}

// readFrom begins to feed from what lists and watches, until ctx ends.
func (f *Feed) readFrom(ctx context.Context, reads client.WithWatch) {
	m := f.mirror
	from := &reader{mirror: m, feed: f, client: reads, page: pageSize}
	reflector := cache.NewReflectorWithOptions(from, m.subject.Example, &store{f}, cache.ReflectorOptions{
		Name: "mirror of peer " + m.link.peer,
		// A peer that is back is to be known about within two seconds.
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.5, Cap: 500 * time.Millisecond, Steps: 10},
	})
	reflector.WatchListPageSize = pageSize
	f.Go(func() { reflector.RunWithContext(ctx) })
}

// A store feeds what a reflector reads. It is a cache.ReflectorStore.
type store struct{ feed *Feed }

// Add implements cache.ReflectorStore.
func (s *store) Add(obj any) error {
	if object, ok := obj.(client.Object); ok {
		s.feed.Put(object)
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store) Update(obj any) error { return s.Add(obj) }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(obj any) error {
	if object, ok := obj.(client.Object); ok {
		if key, ok := s.feed.accept(object); ok {
			s.feed.Delete(key)
		}
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(list []any, _ string) error {
	objects := make([]client.Object, 0, len(list))
	for _, obj := range list {
		if object, ok := obj.(client.Object); ok {
			objects = append(objects, object)
		}
	}
	s.feed.Replace(objects)
	return nil
}

// Resync implements cache.ReflectorStore.
func (*store) Resync() error { return nil }

// A reader lists and watches what a mirror shows. It is a cache.ListerWatcherWithContext.
type reader struct {
	mirror *Mirror
	feed   *Feed
	client client.WithWatch
	listed usage // what the pages of the current list take
	page   int64 // how many objects are listed at once
}

// IsWatchListSemanticsUnSupported makes the reflector list in pages, which can be bounded, and not by a watch, which
// has no end.
func (r *reader) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.ListerWatcher.
func (r *reader) List(options metav1.ListOptions) (runtime.Object, error) {
	return r.ListWithContext(r.mirror.link.ctx, options)
}

// Watch implements cache.ListerWatcher.
func (r *reader) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return r.WatchWithContext(r.mirror.link.ctx, options)
}

// ListWithContext implements cache.ListerWatcherWithContext.
func (r *reader) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := r.list(ctx, options)
	if err != nil {
		if tooMuch(err) {
			r.mirror.exceed(err)
		}
		r.mirror.report("list", err)
		return nil, err
	}
	return list, nil
}

func (r *reader) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.Continue == "" {
		r.listed = usage{}
		if err := r.mirror.waitForPause(ctx); err != nil {
			return nil, err
		}
		// Without a version the API server pages, and never answers with a past that was left behind.
		options.ResourceVersion, options.ResourceVersionMatch = "", ""
		if err := r.mirror.pace.Wait(ctx); err != nil {
			return nil, err
		}
	}
	list, err := r.newList()
	if err != nil {
		return nil, err
	}
	books := r.mirror.link.books
	if err := books.lists.take(ctx); err != nil {
		return nil, err
	}
	defer books.lists.give()
	turn := &decoding{books: books}
	defer turn.end()
	options.Limit = min(options.Limit, r.page)
	if err := r.client.List(withDecoding(ctx, turn), list, r.listOptions(options)); err != nil {
		if tooMuch(err) { // the next attempt may bring as large objects, but fewer at once
			r.page = max(r.page/4, leastPage)
		}
		return nil, err
	}
	return list, r.take(list)
}

// take trims the objects of a page, and counts what they take until the whole list replaces what the mirror holds.
func (r *reader) take(list client.ObjectList) error {
	took := usage{}
	err := meta.EachListItem(list, func(item runtime.Object) error {
		if object, ok := item.(client.Object); ok {
			r.feed.accept(object)
			if err := r.mirror.fits(object); err != nil {
				return err
			}
			took = took.plus(usage{sizeOf(object), 1})
		}
		return nil
	})
	if err != nil {
		return err
	}
	took.objects = max(took.objects, pageSize/10) // so that a list of nothing but empty pages ends too
	r.listed = r.listed.plus(took)
	return r.mirror.expect(r.listed)
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (r *reader) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if err := r.mirror.pace.Wait(ctx); err != nil {
		return nil, err
	}
	if r.mirror.isBehind() {
		return nil, apierrors.NewResourceExpired("what was too much is to be listed again")
	}
	list, err := r.newList()
	if err != nil {
		return nil, err
	}
	// Whoever reads the events is told that there are no more, and not why; and client-go takes an attempt that timed out
	// for a watch without events. It may have made several.
	var failed atomic.Bool
	ctx = withOutcome(ctx, func(err error) {
		if failed.Store(err != nil); err == nil {
			return
		}
		if isLost(err) {
			err = fmt.Errorf("%w: %w", ErrLost, err)
		}
		if tooMuch(err) {
			r.mirror.exceed(err)
			return
		}
		r.mirror.report("watch", err)
	})
	watcher, err := r.client.Watch(ctx, list, r.listOptions(options))
	if err != nil || !failed.Load() {
		r.mirror.report("watch", err)
	}
	if err == nil {
		r.mirror.watched(watcher)
	}
	return watcher, err
}

func (r *reader) listOptions(options metav1.ListOptions) *client.ListOptions {
	selected := &client.ListOptions{
		Namespace: r.mirror.namespace, LabelSelector: r.mirror.subject.Labels,
		Limit: options.Limit, Continue: options.Continue, Raw: &options,
	}
	if r.mirror.name != "" {
		selected.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, r.mirror.name)
	}
	return selected
}

func (r *reader) newList() (client.ObjectList, error) {
	kind := r.mirror.kind
	kind.Kind += "List"
	switch r.mirror.subject.Example.(type) {
	case *unstructured.Unstructured:
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		return list, nil
	case *metav1.PartialObjectMetadata:
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		return list, nil
	default:
		return newTypedList(r.mirror.link.links.config.Scheme, kind)
	}
}

func newTypedList(scheme *runtime.Scheme, kind schema.GroupVersionKind) (client.ObjectList, error) {
	object, err := scheme.New(kind)
	if err != nil {
		return nil, fmt.Errorf("make a list: %w", err)
	}
	list, ok := object.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%s is no list", kind.Kind)
	}
	return list, nil
}
