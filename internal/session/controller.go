package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// lookSoon is how often it is looked for an invitation while there is no session, or a bad one. Secrets cannot be
	// watched, because that needs rights in all namespaces.
	lookSoon = 5 * time.Second
	// lookAgain is the same while all is well. The client rings by an annotation.
	lookAgain = 5 * time.Minute
	// settlePause is how soon it is looked whether the tenant namespace is ready.
	settlePause = time.Second
	// announcedWindow is for how long an invitation that the client has announced is looked for more often.
	announcedWindow = time.Minute
	// introductionWindow is over how long a manager that has started spreads telling providers its version.
	introductionWindow = time.Minute
	// cacheLag is how long a cache needs to show what was just written.
	cacheLag = 50 * time.Millisecond
)

// A Controller joins providers and keeps the sessions at them.
type Controller struct {
	config   Config
	schedule schedule
	client   client.Client
	secrets  secrets
	links    Links
	recorder events.EventRecorder

	mu     sync.Mutex
	states map[string]*state // peer → what is known of it
}

// A state is what need not be done with every look at a peer. A restart loses nothing by losing it.
type state struct {
	peer       types.UID
	since      time.Time // when we began to look after the peer
	joining    attempts
	renewing   attempts
	presenting attempts
	introduced bool // the provider knows our version
}

// A look is what one look at a peer found.
type look struct {
	peer    *v1alpha1.Peer
	now     time.Time
	ready   bool     // the tenant namespace is there, ours, and lets us in
	offer   *offer   // nil: there is no invitation to use
	holding *holding // nil: there is no session
	takenBy string   // another Peer that stands for the cluster of the offer
	joining verdict
	renewal verdict
	unsure  bool // the session ought to have been renewed, and nobody has tried yet
}

// New returns the controller. c reads from a cache, live from the API server itself.
func New(config Config, c client.Client, live client.Reader, links Links, recorder events.EventRecorder) *Controller {
	config.Default()
	return &Controller{
		config:   config,
		schedule: schedule{period: config.RenewalPeriod, life: config.SessionLife},
		client:   c,
		secrets:  secrets{client: c, live: live},
		links:    links,
		recorder: recorder,
		states:   map[string]*state{},
	}
}

// SetupWithManager registers the controller with the manager.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	return errors.Join(c.config.Validate(), ctrl.NewControllerManagedBy(mgr).
		Named("session").
		For(&v1alpha1.Peer{}, builder.WithPredicates(peerChanges)).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.config.Workers}).
		Complete(c))
}

// Reconcile does for one Peer what this package is for.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	peer := &v1alpha1.Peer{}
	if err := c.client.Get(ctx, req.NamespacedName, peer); err != nil {
		c.forget(req.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !peer.HasRole(v1alpha1.RoleProvider) || peer.Agentless() {
		c.forget(peer.Name)
		return reconcile.Result{}, c.withdraw(ctx, peer)
	}
	known := c.stateOf(peer)
	seen, err := c.observe(ctx, peer)
	if err == nil {
		err = c.act(ctx, seen, known)
	}
	if err == nil {
		err = c.report(ctx, seen)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: cacheLag}, nil // somebody was faster, or our cache lags behind
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: c.pause(seen, known)}, nil
}

// observe looks at our side. Of a Peer that goes only the session matters, which stays good until the two have parted.
func (c *Controller) observe(ctx context.Context, peer *v1alpha1.Peer) (*look, error) {
	seen := &look{peer: peer, now: c.config.Clock.Now()}
	ns := &corev1.Namespace{}
	switch err := c.client.Get(ctx, client.ObjectKey{Name: v1alpha1.TenantNamespace(peer.Name)}, ns); {
	case apierrors.IsNotFound(err):
		return seen, nil
	case err != nil:
		return seen, fmt.Errorf("read namespace: %w", err)
	case !peer.OwnsTenantNamespace(ns):
		return seen, nil
	}
	switch err := c.readSecrets(ctx, seen); {
	case apierrors.IsForbidden(err):
		return seen, nil // our rights in there were just bound
	case err != nil:
		return seen, err
	}
	seen.ready = true
	return seen, nil
}

func (c *Controller) readSecrets(ctx context.Context, seen *look) error {
	held, err := c.secrets.read(ctx, seen.peer.Name, v1alpha1.LinkSecret)
	if err != nil {
		return err
	}
	if held != nil {
		seen.holding = parseHolding(held)
	}
	if !seen.peer.DeletionTimestamp.IsZero() {
		return nil
	}
	offered, err := c.secrets.read(ctx, seen.peer.Name, v1alpha1.JoinSecret)
	if err != nil || offered == nil {
		return err
	}
	seen.offer = parseOffer(offered)
	if seen.offer.invitation == nil {
		return nil
	}
	all := &v1alpha1.PeerList{}
	if err := c.client.List(ctx, all); err != nil {
		return fmt.Errorf("list peers: %w", err)
	}
	seen.takenBy = takenBy(all.Items, seen.peer.Name, seen.offer.invitation.ClusterID)
	return nil
}

// act joins, renews and tells our version, as far as each is to be done now.
func (c *Controller) act(ctx context.Context, seen *look, known *state) error {
	if !seen.ready {
		return nil
	}
	if err := c.join(ctx, seen, known); err != nil {
		return err
	}
	if err := c.renew(ctx, seen, known); err != nil {
		return err
	}
	return c.introduce(ctx, seen, known)
}

// pause returns when the peer must be looked at again though nothing changes.
func (c *Controller) pause(seen *look, known *state) time.Duration {
	if !seen.ready {
		return settlePause
	}
	next := seen.now.Add(wait.Jitter(lookAgain, 0.1))
	if seen.holding == nil || seen.renewal.reason == v1alpha1.ReasonUnauthorized {
		next = seen.now.Add(wait.Jitter(lookSoon, 0.1))
	}
	if announced(seen) && seen.now.Sub(known.since) < announcedWindow {
		next = earlier(next, seen.now.Add(settlePause))
	}
	if seen.joining.stage == waiting || seen.joining.stage == failed {
		next = earlier(next, known.joining.next)
	}
	if seen.holding.kept() {
		next = earlier(next, c.renewalDue(seen, known))
		if !known.introduced {
			next = earlier(next, introductionDue(seen, known))
		}
	}
	return max(next.Sub(c.config.Clock.Now()), time.Millisecond)
}

// announced reports whether the client has said of a new Peer that it is about to bring an invitation.
func announced(seen *look) bool {
	return seen.peer.Annotations[v1alpha1.AnnotationJoin] != "" && seen.offer == nil && seen.holding == nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (c *Controller) stateOf(peer *v1alpha1.Peer) *state {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.states[peer.Name]; known != nil && known.peer == peer.UID {
		return known
	}
	c.states[peer.Name] = &state{peer: peer.UID, since: c.config.Clock.Now()}
	return c.states[peer.Name]
}

func (c *Controller) forget(peer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.states, peer)
}
