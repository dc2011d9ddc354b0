package kubelet

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// linker makes the links to peers.
type linker interface {
	Ensure(ctx context.Context, peer *v1alpha1.Peer) (link, error)
	Close(peer string)
}

// link is the way to one peer's API server. Two are equal when they are the same connection.
type link interface {
	TenantNamespace() string
	Client() client.Client
	RESTConfig() *rest.Config
	HTTPClient() *http.Client
	Done() <-chan struct{}
	Watch(
		ctx context.Context, example client.Object, namespace string, changed func(types.NamespacedName),
	) (mirror, error)
}

// mirror is a copy of objects at a peer.
type mirror interface {
	Get(key types.NamespacedName) (client.Object, bool)
	List() []client.Object
	HasSynced() bool
	WaitForSync(ctx context.Context) error
	// Err says why the mirror is behind, as far as it knows.
	Err() error
	// Failed returns a channel that is closed as soon as there is an Err.
	Failed() <-chan struct{}
}

// Link is what Adapt returns.
type Link = link

// Mirror is what a Link mirrors objects with.
type Mirror = mirror

// Adapt makes of the link to a peer without Hanse one that looks like that to a peer with it: the same one as long as it
// is the same link to the same namespaces.
type Adapt func(ctx context.Context, made *peers.Link, peer *v1alpha1.Peer) (Link, error)

// podFinder is a link to a peer where pods are not called like their ShadowPods.
type podFinder interface {
	// RemotePod returns the namespace and the name of the pod that runs now, if there is one.
	RemotePod(shadow *v1alpha1.ShadowPod) (types.NamespacedName, bool)
}

// remote returns the namespace and the name of the pod of a ShadowPod at the peer, if there is one.
func (s *site) remote(twin string, shadow *v1alpha1.ShadowPod) (types.NamespacedName, bool) {
	if finder, differs := s.link.(podFinder); differs {
		return finder.RemotePod(shadow)
	}
	return types.NamespacedName{Namespace: twin, Name: shadow.Name}, true
}

// peerLinks are the links of package peers.
type peerLinks struct {
	*peers.Links
	adapt Adapt
}

// Ensure implements linker.
func (l peerLinks) Ensure(ctx context.Context, peer *v1alpha1.Peer) (link, error) {
	made, err := l.Links.Ensure(ctx, peer)
	if err != nil {
		return nil, err
	}
	if peer.Agentless() {
		return l.adapt(ctx, made, peer)
	}
	return peerLink{made}, nil
}

type peerLink struct{ *peers.Link }

// Watch implements link.
func (l peerLink) Watch(
	ctx context.Context, example client.Object, namespace string, changed func(types.NamespacedName),
) (mirror, error) {
	made, err := l.WatchSelected(ctx, example, peers.Selection{Namespace: namespace, Trim: trimRecord}, changed)
	if err != nil {
		return nil, err
	}
	return made, nil
}
