package peering

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

// A Link is a link to a peer, as far as this package needs it.
type Link interface {
	// Hello asks the peer to introduce itself.
	Hello(ctx context.Context) (peers.Hello, error)
	// Tombstone returns what the peer has left for us to find after it has parted from us by force.
	Tombstone(ctx context.Context) (string, error)
	// Server is where the peer's API server is.
	Server() string
	// Invitation is the id of the invitation by which we joined, "" if the link was made by hand.
	Invitation() string
	// TenantNamespace is our namespace over there.
	TenantNamespace() string
	// Client reads and writes at the peer.
	Client() client.Client
	// Renew asks the peer for a new token for us.
	Renew(ctx context.Context, life time.Duration) (trust.Session, error)
	// Bandwidth measures how fast data comes over the link, in bytes per second.
	Bandwidth(ctx context.Context) (int64, error)
}

// A Guest can make one claim and read it.
type Guest interface {
	Claim(ctx context.Context, claim *v1alpha1.PeeringClaim) error
	Read(ctx context.Context) (*v1alpha1.PeeringClaim, error)
	Close()
}

// Links gives the links to peers.
type Links interface {
	// Ensure returns the link to the peer, made from its newest credentials: the same one as long as they are the same.
	Ensure(ctx context.Context, peer *v1alpha1.Peer) (Link, error)
	// Guest returns what an invitation allows. It must be closed.
	Guest(ctx context.Context, invitation *trust.Invitation) (Guest, error)
	// Close ends the link to the peer.
	Close(peer string)
}

// OverLinks makes Links of those of package peers.
func OverLinks(links *peers.Links) Links { return overLinks{links} }

type overLinks struct{ *peers.Links }

func (o overLinks) Ensure(ctx context.Context, peer *v1alpha1.Peer) (Link, error) {
	link, err := o.Links.Ensure(ctx, peer)
	if err != nil {
		return nil, err
	}
	return link, nil
}

func (o overLinks) Guest(ctx context.Context, invitation *trust.Invitation) (Guest, error) {
	guest, err := o.Links.Guest(ctx, invitation)
	if err != nil {
		return nil, err
	}
	return guest, nil
}
