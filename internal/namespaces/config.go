// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/reflection"
)

const (
	// One peer that hangs holds at most one of these workers.
	mappingWorkers = 8
	firstRetry     = 100 * time.Millisecond
	longestRetry   = 30 * time.Second

	// settle is for how long answers of peers are gathered before the status tells of them.
	settle = 200 * time.Millisecond
	// interval is the least time between two questions about one namespace, and between two looks at what providers offer.
	interval = time.Second
	// lookAgain is how often all is looked at when nothing changes: policies may depend on the time.
	lookAgain = 5 * time.Minute
	// askAgain is after what time policies are asked again that did not answer.
	askAgain = 10 * time.Second
)

// Config is what the controllers of this package need.
type Config struct {
	// Client reads our own cluster from a cache and writes to it.
	Client client.Client
	// Live reads our own cluster without a cache. It is asked before a twin is given up.
	Live client.Reader
	// Links are the connections to peers.
	Links *peers.Links
	// Decider asks the policies about placement.
	Decider policy.Decider
	// Clock tells the time.
	Clock clock.Clock
	// Events tells users of their NamespaceOffloadings.
	Events events.EventRecorder
	// Instance names this process in events, such as its pod's name.
	Instance string
	// Namespace is Hanse's own. It is never offloaded.
	Namespace string
	// Default has Hanse keep a NamespaceOffloading in some namespaces. By default it keeps none.
	Default *Default
	// Aggregate has pods of consumers go on to providers of ours that our offers name. Such pods come from twins.
	Aggregate bool
	// ClusterID is the id of this cluster, which names its own advertisements.
	ClusterID string
}

// Validate reports what is missing.
func (c *Config) Validate() error {
	if c.Client == nil || c.Live == nil || c.Links == nil || c.Decider == nil || c.Clock == nil || c.Events == nil ||
		c.Instance == "" || c.Namespace == "" || c.ClusterID == "" {
		return errors.New("namespaces: Client, Live, Links, Decider, Clock, Events, Instance, Namespace and ClusterID are needed")
	}
	return nil
}

// isCopy tells what providers offer us from our own offers, which lie beside it.
func (c *Config) isCopy(ad client.Object) bool { return ad.GetName() != c.ClusterID }

// Controller is the controllers of this package.
type Controller struct {
	offloadings *offloadings
	mappings    *mappings
	spaces      *spaces
	homebound   *homebound
	waiting     *waiting
}

// New returns the controllers. It starts nothing.
func New(c Config) (*Controller, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Controller{
		offloadings: &offloadings{Config: c, pace: pace{}}, mappings: &mappings{Config: c}, spaces: &spaces{c}, homebound: &homebound{c},
		waiting: &waiting{Config: c, pace: pace{}},
	}, nil
}

// SetupWithManager adds the controllers to the manager.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	return errors.Join(c.setupOffloadings(mgr), c.setupMappings(mgr), c.setupSpaces(mgr), c.setupHomebound(mgr), c.setupWaiting(mgr))
}

// Gather returns what the policies would be asked with now about the pods of the namespace of that name, or, if the name is
// that of a namespace and of a class with a slash between them, about those of the class.
func (c *Controller) Gather(ctx context.Context, _ policy.Question, subject string) (policy.Facts, error) {
	name, class, _ := strings.Cut(subject, "/")
	return c.offloadings.gather(ctx, name, class)
}

func (c *Controller) setupOffloadings(mgr ctrl.Manager) error {
	o := c.offloadings
	atEverything := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{everything}
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("namespaces-offloading").
		For(&v1alpha1.NamespaceOffloading{}, builder.WithPredicates(offloadingChanged)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(offloadingOfNamespace), builder.WithPredicates(metadataChanged)).
		WatchesMetadata(&networkingv1.NetworkPolicy{}, handler.EnqueueRequestsFromMapFunc(offloadingBeside), builder.WithPredicates(comesOrGoes)).
		Watches(&v1alpha1.Advertisement{}, atEverything, builder.WithPredicates(
			predicate.NewPredicateFuncs(o.isCopy), offerChanged)).
		Watches(&v1alpha1.Application{}, handler.EnqueueRequestsFromMapFunc(offloadingBeside), builder.WithPredicates(agreementChanged)).
		Watches(&v1alpha1.Peer{}, atEverything, builder.WithPredicates(predicate.Or(specChanged, distanceChanged))).
		Watches(&corev1.Node{}, atEverything, builder.WithPredicates(virtualNodeChanged)).
		WatchesRawSource(source.TypedFunc[reconcile.Request](o.start)).
		WatchesRawSource(peers.Changes(o.Links, peers.Mappings, o.mappingChanged)).
		WatchesRawSource(peers.LinkChanges(o.Links, o.linkChanged)).
		// One worker: deciding takes no time but the processor's. And so what it keeps needs no locks.
		WithOptions(options(1)).
		Complete(o)
}

func (c *Controller) setupMappings(mgr ctrl.Manager) error {
	m := c.mappings
	return ctrl.NewControllerManagedBy(mgr).
		Named("namespaces-mapping").
		Watches(&v1alpha1.NamespaceOffloading{}, handler.EnqueueRequestsFromMapFunc(m.pairsOfNamespace),
			builder.WithPredicates(specChanged)).
		Watches(&v1alpha1.Peer{}, handler.EnqueueRequestsFromMapFunc(m.pairsOfPeer), builder.WithPredicates(predicate.Or(specChanged, trustChanged))).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(m.pairsOfPeer), builder.WithPredicates(virtualNodeChanged)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(pairOfPod), builder.WithPredicates(onlyDeletions)).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(pairOfVolume), builder.WithPredicates(onlyDeletions)).
		WatchesRawSource(local.WatchWhenDefined(
			mgr.GetCache(), mgr.GetRESTMapper(), reflection.SnapshotContents, handler.Funcs{DeleteFunc: m.snapshotGone})).
		WatchesRawSource(peers.Changes(m.Links, peers.Mappings, m.mappingChanged)).
		WatchesRawSource(peers.LinkChanges(m.Links, m.linkChanged)).
		WithOptions(options(mappingWorkers)).
		Complete(m)
}

func (c *Controller) setupSpaces(mgr ctrl.Manager) error {
	inNamespace := handler.EnqueueRequestsFromMapFunc(namespaceOf)
	return ctrl.NewControllerManagedBy(mgr).
		Named("namespaces-space").
		For(&corev1.Namespace{}, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&v1alpha1.NamespaceOffloading{}, inNamespace, builder.WithPredicates(predicate.Or(specChanged, keepingChanged))).
		Watches(&corev1.Pod{}, inNamespace, builder.WithPredicates(predicate.Or(leavesOrEnds, gateGoes))).
		Watches(&v1alpha1.Advertisement{}, handler.EnqueueRequestsFromMapFunc(c.spaces.twinsOf),
			builder.WithPredicates(hopsChanged)).
		WithOptions(options(1)).
		Complete(c.spaces)
}

func (c *Controller) setupHomebound(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("namespaces-homebound").
		// The strategy when a pod is made counts, so no later event of a pod is looked at.
		For(&corev1.Pod{}, builder.WithPredicates(onlyNew, predicate.NewPredicateFuncs(isKeptHome))).
		// Two watches have no order: a pod may be seen before the NamespaceOffloading that admission kept it home by.
		Watches(&v1alpha1.NamespaceOffloading{}, handler.EnqueueRequestsFromMapFunc(c.homebound.podsOf), builder.WithPredicates(onlyNew)).
		WithOptions(options(1)).
		Complete(c.homebound)
}

func (c *Controller) setupWaiting(mgr ctrl.Manager) error {
	inNamespace := handler.EnqueueRequestsFromMapFunc(namespaceOf)
	everywhere := handler.EnqueueRequestsFromMapFunc(c.waiting.everyNamespace)
	return ctrl.NewControllerManagedBy(mgr).
		Named("namespaces-waiting").
		Watches(&corev1.Pod{}, inNamespace, builder.WithPredicates(waits)).
		Watches(&corev1.PersistentVolumeClaim{}, inNamespace, builder.WithPredicates(boundChanged)).
		Watches(&v1alpha1.NamespaceOffloading{}, inNamespace, builder.WithPredicates(offloadingChanged)).
		Watches(&v1alpha1.Advertisement{}, everywhere, builder.WithPredicates(predicate.NewPredicateFuncs(c.waiting.isCopy), offerChanged)).
		Watches(&corev1.Node{}, everywhere, builder.WithPredicates(virtualNodeChanged)).
		// One worker, so that what it keeps needs no locks.
		WithOptions(options(1)).
		Complete(c.waiting)
}

// The default limiter waits up to 17 minutes and lets through 10 requests a second: too long for a peer that is back,
// and too few for a thousand peers.
func options(workers int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			firstRetry, longestRetry),
	}
}
