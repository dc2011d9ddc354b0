// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/policy"
)

// tableAge is for how long the policies are shown the same table.
const tableAge = 10 * time.Second

// answer is what the policies say of an offer. With an error there is none.
type answer struct {
	decision policy.Decision
	err      error
}

// inputKey is what an answer depends on that is worth asking again for. Times and the table are not: they change all the
// time, and with the next message the policies are asked anyway.
type inputKey struct {
	offer    string // its fingerprint
	peer     int64  // generation of the Peer
	labels   string // of the Peer
	policies int64  // how often they have changed
}

// evaluation is the newest message of a peer, and what came of it. It saves asking twice; without it, all is asked again.
type evaluation struct {
	sequence int64
	arrived  time.Time
	terms    string
	asked    inputKey
	answer   answer
	again    bool // the policies were asked about the message more than once
}

// evaluate adds to the facts when the offer came in, whether it is sound, and if so what the policies say about it.
func (r *Receiver) evaluate(ctx context.Context, f facts, now time.Time) facts {
	if f.offer == nil {
		if f.withdrawn {
			r.known.forget(f.peer.Name) // what comes next begins anew
		}
		return f
	}
	known, key := r.lookUp(f, now), r.keyOf(f.peer)
	f.arrived = known.arrived
	f.screened = r.config.screen(f)
	if f.screened.Accepted {
		key.offer = fingerprint(&f.offer.Spec)
		if known.asked.offer != key.offer {
			known.terms = termsOf(&f.offer.Spec)
		}
		if known.asked != key || known.answer.err != nil {
			known.again = known.asked.offer == key.offer
			failing := known.again && known.answer.err != nil
			known.asked, known.answer = key, r.ask(ctx, f, now)
			if known.answer.err != nil && !failing {
				// Conditions do not say why, since the provider reads them too.
				ctrl.LoggerFrom(ctx).Error(known.answer.err, "The policies cannot be asked about an advertisement")
			}
		}
		f.terms, f.answer, f.again = known.terms, known.answer, known.again
	}
	r.known.keep(f.peer.Name, known)
	return f
}

// keyOf returns what an answer depends on besides the offer.
func (r *Receiver) keyOf(peer *v1alpha1.Peer) inputKey {
	return inputKey{peer: peer.Generation, labels: labels.Set(peer.Labels).String(), policies: r.policies.Load()}
}

// lookUp returns what is known of the newest message. A message that the copy holds already came in when the copy says so,
// which outlives a restart.
func (r *Receiver) lookUp(f facts, now time.Time) *evaluation {
	sequence := f.offer.Spec.Sequence
	if known := r.known.of(f.peer.Name); known != nil && known.sequence == sequence {
		return known
	}
	known := &evaluation{sequence: sequence, arrived: now}
	if f.copy != nil && f.copy.Spec.Sequence == sequence {
		if record := recordOf(f.copy); record.heard() {
			known.arrived = record.received
		}
	}
	return known
}

func (r *Receiver) ask(ctx context.Context, f facts, now time.Time) answer {
	if !f.peer.Protocol().Advertisements {
		return answer{decision: policy.Decision{Outcome: policy.Allow, Reason: messageMadeHere}}
	}
	known, err := r.inputOf(ctx, f, now)
	if err != nil {
		return answer{err: err}
	}
	decision, err := decide(ctx, r.decider, policy.Incoming, known)
	return answer{decision: decision, err: err}
}

// inputOf returns what the policies are asked with.
func (r *Receiver) inputOf(ctx context.Context, f facts, now time.Time) (policy.Facts, error) {
	table, err := r.table.at(ctx, now)
	return policy.Facts{Time: now, Peer: f.peer, Advertisement: &f.offer.Spec, Previous: previousOf(f.copy), Table: table}, err
}

// cachedTable is the table of our copies as policies see it, made when somebody asks and kept for a moment.
type cachedTable struct {
	client    client.Client
	clusterID string

	mu    sync.Mutex
	made  time.Time
	value *policy.Value
}

func (t *cachedTable) at(ctx context.Context, now time.Time) (*policy.Value, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.value != nil && now.Sub(t.made) < tableAge {
		return t.value, nil
	}
	ads, err := listed(t.client)
	if err != nil {
		return nil, err
	}
	copies := slices.DeleteFunc(slices.Clone(ads), func(ad v1alpha1.Advertisement) bool { return ad.Name == t.clusterID })
	peers := &v1alpha1.PeerList{}
	if err := t.client.List(ctx, peers, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list peers: %w", err)
	}
	table := exchange.NewTable(copies, now).WithLinks(peers.Items)
	rows := make([]policy.TableRow, 0, len(table.Rows))
	for i := range table.Rows {
		if row := &table.Rows[i]; row.Accepted {
			rows = append(rows, policy.TableRow{
				Peer: row.Peer, Open: row.Open, Offer: &row.Offer,
				RoundTrip: row.RoundTrip, Bandwidth: row.Bandwidth, Throughput: row.Throughput, Loss: row.Loss,
			})
		}
	}
	t.value, t.made = policy.NewTable(rows), now
	return t.value, nil
}

// Gather returns what the policies would be asked with now about what the peer of that name or cluster id offers. It is an
// error if they would not be asked.
func (r *Receiver) Gather(ctx context.Context, _ policy.Question, name string) (policy.Facts, error) {
	peer, err := findPeer(ctx, r.client, name)
	if err != nil {
		return policy.Facts{}, err
	}
	switch {
	case !peer.HasRole(v1alpha1.RoleProvider):
		return policy.Facts{}, fmt.Errorf("peer %s is no provider of this cluster", peer.Name)
	case !peer.Protocol().Advertisements:
		return policy.Facts{}, fmt.Errorf("policies are not asked about peer %s: it runs no Hanse, and offers nothing itself", peer.Name)
	}
	seen, err := r.peek(ctx, peer)
	if err != nil {
		return policy.Facts{}, err
	}
	now := r.clock.Now()
	seen.arrived = r.lookUp(seen, now).arrived
	if verdict := r.config.screen(seen); !verdict.Accepted {
		return policy.Facts{}, fmt.Errorf("policies are not asked about what peer %s offers, because it is refused before: %s: %s",
			peer.Name, verdict.Reason, verdict.Message)
	}
	return r.inputOf(ctx, seen, now)
}

// peek observes without starting anything, and without counting as a look.
func (r *Receiver) peek(ctx context.Context, peer *v1alpha1.Peer) (facts, error) {
	link, open := r.links.Get(peer.Name)
	if !open {
		return facts{}, fmt.Errorf("there is no link to peer %s: see its condition Reachable", peer.Name)
	}
	mirror := link.FollowOne(advertisements, link.TenantNamespace(), peer.Spec.ClusterID)
	if err := mirror.Err(); errors.Is(err, peers.ErrTooLarge) {
		return facts{}, fmt.Errorf("read what peer %s offers: %w", peer.Name, err)
	}
	if !mirror.HasSynced() {
		return facts{}, fmt.Errorf("what peer %s offers was not read yet: try again in a moment", peer.Name)
	}
	message := messageIn(mirror, peer)
	if message == nil {
		return facts{}, fmt.Errorf("peer %s offers nothing to this cluster", peer.Name)
	}
	offer, err := exchange.Decode(message.Object)
	if err != nil {
		return facts{}, fmt.Errorf("read what peer %s offers: %w", peer.Name, err)
	}
	held, err := r.held(ctx, peer)
	return facts{peer: peer, copy: held, offer: offer}, err
}
