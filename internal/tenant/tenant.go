// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/trace"
)

// Config says where Hanse runs, and what the controllers use.
type Config struct {
	// Namespace is Hanse's own.
	Namespace string
	// ClusterID is the id of this cluster. Pods that have come through it before are not taken.
	ClusterID string
	// ClusterKey is the key of this cluster, by which answers to peers are signed.
	ClusterKey ed25519.PrivateKey
	// SendOn lets pods of peers go on to providers of ours, where the NamespaceOffloading of their twin says so.
	SendOn bool
	// PodMetadata says which labels and annotations the pods of peers have here besides the harmless ones.
	PodMetadata offload.Metadata
	// ServiceAccount is the one that the manager runs under, in Namespace. It gets the right to make pods in twin namespaces.
	ServiceAccount string
	// PodCIDRs are the ranges of this cluster's own pods, as far as nodes do not tell.
	PodCIDRs []netip.Prefix
	// Network is whether peers can be connected, so that they have endpoints here that are reached through a tunnel.
	Network bool
	// Kinds are those of which peers may have objects here, where their Peers name them too.
	Kinds []reflection.ListedKind
	// Clock tells the time.
	Clock clock.PassiveClock
	// Room is asked whether there is room for each pod and each Request that others are not promised.
	Room Room
	// Decider is asked about each pod that is made for a consumer.
	Decider policy.Decider
	// Tracer records where the time goes that the pods of peers take to be ready. It may be nil.
	Tracer *trace.Tracer
}

// SetupWithManager registers the controllers with the manager.
func SetupWithManager(mgr ctrl.Manager, cfg Config) error {
	if cfg.Namespace == "" || cfg.ServiceAccount == "" || cfg.Clock == nil || cfg.Decider == nil || cfg.Room == nil || cfg.ClusterKey == nil {
		return errors.New("tenant: Namespace, ServiceAccount, Clock, Decider, Room and ClusterKey are needed")
	}
	if err := cfg.PodMetadata.Validate(); err != nil {
		return fmt.Errorf("tenant: PodMetadata: %w", err)
	}
	if err := newMappingReconciler(cfg, mgr.GetClient(), mgr.GetAPIReader()).setup(mgr); err != nil {
		return err
	}
	watching, err := client.NewWithWatch(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return fmt.Errorf("make client of events: %w", err)
	}
	pods := newShadowPodReconciler(cfg, mgr.GetClient(), mgr.GetAPIReader(), watching)
	ending := &endReconciler{client: mgr.GetClient(), live: mgr.GetAPIReader()}
	claims := newClaimReconciler(mgr.GetClient(), mgr.GetAPIReader(), pods.events)
	objects := &objectReconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), mapper: mgr.GetRESTMapper(), allowed: cfg.Kinds, clock: cfg.Clock,
		reports:     newEventBudgets(eventWritesPerSecond, eventWritesAtOnce),
		definitions: &definitions{client: mgr.GetClient(), namespace: cfg.Namespace, clock: cfg.Clock},
	}
	requests := newRequestReconciler(cfg, mgr.GetClient(), mgr.GetAPIReader(), pods.ledger)
	if err := errors.Join(ending.setup(mgr), claims.setup(mgr), objects.setup(mgr), pods.setup(mgr), requests.setup(mgr, pods),
		newQuoteReconciler(cfg, mgr.GetClient(), pods.ledger).setup(mgr)); err != nil {
		return err
	}
	if !cfg.Network {
		return nil
	}
	return newEndpointsReconciler(mgr.GetClient(), pods.events).setup(mgr)
}

const (
	// workers is how many objects of a kind are worked on at the same time.
	workers = 16
	// retryAtLeast and retryAtMost bound how long an object whose reconciliation went wrong waits for the next try.
	retryAtLeast = 20 * time.Millisecond
	retryAtMost  = time.Minute
)

// hold puts the finalizer on the object.
func hold(ctx context.Context, c client.Client, o client.Object, finalizer string) error {
	return patchFinalizers(ctx, c, o, finalizer, controllerutil.AddFinalizer)
}

// release takes the finalizer off the object.
func release(ctx context.Context, c client.Client, o client.Object, finalizer string) error {
	return patchFinalizers(ctx, c, o, finalizer, controllerutil.RemoveFinalizer)
}

func patchFinalizers(ctx context.Context, c client.Client, o client.Object, finalizer string, change func(client.Object, string) bool) error {
	before, ok := o.DeepCopyObject().(client.Object)
	if !ok || !change(o, finalizer) {
		return nil
	}
	if err := c.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("change the finalizers: %w", err)
	}
	return nil
}
