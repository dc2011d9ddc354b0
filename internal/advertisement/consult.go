package advertisement

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/policy"
)

// tableAge is for how long the policies are shown the same table.
const tableAge = 10 * time.Second

// answer is what the policies say of an offer. With an error there is none.
type answer struct {
	decision policy.Decision
	err      error
}

// question is what an answer depends on that is worth asking again for. Times and the table are not: they change all the
// time, and with the next message the policies are asked anyway.
type question struct {
	offer    string // its fingerprint
	peer     int64  // generation of the Peer
	labels   string // of the Peer
	policies int64  // how often they have changed
}

// hearing is the newest message of a peer, and what came of it. It saves asking twice; without it, all is asked again.
type hearing struct {
	sequence int64
	arrived  time.Time
	terms    string
	asked    question
	answer   answer
	again    bool // the policies were asked about the message more than once
}

// consultation asks the policies about offers: once for each message, and again when they or the Peer were changed.
type consultation struct {
	client  client.Client
	decider Decider
	table   *tableau

	mu       sync.Mutex
	policies int64              // how often the policies have changed
	heard    map[string]hearing // peer → its newest message
}

func newConsultation(c client.Client, decider Decider, clusterID string) *consultation {
	return &consultation{
		client: c, decider: decider, heard: map[string]hearing{},
		table: &tableau{client: c, clusterID: clusterID},
	}
}

// changed makes all answers void.
func (c *consultation) changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.policies++
}

// forget drops what is known of the peer.
func (c *consultation) forget(peer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.heard, peer)
}

// hear adds to the facts when the offer came in and, if it is sound, what the policies say about it.
func (c *consultation) hear(ctx context.Context, s settings, f facts, now time.Time) facts {
	if f.offer == nil {
		if f.withdrawn {
			c.forget(f.peer.Name) // what comes next begins anew
		}
		return f
	}
	h, asking := c.lookUp(f, now)
	f.arrived = h.arrived
	if s.screen(f).Accepted {
		asking.offer = fingerprint(&f.offer.Spec)
		if h.asked.offer != asking.offer {
			h.terms = termsOf(&f.offer.Spec)
		}
		if h.asked != asking || h.answer.err != nil {
			h.again = h.asked.offer == asking.offer
			failing := h.again && h.answer.err != nil
			h.asked, h.answer = asking, c.ask(ctx, f, now)
			if h.answer.err != nil && !failing {
				// Conditions do not say why, since the provider reads them too.
				ctrl.LoggerFrom(ctx).Error(h.answer.err, "The policies cannot be asked about an advertisement")
			}
		}
		f.terms, f.answer, f.again = h.terms, h.answer, h.again
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard[f.peer.Name] = h
	return f
}

// lookUp returns what is known of the newest message, and what asking about it depends on so far. A message that the copy
// holds already came in when the copy says so, which outlives a restart.
func (c *consultation) lookUp(f facts, now time.Time) (hearing, question) {
	c.mu.Lock()
	defer c.mu.Unlock()
	asking := question{peer: f.peer.Generation, labels: labels.Set(f.peer.Labels).String(), policies: c.policies}
	sequence := f.offer.Spec.Sequence
	if h, found := c.heard[f.peer.Name]; found && h.sequence == sequence {
		return h, asking
	}
	h := hearing{sequence: sequence, arrived: now}
	if f.copy != nil && f.copy.Spec.Sequence == sequence {
		if r := recordOf(f.copy); r.heard() {
			h.arrived = r.received
		}
	}
	return h, asking
}

func (c *consultation) ask(ctx context.Context, f facts, now time.Time) answer {
	known, err := c.inputOf(ctx, f, now)
	if err != nil {
		return answer{err: err}
	}
	input, err := policy.NewInput(known)
	if err != nil {
		return answer{err: fmt.Errorf("put the advertisement into words for the policies: %w", err)}
	}
	decision, err := c.decider.Decide(ctx, policy.Incoming, input)
	return answer{decision: decision, err: err}
}

// inputOf returns what the policies are asked with.
func (c *consultation) inputOf(ctx context.Context, f facts, now time.Time) (policy.Facts, error) {
	table, err := c.table.at(ctx, now)
	return policy.Facts{Time: now, Peer: f.peer, Advertisement: &f.offer.Spec, Previous: previousOf(f.copy), Table: table}, err
}

// tableau is the table as policies see it, made when somebody asks and kept for a moment.
type tableau struct {
	client    client.Client
	clusterID string

	mu    sync.Mutex
	made  time.Time
	value *policy.Value
}

func (t *tableau) at(ctx context.Context, now time.Time) (*policy.Value, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.value != nil && now.Sub(t.made) < tableAge {
		return t.value, nil
	}
	table, err := t.read(ctx, now)
	if err != nil {
		return nil, err
	}
	rows := make([]policy.TableRow, 0, len(table.Rows))
	for i := range table.Rows {
		if row := &table.Rows[i]; row.Accepted {
			rows = append(rows, policy.TableRow{Peer: row.Peer, Open: row.Open, Offer: &row.Offer, RoundTrip: row.RoundTrip})
		}
	}
	t.value, t.made = policy.NewTable(rows), now
	return t.value, nil
}

// read builds the table of our copies; our own offers lie beside them.
func (t *tableau) read(ctx context.Context, now time.Time) (exchange.Table, error) {
	ads, peers := &v1alpha1.AdvertisementList{}, &v1alpha1.PeerList{}
	if err := t.client.List(ctx, ads, client.UnsafeDisableDeepCopy); err != nil {
		return exchange.Table{}, fmt.Errorf("list advertisements: %w", err)
	}
	if err := t.client.List(ctx, peers, client.UnsafeDisableDeepCopy); err != nil {
		return exchange.Table{}, fmt.Errorf("list peers: %w", err)
	}
	copies := make([]v1alpha1.Advertisement, 0, len(ads.Items))
	for i := range ads.Items {
		if ads.Items[i].Name != t.clusterID {
			copies = append(copies, ads.Items[i])
		}
	}
	return exchange.NewTable(copies, now).WithLinks(peers.Items), nil
}
