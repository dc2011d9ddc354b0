package namespaces

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// Over returns a Config.Connect that uses the given links.
func Over(links *peers.Links) func(context.Context, *v1alpha1.Peer) (Remote, error) {
	return func(ctx context.Context, peer *v1alpha1.Peer) (Remote, error) {
		link, err := links.Ensure(ctx, peer)
		if err != nil {
			return nil, err
		}
		if peer.Agentless() {
			return agentless{Remote: linked{link}, twin: twinThere(peer)}, nil
		}
		return linked{link}, nil
	}
}

// linked is a Remote over a link. Two are equal when their links are.
type linked struct{ *peers.Link }

// Mappings mirrors our NamespaceMappings at the peer.
func (l linked) Mappings(ctx context.Context, changed func(types.NamespacedName)) (Mirror, error) {
	return l.Watch(ctx, &v1alpha1.NamespaceMapping{}, l.TenantNamespace(), changed)
}
