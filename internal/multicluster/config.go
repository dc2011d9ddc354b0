// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
)

const (
	workers    = 4
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
	// debounce is how long news of a peer waits, so that what comes together is looked at once.
	debounce = 200 * time.Millisecond
)

// Config is what the controllers of this package need.
type Config struct {
	// Client reads our own cluster from a cache and writes to it.
	Client client.Client
	// Live reads ClusterProfiles of our own cluster, which a cache of one namespace could not without their definition.
	Live client.Reader
	// Links are the ways to peers, which others make.
	Links *peers.Links
	// Namespace is the one that Hanse runs in.
	Namespace string
	// ClusterID is the id of this cluster.
	ClusterID string
	// Network is whether peers can be connected. Without that there are no multi-cluster Services.
	Network bool
}

// Validate reports what is missing.
func (c Config) Validate() error {
	if c.Client == nil || c.Live == nil || c.Links == nil || c.Namespace == "" || c.ClusterID == "" {
		return errors.New("multicluster: Client, Live, Links, Namespace and ClusterID are needed")
	}
	return nil
}

// AddToScheme registers the kinds that this package reads and writes, and that are not Hanse's own.
func AddToScheme(scheme *runtime.Scheme) error {
	return errors.Join(mcsv1beta1.Install(scheme), inventory.AddToScheme(scheme))
}

// SetupWithManager has the manager run the controllers as soon as the definitions of their kinds are installed.
func SetupWithManager(mgr ctrl.Manager, c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	failed := local.SetupWhenDefined(mgr, (&profiles{c}).setup, inventory.GroupVersion.WithKind("ClusterProfile"))
	if c.Network {
		group := schema.GroupVersion(mcsv1beta1.GroupVersion)
		setup := func(mgr ctrl.Manager) error { return errors.Join((&importer{c}).setup(mgr), (&exporter{c}).setup(mgr)) }
		failed = errors.Join(failed, local.SetupWhenDefined(mgr, setup, group.WithKind("ServiceExport"), group.WithKind("ServiceImport")))
	}
	return failed
}

// options limit each object by itself, so that a broken one holds up no other.
func options() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	}
}
