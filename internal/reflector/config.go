// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/remoteevents"
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
	// Live reads ConfigMaps, Secrets and objects of listed kinds of our own cluster, one by one.
	Live client.Reader
	// Metadata watches the metadata of ConfigMaps and Secrets of our own cluster, by namespace.
	Metadata metadata.Interface
	// Links are the ways to peers, which others make.
	Links *peers.Links
	// Clock says when tokens are due.
	Clock clock.PassiveClock
	// Events tells users what cannot be copied.
	Events events.EventRecorder
	// Tell tells them what happens to copies at peers.
	Tell func(remoteevents.Report)
	// Network is whether peers can be connected, so that Services are reflected.
	Network bool
	// Reach is which objects of each kind are reflected.
	Reach reflection.Reaches
	// Listed are further kinds, of which objects are reflected as they are.
	Listed []reflection.ListedKind
	// Namespace is the one that Hanse runs in, and ServiceAccount who its manager is there.
	Namespace, ServiceAccount string
}

// Validate reports what is missing.
func (c Config) Validate() error {
	if c.Client == nil || c.Live == nil || c.Metadata == nil || c.Links == nil || c.Clock == nil || c.Events == nil || c.Tell == nil || c.Namespace == "" || c.ServiceAccount == "" {
		return errors.New("reflector: Client, Live, Metadata, Links, Clock, Events, Tell, Namespace and ServiceAccount are needed")
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

// SetupWithManager adds the controllers of this package to the manager.
func SetupWithManager(mgr ctrl.Manager, c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	granting := ctrl.NewControllerManagedBy(mgr).
		Named("reflector-granter").
		For(&corev1.Namespace{}, builder.WithPredicates(markMoved)).
		Watches(&rbacv1.RoleBinding{}, handler.EnqueueRequestsFromMapFunc(namespaceOf)).
		WithOptions(controller.Options{RateLimiter: backOff[reconcile.Request]()})
	if err := granting.Complete(&granter{c}); err != nil {
		return fmt.Errorf("set up reflection: %w", err)
	}
	copier := newCopier(c)
	return errors.Join(copier.setup(mgr), newTokens(copier).setup(mgr))
}

func (c *copier) setup(mgr ctrl.Manager) error {
	log := mgr.GetLogger().WithName("reflector")
	making := builder.TypedControllerManagedBy[request](mgr).
		Named("reflector").
		Watches(&corev1.Pod{}, c.podHandler(), builder.WithPredicates(needsMove)).
		WatchesRawSource(source.TypedFunc[request](c.sources.start)).
		WatchesRawSource(peers.LinkChanges(c.Links, c.linkChanged)).
		WatchesRawSource(peers.Changes(c.Links, peers.Mappings, c.mappingChanged)).
		WithLogConstructor(func(req *request) logr.Logger {
			if req == nil {
				return log
			}
			return log.WithValues("Peer", req.Peer, "Namespace", req.Namespace, "kind", req.Kind)
		}).
		WithOptions(controller.TypedOptions[request]{MaxConcurrentReconciles: workers, RateLimiter: backOff[request]()})
	for _, kind := range c.kinds() {
		making = making.WatchesRawSource(peers.Changes(c.Links, c.copies[kind], copyChanged(kind)))
	}
	for _, kind := range c.Listed {
		making = making.WatchesRawSource(local.WatchWhenDefined(
			mgr.GetCache(), mgr.GetRESTMapper(), kind.GroupVersionKind(), c.namespaceHandler(kind.Name())))
	}
	if c.Network {
		making = making.Watches(&corev1.Service{}, c.namespaceHandler(ofServices...)).
			Watches(&discoveryv1.EndpointSlice{}, c.namespaceHandler(ofServices...)).
			Watches(&networkingv1.Ingress{}, c.ingressHandler()).
			Watches(&v1alpha1.Connection{}, c.connectionHandler(), builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	}
	return making.Complete(c)
}

// The default limiter waits up to 17 minutes and lets through 10 requests a second.
func backOff[T comparable]() workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[T](firstRetry, lastRetry)
}
