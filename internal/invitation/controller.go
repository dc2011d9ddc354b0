package invitation

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
	"github.com/hanse-dev/hanse/internal/local"
)

const (
	// fieldOwner is who writes condition Joined and invitation of the status of Peers, the status of PeeringClaims, and
	// the rules of the FlowSchema.
	fieldOwner = client.FieldOwner("hanse-invitation")
	// repairPeriod is how long something that was deleted or changed in a tenant namespace may stay so: what lies in there
	// is not watched, because that needs rights in all namespaces. It varies, so that peers are not looked at all at once.
	repairPeriod = 10 * time.Minute
	// settleTime is how long it may take until our rights in a new namespace are known to the API server, settlePause how
	// soon they are tried again.
	settleTime  = 10 * time.Second
	settlePause = 200 * time.Millisecond
	// maxSteps is more than an invitation or a claim ever takes.
	maxSteps = 16
)

// errGone means that the Peer is not there any more.
var errGone = errors.New("the Peer is gone")

// A Controller keeps the invitations and claims of Peers.
type Controller struct {
	config   Config
	client   client.Client // reads from a cache
	direct   client.Client // reads from the API server itself
	recorder events.EventRecorder

	admission sync.Mutex // held from looking for another Peer of a cluster's id to setting that id

	mu    sync.Mutex
	looks map[string]look // peer → the last look at it that left nothing to do
}

// A look says what was seen from afar when a peer was last looked at closely, and when that must be done again. It only
// spares requests: all of it is found out again after a restart.
type look struct {
	seen sight
	due  time.Time
}

// A sight is what the cache knows of a peer.
type sight struct {
	peer            types.UID
	generation      int64
	namespace       types.UID
	claim           types.UID
	claimGeneration int64
}

// New returns the controller. c reads from a cache, live from the API server itself.
func New(config Config, c client.Client, live client.Reader, recorder events.EventRecorder) *Controller {
	config.Default()
	return &Controller{
		config: config, client: c, direct: local.Uncached(c, live), recorder: recorder, looks: map[string]look{},
	}
}

// Reconcile does for one Peer what this package is for.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	peer := &v1alpha1.Peer{}
	err := c.client.Get(ctx, req.NamespacedName, peer)
	if err != nil || !peer.DeletionTimestamp.IsZero() || peer.Agentless() {
		c.forget(req.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !peer.HasRole(v1alpha1.RoleConsumer) { // whoever keeps the tenant namespace takes away what it had
		c.forget(req.Name)
		return reconcile.Result{}, c.report(ctx, &facts{peer: peer})
	}
	ns, seen, err := c.glance(ctx, peer)
	if err != nil {
		return reconcile.Result{}, err
	}
	if ns == nil { // its event comes
		c.forget(req.Name)
		return reconcile.Result{}, c.report(ctx, &facts{peer: peer, preparing: true})
	}
	if left := c.idle(peer.Name, seen); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	due, err := c.settle(ctx, peer)
	switch {
	case errors.Is(err, errGone):
		return reconcile.Result{}, nil
	case apierrors.IsForbidden(err) && c.config.Clock.Since(ns.CreationTimestamp.Time) < settleTime:
		return reconcile.Result{RequeueAfter: settlePause}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: c.remember(peer.Name, look{seen, due})}, nil
}

// glance sees what the cache knows. It returns no namespace while there is none that is this peer's.
func (c *Controller) glance(ctx context.Context, peer *v1alpha1.Peer) (*corev1.Namespace, sight, error) {
	ns := &corev1.Namespace{}
	err := c.client.Get(ctx, client.ObjectKey{Name: v1alpha1.TenantNamespace(peer.Name)}, ns)
	if apierrors.IsNotFound(err) || err == nil && !tenantOf(peer, ns) {
		return nil, sight{}, nil
	}
	if err != nil {
		return nil, sight{}, fmt.Errorf("read namespace: %w", err)
	}
	claim := &v1alpha1.PeeringClaim{}
	err = c.client.Get(ctx, client.ObjectKey{Namespace: ns.Name, Name: v1alpha1.PeeringClaimName}, claim)
	if client.IgnoreNotFound(err) != nil {
		return nil, sight{}, fmt.Errorf("read PeeringClaim: %w", err)
	}
	return ns, sight{peer.UID, peer.Generation, ns.UID, claim.UID, claim.Generation}, nil
}

// tenantOf reports whether ns is the peer's tenant namespace, and stays.
func tenantOf(peer *v1alpha1.Peer, ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp.IsZero() && peer.OwnsTenantNamespace(ns)
}

// settle takes step after step until nothing is left to do, and returns when the peer must be looked at again.
func (c *Controller) settle(ctx context.Context, peer *v1alpha1.Peer) (time.Time, error) {
	for range maxSteps {
		f, err := c.observe(ctx, peer)
		if err != nil {
			return time.Time{}, err
		}
		next := decide(f)
		// The serial of an invitation is in the status before the invitation goes, so that it is not made again.
		if next == nothing || next == dropInvitation && !f.asked() {
			if err := c.report(ctx, f); err != nil {
				return time.Time{}, err
			}
		}
		if next == nothing {
			return f.due(wait.Jitter(repairPeriod, 0.2)), nil
		}
		if err := c.act(ctx, next, f); err != nil {
			return time.Time{}, err
		}
	}
	return time.Time{}, errors.New("somebody else undoes each step")
}

// idle returns for how long nothing needs to be done if nothing changes.
func (c *Controller) idle(peer string, seen sight) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looks[peer].seen != seen {
		return 0
	}
	return c.looks[peer].due.Sub(c.config.Clock.Now())
}

func (c *Controller) remember(peer string, l look) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks[peer] = l
	return max(l.due.Sub(c.config.Clock.Now()), time.Millisecond)
}

func (c *Controller) forget(peer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.looks, peer)
}

// SetupWithManager registers the controllers of this package with the manager.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	schemas := &flowSchemas{client: c.client, direct: c.direct}
	return errors.Join(c.config.Validate(), schemas.setup(mgr), ctrl.NewControllerManagedBy(mgr).
		Named("invitation").
		For(&v1alpha1.Peer{}, builder.WithPredicates(specChanges)).
		Watches(&v1alpha1.PeeringClaim{}, peerOfNamespaced(), builder.WithPredicates(specChanges)).
		Watches(&corev1.Namespace{}, peerOfNamespace(), builder.WithPredicates(tenantNamespaces)).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.config.Workers}).
		Complete(c))
}
