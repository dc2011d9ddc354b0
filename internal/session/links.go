package session

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

// Links are the ways to peers: as a guest with an invitation, and as a peer with a session.
type Links interface {
	// Ensure returns the link to the peer, made from its newest credentials.
	Ensure(ctx context.Context, peer *v1alpha1.Peer) (Link, error)
	// Guest returns what an invitation allows. It must be closed.
	Guest(ctx context.Context, invitation *trust.Invitation) (Guest, error)
}

// A Link is what a session allows of the keeping of itself.
type Link interface {
	Client() client.Client
	TenantNamespace() string
	// Invitation returns the id of the invitation by which we joined.
	Invitation() string
	// Renew asks the peer for a new token for us.
	Renew(ctx context.Context, life time.Duration) (trust.Session, error)
}

// A Guest can make one claim and read it.
type Guest interface {
	Claim(ctx context.Context, claim *v1alpha1.PeeringClaim) error
	Read(ctx context.Context) (*v1alpha1.PeeringClaim, error)
	Close()
}

// OverLinks makes the controller's Links of those of package peers.
func OverLinks(links *peers.Links) Links { return overLinks{links} }

type overLinks struct{ links *peers.Links }

func (o overLinks) Ensure(ctx context.Context, peer *v1alpha1.Peer) (Link, error) {
	link, err := o.links.Ensure(ctx, peer)
	if err != nil {
		return nil, err
	}
	return link, nil
}

func (o overLinks) Guest(ctx context.Context, invitation *trust.Invitation) (Guest, error) {
	guest, err := o.links.Guest(ctx, invitation)
	if err != nil {
		return nil, err
	}
	return guest, nil
}
