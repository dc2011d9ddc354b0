// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/overlay"
)

// An observation is what one look at a Peer found: first what our cache shows, then what each step has found out.
type observation struct {
	config    *Config
	peer      *v1alpha1.Peer
	now       time.Time
	namespace *corev1.Namespace       // the peer's tenant namespace, nil while none of this Peer is there to stay
	claim     *v1alpha1.PeeringClaim  // of a consumer, nil if there is none
	offer     *v1alpha1.Advertisement // our copy of a provider's, nil if there is none
	node      *corev1.Node            // the virtual node of a provider, nil if there is none
	networks                          // what both clusters tell, and the Connection
	namesake  string                  // an older Peer that stands for the same cluster
	twins     int                     // how many twin namespaces a peer that we leave still has here
	// overBudget is what the peer sends too much to this process, nil for nothing.
	overBudget error

	known     *state
	tenant    tenantState
	tenantErr error             // why it could not be prepared
	contact   contact           // what is known from talking to the peer
	addresses assignment        // the ranges in which we see the peer's
	unlinked  *overlay.Conflict // why there can be no tunnel to the peer now, nil if there can, or if it is not known
	invited   *invitation       // how our invitation stands, nil while that is not known
}

// deleted reports whether we are about to part from the peer.
func (o *observation) deleted() bool { return !o.peer.DeletionTimestamp.IsZero() }

// A state is what need not be found out with every look at a peer. All of it is found out again after a restart.
type state struct {
	peer       types.UID
	since      time.Time // when we began to look after the peer
	tenant     gate      // the tenant namespace was made
	inviting   gate
	invitation *invitation
	warned     string // why the peer's tombstone is not believed, as the administrator was told

	// Of these only the controller's lock makes copies.
	contact contact
	calling bool  // somebody talks to the peer right now
	failed  error // what went wrong on our side in the last call, until it was told
}

// A gate spares a step that has nothing to do: the step is done when what it rests on has changed, and after some time.
type gate struct {
	seen string // all that the step rests on and that costs nothing to see
	due  time.Time
}

func (g gate) open(seen string, now time.Time) bool { return g.seen != seen || !now.Before(g.due) }

// observe looks at the Peer and at what belongs to it, as our cache shows it. It returns nil if there is neither a Peer nor a
// tombstone.
func (c *Controller) observe(ctx context.Context, name string) (*observation, error) {
	peer, err := existing(ctx, c.client, named(&v1alpha1.Peer{}, "", name))
	if err != nil {
		return nil, err
	}
	if peer == nil {
		return c.observeTombstone(ctx, name)
	}
	o := &observation{config: c.config, peer: peer, now: c.config.Clock.Now(), known: c.stateOf(peer)}
	if err := errors.Join(
		c.observeHere(ctx, o), c.observeProvider(ctx, o), c.observeNetworks(ctx, o), c.observeNamesake(ctx, o),
	); err != nil {
		return nil, err
	}
	o.invited, o.overBudget = o.known.invitation, c.links.OverBudget(name)
	return o, nil
}

// observeTombstone looks whether there is a tombstone of a former peer. Its observation has a Peer without UID.
func (c *Controller) observeTombstone(ctx context.Context, name string) (*observation, error) {
	ns, err := existing(ctx, c.client, namespaceOf(name))
	if err != nil || ns == nil || !isTombstone(ns, name) || !ns.DeletionTimestamp.IsZero() {
		return nil, err
	}
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return &observation{config: c.config, peer: peer, now: c.config.Clock.Now(), namespace: ns, known: c.stateOf(peer)}, nil
}

// observeHere reads what the peer has here as a consumer, in a tenant namespace that is ours, and counts the twins of a peer
// that we leave.
func (c *Controller) observeHere(ctx context.Context, o *observation) error {
	ns, err := existing(ctx, c.client, namespaceOf(o.peer.Name))
	if ns != nil && ownedBy(ns, o.peer) == tenantReady {
		o.namespace = ns
		o.claim, err = existing(ctx, c.client, claim(ns.Name))
	}
	if err == nil && o.deleted() {
		o.twins, err = c.countTwins(ctx, o.peer.Name)
	}
	return err
}

// observeProvider reads our copy of what the peer advertises, and its virtual node. Both are only read, and the copy is large.
func (c *Controller) observeProvider(ctx context.Context, o *observation) error {
	node, err := existing(ctx, c.client, nodeOf(o.peer.Name), client.UnsafeDisableDeepCopy)
	if node != nil && isOfType(node, v1alpha1.TypeVirtualNode) {
		o.node = node
	}
	id := o.peer.Spec.ClusterID
	if err != nil || o.namespace == nil || id == "" || id == c.config.ClusterID { // what has our own name is what we advertise
		return err
	}
	o.offer, err = existing(ctx, c.client, named(&v1alpha1.Advertisement{}, o.namespace.Name, id), client.UnsafeDisableDeepCopy)
	return err
}

// sight sums up what the cache shows of the peer itself and of its claim.
func (o *observation) sight() string {
	ns, claim := ptr.Deref(o.namespace, corev1.Namespace{}), ptr.Deref(o.claim, v1alpha1.PeeringClaim{})
	return fmt.Sprintln(o.peer.UID, o.peer.Generation, o.deleted(), ns.UID, claim.UID, claim.Generation)
}

// sightOfCalls sums up what calls to the peer rest on: also on the invitation that the client is about to bring, on whether
// the virtual node shows the peer as cut off, on how our invitation stands, and on when the peer was found not to know us any
// more.
func (o *observation) sightOfCalls() string {
	seen := o.sight() + fmt.Sprintln(o.peer.Annotations[v1alpha1.AnnotationJoin], accepted(o.claim), o.twins, o.node != nil,
		o.node != nil && v1alpha1.IsCutOff(o.node), o.contact.probe.unknownAt, o.namesake)
	if joined := said(o.peer, v1alpha1.ConditionJoined); joined != nil {
		seen += joined.reason
	}
	if o.namespace != nil && o.deleted() {
		seen += o.namespace.ResourceVersion
	}
	return seen
}

func (c *Controller) stateOf(peer *v1alpha1.Peer) *state {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.states[peer.Name]; known != nil {
		if known.peer == peer.UID {
			return known
		}
		c.free(peer.Name)
	}
	c.states[peer.Name] = &state{peer: peer.UID, since: c.config.Clock.Now()}
	return c.states[peer.Name]
}

// count returns how many peers are looked after.
func (c *Controller) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.states)
}

// free takes back what a peer had that is gone.
func (c *Controller) free(peer string) {
	c.addresses.forget(peer)
	show(smoothedRoundTrip, peer, 0)
	show(measuredBandwidth, peer, 0)
}

func (c *Controller) forget(peer string) {
	c.free(peer)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.states, peer)
}

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
