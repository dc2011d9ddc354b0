package reflector

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// sites are the peers that there is a link to.
type sites struct {
	ring  func(request)           // asks the copier to look at a twin
	later func(request)           // does so when some time has passed
	lost  func(reconcile.Request) // asks the connector for a new link

	mu     sync.Mutex
	closed bool
	open   map[string]*site // peer → its site
	waits  sync.WaitGroup   // those who wait for mirrors to sync, or links to close; none begins after it is closed
}

// A site is one peer over one link: which twins our namespaces have there, and what lies in those.
type site struct {
	sites *sites
	peer  string
	link  Remote
	ctx   context.Context //nolint:containedctx // the life of the site itself, not that of a call
	close context.CancelFunc

	mu       sync.Mutex
	mappings Mirror
	twins    map[place]*twin // where something is watched
}

// A twin shows the objects of one kind in one twin namespace.
type twin struct {
	site   *site
	name   string
	mirror Mirror
	stop   context.CancelFunc
}

// Run waits until ctx ends and ends what the sites started. The links themselves are ended by their owner.
func (s *sites) Run(ctx context.Context) error {
	<-ctx.Done()
	s.mu.Lock()
	s.closed = true
	for _, open := range s.open {
		open.close()
	}
	clear(s.open)
	s.mu.Unlock()
	s.waits.Wait()
	return nil
}

// ensure opens the site of the peer, again if its link is another one than before. Nothing is waited for.
func (s *sites) ensure(ctx context.Context, peer string, link Remote) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.open[peer]; s.closed || known != nil && known.link == link {
		return nil
	}
	if known := s.open[peer]; known != nil {
		known.close()
		delete(s.open, peer)
	}
	at := &site{sites: s, peer: peer, link: link, twins: map[place]*twin{}}
	// The site outlives the call that opens it.
	at.ctx, at.close = context.WithCancel(context.WithoutCancel(ctx))
	at.mu.Lock()
	defer at.mu.Unlock()
	mappings, err := link.Watch(at.ctx, &v1alpha1.NamespaceMapping{}, link.TenantNamespace(), at.mappingChanged)
	if err != nil {
		at.close()
		return err
	}
	at.mappings = mappings
	s.open[peer] = at
	s.waits.Go(func() {
		select {
		case <-at.ctx.Done():
		case <-link.Done():
			s.forget(at)
			s.lost(reconcile.Request{NamespacedName: types.NamespacedName{Name: peer}})
		}
	})
	return nil
}

// forget closes the site, unless another one has taken its place.
func (s *sites) forget(at *site) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[at.peer] == at {
		delete(s.open, at.peer)
	}
	at.close()
}

// look returns what is seen of the twin of the place at the peer, which is watched from now on, or nil if there is no
// twin, as far as is known.
func (s *sites) look(req request) (*twin, error) {
	s.mu.Lock()
	at := s.open[req.Peer]
	s.mu.Unlock()
	if at == nil {
		return nil, nil
	}
	return at.follow(req.place)
}

// watched returns the twin of the place at the peer if it is watched and seen as it is, and nil otherwise.
func (s *sites) watched(req request) *twin {
	s.mu.Lock()
	at := s.open[req.Peer]
	s.mu.Unlock()
	if at == nil {
		return nil
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	if over := at.twins[req.place]; over != nil && over.name == at.twinOf(req.Namespace) && over.mirror.HasSynced() {
		return over
	}
	return nil
}

// leave ends the watch of the twin of the place at the peer.
func (s *sites) leave(req request) {
	s.mu.Lock()
	at := s.open[req.Peer]
	s.mu.Unlock()
	if at != nil {
		at.mu.Lock()
		at.forget(req.place)
		at.mu.Unlock()
	}
}

// whenSynced calls then as soon as the mirror has synced, unless ctx or the link ends before.
func (s *sites) whenSynced(ctx context.Context, m Mirror, then func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.waits.Go(func() {
		if m.WaitForSync(ctx) == nil {
			then()
		}
	})
}

// mappingChanged has a namespace looked at whose twin may have come, gone, or got another name.
func (s *site) mappingChanged(key types.NamespacedName) {
	for _, kind := range reflection.Kinds() {
		s.sites.ring(request{Peer: s.peer, place: place{Namespace: key.Name, Kind: kind}})
	}
}

// follow returns the twin of the place, and watches it from now on.
func (s *site) follow(p place) (*twin, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := s.twinOf(p.Namespace)
	known := s.twins[p]
	if known != nil && known.name == name {
		return known, nil
	}
	s.forget(p)
	if name == "" || s.ctx.Err() != nil {
		return nil, nil
	}
	example := &metav1.PartialObjectMetadata{}
	example.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(string(p.Kind)))
	ctx, stop := context.WithCancel(s.ctx)
	req := request{Peer: s.peer, place: p}
	// Most changes there are our own. If they are not, a peer that undoes what we do must not keep us busy.
	mirror, err := s.link.Watch(ctx, example, name, func(types.NamespacedName) { s.sites.later(req) })
	if err != nil {
		stop()
		return nil, err
	}
	s.twins[p] = &twin{site: s, name: name, mirror: mirror, stop: stop}
	s.sites.whenSynced(ctx, mirror, func() { s.sites.ring(req) })
	return s.twins[p], nil
}

func (s *site) forget(p place) {
	if known := s.twins[p]; known != nil {
		known.stop()
		delete(s.twins, p)
	}
}

// twinOf returns the name of the namespace's twin over there, or "".
func (s *site) twinOf(namespace string) string {
	object, ok := s.mappings.Get(types.NamespacedName{Namespace: s.link.TenantNamespace(), Name: namespace})
	if !ok {
		return ""
	}
	mapping, ok := object.(*v1alpha1.NamespaceMapping)
	if !ok || len(validation.IsDNS1123Label(mapping.Status.Twin)) > 0 {
		return "" // it becomes part of paths at that peer
	}
	return mapping.Status.Twin
}

// answers says whether the peer does, as far as the watch of the twin knows.
func (t *twin) answers() bool { return t.mirror.Err() == nil }

// objects is the metadata of the objects in the twin, by their names.
func (t *twin) objects() map[string]metav1.Object {
	found := map[string]metav1.Object{}
	for _, object := range t.mirror.List() {
		found[object.GetName()] = object
	}
	return found
}
