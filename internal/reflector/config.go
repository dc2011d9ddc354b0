package reflector

import (
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
	"github.com/hanse-dev/hanse/internal/peers"
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
	// Links are the ways to peers, which others make.
	Links *peers.Links
	// Events tells users what cannot be copied.
	Events events.EventRecorder
	// Namespace is the one that Hanse runs in, and ServiceAccount who its manager is there.
	Namespace, ServiceAccount string
}

// Validate reports what is missing.
func (c Config) Validate() error {
	if c.Client == nil || c.Live == nil || c.Metadata == nil || c.Links == nil || c.Events == nil {
		return errors.New("reflector: Client, Live, Metadata, Links and Events are needed")
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

// Controller is the two controllers of this package.
type Controller struct {
	granter *granter
	copier  *copier
}

// New returns the controllers. It starts nothing.
func New(c Config) (*Controller, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	local := &sources{metadata: c.Metadata, open: map[place]*watched{}}
	return &Controller{
		granter: &granter{client: c.Client, own: c.Namespace, account: c.ServiceAccount},
		copier:  &copier{client: c.Client, live: c.Live, links: c.Links, sources: local, events: c.Events},
	}, nil
}

// SetupWithManager adds the controllers to the manager.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	for _, setup := range []func(ctrl.Manager) error{c.setupGranter, c.setupCopier} {
		if err := setup(mgr); err != nil {
			return fmt.Errorf("set up reflection: %w", err)
		}
	}
	if err := mgr.Add(manager.RunnableFunc(c.copier.sources.Run)); err != nil {
		return fmt.Errorf("set up reflection: %w", err)
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

func (c *Controller) setupCopier(mgr ctrl.Manager) error {
	log := mgr.GetLogger().WithName("reflector")
	making := builder.TypedControllerManagedBy[request](mgr).
		Named("reflector").
		Watches(&corev1.Pod{}, c.copier.podHandler(), builder.WithPredicates(needsMove)).
		WatchesRawSource(source.TypedFunc[request](c.copier.sources.start)).
		WatchesRawSource(peers.LinkChanges(c.copier.links, c.copier.linkChanged)).
		WatchesRawSource(peers.Changes(c.copier.links, peers.Mappings, c.copier.mappingChanged)).
		WithLogConstructor(func(req *request) logr.Logger {
			if req == nil {
				return log
			}
			return log.WithValues("Peer", req.Peer, "Namespace", req.Namespace, "kind", req.Kind)
		}).
		WithOptions(controller.TypedOptions[request]{MaxConcurrentReconciles: workers, RateLimiter: backOff[request]()})
	for kind, subject := range copies {
		making = making.WatchesRawSource(peers.Changes(c.copier.links, subject, copyChanged(kind)))
	}
	return making.Complete(c.copier)
}

// The default limiter waits up to 17 minutes and lets through 10 requests a second.
func backOff[T comparable]() workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[T](firstRetry, lastRetry)
}
