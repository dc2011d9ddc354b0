package advertisement

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// state is what all consumers may have to hear of when it changes.
type state struct {
	offerable
	policies int64
}

func (p *Publisher) look() *state {
	return &state{policies: p.policies.Load(), offerable: p.capacity.look()}
}

// onPolicies has the policies asked again for all consumers.
func (p *Publisher) onPolicies() {
	p.policies.Add(1)
	p.capacity.ring()
}

// Run looks at the state when it has changed, at most once per interval, and has the consumers told: at once if the
// change is large, else when it has settled.
func (p *Publisher) Run(ctx context.Context) error {
	var told *state
	settle := p.clock.NewTimer(p.config.SettleInterval)
	defer settle.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.capacity.changed:
			if there := p.look(); told == nil || p.config.large(told, there) {
				told = there
				p.ringAll(ctx)
			}
		case <-settle.C():
			if there := p.look(); told == nil || !same(told, there) {
				told = there
				p.ringAll(ctx)
			}
			settle.Reset(p.config.SettleInterval)
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.clock.After(p.config.MinInterval):
		}
	}
}

// ringAll puts all consumers into the queue.
func (p *Publisher) ringAll(ctx context.Context) {
	p.mu.Lock()
	q := p.queue
	p.mu.Unlock()
	if q == nil {
		return // the controller has not started: it will look at every peer when it does
	}
	for _, request := range p.consumers(ctx) {
		q.Add(request)
	}
}

func (p *Publisher) consumers(ctx context.Context) []reconcile.Request {
	peers := &v1alpha1.PeerList{}
	if err := p.client.List(ctx, peers); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List peers")
		return nil
	}
	var requests []reconcile.Request
	for i := range peers.Items {
		if peers.Items[i].HasRole(v1alpha1.RoleConsumer) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: peers.Items[i].Name}})
		}
	}
	return requests
}

// large reports whether consumers should hear of the change at once.
func (c *Config) large(then, now *state) bool {
	return !sameTerms(then, now) || exchange.Moved(then.Free(), now.Free(), c.Threshold)
}

// same reports whether nothing that consumers are told of has changed.
func same(a, b *state) bool {
	return sameTerms(a, b) && equality.Semantic.DeepEqual(a.Free(), b.Free())
}

func sameTerms(a, b *state) bool {
	return a.policies == b.policies && equality.Semantic.DeepEqual(a.Description, b.Description) &&
		equality.Semantic.DeepEqual(a.guaranteed, b.guaranteed) && equality.Semantic.DeepEqual(a.offers, b.offers)
}
