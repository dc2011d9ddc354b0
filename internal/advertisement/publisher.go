package advertisement

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

const (
	// settleTime is how long it may take until rights that were bound in a new namespace are known to the API server.
	settleTime = 10 * time.Second
	// settlePause is how soon it is tried again meanwhile.
	settlePause = 200 * time.Millisecond
)

// A Publisher tells each consumer what this cluster has to spare for it.
type Publisher struct {
	config   Config
	client   client.Client
	clock    clock.Clock
	recorder events.EventRecorder
	capacity *capacity

	mu    sync.Mutex
	queue queue
}

// NewPublisher returns a publisher. The client reads from a cache; informers are those of the same cache, which should
// trim pods and nodes by exchange.TrimPod and exchange.TrimNode.
func NewPublisher(
	config Config, c client.Client, informers cache.Informers, clk clock.Clock, recorder events.EventRecorder,
) *Publisher {
	return &Publisher{config: config, client: c, clock: clk, recorder: recorder, capacity: newCapacity(config, informers)}
}

// SetupWithManager registers the publisher with the manager.
func (p *Publisher) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(manager.RunnableFunc(p.Run)); err != nil {
		return fmt.Errorf("add the publisher of advertisements: %w", err)
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("advertisement-publisher").
		For(&v1alpha1.Peer{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// The status of what we publish is the consumer's, and not for us.
		Watches(&v1alpha1.Advertisement{}, handler.EnqueueRequestsFromMapFunc(peerOf),
			builder.WithPredicates(predicate.GenerationChangedPredicate{}, predicate.NewPredicateFuncs(p.isOurs))).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(peerOf),
			builder.WithPredicates(predicate.NewPredicateFuncs(isTenant), onlyNew)).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(p.onPrices),
			builder.WithPredicates(predicate.NewPredicateFuncs(p.isPrices))).
		WatchesRawSource(p.capacity).
		WatchesRawSource(source.Func(p.keepQueue)).
		WithOptions(controller.Options{MaxConcurrentReconciles: p.config.Workers}).
		Complete(p)
	if err != nil {
		return fmt.Errorf("set up the publisher of advertisements: %w", err)
	}
	return nil
}

func (p *Publisher) isOurs(object client.Object) bool { return object.GetName() == p.config.ClusterID }

func isTenant(object client.Object) bool {
	return object.GetLabels()[v1alpha1.LabelType] == v1alpha1.TypeTenant
}

var onlyNew = predicate.Funcs{
	UpdateFunc:  func(event.UpdateEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

func (p *Publisher) keepQueue(_ context.Context, q queue) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = q
	return nil
}

// Reconcile keeps the advertisement for one consumer what it must be.
func (p *Publisher) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	peer := &v1alpha1.Peer{}
	if err := p.client.Get(ctx, request.NamespacedName, peer); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // the tenant namespace goes with the Peer
	}
	if !p.serves(peer) {
		return reconcile.Result{}, p.withdraw(ctx, peer)
	}
	said, err := p.said(ctx, peer)
	if err != nil {
		return reconcile.Result{}, err
	}
	prices, err := p.readPrices(ctx, said)
	if err != nil {
		return reconcile.Result{}, err
	}
	result, err := p.say(ctx, peer, said, prices)
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return reconcile.Result{RequeueAfter: cacheLag}, nil
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return reconcile.Result{RequeueAfter: lookSoon}, nil // the tenant namespace will call us when it is there
	case apierrors.IsForbidden(err):
		return p.settle(ctx, peer, err)
	case err != nil:
		return reconcile.Result{}, err
	default:
		return result, nil
	}
}

// settle waits for our rights in the tenant namespace: until it is there, and a moment longer until the API server knows
// them. After that it is an error that something was refused.
func (p *Publisher) settle(ctx context.Context, peer *v1alpha1.Peer, refusal error) (reconcile.Result, error) {
	ns := &corev1.Namespace{}
	err := p.client.Get(ctx, types.NamespacedName{Name: v1alpha1.TenantNamespace(peer.Name)}, ns)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("read the tenant namespace of peer %q: %w", peer.Name, err)
	case !peer.OwnsTenantNamespace(ns):
		return reconcile.Result{RequeueAfter: lookSoon}, nil // the tenant namespace will call us when it is there
	case p.clock.Since(ns.CreationTimestamp.Time) < settleTime:
		return reconcile.Result{RequeueAfter: settlePause}, nil
	default:
		return reconcile.Result{}, refusal
	}
}

// serves says whether the peer is told what there is for it: a consumer that is known, until we have parted from it.
func (p *Publisher) serves(peer *v1alpha1.Peer) bool {
	known := peer.Spec.ClusterID != "" && peer.Spec.ClusterID != p.config.ClusterID
	heard := peer.DeletionTimestamp.IsZero() || peer.Parting().Mode == v1alpha1.PartingAgreed
	return known && heard && peer.HasRole(v1alpha1.RoleConsumer)
}

// said returns the advertisement as it stands, or nil.
func (p *Publisher) said(ctx context.Context, peer *v1alpha1.Peer) (*v1alpha1.Advertisement, error) {
	ad := &v1alpha1.Advertisement{}
	err := p.client.Get(ctx, p.key(peer), ad)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return ad, wrap(err, "read advertisement %s", p.key(peer))
}

// key names the advertisement for the peer.
func (p *Publisher) key(peer *v1alpha1.Peer) types.NamespacedName {
	return types.NamespacedName{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: p.config.ClusterID}
}

// say writes the advertisement if a message is due, and returns when the next will be.
func (p *Publisher) say(
	ctx context.Context, peer *v1alpha1.Peer, said *v1alpha1.Advertisement, prices priceTag,
) (reconcile.Result, error) {
	now := p.clock.Now()
	there := p.capacity.look()
	if said == nil {
		if prices.unknown {
			return reconcile.Result{}, nil // rather no offer than one for free; a repaired setting calls us again
		}
		if !peer.DeletionTimestamp.IsZero() {
			return reconcile.Result{}, nil // what was there for the peer is being cleared away
		}
		spec := p.config.offer(peer, there, prices.prices, 0, now)
		return reconcile.Result{RequeueAfter: spread(p.config.HelloInterval, peer.Name)}, p.create(ctx, peer, spec)
	}
	spec := p.config.offer(peer, there, prices.prices, said.Spec.Sequence, now)
	next := p.config.due(peer.Name, &said.Spec, &spec, now)
	if next.after > 0 {
		return reconcile.Result{RequeueAfter: next.after}, nil
	}
	return reconcile.Result{RequeueAfter: spread(p.config.HelloInterval, peer.Name)}, p.update(ctx, said, spec, next.kind)
}

func (p *Publisher) create(ctx context.Context, peer *v1alpha1.Peer, spec v1alpha1.AdvertisementSpec) error {
	ad := &v1alpha1.Advertisement{Spec: spec}
	key := p.key(peer)
	ad.Namespace, ad.Name = key.Namespace, key.Name
	ad.Labels = map[string]string{v1alpha1.LabelPeer: peer.Name}
	if err := controllerutil.SetOwnerReference(peer, ad, p.client.Scheme()); err != nil {
		return fmt.Errorf("make peer %q own its advertisement: %w", peer.Name, err)
	}
	if err := p.client.Create(ctx, ad); err != nil {
		return fmt.Errorf("create advertisement %s: %w", key, err)
	}
	sent.WithLabelValues("full").Inc()
	return nil
}

// update sends what changed, and no more. The version that it was seen at goes along: on an older one than ours the
// sequence would not grow.
func (p *Publisher) update(
	ctx context.Context, said *v1alpha1.Advertisement, spec v1alpha1.AdvertisementSpec, kind string,
) error {
	changed := said.DeepCopy()
	changed.Spec = spec
	patch := client.MergeFromWithOptions(said, client.MergeFromWithOptimisticLock{})
	if err := p.client.Patch(ctx, changed, patch); err != nil {
		return fmt.Errorf("update advertisement %s: %w", client.ObjectKeyFromObject(said), err)
	}
	sent.WithLabelValues(kind).Inc()
	return nil
}

// withdraw takes back what was offered to a peer that is no consumer any more.
func (p *Publisher) withdraw(ctx context.Context, peer *v1alpha1.Peer) error {
	ad, err := p.said(ctx, peer)
	if err != nil || ad == nil {
		return err
	}
	return wrap(client.IgnoreNotFound(p.client.Delete(ctx, ad)), "withdraw advertisement %s", p.key(peer))
}

// Run looks at the capacity when it has changed, at most once per interval, and has the consumers told: at once if the
// change is large, else when it has settled.
func (p *Publisher) Run(ctx context.Context) error {
	var told *offerable
	settle := p.clock.NewTimer(p.config.SettleInterval)
	defer settle.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.capacity.changed:
			there := p.capacity.look()
			if told == nil || p.config.large(*told, there) {
				told = &there
				p.ringAll(ctx)
			}
		case <-settle.C():
			there := p.capacity.look()
			if told == nil || !same(*told, there) {
				told = &there
				p.ringAll(ctx)
			}
			settle.Reset(p.config.SettleInterval)
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.clock.After(p.config.MinInterval):
		}
	}
}

// ringAll puts all peers into the queue.
func (p *Publisher) ringAll(ctx context.Context) {
	p.mu.Lock()
	q := p.queue
	p.mu.Unlock()
	if q == nil {
		return // the controller has not started: it will look at every peer when it does
	}
	for _, request := range p.consumers(ctx) {
		q.Add(request)
	}
}

func (p *Publisher) consumers(ctx context.Context) []reconcile.Request {
	peers := &v1alpha1.PeerList{}
	if err := p.client.List(ctx, peers); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List peers")
		return nil
	}
	var requests []reconcile.Request
	for i := range peers.Items {
		if peers.Items[i].HasRole(v1alpha1.RoleConsumer) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: peers.Items[i].Name}})
		}
	}
	return requests
}

// large reports whether consumers should hear of the change at once.
func (c *Config) large(then, now offerable) bool {
	return !sameDescription(then, now) || exchange.Moved(then.Free(), now.Free(), c.Threshold)
}
