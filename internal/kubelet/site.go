package kubelet

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A site is one provider over one link: which twin namespaces we have there, and the ShadowPods in them.
type site struct {
	sites *sites
	peer  string
	link  link
	ctx   context.Context //nolint:containedctx // the life of the site itself, not that of a call
	close context.CancelFunc

	mu       sync.Mutex
	mappings mirror
	twins    map[string]twin // home namespace → its twin
	isCut    bool            // the peer has not answered for the link timeout
}

// A twin is a namespace over there, and the ShadowPods in it.
type twin struct {
	name    string
	shadows mirror
	stop    context.CancelFunc
}

func newSite(ctx context.Context, all *sites, peer string, made link) (*site, error) {
	s := &site{sites: all, peer: peer, link: made, twins: map[string]twin{}}
	// The site outlives the call that opens it.
	s.ctx, s.close = context.WithCancel(context.WithoutCancel(ctx))
	s.mu.Lock()
	defer s.mu.Unlock()
	mappings, err := made.Watch(s.ctx, &v1alpha1.NamespaceMapping{}, made.TenantNamespace(), s.mappingChanged)
	if err != nil {
		s.close()
		return nil, err
	}
	s.mappings = mappings
	all.whenSynced(s.ctx, mappings, func() {
		all.ringNode(peer)
		all.wake(s.ctx, s, "")
	})
	failed := mappings.Failed()
	all.waits.run(func() { s.watchOver(failed) })
	return s, nil
}

// ended says whether the link of the site was closed.
func (s *site) ended() bool {
	select {
	case <-s.link.Done():
		return true
	default:
		return false
	}
}

// mappingChanged follows the twin of a namespace: it comes, goes, or gets another name.
func (s *site) mappingChanged(key types.NamespacedName) {
	s.mu.Lock()
	name := ""
	if mapping := s.mapping(key.Name); mapping != nil {
		name = mapping.Status.Twin
	}
	if len(validation.IsDNS1123Label(name)) > 0 {
		name = "" // it becomes part of paths at that peer
	}
	if err := s.follow(key.Name, name); err != nil {
		ctrl.LoggerFrom(s.ctx).Error(err, "Cannot watch twin namespace", "Peer", s.peer, "Namespace", key.Name)
	}
	s.mu.Unlock()
	s.sites.wake(s.ctx, s, key.Name)
}

// follow watches the ShadowPods in the twin of the home namespace. An empty name means that there is none.
func (s *site) follow(namespace, name string) error {
	current, known := s.twins[namespace]
	if current.name == name {
		return nil
	}
	if known {
		current.stop()
		delete(s.twins, namespace)
	}
	if name == "" {
		return nil
	}
	ctx, stop := context.WithCancel(s.ctx)
	shadows, err := s.link.Watch(ctx, &v1alpha1.ShadowPod{}, name, func(key types.NamespacedName) {
		s.sites.ring(request{Peer: s.peer, Namespace: namespace, Name: key.Name})
	})
	if err != nil {
		stop()
		return err
	}
	s.twins[namespace] = twin{name: name, shadows: shadows, stop: stop}
	s.sites.whenSynced(ctx, shadows, func() { s.sites.wake(s.ctx, s, namespace) })
	return nil
}

// mapping returns what the peer answers for the home namespace, or nil.
func (s *site) mapping(namespace string) *v1alpha1.NamespaceMapping {
	if s.mappings == nil {
		return nil // the first change may come before Watch returns
	}
	object, ok := s.mappings.Get(types.NamespacedName{Namespace: s.link.TenantNamespace(), Name: namespace})
	if !ok {
		return nil
	}
	mapping, ok := object.(*v1alpha1.NamespaceMapping)
	if !ok {
		return nil
	}
	return mapping
}

// view is what a site knows of one pod.
type view struct {
	// answers says that the peer does, as far as the watch of its mappings knows.
	answers bool
	// cut says that the peer has not answered for so long that nobody knows how its pods are.
	cut            bool
	mappingsSynced bool
	mapping        *v1alpha1.NamespaceMapping // nil if the peer has no twin of the namespace
	twin           string
	shadowsSynced  bool
	shadow         *v1alpha1.ShadowPod
}

// synced says whether the view is of all that the peer has.
func (v *view) synced() bool { return v.mappingsSynced && (v.twin == "" || v.shadowsSynced) }

// look returns what the site knows of the pod. What it returns must not be changed.
func (s *site) look(namespace, name string) view {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Who finds that the peer does not answer is woken by watchOver when it does. Until then nobody asks it: requests to a
	// peer that is down would keep the workers from the pods of others.
	seen := view{
		answers: s.mappings.Err() == nil, cut: s.isCut,
		mappingsSynced: s.mappings.HasSynced(), mapping: s.mapping(namespace),
	}
	followed, ok := s.twins[namespace]
	if !ok {
		return seen
	}
	seen.twin = followed.name
	seen.shadowsSynced = followed.shadows.HasSynced()
	if object, ok := followed.shadows.Get(types.NamespacedName{Namespace: followed.name, Name: name}); ok {
		seen.shadow, _ = object.(*v1alpha1.ShadowPod)
	}
	return seen
}

// shadowNames returns the names of the ShadowPods in the twin of the home namespace, or in all.
func (s *site) shadowNames(namespace string) []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []types.NamespacedName
	for home, followed := range s.twins {
		if namespace != "" && namespace != home {
			continue
		}
		for _, shadow := range followed.shadows.List() {
			names = append(names, types.NamespacedName{Namespace: home, Name: shadow.GetName()})
		}
	}
	return names
}
