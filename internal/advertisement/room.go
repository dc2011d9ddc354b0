package advertisement

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// The one who lets pods of consumers in asks here what there is for them, so that what is promised is what is kept.

// WaitForRoom returns when it is known what there is, and what of it is guaranteed to whom.
func (p *Publisher) WaitForRoom(ctx context.Context) error {
	select {
	case <-p.capacity.complete:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Claim enters what all pods of the consumer ask for that were let in, see exchange.Ledger.
func (p *Publisher) Claim(consumer string, all corev1.ResourceList) {
	c := p.capacity
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledger.Claim(consumer, all)
}

// Short returns a resource of which the consumer cannot have so much more without taking what others are guaranteed, and
// whether there is one.
func (p *Publisher) Short(consumer string, more corev1.ResourceList) (corev1.ResourceName, bool) {
	c := p.capacity
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger.Short(consumer, more, c.config.Margin)
}
