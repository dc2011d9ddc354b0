// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/hanse-dev/hanse/internal/reflection"
)

// sources are the objects of our own cluster that pods at some peer refer to: their metadata, by place.
type sources struct {
	metadata metadata.Interface
	ctx      context.Context //nolint:containedctx // of the copier, with which all watches end
	queue    queue           // of the copier, which is there before anything is followed

	mu   sync.Mutex
	open map[place]*watched
}

// watched is a place whose metadata is watched, for as long as pods at some peer need what lies there.
type watched struct {
	informer toolscache.SharedIndexInformer
	stop     context.CancelFunc
	synced   func() bool
	peers    map[string]bool // guarded by the mutex of the sources
}

// start is a source of the copier.
func (s *sources) start(ctx context.Context, to queue) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx, s.queue = ctx, to
	return nil
}

// follow watches the place for the peer.
func (s *sources) follow(req request) (*watched, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.open[req.place]
	if known == nil {
		var err error
		if known, err = s.watch(req.place); err != nil {
			return nil, fmt.Errorf("watch %ss of namespace %s: %w", req.Kind, req.Namespace, err)
		}
		s.open[req.place] = known
	}
	known.peers[req.Peer] = true
	return known, nil
}

// watched returns the place if it is watched for the peer and seen as it is, and nil otherwise.
func (s *sources) watched(req request) *watched {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.open[req.place]; known != nil && known.peers[req.Peer] && known.synced() {
		return known
	}
	return nil
}

// leave ends the watch of the place if no pod at another peer needs it.
func (s *sources) leave(req request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.open[req.place]
	if known == nil {
		return
	}
	delete(known.peers, req.Peer)
	if len(known.peers) == 0 {
		known.stop()
		delete(s.open, req.place)
	}
}

func (s *sources) watch(p place) (*watched, error) {
	resource := corev1.SchemeGroupVersion.WithResource(strings.ToLower(string(p.Kind)) + "s")
	informer := metadatainformer.NewFilteredMetadataInformer(
		s.metadata, resource, p.Namespace, 0, toolscache.Indexers{}, nil).Informer()
	w := &watched{informer: informer, peers: map[string]bool{}}
	if err := informer.SetTransform(trim); err != nil {
		return nil, err
	}
	enqueue := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for peer := range w.peers {
			s.queue.Add(request{Peer: peer, place: p})
		}
	}
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { enqueue() },
		UpdateFunc: func(any, any) { enqueue() },
		DeleteFunc: func(any) { enqueue() },
	})
	if err != nil {
		return nil, err
	}
	w.synced = handler.HasSynced
	ctx, stop := context.WithCancel(s.ctx)
	w.stop = stop
	go informer.RunWithContext(ctx)
	go func() {
		if toolscache.WaitFor(ctx, "", handler.HasSyncedChecker()) {
			enqueue() // there may be nothing in the namespace
		}
	}()
	return w, nil
}

// objects are those of the names that are there.
func (w *watched) objects(names map[string]bool, namespace string, reach reflection.Reach) map[string]*reflection.Source {
	found := map[string]*reflection.Source{}
	for name := range names {
		object, exists, err := w.informer.GetStore().GetByKey(namespace + "/" + name)
		if source, ok := object.(metav1.Object); ok && exists && err == nil {
			found[name] = reflection.SourceOf(source, reach)
		}
	}
	return found
}

// wanted returns the names, and those of the objects that the reach wants besides.
func (w *watched) wanted(names map[string]bool, reach reflection.Reach) map[string]bool {
	if !reach.SeesAll() {
		return names
	}
	all := maps.Clone(names)
	for _, object := range w.informer.GetStore().List() {
		if source, ok := object.(metav1.Object); ok && reach.Wants(source) {
			all[source.GetName()] = true
		}
	}
	return all
}

// trim drops of metadata what nobody reads.
func trim(object any) (any, error) {
	if source, ok := object.(*metav1.PartialObjectMetadata); ok {
		source.ManagedFields = nil
		delete(source.Annotations, corev1.LastAppliedConfigAnnotation)
	}
	return object, nil
}
