package agentless

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

const (
	// lookSoon is when a peer is looked at again of which nothing is known.
	lookSoon = 10 * time.Second
	// cacheLag is how long a cache needs to show what was just written.
	cacheLag = 50 * time.Millisecond
)

// Connect returns a reader of the peer's API server.
type Connect func(ctx context.Context, peer *v1alpha1.Peer) (client.Reader, error)

// By returns a Connect over the links.
func By(links *peers.Links) Connect {
	return func(ctx context.Context, peer *v1alpha1.Peer) (client.Reader, error) {
		link, err := links.Ensure(ctx, peer)
		if err != nil {
			return nil, err
		}
		return link.Client(), nil
	}
}

// An Offerer makes the advertisements of peers without Hanse, as if they were copies of what such a peer had said.
type Offerer struct {
	config  Config
	client  client.Client
	connect Connect
	clock   clock.PassiveClock
}

// NewOfferer returns an offerer that reads and writes our own cluster with the client.
func NewOfferer(config Config, c client.Client, connect Connect, clk clock.PassiveClock) *Offerer {
	return &Offerer{config: config, client: c, connect: connect, clock: clk}
}

// SetupWithManager registers the offerer with the manager.
func (o *Offerer) SetupWithManager(mgr ctrl.Manager) error {
	if err := o.config.Validate(); err != nil {
		return err
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("agentless-offerer").
		For(&v1alpha1.Peer{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Advertisement{}, handler.EnqueueRequestsFromMapFunc(peerOf), builder.WithPredicates(decided)).
		WithOptions(controller.Options{MaxConcurrentReconciles: o.config.Workers}).
		Complete(o)
	if err != nil {
		return fmt.Errorf("set up the offers of clusters without Hanse: %w", err)
	}
	return nil
}

// decided lets through what others do to a copy: an administrator's decision, and its deletion.
var decided = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return true },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetAnnotations()[v1alpha1.AnnotationDecision] != e.ObjectNew.GetAnnotations()[v1alpha1.AnnotationDecision]
	},
}

// peerOf maps an advertisement to its peer.
func peerOf(_ context.Context, ad client.Object) []reconcile.Request {
	peer, found := ad.GetLabels()[v1alpha1.LabelPeer]
	if !found {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: peer}}}
}

// Reconcile makes the advertisement of one peer what it must be, and says on the Peer how that went.
func (o *Offerer) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	peer := &v1alpha1.Peer{}
	if err := o.client.Get(ctx, request.NamespacedName, peer); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !peer.Agentless() {
		return reconcile.Result{}, nil
	}
	if !peer.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, o.withdraw(ctx, peer)
	}
	if err := o.name(ctx, peer); err != nil {
		return retryIfStale(err)
	}
	held, err := o.held(ctx, peer)
	if err != nil {
		return reconcile.Result{}, err
	}
	seen := facts{peer: peer, held: held, id: ClusterID(o.config.ClusterID, peer.Name), now: o.clock.Now()}
	o.measure(ctx, &seen)
	next := decide(seen, o.config)
	if err := o.report(ctx, seen, next); err != nil {
		return retryIfStale(err)
	}
	return reconcile.Result{RequeueAfter: next.again}, nil
}

func retryIfStale(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: cacheLag}, nil // our cache lags behind our own writes
	}
	return reconcile.Result{}, err
}

// name gives the peer an id, which it cannot tell itself.
func (o *Offerer) name(ctx context.Context, peer *v1alpha1.Peer) error {
	if peer.Spec.ClusterID != "" {
		return nil
	}
	before := peer.DeepCopy()
	peer.Spec.ClusterID = ClusterID(o.config.ClusterID, peer.Name)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := o.client.Patch(ctx, peer, patch); err != nil {
		return fmt.Errorf("set spec.clusterID of Peer %s: %w", peer.Name, err)
	}
	return nil
}

// measure asks the peer what it has.
func (o *Offerer) measure(ctx context.Context, seen *facts) {
	if seen.peer.Spec.ClusterID != seen.id {
		return
	}
	reader, err := o.connect(ctx, seen.peer)
	if err != nil {
		seen.unread = err
		return
	}
	from := surveyor{reader: reader, id: seen.id, peer: seen.peer.Name, namespace: seen.peer.Spec.Namespaces[0]}
	found, err := from.look(ctx)
	if err != nil {
		seen.unread = err
		return
	}
	seen.offer, seen.unknown = found.offer(seen.peer, o.config)
}

func adKey(peer *v1alpha1.Peer) types.NamespacedName {
	return types.NamespacedName{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: peer.Spec.ClusterID}
}

// held returns the advertisement of the peer, or nil.
func (o *Offerer) held(ctx context.Context, peer *v1alpha1.Peer) (*v1alpha1.Advertisement, error) {
	ad := &v1alpha1.Advertisement{}
	err := o.client.Get(ctx, adKey(peer), ad)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Advertisement %s: %w", adKey(peer), err)
	}
	return ad, nil
}

// withdraw deletes the advertisement of a peer that we leave.
func (o *Offerer) withdraw(ctx context.Context, peer *v1alpha1.Peer) error {
	if peer.Spec.ClusterID == "" {
		return nil
	}
	key := adKey(peer)
	ad := &v1alpha1.Advertisement{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err := o.client.Delete(ctx, ad)
	if client.IgnoreNotFound(err) != nil && !apierrors.IsForbidden(err) { // our rights go with the namespace
		return fmt.Errorf("delete Advertisement %s: %w", key, err)
	}
	return nil
}

// Config is what an administrator may set of the offers that are made for peers without Hanse.
type Config struct {
	// ClusterID is the id of this cluster. It must be set.
	ClusterID string
	// Interval is how often a peer is looked at. It must be set.
	Interval time.Duration
	// TimeToLive is for how long an offer lives when the peer does not answer any more. It must be longer than Interval.
	TimeToLive time.Duration
	// LabelKeys are the labels of nodes that are told where all nodes of the peer agree.
	LabelKeys []string
	// Workers is how many peers are read at the same time. It must be set.
	Workers int
}

// Validate reports what is wrong with the configuration.
func (c *Config) Validate() error {
	if c.ClusterID == "" || c.Interval <= 0 || c.TimeToLive <= c.Interval || c.Workers < 1 {
		return errors.New("offers of clusters without Hanse need a cluster id, workers, an interval and a longer time to live")
	}
	return nil
}
