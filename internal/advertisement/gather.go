package advertisement

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/policy"
)

// Gather returns what the policies would be asked with now about what the peer of that name or cluster id offers. It is an
// error if they would not be asked.
func (r *Receiver) Gather(ctx context.Context, _ policy.Question, name string) (policy.Facts, error) {
	peer, err := findPeer(ctx, r.client, name)
	if err != nil {
		return policy.Facts{}, err
	}
	if !peer.HasRole(v1alpha1.RoleProvider) {
		return policy.Facts{}, fmt.Errorf("peer %s is no provider of this cluster", peer.Name)
	}
	seen, err := r.glimpse(ctx, peer)
	if err != nil {
		return policy.Facts{}, err
	}
	now := r.clock.Now()
	newest, _ := r.policies.lookUp(seen, now)
	seen.arrived = newest.arrived
	if verdict := r.settings().screen(seen); !verdict.Accepted {
		return policy.Facts{}, fmt.Errorf("policies are not asked about what peer %s offers, because it is refused before: %s: %s",
			peer.Name, verdict.Reason, verdict.Message)
	}
	return r.policies.inputOf(ctx, seen, now)
}

// glimpse observes without starting anything, and without counting as a look.
func (r *Receiver) glimpse(ctx context.Context, peer *v1alpha1.Peer) (facts, error) {
	known := r.watches.present(peer.Name)
	if known == nil {
		return facts{}, fmt.Errorf("there is no link to peer %s: see its condition Reachable", peer.Name)
	}
	if err := known.mirror.Err(); errors.Is(err, peers.ErrTooLarge) {
		return facts{}, fmt.Errorf("read what peer %s offers: %w", peer.Name, err)
	}
	if !known.mirror.HasSynced() {
		return facts{}, fmt.Errorf("what peer %s offers was not read yet: try again in a moment", peer.Name)
	}
	message, found := known.mirror.Get(offerKey(peer, known.link))
	if !found {
		return facts{}, fmt.Errorf("peer %s offers nothing to this cluster", peer.Name)
	}
	_, offer, err := decode(message)
	if err != nil {
		return facts{}, fmt.Errorf("read what peer %s offers: %w", peer.Name, err)
	}
	held, err := r.held(ctx, peer)
	return facts{peer: peer, copy: held, offer: offer}, err
}

// Gather returns what the policies would be asked with now about what is offered to the peer of that name or cluster id.
// It is an error if they would not be asked.
func (p *Publisher) Gather(ctx context.Context, _ policy.Question, name string) (policy.Facts, error) {
	peer, err := findPeer(ctx, p.client, name)
	if err != nil {
		return policy.Facts{}, err
	}
	switch {
	case !p.capacity.complete.Load():
		return policy.Facts{}, errors.New("the pods and nodes of this cluster were not read yet: try again in a moment")
	case !p.serves(peer):
		return policy.Facts{}, fmt.Errorf("nothing is offered to peer %s, whatever the policies say: it is no consumer of this "+
			"cluster, or its cluster is not known yet", peer.Name)
	case !peer.DeletionTimestamp.IsZero():
		return policy.Facts{}, fmt.Errorf("policies are not asked about what peer %s is offered any more: it is being deleted", peer.Name)
	}
	said, err := p.said(ctx, peer)
	if err != nil {
		return policy.Facts{}, err
	}
	q, err := p.inquire(ctx, peer, said)
	if err != nil {
		return policy.Facts{}, err
	}
	if q == nil {
		return policy.Facts{}, fmt.Errorf("nothing is offered to peer %s until ConfigMap %s/%s is repaired: the prices are not known",
			peer.Name, p.config.Namespace, PricesConfigMap)
	}
	return q.facts(peer, p.clock.Now()), nil
}

// findPeer reads the Peer of that name, or else the one of the cluster of that id.
func findPeer(ctx context.Context, reader client.Reader, name string) (*v1alpha1.Peer, error) {
	peer := &v1alpha1.Peer{}
	err := reader.Get(ctx, types.NamespacedName{Name: name}, peer)
	if err == nil {
		return peer, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read peer %q: %w", name, err)
	}
	all := &v1alpha1.PeerList{}
	if err := reader.List(ctx, all); err != nil {
		return nil, fmt.Errorf("list peers: %w", err)
	}
	for i := range all.Items {
		if all.Items[i].Spec.ClusterID == name {
			return &all.Items[i], nil
		}
	}
	return nil, fmt.Errorf("there is no peer with the name or cluster id %q", name)
}
