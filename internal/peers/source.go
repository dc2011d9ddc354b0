package peers

import (
	"context"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A source lists and watches what a mirror shows. It is a cache.ListerWatcherWithContext.
type source struct {
	mirror  *Mirror
	example client.Object
	listed  int // objects on the pages of the current list
}

// IsWatchListSemanticsUnSupported makes the reflector list in pages, which can be bounded, and not by a watch, which
// has no end.
func (s *source) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.ListerWatcher.
func (s *source) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(s.mirror.link.ctx, options)
}

// Watch implements cache.ListerWatcher.
func (s *source) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(s.mirror.link.ctx, options)
}

// ListWithContext implements cache.ListerWatcherWithContext.
func (s *source) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := s.list(ctx, options)
	if err != nil {
		s.mirror.report("list", err)
		return nil, err
	}
	return list, nil
}

func (s *source) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.Continue == "" {
		s.listed = 0
		// Without a version the API server pages, and never answers with a past that was left behind.
		options.ResourceVersion, options.ResourceVersionMatch = "", ""
		if err := s.mirror.pace.Wait(ctx); err != nil {
			return nil, err
		}
	}
	list, err := s.newList()
	if err != nil {
		return nil, err
	}
	if err := s.mirror.link.client.List(ctx, list, s.listOptions(options)); err != nil {
		return nil, err
	}
	// Even an empty page counts, so that a list of nothing but pages ends too.
	if s.listed += max(meta.LenList(list), pageSize/10); s.listed > maxMirrored {
		return nil, fmt.Errorf("%w: more than %d objects", ErrTooLarge, maxMirrored)
	}
	return list, nil
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (s *source) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if err := s.mirror.pace.Wait(ctx); err != nil {
		return nil, err
	}
	list, err := s.newList()
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
		s.mirror.report("watch", err)
	})
	watcher, err := s.mirror.link.client.Watch(ctx, list, s.listOptions(options))
	if err != nil || !failed.Load() {
		s.mirror.report("watch", err)
	}
	return watcher, err
}

func (s *source) listOptions(options metav1.ListOptions) *client.ListOptions {
	return &client.ListOptions{
		Namespace: s.mirror.namespace, LabelSelector: s.mirror.selector,
		Limit: options.Limit, Continue: options.Continue, Raw: &options,
	}
}

func (s *source) newList() (client.ObjectList, error) {
	kind := s.mirror.kind
	kind.Kind += "List"
	switch s.example.(type) {
	case *unstructured.Unstructured:
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		return list, nil
	case *metav1.PartialObjectMetadata:
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		return list, nil
	}
	object, err := s.mirror.link.links.config.Scheme.New(kind)
	if err != nil {
		return nil, fmt.Errorf("make a list: %w", err)
	}
	list, ok := object.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%s is no list", kind.Kind)
	}
	return list, nil
}
