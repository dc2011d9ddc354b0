package namespaces

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A Remote is the link to one peer, as far as namespaces need it.
type Remote interface {
	// Client reads and writes at the peer.
	Client() client.Client
	// TenantNamespace is our namespace there.
	TenantNamespace() string
	// Done is closed when the link can no longer be used.
	Done() <-chan struct{}
	// Mappings mirrors our NamespaceMappings there until ctx ends or the link closes, and calls changed for each that
	// comes, changes or goes.
	Mappings(ctx context.Context, changed func(types.NamespacedName)) (Mirror, error)
}

// A Mirror is a local copy of our NamespaceMappings at one peer.
type Mirror interface {
	Get(key types.NamespacedName) (client.Object, bool)
	List() []client.Object
	HasSynced() bool
	WaitForSync(ctx context.Context) error
}

// connection is a link with the mirror that runs over it.
type connection struct {
	remote Remote
	mirror Mirror
}

// usable reports whether the mirror is complete and the link still open.
func (c connection) usable() bool {
	select {
	case <-c.remote.Done():
		return false
	default:
		return c.mirror.HasSynced()
	}
}

// asks reports whether the peer can be asked for twins, and has them made for us.
func (c connection) asks() bool {
	_, has := c.remote.(agentless)
	return !has
}

// mapping returns our NamespaceMapping for the namespace at the peer.
func (c connection) mapping(namespace string) (*v1alpha1.NamespaceMapping, bool) {
	object, ok := c.mirror.Get(types.NamespacedName{Namespace: c.remote.TenantNamespace(), Name: namespace})
	if !ok {
		return nil, false
	}
	mapping, ok := object.(*v1alpha1.NamespaceMapping)
	return mapping, ok
}

// remotes holds the open connections, for all controllers of the package.
type remotes struct {
	mu     sync.RWMutex
	byPeer map[string]connection // name of the Peer → its connection
}

// usable returns the connection to the peer, if it is one that decisions can rest on.
func (r *remotes) usable(peer string) (connection, bool) {
	c, ok := r.get(peer)
	return c, ok && c.usable()
}

func (r *remotes) get(peer string) (connection, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c, ok := r.byPeer[peer]
	return c, ok
}

func (r *remotes) set(peer string, c connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byPeer[peer] = c
}

// remove forgets the connection of the peer if it still is the one of the given link.
func (r *remotes) remove(peer string, link Remote) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byPeer[peer].remote == link {
		delete(r.byPeer, peer)
	}
}

func (r *remotes) peers() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.byPeer))
}
