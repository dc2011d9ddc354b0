package namespaces

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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

// connector keeps a mirror of our NamespaceMappings at each peer that we consume from. A request names a Peer.
type connector struct {
	client   client.Client
	connect  func(ctx context.Context, peer *v1alpha1.Peer) (Remote, error)
	remotes  *remotes
	mapper   *mapper
	reporter *reporter
	queue    doorbell
	running  sync.WaitGroup // one for each link that is followed
}

// Reconcile sees to it that the peer's current link is mirrored.
func (c *connector) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	peer := &v1alpha1.Peer{}
	if err := c.client.Get(ctx, request.NamespacedName, peer); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !provides(peer) {
		return reconcile.Result{}, nil // its link is closed by whoever opened it, and the mirror ends with it
	}
	remote, err := c.connect(ctx, peer)
	if pause := patience(err); pause > 0 {
		ctrl.LoggerFrom(ctx).V(1).Info("There is no link to the peer", "Peer", peer.Name, "cause", err.Error())
		return reconcile.Result{RequeueAfter: pause}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("connect to peer %q: %w", peer.Name, err)
	}
	if known, ok := c.remotes.get(peer.Name); ok && known.remote == remote {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, c.follow(peer.Name, remote)
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

// follow mirrors the mappings over the link and wakes the other controllers by what it sees, until the link closes.
func (c *connector) follow(peer string, remote Remote) error {
	mirror, err := remote.Mappings(c.queue.lifetime(), func(key types.NamespacedName) {
		c.mapper.queue.ring(pair(key.Name, peer))
		c.reporter.queue.ring(offloadingIn(key.Name))
	})
	if err != nil {
		return fmt.Errorf("mirror namespace mappings of peer %q: %w", peer, err)
	}
	c.remotes.set(peer, connection{remote: remote, mirror: mirror})
	c.running.Go(func() { c.watchOver(peer, remote, mirror) })
	return nil
}

// watchOver tells the other controllers when the link can be used and when it no longer can.
func (c *connector) watchOver(peer string, remote Remote, mirror Mirror) {
	ctx := c.queue.lifetime()
	if err := mirror.WaitForSync(ctx); err == nil {
		c.wakeAll(ctx, peer)
	}
	select {
	case <-ctx.Done():
		return
	case <-remote.Done():
	}
	c.remotes.remove(peer, remote)
	c.wakeAll(ctx, peer)
	c.queue.ring(reconcile.Request{NamespacedName: types.NamespacedName{Name: peer}})
}

func (c *connector) wakeAll(ctx context.Context, peer string) {
	c.mapper.queue.ring(c.mapper.pairsOfPeer(ctx, &v1alpha1.Peer{ObjectMeta: named(peer)})...)
	offloaded, err := offloadedNamespaces(ctx, c.client)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing offloaded namespaces", "Peer", peer)
		return
	}
	for _, namespace := range offloaded {
		c.reporter.queue.ring(offloadingIn(namespace))
	}
}

// drain ends when the manager does and nothing that the connector started is left.
func (c *connector) drain(ctx context.Context) error {
	<-ctx.Done()
	c.running.Wait()
	return nil
}
