package peering

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
)

const (
	// fieldOwner is who writes the status of Peers, but for what is of other packages.
	fieldOwner = client.FieldOwner("hanse-peering")
	// settlePause is how soon a tenant namespace is looked at again whose rights have to settle.
	settlePause = 200 * time.Millisecond
	// cacheLag is how long a cache needs to show what was just written.
	cacheLag = 50 * time.Millisecond
)

// A Controller keeps Peers.
type Controller struct {
	config     Config
	client     client.Client
	links      Links
	recorder   events.EventRecorder
	tenants    tenants
	addresses  addresses
	undertaker undertaker
	transfers  *semaphore.Weighted // how many samples may be read at the same time

	mu     sync.Mutex
	states map[string]*state // peer → what is known of it
}

// A state is what need not be done with every look at a peer. All of it is found out again after a restart.
type state struct {
	probe  probe
	tenant tenancyRecord
	wrong  string // why the peer's tombstone is not believed, as the administrator was told
}

// New returns the controller of Peers. c reads from a cache, live from the API server itself.
func New(config Config, c client.Client, live client.Reader, links Links, recorder events.EventRecorder) *Controller {
	config.Default()
	kept := tenants{
		config: config, client: c, direct: local.Uncached(c, live), counting: local.NewCounting(c, config.Namespace),
	}
	return &Controller{
		config:     config,
		client:     c,
		links:      links,
		recorder:   recorder,
		tenants:    kept,
		addresses:  addresses{config: config, client: c, live: live},
		undertaker: undertaker{config: config, tenants: kept, links: links},
		transfers:  semaphore.NewWeighted(maxTransfers),
		states:     map[string]*state{},
	}
}

// Reconcile does for one Peer what this package is for.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	peer := &v1alpha1.Peer{}
	if err := c.client.Get(ctx, req.NamespacedName, peer); err != nil {
		if apierrors.IsNotFound(err) {
			c.forget(req.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !peer.DeletionTimestamp.IsZero() {
		return c.farewell(ctx, peer)
	}
	if discovered(peer) {
		return reconcile.Result{}, c.report(ctx, peer, &facts{ours: c.config.Version})
	}
	switch err := c.hold(ctx, peer); {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: cacheLag}, nil // the newer copy is on its way to us
	case err != nil:
		return reconcile.Result{}, err
	}
	known := c.stateOf(peer.Name)
	seen := &facts{ours: c.config.Version}
	seen.tenant, seen.tenantErr = c.tenants.ensure(ctx, peer, &known.tenant)
	if err := c.observe(ctx, peer, seen, &known.probe); err != nil {
		return reconcile.Result{}, err
	}
	if gone, err := c.followSuit(ctx, peer, c.config.departed(peer, seen), known); gone || err != nil {
		return reconcile.Result{}, err
	}
	var assignErr error
	seen.addresses, assignErr = c.assign(ctx, peer, seen)
	err := errors.Join(seen.tenantErr, assignErr, c.report(ctx, peer, seen))
	return reconcile.Result{RequeueAfter: c.pause(peer, seen, known)}, err
}

// discovered reports whether the peer was only found in the network. Nothing is made for it. (One that has lost its roles
// has our finalizer.)
func discovered(peer *v1alpha1.Peer) bool {
	return len(peer.Spec.Roles) == 0 && !controllerutil.ContainsFinalizer(peer, v1alpha1.FinalizerPeer)
}

// observe greets the peer and reads its messages. Those in a namespace that is not ours are nobody's.
func (c *Controller) observe(ctx context.Context, peer *v1alpha1.Peer, seen *facts, p *probe) error {
	if err := c.greet(ctx, peer, seen.tenant, p); err != nil {
		return err
	}
	c.measure(ctx, peer, p)
	p.choose(&peer.Status, c.config.Clock.Now())
	seen.probe = *p
	p.roundTrip.gauge(peer.Name)
	p.bandwidth.gauge(peer.Name)
	if seen.tenant != tenantReady {
		return nil
	}
	var claimErr, offerErr, joinErr error
	seen.claim, claimErr = c.claimOf(ctx, peer)
	seen.offer, offerErr = c.offerOf(ctx, peer)
	if mayBeOneWay(peer, p.err) {
		var joining bool
		joining, joinErr = c.tenants.exists(ctx, secret(v1alpha1.TenantNamespace(peer.Name), v1alpha1.JoinSecret))
		seen.oneWay = !joining && joinErr == nil
	}
	return errors.Join(claimErr, offerErr, joinErr)
}

// hold puts our finalizer on the Peer before anything is made for it.
func (c *Controller) hold(ctx context.Context, peer *v1alpha1.Peer) error {
	if controllerutil.ContainsFinalizer(peer, v1alpha1.FinalizerPeer) {
		return nil
	}
	before := peer.DeepCopy()
	controllerutil.AddFinalizer(peer, v1alpha1.FinalizerPeer)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.client.Patch(ctx, peer, patch); err != nil {
		return fmt.Errorf("add finalizer: %w", err)
	}
	return nil
}

// greet greets the peer if we consume from it. Credentials in a namespace that is not ours are nobody's.
func (c *Controller) greet(ctx context.Context, peer *v1alpha1.Peer, tenant tenantState, p *probe) error {
	if !peer.HasRole(v1alpha1.RoleProvider) || tenant == tenantTaken {
		c.links.Close(peer.Name)
		*p = probe{}
		return nil
	}
	if tenant != tenantReady {
		return nil
	}
	urgent, err := c.disputed(ctx, peer, p)
	if err != nil {
		return err
	}
	if urgent {
		p.due = time.Time{}
	}
	config := c.config
	config.ProbePeriod = max(config.ProbePeriod, spread(c.count()))
	p.greet(ctx, c.links, peer, config)
	if p.interrupted() {
		p.link = nil
		return p.err
	}
	return nil
}

func (c *Controller) assign(ctx context.Context, peer *v1alpha1.Peer, seen *facts) (assignment, error) {
	if !peer.HasRole(v1alpha1.RoleProvider) {
		c.addresses.forget(peer.Name)
		return assignment{}, nil
	}
	var theirs netip.Prefix
	// Before the offer is accepted nothing runs there. So the range is told together with Ready, in one write.
	if advertised := said(peer, v1alpha1.ConditionAdvertised); advertised != nil && advertised.ok() {
		theirs = podCIDR(seen.offer)
	}
	got, err := c.addresses.assign(ctx, peer, theirs)
	if err != nil {
		return unchanged(peer, err), err
	}
	return got, nil
}

// pause returns when the peer must be looked at again though nothing changes.
func (c *Controller) pause(peer *v1alpha1.Peer, seen *facts, known *state) time.Duration {
	next := known.tenant.repair
	switch {
	case seen.tenant == tenantUnsettled:
		return settlePause
	case seen.tenant != tenantReady:
		return firstRepair
	case peer.HasRole(v1alpha1.RoleProvider) && seen.probe.due.Before(next):
		next = seen.probe.due
	}
	return max(next.Sub(c.config.Clock.Now()), time.Millisecond)
}

func (c *Controller) stateOf(peer string) *state {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.states[peer] == nil {
		c.states[peer] = &state{}
	}
	return c.states[peer]
}

// count returns how many peers are looked after.
func (c *Controller) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.states)
}

func (c *Controller) forget(peer string) {
	c.addresses.forget(peer)
	roundTrip{}.gauge(peer)
	bandwidth{}.gauge(peer)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.states, peer)
}

// SetupWithManager registers the controller with the manager, and the one of what is left of former peers.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	return errors.Join(
		c.config.Validate(),
		ctrl.NewControllerManagedBy(mgr).
			Named("peering").
			For(&v1alpha1.Peer{}, builder.WithPredicates(peerChanges)).
			Watches(&corev1.Namespace{}, peerOfNamespace(), namespaceChanges()).
			Watches(&corev1.Node{}, peerOfNode(), builder.WithPredicates(nodeTurned)).
			Watches(&v1alpha1.Advertisement{}, peerOfMessage(), offerChanges()).
			Watches(&v1alpha1.PeeringClaim{}, peerOfMessage(), claimChanges()).
			WithOptions(c.options()).
			Complete(c),
		ctrl.NewControllerManagedBy(mgr).
			Named("undertaker").
			For(&corev1.Namespace{}, tombstones()).
			WithOptions(c.options()).
			Complete(&c.undertaker),
	)
}
