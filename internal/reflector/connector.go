package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

const (
	// credentialsPatience is for new credentials that no change of the Peer tells of.
	credentialsPatience = 30 * time.Second
	// rightsPatience is for our rights in a new tenant namespace, which the API server knows after a moment.
	rightsPatience = time.Second
)

// connector keeps a site for each peer that makes twins for us. A request names a Peer.
type connector struct {
	client  client.Client
	connect func(ctx context.Context, peer *v1alpha1.Peer) (Remote, error)
	sites   *sites
}

// Reconcile sees to it that the site of the peer uses its current link.
func (c *connector) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	peer := &v1alpha1.Peer{}
	if err := c.client.Get(ctx, request.NamespacedName, peer); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // its site ends with its link
	}
	if !peer.HasRole(v1alpha1.RoleProvider) || peer.Agentless() || !peer.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil // copies that are there go with their twins
	}
	remote, err := c.connect(ctx, peer)
	if pause := patience(err); pause > 0 {
		ctrl.LoggerFrom(ctx).V(1).Info("There is no link to the peer", "Peer", peer.Name, "cause", err.Error())
		return reconcile.Result{RequeueAfter: pause}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("connect to peer %q: %w", peer.Name, err)
	}
	if err := c.sites.ensure(ctx, peer.Name, remote); err != nil {
		return reconcile.Result{}, fmt.Errorf("watch peer %q: %w", peer.Name, err)
	}
	return reconcile.Result{}, nil
}

// patience returns when to try again to connect though no change of the Peer calls us, and 0 if the error is none that is
// to be expected: what is wrong with credentials is told in the Peer's conditions.
func patience(err error) time.Duration {
	switch {
	case errors.Is(err, peers.ErrCredentialsMissing), errors.Is(err, peers.ErrCredentialsInvalid):
		return credentialsPatience
	case apierrors.IsForbidden(err):
		return rightsPatience
	default:
		return 0
	}
}
