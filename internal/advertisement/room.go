// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// The one who lets pods of consumers in asks here what there is for them, so that what is promised is what is kept.

// WaitForRoom returns when it is known what there is, what of it is guaranteed to whom, and what was reserved before.
func (p *Publisher) WaitForRoom(ctx context.Context) error {
	select {
	case <-p.capacity.complete:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Claim enters what pods of the consumer ask for that were let in, see exchange.Ledger.
func (p *Publisher) Claim(consumer string, claim exchange.Claim) {
	c := p.capacity
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledger.Claim(consumer, claim)
	c.locksStale = c.locksStale || claim.Request != ""
}

// Short returns a resource of which a pod of the consumer cannot have so much more without taking what is promised to others, see
// exchange.Ledger.
func (p *Publisher) Short(consumer, request string, more corev1.ResourceList) (corev1.ResourceName, bool) {
	c := p.capacity
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger.Short(consumer, request, more, c.config.Margin)
}

// Reserve reserves so much for the Request of the consumer, or returns what is missing, see exchange.Ledger. All others are told
// at once that they are offered less.
func (p *Publisher) Reserve(consumer, request string, all corev1.ResourceList) *exchange.Missing {
	c := p.capacity
	c.mu.Lock()
	defer c.mu.Unlock()
	missing := c.ledger.Reserve(consumer, request, all, c.config.Margin)
	if missing == nil {
		c.reservedChanged()
	}
	return missing
}

// SetReserved enters what stays reserved for the Request of the consumer, see exchange.Ledger.
func (p *Publisher) SetReserved(consumer, request string, all corev1.ResourceList) {
	c := p.capacity
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ledger.SetReserved(consumer, request, all) {
		c.reservedChanged()
	}
}

// Untaken returns what is reserved for the Request of the consumer and not taken, and for its other ones, see exchange.Ledger.
func (p *Publisher) Untaken(consumer, request string) (own, others corev1.ResourceList) {
	c := p.capacity
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger.Untaken(consumer, request)
}

// Reservable returns how much of these can be reserved for the Request of the consumer, see exchange.Ledger.
func (p *Publisher) Reservable(consumer, request string, these corev1.ResourceList) corev1.ResourceList {
	c := p.capacity
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger.Reservable(consumer, request, these, c.config.Margin)
}

// reservedChanged is called with the lock held.
func (c *capacity) reservedChanged() {
	c.locksStale = true
	c.changed.send()
}

// Home is what this cluster would offer to itself: what is free and not promised to others.
func (p *Publisher) Home() v1alpha1.AdvertisementSpec {
	const itself = "." // which no Peer is called, and holds nothing
	state := p.capacity.look()
	claims := exchange.Claims{Others: state.locks.against(itself)}
	return v1alpha1.AdvertisementSpec{
		Availability: state.Availability(itself, claims), LargestPod: state.LargestPod(itself, claims),
	}
}
