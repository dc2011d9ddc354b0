// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
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
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/policy"
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
	decider  policy.Decider
	clock    clock.Clock
	recorder events.EventRecorder
	capacity *capacity
	answers  memory[*outgoingAnswer]
	policies atomic.Int64 // how often they were changed
	changed  signal       // all consumers may have to be told something
}

// NewPublisher returns a publisher. The client reads from a cache; informers are those of the same cache, which should
// trim pods and nodes by exchange.TrimPod and exchange.TrimNode.
//
//nolint:revive // six parts, each of which is another thing
func NewPublisher(
	config Config, c client.Client, informers cache.Informers, decider policy.Decider, clk clock.Clock, recorder events.EventRecorder,
) *Publisher {
	return &Publisher{
		config: config, client: c, decider: decider, clock: clk, recorder: recorder,
		capacity: newCapacity(&config, informers), changed: newSignal(),
	}
}

// SetupWithManager registers the publisher with the manager.
func (p *Publisher) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(manager.RunnableFunc(p.Run)); err != nil {
		return fmt.Errorf("add the publisher of advertisements: %w", err)
	}
	if err := metrics.Registry.Register(p); err != nil {
		return fmt.Errorf("register the metrics of the publisher: %w", err)
	}
	p.decider.OnChange(policy.Outgoing, p.onPolicies)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("advertisement-publisher").
		For(&v1alpha1.Peer{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, seenElsewhere))). // policies see the labels
		// The status of what we publish is the consumer's. What it means for others comes through the capacity.
		Watches(&v1alpha1.Advertisement{}, handler.EnqueueRequestsFromMapFunc(peerOf),
			builder.WithPredicates(predicate.GenerationChangedPredicate{}, predicate.NewPredicateFuncs(p.isOurs))).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(peerOf),
			builder.WithPredicates(predicate.NewPredicateFuncs(isTenant), onlyNew)).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(p.onPrices),
			builder.WithPredicates(predicate.NewPredicateFuncs(p.isPrices))).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(allWith(p.client, told...)),
			builder.WithPredicates(predicate.NewPredicateFuncs(p.config.isOwnNetwork))).
		WatchesRawSource(p.capacity).
		WatchesRawSource(p.changed.toPeers(p.client, told...)).
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

// Reconcile keeps the advertisement for one consumer what it must be.
func (p *Publisher) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	peer := &v1alpha1.Peer{}
	if err := p.client.Get(ctx, request.NamespacedName, peer); err != nil {
		if apierrors.IsNotFound(err) {
			p.answers.forget(request.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err) // the tenant namespace goes with the Peer
	}
	published, err := p.published(ctx, peer)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !p.serves(peer) {
		p.answers.forget(peer.Name)
		return reconcile.Result{}, p.withdraw(ctx, published)
	}
	next, err := p.publish(ctx, peer, published)
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return reconcile.Result{RequeueAfter: cacheLag}, nil
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return reconcile.Result{RequeueAfter: lookSoon}, nil // the tenant namespace will call us when it is there
	case apierrors.IsForbidden(err):
		return p.awaitRights(ctx, peer, err)
	case err != nil:
		return reconcile.Result{}, err
	default:
		return reconcile.Result{RequeueAfter: next}, nil
	}
}

// publish tells the peer what is due, and returns when to look again.
func (p *Publisher) publish(ctx context.Context, peer *v1alpha1.Peer, published *v1alpha1.Advertisement) (time.Duration, error) {
	if !peer.DeletionTimestamp.IsZero() {
		return p.resend(ctx, peer, published)
	}
	q, err := p.draftFor(ctx, peer, published)
	if err != nil || q == nil {
		return 0, err
	}
	newest, holds := p.ask(ctx, peer, published, *q)
	switch {
	case newest.failures > 0:
		return holds, p.sendPhase(ctx, peer, published)
	case newest.decision.Outcome != policy.Allow:
		return holds, p.deny(ctx, peer, published, newest)
	}
	next, err := p.send(ctx, peer, published, newest.offer())
	if err != nil {
		return 0, err
	}
	p.announceOffer(peer, newest)
	return min(holds, next), nil
}

// resend publishes again what was published before, with the phase of now. So a peer that is leaving learns of that, and that
// we are still there, whatever the policies say: without that it could not leave in order.
func (p *Publisher) resend(ctx context.Context, peer *v1alpha1.Peer, published *v1alpha1.Advertisement) (time.Duration, error) {
	if published == nil {
		return 0, nil // what was there for the peer is being cleared away
	}
	offer := published.Spec
	offer.Phase = exchange.PhaseFor(peer)
	return p.send(ctx, peer, published, offer)
}

// sendPhase tells the peer that it is cordoned, or is no longer, although the policies cannot be asked. All else stays as it
// was published, and ends by itself if the policies cannot be asked for long.
func (p *Publisher) sendPhase(ctx context.Context, peer *v1alpha1.Peer, published *v1alpha1.Advertisement) error {
	if published == nil || exchange.Phase(&published.Spec) == exchange.PhaseFor(peer) {
		return nil
	}
	_, err := p.resend(ctx, peer, published)
	return err
}

// draftFor returns what to ask the policies, or nil if no price is known, because no offer is better than one for free.
// Repairing the setting of prices has all consumers looked at again.
func (p *Publisher) draftFor(ctx context.Context, peer *v1alpha1.Peer, published *v1alpha1.Advertisement) (*policyInput, error) {
	prices, err := p.readPrices(ctx, published)
	if err != nil || prices.unknown {
		return nil, err
	}
	network, err := p.config.networkFor(ctx, p.client, peer)
	if err != nil {
		return nil, err
	}
	policies := p.policies.Load() // before anything that they are asked about
	there, images := p.capacity.lookFor(peer.Name)
	draft := p.config.draft(peer, &there, images, prices.prices)
	draft.Network = network
	return &policyInput{
		draft:     draft,
		oldPrices: prices.old,
		load:      there.load,
		labels:    peer.Labels,
		policies:  policies,
	}, nil
}

// awaitRights waits for our rights in the tenant namespace: until it is there, and a moment longer until the API server knows
// them. After that it is an error that something was refused.
func (p *Publisher) awaitRights(ctx context.Context, peer *v1alpha1.Peer, refusal error) (reconcile.Result, error) {
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

// told are the roles of peers that are told what there is. A broker cannot read it where it lies: package broker introduces this cluster
// to its members by it.
var told = []v1alpha1.PeerRole{v1alpha1.RoleConsumer, v1alpha1.RoleBroker}

// serves says whether the peer is told what there is for it: a consumer or a broker that is known, until we have parted from it.
func (p *Publisher) serves(peer *v1alpha1.Peer) bool {
	known := peer.Spec.ClusterID != "" && peer.Spec.ClusterID != p.config.ClusterID
	heard := peer.DeletionTimestamp.IsZero() || peer.Parting().Mode == v1alpha1.PartingAgreed
	return known && heard && slices.ContainsFunc(told, peer.HasRole)
}

// published returns the advertisement as it stands, or nil.
func (p *Publisher) published(ctx context.Context, peer *v1alpha1.Peer) (*v1alpha1.Advertisement, error) {
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

// send writes the offer if a message is due, and returns when the next will be.
func (p *Publisher) send(
	ctx context.Context, peer *v1alpha1.Peer, published *v1alpha1.Advertisement, offer v1alpha1.AdvertisementSpec,
) (time.Duration, error) {
	now := p.clock.Now()
	renewal := spread(p.config.RenewInterval, peer.Name)
	p.config.stamp(&offer, published, now)
	if published == nil {
		return renewal, p.create(ctx, peer, offer)
	}
	kind, after := p.config.due(peer.Name, published, &offer, now)
	if after > 0 {
		return after, nil
	}
	return renewal, p.update(ctx, published, offer, kind)
}

func (p *Publisher) create(ctx context.Context, peer *v1alpha1.Peer, spec v1alpha1.AdvertisementSpec) error {
	ad := fullMessage(&v1alpha1.Advertisement{}, spec)
	key := p.key(peer)
	ad.Namespace, ad.Name = key.Namespace, key.Name
	ad.Labels = map[string]string{v1alpha1.LabelPeer: peer.Name}
	if err := controllerutil.SetOwnerReference(peer, ad, p.client.Scheme()); err != nil {
		return fmt.Errorf("make peer %q own its advertisement: %w", peer.Name, err)
	}
	if err := p.client.Create(ctx, ad); err != nil {
		return fmt.Errorf("create advertisement %s: %w", key, err)
	}
	sent.WithLabelValues(kindFull).Inc()
	return nil
}

// update sends what changed, and no more. The version that it was seen at goes along: on an older one than ours the
// sequence would not grow.
func (p *Publisher) update(
	ctx context.Context, published *v1alpha1.Advertisement, spec v1alpha1.AdvertisementSpec, kind string,
) error {
	changed := partialMessage(published, spec)
	if kind == kindFull {
		changed = fullMessage(published, spec)
	}
	patch := client.MergeFromWithOptions(published, client.MergeFromWithOptimisticLock{})
	if err := p.client.Patch(ctx, changed, patch); err != nil {
		return fmt.Errorf("update advertisement %s: %w", client.ObjectKeyFromObject(published), err)
	}
	sent.WithLabelValues(kind).Inc()
	return nil
}

// withdraw takes back what was offered.
func (p *Publisher) withdraw(ctx context.Context, published *v1alpha1.Advertisement) error {
	if published == nil {
		return nil
	}
	return wrap(client.IgnoreNotFound(p.client.Delete(ctx, published)), "withdraw advertisement %s", client.ObjectKeyFromObject(published))
}

// deny withdraws what the policies do not let the peer have.
func (p *Publisher) deny(
	ctx context.Context, peer *v1alpha1.Peer, published *v1alpha1.Advertisement, newest *outgoingAnswer,
) error {
	if err := p.withdraw(ctx, published); err != nil {
		return err
	}
	p.announceDenial(peer, newest)
	return nil
}

// onPolicies has the policies asked again for all consumers.
func (p *Publisher) onPolicies() {
	p.policies.Add(1)
	p.capacity.changed.send()
}

// Run has all consumers looked at when something has changed, at most once per interval. How soon each is told follows from what
// it was told last.
func (p *Publisher) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.capacity.changed:
			p.changed.send()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.clock.After(p.config.MinInterval):
		}
	}
}
