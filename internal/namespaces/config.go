package namespaces

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// One peer that hangs holds at most one of these workers.
	mapperWorkers = 8
	// Answers of many peers come in together: one status tells of all that came within this time.
	defaultSettle = 200 * time.Millisecond
	firstRetry    = 100 * time.Millisecond
	longestRetry  = 30 * time.Second
)

// Config is what the controllers of this package need.
type Config struct {
	// Client reads our own cluster from a cache and writes to it.
	Client client.Client
	// Live reads our own cluster without a cache. It is asked before a twin is given up.
	Live client.Reader
	// Connect returns the current link to a peer, the same one for as long as it can be used.
	Connect func(ctx context.Context, peer *v1alpha1.Peer) (Remote, error)
	// Clock tells the time.
	Clock clock.Clock
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
	// Settle is for how long answers of peers are gathered before they are told. By default 200 ms.
	Settle time.Duration
}

// Validate reports what is missing.
func (c Config) Validate() error {
	if c.Client == nil || c.Live == nil || c.Connect == nil || c.Clock == nil || c.Instance == "" || c.Namespace == "" {
		return errors.New("namespaces: Client, Live, Connect, Clock, Instance and Namespace are needed")
	}
	return nil
}

// Controller is the controllers of this package.
type Controller struct {
	remotes    *remotes
	connector  *connector
	mapper     *mapper
	reporter   *reporter
	homekeeper *homekeeper
	marker     *marker
	evictor    *evictor
	keeper     *keeper
}

// New returns the controllers. It starts nothing.
func New(c Config) (*Controller, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Settle == 0 {
		c.Settle = defaultSettle
	}
	known := &remotes{byPeer: map[string]connection{}}
	mapper := &mapper{client: c.Client, live: c.Live, remotes: known}
	reporter := &reporter{client: c.Client, remotes: known, clock: c.Clock, queue: doorbell{delay: c.Settle}}
	return &Controller{
		remotes:    known,
		mapper:     mapper,
		reporter:   reporter,
		connector:  &connector{client: c.Client, connect: c.Connect, remotes: known, mapper: mapper, reporter: reporter},
		homekeeper: &homekeeper{client: c.Client, clock: c.Clock, herald: herald{c.Client, c.Clock, c.Instance}},
		marker:     &marker{client: c.Client},
		evictor:    newEvictor(c),
		keeper: &keeper{
			client: c.Client, own: c.Namespace, wish: c.Default, aggregate: c.Aggregate, clusterID: c.ClusterID,
		},
	}, nil
}

// SetupWithManager adds the controllers to the manager.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	setups := []func(ctrl.Manager) error{
		c.setupConnector, c.setupMapper, c.setupReporter, c.setupHomekeeper, c.setupMarker,
		c.setupEvictor, c.setupKeeper,
	}
	for _, setup := range setups {
		if err := setup(mgr); err != nil {
			return fmt.Errorf("set up namespaces: %w", err)
		}
	}
	return nil
}

func (c *Controller) setupConnector(mgr ctrl.Manager) error {
	if err := mgr.Add(manager.RunnableFunc(c.connector.drain)); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("namespaces-connector").
		For(&v1alpha1.Peer{}). // its status too: conditions tell that there are credentials, or others
		WatchesRawSource(&c.connector.queue).
		WithOptions(options(mapperWorkers)).
		Complete(c.connector)
}

func (c *Controller) setupMapper(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("namespaces-mapper").
		Watches(&v1alpha1.NamespaceOffloading{}, handler.EnqueueRequestsFromMapFunc(c.mapper.pairsOfNamespace),
			builder.WithPredicates(specChanged)).
		Watches(&v1alpha1.Peer{}, handler.EnqueueRequestsFromMapFunc(c.mapper.pairsOfPeer),
			builder.WithPredicates(specChanged)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.mapper.pairsOfNode),
			builder.WithPredicates(virtualNodeChanged)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(pairOfPod),
			builder.WithPredicates(podGone)).
		WatchesRawSource(&c.mapper.queue).
		WithOptions(options(mapperWorkers)).
		Complete(c.mapper)
}

func (c *Controller) setupReporter(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("namespaces-reporter").
		For(&v1alpha1.NamespaceOffloading{}, builder.WithPredicates(specChanged)).
		Watches(&corev1.Node{}, c.reporter.onEveryNamespace(), builder.WithPredicates(virtualNodeChanged)).
		Watches(&v1alpha1.Peer{}, c.reporter.onEveryNamespace(), builder.WithPredicates(specChanged)).
		WatchesRawSource(&c.reporter.queue).
		WithOptions(options(1)).
		Complete(c.reporter)
}

func (c *Controller) setupHomekeeper(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("namespaces-homekeeper").
		For(&corev1.Pod{}, builder.WithPredicates(keptAtHome)).
		WithOptions(options(1)).
		Complete(c.homekeeper)
}

func (c *Controller) setupMarker(mgr ctrl.Manager) error {
	inNamespace := handler.EnqueueRequestsFromMapFunc(namespaceOf)
	return ctrl.NewControllerManagedBy(mgr).
		Named("namespaces-marker").
		For(&corev1.Namespace{}, builder.WithPredicates(markMoved)).
		Watches(&v1alpha1.NamespaceOffloading{}, inNamespace, builder.WithPredicates(comesOrGoes)).
		Watches(&corev1.Pod{}, inNamespace, builder.WithPredicates(leavesOrEnds)).
		WithOptions(options(1)).
		Complete(c.marker)
}

func (c *Controller) setupEvictor(mgr ctrl.Manager) error {
	e := c.evictor
	return ctrl.NewControllerManagedBy(mgr).
		Named("namespaces-evictor").
		Watches(&v1alpha1.NamespaceOffloading{}, e.ringFor(offloadingOf), builder.WithPredicates(specChanged)).
		Watches(&corev1.Node{}, e.ringFor(e.everyEvicting), builder.WithPredicates(virtualNodeOpens)).
		Watches(&corev1.Pod{}, e.ringFor(offloadingOf), builder.WithPredicates(leavesOrEnds)).
		WatchesRawSource(&e.queue).
		WithOptions(options(1)).
		Complete(e)
}

func (c *Controller) setupKeeper(mgr ctrl.Manager) error {
	inNamespace := handler.EnqueueRequestsFromMapFunc(namespaceOf)
	return ctrl.NewControllerManagedBy(mgr).
		Named("namespaces-keeper").
		For(&corev1.Namespace{}, builder.WithPredicates(labelsChanged)).
		Watches(&v1alpha1.NamespaceOffloading{}, inNamespace, builder.WithPredicates(keepingChanged)).
		Watches(&v1alpha1.Advertisement{}, handler.EnqueueRequestsFromMapFunc(c.keeper.twinsOf),
			builder.WithPredicates(hopsChanged)).
		WithOptions(options(1)).
		Complete(c.keeper)
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
