// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/kernel"
	"github.com/hanse-dev/hanse/internal/overlay"
	"github.com/hanse-dev/hanse/internal/topology"
)

const (
	// beat is how soon a change is acted upon.
	beat = 200 * time.Millisecond
	// compareAfter is how often the kernel is compared with the plan although nothing has changed.
	compareAfter = 10 * time.Second
	// retryAfter is how soon what failed is tried again.
	retryAfter = time.Second
)

// Config is what the process is told at its start.
type Config struct {
	Namespace string // Hanse's own
	Node      string // this one
	Remove    bool   // leave the node as it was at each end of the process, not only when the fabric is taken away
	// Events says what a node lacks, as events of the DaemonSet.
	Events events.EventRecorder
	// Clock is the time. Default the real one.
	Clock clock.WithTicker
}

// Validate reports what is wrong with the configuration.
func (c *Config) Validate() error {
	if c.Node == "" {
		return errors.New("the fabric must know the name of its node")
	}
	return nil
}

// plane is what makes the kernel look like a plan: kernel.Node.
type plane interface {
	Apply(overlay.NodeLayout) error
	Remove() error
}

// A Fabric keeps one node as the plan has it.
type Fabric struct {
	config   Config
	client   client.Reader // from a cache
	reader   topology.Reader
	plane    plane
	departed topology.Departed
	dirty    atomic.Bool
	failed   atomic.Pointer[error] // why the node is not as it should be, nil before the first plan

	layout  overlay.NodeLayout // as last applied
	applyAt time.Time          // when to apply it again at the latest
}

// errWaiting is the state before the first plan.
var errWaiting = errors.New("the network of this node was not looked at yet")

// New returns the fabric of a node. It starts nothing.
func New(config Config, cached client.Reader, p plane) *Fabric {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	f := &Fabric{
		config: config, client: cached, reader: topology.Reader{Client: cached, Namespace: config.Namespace}, plane: p,
		departed: topology.Departed{Clock: config.Clock},
	}
	f.failed.Store(&errWaiting)
	f.dirty.Store(true)
	return f
}

// Cache returns the options of the cache that the fabric reads from.
func Cache(namespace string) cache.Options {
	options := topology.Cache(namespace)
	options.ByObject[&appsv1.DaemonSet{}] = cache.ByObject{
		Namespaces: map[string]cache.Config{v1alpha1.NetworkNamespace(namespace): {}},
		Field:      fields.OneTermEqualSelector("metadata.name", v1alpha1.FabricName),
	}
	return options
}

// SetupWithManager has the manager run the fabric.
func SetupWithManager(mgr ctrl.Manager, config Config, p plane) error {
	if err := config.Validate(); err != nil {
		return err
	}
	config.Events = mgr.GetEventRecorder(v1alpha1.FabricName)
	f := New(config, mgr.GetCache(), p)
	return errors.Join(
		mgr.AddReadyzCheck("network", healthz.Checker(f.ready)),
		mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			return topology.Watch(ctx, mgr.GetCache(), func() { f.dirty.Store(true) })
		})),
		mgr.Add(manager.RunnableFunc(f.Run)),
	)
}

// ready says what is wrong with the network of this node.
func (f *Fabric) ready(*http.Request) error { return *f.failed.Load() }

// Run keeps the node as the plan has it until ctx ends. Then it leaves the node as it is, since pods must keep what they have
// while one process replaces another, unless the fabric is being taken away.
func (f *Fabric) Run(ctx context.Context) error {
	ticker := f.config.Clock.NewTicker(beat)
	defer ticker.Stop()
	// Watched from the start, since the right to ask may be gone when the answer is needed.
	if _, err := f.leaving(ctx); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return f.end(context.WithoutCancel(ctx))
		case <-ticker.C():
		}
		f.note(ctx, f.step(ctx))
	}
}

// note keeps what is wrong with the network of this node, and tells it if that is something new.
func (f *Fabric) note(ctx context.Context, err error) {
	before := *f.failed.Swap(&err)
	if err == nil || before != nil && before.Error() == err.Error() {
		return
	}
	ctrl.LoggerFrom(ctx).Error(err, "The network of this node is not as it should be")
	daemons := &appsv1.DaemonSet{}
	key := client.ObjectKey{Namespace: v1alpha1.NetworkNamespace(f.config.Namespace), Name: v1alpha1.FabricName}
	if !kernel.Unsupported(err) || f.client.Get(ctx, key, daemons) != nil {
		return // the log is enough
	}
	f.config.Events.Eventf(daemons, nil, corev1.EventTypeWarning, v1alpha1.ReasonKernelUnsupported, "SetUpNetwork",
		"Pods on node %s neither reach peers nor are reached: its kernel lacks VXLAN or nftables. Load the modules. %v", f.config.Node, err)
}

// step makes the node look like the plan if something has changed, or after a while.
func (f *Fabric) step(ctx context.Context) error {
	now := f.config.Clock.Now()
	due := !now.Before(f.applyAt)
	if !f.dirty.Swap(false) && !due {
		return *f.failed.Load()
	}
	network, err := f.reader.Read(ctx)
	if err != nil {
		f.applyAt = now.Add(retryAfter)
		return err
	}
	network.Departed = f.departed.Of(network.Peers)
	layout := overlay.NodePlan(network.State, f.config.Node)
	if !due && reflect.DeepEqual(layout, f.layout) {
		return *f.failed.Load()
	}
	f.layout, f.applyAt = layout, now.Add(compareAfter)
	if err := f.plane.Apply(layout); err != nil {
		f.applyAt = now.Add(retryAfter)
		return fmt.Errorf("set up the network of this node: %w", err)
	}
	return nil
}

// end leaves the node as it was, if the fabric is being taken away.
func (f *Fabric) end(ctx context.Context) error {
	leaving, err := f.leaving(ctx)
	if !leaving && !f.config.Remove {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Leaving the network of this node as it was")
	return errors.Join(err, f.plane.Remove())
}

// leaving reports whether the DaemonSet of the fabric, or its namespace, is gone or about to go.
func (f *Fabric) leaving(ctx context.Context) (bool, error) {
	namespace := v1alpha1.NetworkNamespace(f.config.Namespace)
	for key, object := range map[client.ObjectKey]client.Object{
		{Name: namespace}: &corev1.Namespace{},
		{Namespace: namespace, Name: v1alpha1.FabricName}: &appsv1.DaemonSet{},
	} {
		err := f.client.Get(ctx, key, object)
		if apierrors.IsNotFound(err) || err == nil && !object.GetDeletionTimestamp().IsZero() {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("see whether the fabric is to stay: %w", err)
		}
	}
	return false, nil
}
