package peering

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
)

const (
	// settlePause is how soon a tenant namespace is looked at again whose rights have to settle.
	settlePause = 200 * time.Millisecond
	// workers is how many peers are worked on at the same time. None of them waits for a peer's answer.
	workers = 8
	// cacheLag is how long a cache needs to show what was just written.
	cacheLag = 50 * time.Millisecond
)

// A step brings one part of a Peer to where its spec wants it, and adds to the observation what it has found out.
type step interface {
	Reconcile(ctx context.Context, o *observation) (result, error)
}

// A result is what a step leaves to do.
type result struct {
	again time.Time // when to look at the peer again though nothing changes, zero for no time of its own
	stop  bool      // there is nothing left to do or to tell about this Peer now
}

// A Controller keeps Peers.
type Controller struct {
	*deps
	steps      []step // in this order
	calls      *calls
	addresses  *addresses
	tombstones *calls // of former peers
	consumers  *flowSchema

	mu     sync.Mutex
	states map[string]*state // peer → what is known of it
}

// New returns the controller of Peers. c reads from a cache, live from the API server itself.
func New(config Config, c client.Client, live client.Reader, links Links, recorder events.EventRecorder) *Controller {
	config.Default()
	d := &deps{config: &config, client: c, direct: local.Uncached(c, live), links: links, recorder: recorder}
	p := &Controller{
		deps:      d,
		addresses: &addresses{config: config, client: c, live: live},
		consumers: &flowSchema{deps: d},
		states:    map[string]*state{},
	}
	leave := &leaveStep{d}
	p.calls = &calls{deps: d, background: newBackground(), lock: &p.mu, longest: repairPeriod, steps: []step{
		&sessionStep{d},
		&probeStep{deps: d, transfers: newTransfers(), peers: p.count},
		leave,
	}}
	p.tombstones = &calls{
		deps: d, background: p.calls.background, lock: &p.mu, longest: config.TombstoneLife, steps: []step{&tombstoneStep{leave}},
	}
	p.steps = []step{
		&tenantStep{deps: d, counting: local.NewCounting(c, config.Namespace)},
		&inviteStep{deps: d},
		p.calls,
		&followStep{d},
		&addressStep{p.addresses},
	}
	return p
}

// Reconcile does for one Peer what this package is for.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	problems := []error{c.consumers.keep(ctx)}
	o, err := c.observe(ctx, req.Name)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case o == nil:
		c.forget(req.Name)
		return c.resultOf(time.Time{}, problems)
	case o.peer.UID == "":
		left, err := c.tombstones.Reconcile(ctx, o)
		return c.resultOf(left.again, append(problems, err))
	case o.deleted() && !controllerutil.ContainsFinalizer(o.peer, v1alpha1.FinalizerPeer):
		c.links.Close(req.Name)
		return reconcile.Result{}, nil
	case discovered(o.peer):
		return c.resultOf(time.Time{}, append(problems, c.report(ctx, o)))
	}
	var again time.Time
	for _, step := range c.steps {
		r, err := step.Reconcile(ctx, o)
		problems = append(problems, err)
		again = sooner(again, r.again)
		if r.stop {
			return c.resultOf(again, problems)
		}
	}
	return c.resultOf(again, append(problems, c.report(ctx, o)))
}

// discovered reports whether the peer was only found in the network. Nothing is made for it. (One that has lost its roles
// has our finalizer.)
func discovered(peer *v1alpha1.Peer) bool {
	return len(peer.Spec.Roles) == 0 && !controllerutil.ContainsFinalizer(peer, v1alpha1.FinalizerPeer)
}

// resultOf says when to look again. That somebody else was faster with a write, or that our cache lags behind, is no error:
// the newer object is on its way to us.
func (c *Controller) resultOf(again time.Time, problems []error) (reconcile.Result, error) {
	stale := false
	for i, err := range problems {
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			stale, problems[i] = true, nil
		}
	}
	switch err := errors.Join(problems...); {
	case err != nil:
		return reconcile.Result{}, err
	case stale:
		return reconcile.Result{RequeueAfter: cacheLag}, nil
	case again.IsZero():
		return reconcile.Result{}, nil
	default:
		return reconcile.Result{RequeueAfter: max(again.Sub(c.config.Clock.Now()), time.Millisecond)}, nil
	}
}

// sooner returns the earlier of two times, of which zero is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// SetupWithManager registers the controller with the manager.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	if err := errors.Join(c.config.Validate(), mgr.Add(c.calls.background)); err != nil {
		return err
	}
	peer := handler.EnqueueRequestsFromMapFunc(peersOf)
	return ctrl.NewControllerManagedBy(mgr).
		Named("peering").
		For(&v1alpha1.Peer{}, builder.WithPredicates(peerChanges)).
		Watches(&corev1.Namespace{}, peer, builder.WithPredicates(namespaceChanges)).
		Watches(&corev1.Node{}, peer, builder.WithPredicates(nodeTurned)).
		Watches(&v1alpha1.Advertisement{}, peer, builder.WithPredicates(offerChanges)).
		Watches(&v1alpha1.PeeringClaim{}, peer, builder.WithPredicates(claimChanges)).
		WatchesRawSource(source.Channel(c.calls.ended, &handler.EnqueueRequestForObject{})).
		WatchesRawSource(c.links.Changes()).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(c)
}
