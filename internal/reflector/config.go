package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	workers    = 8
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Config is what the controllers of this package need.
type Config struct {
	// Client reads our own cluster from a cache, made with CacheByObject and KeepReferences, and writes to it.
	Client client.Client
	// Live reads ConfigMaps and Secrets of our own cluster, one by one.
	Live client.Reader
	// Metadata watches the metadata of ConfigMaps and Secrets of our own cluster, by namespace.
	Metadata metadata.Interface
	// Connect returns the current link to a peer, the same one for as long as it can be used.
	Connect func(ctx context.Context, peer *v1alpha1.Peer) (Remote, error)
	// Events tells users what cannot be copied.
	Events events.EventRecorder
	// Namespace is the one that Hanse runs in, and ServiceAccount who its manager is there.
	Namespace, ServiceAccount string
}

// Validate reports what is missing.
func (c Config) Validate() error {
	if c.Client == nil || c.Live == nil || c.Metadata == nil || c.Connect == nil || c.Events == nil {
		return errors.New("reflector: Client, Live, Metadata, Connect and Events are needed")
	}
	if c.Namespace == "" || c.ServiceAccount == "" {
		return errors.New("reflector: Namespace and ServiceAccount are needed")
	}
	return nil
}

// CacheByObject returns what the cache of the process keeps of the kinds that nobody else in it watches.
func CacheByObject() map[client.Object]cache.ByObject {
	ours := fields.OneTermEqualSelector("metadata.name", v1alpha1.ClusterRoleReflectorInNamespace)
	return map[client.Object]cache.ByObject{
		&rbacv1.RoleBinding{}: {Field: ours, Transform: cache.TransformStripManagedFields()},
	}
}

// Controller is the three controllers of this package.
type Controller struct {
	granter   *granter
	connector *connector
	copier    *copier
	changes   *doorbell[request]
	losses    *doorbell[reconcile.Request]
}

// New returns the controllers. It starts nothing.
func New(c Config) (*Controller, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	changes, losses := &doorbell[request]{}, &doorbell[reconcile.Request]{}
	remote := &sites{open: map[string]*site{}, ring: changes.ring, later: changes.later, lost: losses.ring}
	local := &sources{metadata: c.Metadata, open: map[place]*watched{}, ring: changes.ring}
	return &Controller{
		granter:   &granter{client: c.Client, own: c.Namespace, account: c.ServiceAccount},
		connector: &connector{client: c.Client, connect: c.Connect, sites: remote},
		copier:    &copier{client: c.Client, live: c.Live, sites: remote, sources: local, events: c.Events},
		changes:   changes,
		losses:    losses,
	}, nil
}

// SetupWithManager adds the controllers to the manager.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	for _, setup := range []func(ctrl.Manager) error{c.setupGranter, c.setupConnector, c.setupCopier} {
		if err := setup(mgr); err != nil {
			return fmt.Errorf("set up reflection: %w", err)
		}
	}
	for _, run := range []manager.RunnableFunc{c.copier.sites.Run, c.copier.sources.Run} {
		if err := mgr.Add(run); err != nil {
			return fmt.Errorf("set up reflection: %w", err)
		}
	}
	return nil
}

func (c *Controller) setupGranter(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("reflector-granter").
		For(&corev1.Namespace{}, builder.WithPredicates(markMoved)).
		Watches(&rbacv1.RoleBinding{}, handler.EnqueueRequestsFromMapFunc(namespaceOf)).
		WithOptions(controller.Options{RateLimiter: backOff[reconcile.Request]()}).
		Complete(c.granter)
}

func (c *Controller) setupConnector(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("reflector-connector").
		For(&v1alpha1.Peer{}). // its status too: conditions tell that there are credentials, or others
		WatchesRawSource(source.Func(c.losses.Start)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: backOff[reconcile.Request]()}).
		Complete(c.connector)
}

func (c *Controller) setupCopier(mgr ctrl.Manager) error {
	log := mgr.GetLogger().WithName("reflector")
	return builder.TypedControllerManagedBy[request](mgr).
		Named("reflector").
		Watches(&corev1.Pod{}, c.copier.podHandler(), builder.WithPredicates(needsMove)).
		WatchesRawSource(source.TypedFunc[request](c.changes.Start)).
		WithLogConstructor(func(req *request) logr.Logger {
			if req == nil {
				return log
			}
			return log.WithValues("Peer", req.Peer, "Namespace", req.Namespace, "kind", req.Kind)
		}).
		WithOptions(controller.TypedOptions[request]{MaxConcurrentReconciles: workers, RateLimiter: backOff[request]()}).
		Complete(c.copier)
}

// The default limiter waits up to 17 minutes and lets through 10 requests a second.
func backOff[T comparable]() workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[T](firstRetry, lastRetry)
}
