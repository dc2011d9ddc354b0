// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// look is how often a gateway looks at the lease while another one holds it.
	look = 200 * time.Millisecond
	// leaseTimeout is how long a request about the lease may take.
	leaseTimeout = time.Second
)

// A lease says which gateway is active. Unlike with client-go's leader election, the active one stays so while the API server
// does not answer: where that holds for all gateways nobody can take over, and traffic between clusters must not end with it. It gives
// up when it sees that another one holds the lease, or when its tunnels say so while it is overdue.
type lease struct {
	client    client.Client // not from a cache
	namespace string
	self      string
	duration  time.Duration
	renewal   time.Duration
	clock     clock.WithTicker

	held    atomic.Bool
	renewed atomic.Pointer[time.Time] // when we wrote it last
	seen    coordinationv1.LeaseSpec  // what was last read
	seenAt  time.Time                 // when that was first read, by our own clock
}

// overdue reports whether we hold the lease, and others may take it without our knowing, since we could not renew it in time.
func (l *lease) overdue(now time.Time) bool {
	return l.held.Load() && !l.renewedWithin(l.duration, now)
}

func (l *lease) renewedWithin(length time.Duration, now time.Time) bool {
	renewed := l.renewed.Load()
	return renewed != nil && now.Sub(*renewed) < length
}

// giveUp ends that we are active until the API server says again who is.
func (l *lease) giveUp() { l.held.Store(false) }

// Run holds the lease as long as it can, until ctx ends. Then another one can have it at once.
func (l *lease) Run(ctx context.Context) error {
	ticker := l.clock.NewTicker(look)
	defer ticker.Stop()
	for {
		if err := l.step(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).V(1).Info("Cannot look after the lease", "cause", err.Error())
		}
		select {
		case <-ctx.Done():
			return l.release(context.WithoutCancel(ctx))
		case <-ticker.C():
		}
	}
}

// step takes, renews or loses the lease.
func (l *lease) step(ctx context.Context) error {
	now := l.clock.Now()
	if l.held.Load() && l.renewedWithin(l.renewal, now) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	object, err := l.read(ctx, now)
	if err != nil {
		return err
	}
	holder := ptr.Deref(object.Spec.HolderIdentity, "")
	if holder != l.self {
		l.held.Store(false)
		if holder != "" && now.Sub(l.seenAt) < l.duration {
			return nil
		}
	}
	return l.take(ctx, object, now)
}

// read returns the lease, and notes since when it is as it is: the clocks of two nodes are not compared.
func (l *lease) read(ctx context.Context, now time.Time) (*coordinationv1.Lease, error) {
	object := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: v1alpha1.GatewayName}}
	if err := l.client.Get(ctx, client.ObjectKeyFromObject(object), object); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read the lease: %w", err)
	}
	same := ptr.Equal(l.seen.HolderIdentity, object.Spec.HolderIdentity) && l.seen.RenewTime.Equal(object.Spec.RenewTime)
	if l.seenAt.IsZero() || !same {
		l.seen, l.seenAt = object.Spec, now
	}
	return object, nil
}

// take writes that we hold it. Of two that do so, one gets a conflict.
func (l *lease) take(ctx context.Context, object *coordinationv1.Lease, now time.Time) error {
	if !l.held.Load() {
		object.Spec.AcquireTime = ptr.To(metav1.NewMicroTime(now))
		object.Spec.LeaseTransitions = ptr.To(ptr.Deref(object.Spec.LeaseTransitions, 0) + 1)
	}
	object.Spec.HolderIdentity = &l.self
	object.Spec.LeaseDurationSeconds = ptr.To(max(1, int32(l.duration.Seconds())))
	object.Spec.RenewTime = ptr.To(metav1.NewMicroTime(now))
	write := func() error { return l.client.Update(ctx, object) }
	if object.ResourceVersion == "" {
		write = func() error { return l.client.Create(ctx, object) }
	}
	err := write()
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil // somebody else was faster: the next look tells who
	}
	if err != nil {
		return fmt.Errorf("write the lease: %w", err)
	}
	l.seen, l.seenAt = object.Spec, now
	l.renewed.Store(&now)
	l.held.Store(true)
	return nil
}

// release lets go of the lease, if we hold it.
func (l *lease) release(ctx context.Context) error {
	if !l.held.Swap(false) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	object, err := l.read(ctx, l.clock.Now())
	if err != nil || ptr.Deref(object.Spec.HolderIdentity, "") != l.self {
		return err
	}
	object.Spec.HolderIdentity = ptr.To("")
	if err := l.client.Update(ctx, object); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("release the lease: %w", err)
	}
	return nil
}
