package tenant

import (
	"errors"
	"net/netip"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trace"
)

// Config says where Hanse runs and how hard it works.
type Config struct {
	// Namespace is Hanse's own. Default v1alpha1.SystemNamespace.
	Namespace string
	// ClusterID is the id of this cluster. Pods that have come through it before are not taken.
	ClusterID string
	// SendOn lets pods of peers go on to providers of ours, where the NamespaceOffloading of their twin says so.
	SendOn bool
	// ServiceAccount is the one that the manager runs under, in Namespace. It must be set: it gets the right to make
	// pods in twin namespaces.
	ServiceAccount string
	// PodCIDRs are the ranges of this cluster's own pods, as far as nodes do not tell.
	PodCIDRs []netip.Prefix
	// Workers is how many ShadowPods are worked on at the same time. Default 16.
	Workers int
	// Clock tells the time. By default the real one.
	Clock clock.PassiveClock
	// Decider is asked about each pod that is made for a consumer. It must be set.
	Decider Decider
	// Tracer records where the time goes that the pods of peers take to be ready. It may be nil.
	Tracer *trace.Tracer
}

// Default fills in what was not set.
func (c *Config) Default() {
	if c.Namespace == "" {
		c.Namespace = v1alpha1.SystemNamespace
	}
	if c.Workers == 0 {
		c.Workers = 16
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
}

// Validate reports what is wrong with the configuration.
func (c *Config) Validate() error {
	if c.ServiceAccount == "" {
		return errors.New("the service account of the manager is not set")
	}
	if c.Decider == nil {
		return errors.New("the decider is not set")
	}
	if c.Workers < 0 {
		return errors.New("the number of workers is negative")
	}
	for _, p := range c.PodCIDRs {
		if !p.IsValid() {
			return errors.New("a range of this cluster's pods is not valid")
		}
	}
	return nil
}

// Tenant is the controllers of this package.
type Tenant struct {
	mappings *mappingReconciler
	pods     *shadowPodReconciler
}

// New returns the controllers. The client may read from a cache; the reader must not. It starts nothing.
func New(cfg Config, c client.Client, live client.Reader) (*Tenant, error) {
	cfg.Default()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Tenant{
		mappings: newMappingReconciler(cfg, c, live),
		pods:     newShadowPodReconciler(cfg, c, live),
	}, nil
}

// SetupWithManager registers the controllers with the manager.
func (t *Tenant) SetupWithManager(mgr ctrl.Manager) error {
	for _, setup := range []func(ctrl.Manager) error{t.mappings.setup, t.pods.setup} {
		if err := setup(mgr); err != nil {
			return err
		}
	}
	return nil
}

const (
	// retryAtLeast and retryAtMost bound how long an object whose reconciliation went wrong waits for the next try.
	retryAtLeast = 20 * time.Millisecond
	retryAtMost  = time.Minute
)
