package reflector

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// A Remote is the link to one peer, as far as reflection needs it. Two are equal when they are the same connection.
type Remote interface {
	// Client reads and writes at the peer.
	Client() client.Client
	// TenantNamespace is our namespace there.
	TenantNamespace() string
	// Done is closed when the link can no longer be used.
	Done() <-chan struct{}
	// Watch mirrors the objects of the example's kind in the namespace over there until ctx ends or the link closes, and
	// calls changed for each that comes, changes or goes. Of a PartialObjectMetadata just the metadata is mirrored.
	Watch(ctx context.Context, example client.Object, namespace string, changed func(types.NamespacedName)) (Mirror, error)
}

// A Mirror is a local copy of objects at a peer.
type Mirror interface {
	Get(key types.NamespacedName) (client.Object, bool)
	List() []client.Object
	HasSynced() bool
	WaitForSync(ctx context.Context) error
	// Err says why the mirror is behind, as far as it knows.
	Err() error
}

// Over returns a Config.Connect that uses the given links.
func Over(links *peers.Links) func(context.Context, *v1alpha1.Peer) (Remote, error) {
	return func(ctx context.Context, peer *v1alpha1.Peer) (Remote, error) {
		link, err := links.Ensure(ctx, peer)
		if err != nil {
			return nil, err
		}
		return linked{link}, nil
	}
}

// linked is a Remote over a link.
type linked struct{ *peers.Link }

// Watch implements Remote.
func (l linked) Watch(
	ctx context.Context, example client.Object, namespace string, changed func(types.NamespacedName),
) (Mirror, error) {
	mirror, err := l.Link.Watch(ctx, example, namespace, changed)
	if err != nil {
		return nil, err
	}
	return mirror, nil
}
