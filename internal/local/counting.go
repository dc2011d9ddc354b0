// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CountingDelay is how old Hanse's installation must be before its kinds are counted by quotas. Kubernetes notices new
// kinds after up to half a minute, and until then a quota refuses all that it should count. A quota that was made too
// early is looked at again some minutes later only.
const CountingDelay = time.Minute

// Counting knows when quotas can count objects of Hanse's kinds.
type Counting struct {
	client    client.Client
	namespace string
	counts    atomic.Bool // an installation that is old enough does not become younger
}

// NewCounting returns one that takes the namespace, which is Hanse's own, to be as old as the installation.
func NewCounting(c client.Client, namespace string) *Counting {
	return &Counting{client: c, namespace: namespace}
}

// Wait is how long it takes until quotas can count.
func (c *Counting) Wait(ctx context.Context) (time.Duration, error) {
	if c.counts.Load() {
		return 0, nil
	}
	own := &corev1.Namespace{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: c.namespace}, own); err != nil {
		return 0, fmt.Errorf("read namespace %s: %w", c.namespace, err)
	}
	now, err := Now(ctx, c.client)
	if err != nil {
		return 0, err
	}
	wait := max(CountingDelay-now.Sub(own.CreationTimestamp.Time), 0)
	c.counts.Store(wait == 0)
	return wait, nil
}

// errNoTime is returned for an API server that does not say when it answered.
var errNoTime = errors.New("its answer has no time")

// Now is the time by the clock of the API server. The age of an object is known by no other: its creationTimestamp is of
// that clock, from which ours may be minutes away.
func Now(ctx context.Context, c client.Client) (time.Time, error) {
	// Whoever is logged in may ask who that is. The answer is made, and stamped, at that moment, and kept nowhere.
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return time.Time{}, fmt.Errorf("ask the API server for its time: %w", err)
	}
	if review.CreationTimestamp.IsZero() {
		return time.Time{}, fmt.Errorf("ask the API server for its time: %w", errNoTime)
	}
	return review.CreationTimestamp.Time, nil
}
