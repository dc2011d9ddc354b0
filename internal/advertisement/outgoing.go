// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/policy"
)

// policyInput is what the policies are asked about the offer to one consumer.
type policyInput struct {
	draft     v1alpha1.AdvertisementSpec
	oldPrices bool // the prices of the draft are those that were said last
	load      policy.Load
	labels    map[string]string // of the Peer
	policies  int64             // how often they were changed
}

func (q *policyInput) facts(peer *v1alpha1.Peer, now time.Time) policy.Facts {
	return policy.Facts{Time: now, Peer: peer, Advertisement: &q.draft, Load: &q.load}
}

// outgoingAnswer is the newest answer of the policies about the offer to one consumer.
type outgoingAnswer struct {
	policyInput
	at       time.Time
	decision policy.Decision
	failures int // how often in a row there was none
	// announced is what the newest event on the Peer says of such answers.
	announced string
}

// offer returns the draft as the policies will have it. It shares memory with the draft.
func (r *outgoingAnswer) offer() v1alpha1.AdvertisementSpec {
	spec := r.draft
	if r.decision.Offer == nil {
		return spec
	}
	patch := *r.decision.Offer
	if r.oldPrices {
		patch.Prices = nil // they were patched when they were said
	}
	patch.Apply(&spec)
	return spec
}

// announce reports whether the text is not what was announced last.
func (r *outgoingAnswer) announce(text string) bool {
	before := r.announced
	r.announced = text
	return before != text
}

// ask returns the newest answer of the policies about the offer to the peer, and for how long it holds. They are asked
// only when it is time.
func (p *Publisher) ask(
	ctx context.Context, peer *v1alpha1.Peer, published *v1alpha1.Advertisement, q policyInput,
) (*outgoingAnswer, time.Duration) {
	now := p.clock.Now()
	last := p.answers.of(peer.Name)
	if wait := p.config.askAgain(peer.Name, last, &q, publishedAt(published), now); wait > 0 {
		return last, wait
	}
	newest := &outgoingAnswer{policyInput: q, at: now}
	if last != nil {
		newest.announced = last.announced
	}
	var err error
	if newest.decision, err = decide(ctx, p.decider, policy.Outgoing, q.facts(peer, now)); err != nil {
		newest.failures = 1
		if last != nil && last.policies == q.policies {
			newest.failures += last.failures
		}
		p.answers.keep(peer.Name, newest)
		p.announceFailure(ctx, peer, newest, err)
		return newest, p.config.backOff(newest.failures)
	}
	p.answers.keep(peer.Name, newest)
	return newest, spread(p.config.RenewInterval, peer.Name)
}

// publishedAt returns when the newest message was made; zero if there is none.
func publishedAt(published *v1alpha1.Advertisement) time.Time {
	if published == nil {
		return time.Time{}
	}
	return published.Spec.Timestamp.Time
}

// askAgain says when the policies must be asked about the offer to the peer: when a message would be due if it were not
// for them. So they are asked for every renewal, too, which is what those need that look at the time or at the load.
func (c *Config) askAgain(peer string, last *outgoingAnswer, q *policyInput, publishedAt, now time.Time) time.Duration {
	if last == nil || exchange.Phase(&last.draft) != exchange.Phase(&q.draft) {
		return 0
	}
	asked, published := now.Sub(last.at), now.Sub(publishedAt)
	allowedDelay := c.allowedDelay(peer, &last.draft, &q.draft)
	switch {
	case last.policies != q.policies, !maps.Equal(last.labels, q.labels):
		allowedDelay = c.MinInterval
	case last.failures > 0:
		return c.backOff(last.failures) - asked
	}
	if allowedDelay <= c.SettleInterval {
		return allowedDelay - min(asked, published)
	}
	if publishedAt.IsZero() {
		published = asked
	}
	return max(allowedDelay-published, c.MinInterval-asked)
}

// backOff doubles with every failure, up to the interval of renewals.
func (c *Config) backOff(failures int) time.Duration {
	return min(c.MinInterval<<min(failures-1, 20), c.RenewInterval)
}

// announceFailure tells the administrator that a policy cannot be asked: from the second time on, since the first may be that
// the policies are still being read.
func (p *Publisher) announceFailure(ctx context.Context, peer *v1alpha1.Peer, newest *outgoingAnswer, err error) {
	ctrl.LoggerFrom(ctx).Error(err, "Ask the policies about an offer", "Peer", peer.Name)
	if newest.failures < 2 || !newest.announce(v1alpha1.ReasonPolicyFailed) {
		return
	}
	p.recorder.Eventf(peer, nil, corev1.EventTypeWarning, v1alpha1.ReasonPolicyFailed, "Offer",
		"Nothing new is offered to this peer until the policies for question %s can be asked: %s", policy.Outgoing, bounded(err.Error()))
}

// announceDenial tells the administrator that the policies do not let the peer have an offer.
func (p *Publisher) announceDenial(peer *v1alpha1.Peer, newest *outgoingAnswer) {
	if decision := newest.decision; newest.announce(string(decision.Outcome) + decision.Reason) {
		p.recorder.Eventf(peer, nil, corev1.EventTypeNormal, v1alpha1.ReasonRefusedByPolicy, "Offer",
			"Nothing is offered to this peer: %s", bounded(cmp.Or(decision.Reason, "a policy answers "+string(decision.Outcome))))
	}
}

// reasonOffered is the reason of the event that ends what an event before it has announced.
const reasonOffered = "Offered"

// announceOffer tells the administrator of an offer after there was none.
func (p *Publisher) announceOffer(peer *v1alpha1.Peer, newest *outgoingAnswer) {
	if newest.announce("") {
		p.recorder.Eventf(peer, nil, corev1.EventTypeNormal, reasonOffered, "Offer", "The policies let this peer have an offer again")
	}
}

// Gather returns what the policies would be asked with now about what is offered to the peer of that name or cluster id.
// It is an error if they would not be asked.
func (p *Publisher) Gather(ctx context.Context, _ policy.Question, name string) (policy.Facts, error) {
	peer, err := findPeer(ctx, p.client, name)
	if err != nil {
		return policy.Facts{}, err
	}
	switch {
	case !p.capacity.isComplete():
		return policy.Facts{}, errors.New("the pods and nodes of this cluster were not read yet: try again in a moment")
	case !p.serves(peer):
		return policy.Facts{}, fmt.Errorf("nothing is offered to peer %s, whatever the policies say: it is no consumer of this "+
			"cluster, or its cluster is not known yet", peer.Name)
	case !peer.DeletionTimestamp.IsZero():
		return policy.Facts{}, fmt.Errorf("policies are not asked about what peer %s is offered any more: it is being deleted", peer.Name)
	}
	published, err := p.published(ctx, peer)
	if err != nil {
		return policy.Facts{}, err
	}
	q, err := p.draftFor(ctx, peer, published)
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
