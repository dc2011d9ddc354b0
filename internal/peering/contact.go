package peering

import (
	"context"
	"errors"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// maxEnded is for how many peers something may have ended without their being reconciled yet, before more wait to end.
const maxEnded = 1024

// A contact is what is known of a peer from talking to it. A restart loses it, and the first call finds it out again.
type contact struct {
	at time.Time // when the last call ended, zero before the first
	gate
	session     *session // nil while it is not known
	sessionGate gate
	joining     attempts
	renewing    attempts
	introducing attempts
	introduced  bool // the provider knows our version
	probe       probe
	obstacle    obstacle // what parting from the peer waits for
	parting     attempts
	released    bool // nothing is left of the peer
}

// background runs what waits for peers beside the reconciles, so that a peer that does not answer keeps nobody waiting.
type background struct {
	run   func(work func())       // in a goroutine, but in tests
	ended chan event.GenericEvent // peers for which something has ended, and which are reconciled then
	group sync.WaitGroup
}

func newBackground() *background {
	b := &background{ended: make(chan event.GenericEvent, maxEnded)}
	b.run = b.group.Go
	return b
}

// start begins the work, after which the peer is reconciled.
func (b *background) start(ctx context.Context, peer *v1alpha1.Peer, work func()) {
	b.run(func() {
		work()
		select {
		case b.ended <- event.GenericEvent{Object: peer}:
		case <-ctx.Done():
		}
	})
}

// Start waits until ctx ends, which ends the work as well. It makes background a runnable of the manager.
func (b *background) Start(ctx context.Context) error {
	<-ctx.Done()
	b.group.Wait()
	return nil
}

// calls are the step that talks to the peer, by steps of its own. Of each peer one call runs at a time.
type calls struct {
	*deps
	*background

	steps   []step
	longest time.Duration // between two calls
	lock    sync.Locker   // guards the contacts in states
}

// Reconcile starts a call to the peer if that is due, and returns what the calls so far have found out. An error of a call
// is told once, so that the queue tries again later and later.
func (c *calls) Reconcile(ctx context.Context, o *observation) (result, error) {
	c.lock.Lock()
	o.contact = o.known.contact
	err := o.known.failed
	o.known.failed = nil
	starts := o.contact.open(o.sightOfCalls(), o.now) && err == nil && !o.known.calling
	o.known.calling = o.known.calling || starts
	runs := o.known.calling
	c.lock.Unlock()
	if starts {
		call := *o // the call has an observation of its own
		call.peer = o.peer.DeepCopy()
		c.start(ctx, call.peer, func() { c.call(ctx, &call) })
		c.lock.Lock() // the call may have ended already
		o.contact, runs = o.known.contact, o.known.calling
		err, o.known.failed = o.known.failed, nil
		c.lock.Unlock()
	}
	if err == nil && o.contact.at.IsZero() {
		// Before the first call has ended nothing is known that could be told.
		return result{stop: true}, nil
	}
	// Of a Peer that goes only what it waits for is told.
	done := o.contact.released || o.deleted() && !o.contact.obstacle.stands()
	if runs {
		return result{stop: done}, err // the end of the call has the peer looked at again
	}
	return result{again: o.contact.due, stop: done}, err
}

// call runs the steps and keeps what they have found out.
func (c *calls) call(ctx context.Context, o *observation) {
	now := o.sightOfCalls()
	var problems []error
	due := o.now.Add(c.longest)
	for _, step := range c.steps {
		r, err := step.Reconcile(ctx, o)
		problems = append(problems, err)
		due = sooner(due, r.again)
	}
	failed := errors.Join(problems...)
	o.contact.at = c.config.Clock.Now()
	if failed == nil {
		o.contact.gate = gate{now, due}
	} else {
		o.contact.gate = gate{}
	}
	c.lock.Lock()
	o.known.contact, o.known.failed, o.known.calling = o.contact, failed, false
	c.lock.Unlock()
}
