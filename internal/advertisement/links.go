package advertisement

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// Links gives the links to peers.
type Links interface {
	// Ensure returns the link to the peer, made from its newest credentials.
	Ensure(ctx context.Context, peer *v1alpha1.Peer) (Link, error)
	// Get returns the link to the peer if there is one.
	Get(peer string) (Link, bool)
}

// A Link is what the receiver needs of a link to one peer. Two of them compare equal if they are the same link.
type Link interface {
	Client() client.Client
	TenantNamespace() string
	// Done is closed when the link has ended.
	Done() <-chan struct{}
	// Watch mirrors the Advertisements in our tenant namespace over there, undecoded, until ctx or the link ends.
	Watch(ctx context.Context, changed func(types.NamespacedName)) (Mirror, error)
}

// A Mirror shows the Advertisements in our tenant namespace at a peer.
type Mirror interface {
	Get(key types.NamespacedName) (client.Object, bool)
	HasSynced() bool
	// Err is why the mirror is not up to date, if it is not.
	Err() error
}

// OverLinks makes the receiver's Links of those of package peers.
func OverLinks(links *peers.Links) Links { return overLinks{links} }

type overLinks struct{ links *peers.Links }

func (o overLinks) Ensure(ctx context.Context, peer *v1alpha1.Peer) (Link, error) {
	link, err := o.links.Ensure(ctx, peer)
	if err != nil {
		return nil, err
	}
	return overLink{link}, nil
}

func (o overLinks) Get(peer string) (Link, bool) {
	link, found := o.links.Get(peer)
	return overLink{link}, found
}

type overLink struct{ *peers.Link }

func (o overLink) Watch(ctx context.Context, changed func(types.NamespacedName)) (Mirror, error) {
	example := &unstructured.Unstructured{}
	example.SetGroupVersionKind(advertisementKind)
	mirror, err := o.Link.Watch(ctx, example, o.TenantNamespace(), changed)
	if err != nil {
		return nil, fmt.Errorf("watch advertisements of peer %q: %w", o.Peer(), err)
	}
	return mirror, nil
}

var advertisementKind = v1alpha1.GroupVersion.WithKind("Advertisement")
