package multicluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/hanse-dev/hanse/internal/peers"
)

const (
	workers    = 4
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
	// lookAgain is how often it is looked for definitions that are not installed.
	lookAgain = 10 * time.Second
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
	group := schema.GroupKind{Group: mcsv1beta1.GroupName}
	kind := func(name string) schema.GroupKind { return schema.GroupKind{Group: group.Group, Kind: name} }
	all := []feature{{
		kinds: []schema.GroupKind{kind("ClusterProfile")}, version: inventory.GroupVersion.Version, setup: (&profiles{c}).setup,
	}}
	if c.Network {
		all = append(all, feature{
			kinds: []schema.GroupKind{kind("ServiceExport"), kind("ServiceImport")}, version: mcsv1beta1.GroupVersion.Version,
			setup: func(mgr ctrl.Manager) error { return errors.Join((&importer{c}).setup(mgr), (&exporter{c}).setup(mgr)) },
		})
	}
	return mgr.Add(&starter{mgr, all})
}

// A feature is what can be done where its kinds are.
type feature struct {
	kinds   []schema.GroupKind
	version string
	setup   func(ctrl.Manager) error
	missing bool // as was said
	runs    bool
}

// starter sets up each feature when the definitions of its kinds are installed.
type starter struct {
	mgr      ctrl.Manager
	features []feature
}

// Start implements manager.Runnable.
func (s *starter) Start(ctx context.Context) error {
	log := s.mgr.GetLogger().WithName("multicluster")
	return wait.PollUntilContextCancel(ctx, lookAgain, true, func(context.Context) (bool, error) {
		waiting := false
		for i := range s.features {
			f := &s.features[i]
			switch there, err := f.installed(s.mgr.GetRESTMapper()); {
			case f.runs:
			case err != nil:
				log.Error(err, "Cannot find out whether definitions are installed")
				waiting = true
			case !there:
				if !f.missing {
					log.Info("Definitions are not installed; looking again from time to time", "kinds", f.kinds, "version", f.version)
				}
				f.missing, waiting = true, true
			default:
				if err := f.setup(s.mgr); err != nil {
					return false, err
				}
				f.runs = true
			}
		}
		return !waiting, nil
	})
}

// NeedLeaderElection has only the leader start controllers.
func (*starter) NeedLeaderElection() bool { return true }

func (f *feature) installed(mapper meta.RESTMapper) (bool, error) {
	for _, kind := range f.kinds {
		_, err := mapper.RESTMapping(kind, f.version)
		if meta.IsNoMatchError(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("look for %s: %w", kind, err)
		}
	}
	return true, nil
}

// options limit each object by itself, so that a broken one holds up no other.
func options() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	}
}
