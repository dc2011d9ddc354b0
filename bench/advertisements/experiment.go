// SPDX-License-Identifier: Apache-2.0

package advertisements

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
)

// Milestones of an advertisement.
const (
	created      = "created"
	taken        = "taken in"
	acknowledged = "acknowledged"
	ready        = "Ready"
)

// A Config says what to measure.
type Config struct {
	Bed   lab.Testbed
	Count int // how many providers there are
	// OneByOne writes each advertisement only when the node of the one before is Ready, instead of all at once.
	OneByOne bool
	// Idle is for how long at least to measure what all of it takes when nothing changes any more; 0: not at all.
	Idle time.Duration
	Say  func(format string, args ...any)
}

// A Result is what an experiment measured.
type Result struct {
	Count    int
	OneByOne bool

	Connected                            time.Duration  // from the first Peer to the last link that works, preparations included
	Acknowledged, NodeCreated, NodeReady measure.Sample // each from the advertisement's creation
	AcceptedToReady                      measure.Sample // from the consumer's accepted copy to its node Ready
	AllReady                             time.Duration  // from the first creation to the last node Ready

	Placement        Placement
	Auctions         Auctions
	Manager, Kubelet Server
	CPU              lab.Reading   // while advertisements were taken in, by group
	Took             time.Duration // how long that was measured
	IdleFor          time.Duration
	Idle             lab.Reading // while nothing happened, by group
}

// A Server is what one of Hanse's servers took.
type Server struct {
	Before, After lab.Usage // before the first advertisement, and after the last
}

// experiment is a running one.
type experiment struct {
	Config
	consumer, provider *lab.Cluster
	manager, kubelet   *lab.Server
	meter              lab.Meter
	clock              clock.Clock

	offers, copies, nodes *lab.Observer
	connected             time.Duration
}

// Run brings the clusters up, measures, and ends them.
func Run(ctx context.Context, config Config) (result Result, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	e := &experiment{Config: config, clock: clock.RealClock{}}
	defer func() {
		e.stop()
		err = errors.Join(err, config.Bed.Down(context.WithoutCancel(ctx)))
	}()
	// A virtual node spends a /24 of the consumer's pod range, so the usual one is too small for a thousand.
	if err := config.Bed.Up(ctx, []string{"--workers", "0", "--pod-cidr", "10.0.0.0/10"}, "consumer"); err != nil {
		return Result{}, err
	}
	if err := config.Bed.Up(ctx, []string{"--workers", "0"}, "provider"); err != nil {
		return Result{}, err
	}
	if err := e.setUp(ctx, fail); err != nil {
		return Result{}, fmt.Errorf("prepare %d providers: %w", config.Count, err)
	}
	result, err = e.measure(ctx)
	if err != nil {
		return result, fmt.Errorf("take in %d advertisements: %w", config.Count, err)
	}
	return result, nil
}

func (e *experiment) setUp(ctx context.Context, fail context.CancelCauseFunc) error {
	var err error
	if e.consumer, e.provider, err = e.Bed.Clusters(ctx); err != nil {
		return err
	}
	if err := errors.Join(e.consumer.Install(ctx), e.provider.Install(ctx)); err != nil {
		return err
	}
	if err := e.start(ctx, fail); err != nil {
		return err
	}
	e.Say("%d providers: preparing tenant namespaces and links", e.Count)
	start := e.clock.Now()
	if err := e.connect(ctx); err != nil {
		return err
	}
	e.connected = e.clock.Since(start)
	return e.observe(ctx)
}

func (e *experiment) start(ctx context.Context, fail context.CancelCauseFunc) error {
	var err error
	if e.manager, err = e.consumer.StartManager(ctx, fail); err != nil {
		return err
	}
	if e.kubelet, err = e.consumer.StartKubelet(ctx, fail); err != nil {
		return err
	}
	consumer, err := e.consumer.Processes("apiserver", "etcd")
	if err != nil {
		return err
	}
	provider, err := e.provider.Processes("apiserver", "etcd")
	if err != nil {
		return err
	}
	e.meter = lab.NewMeter(map[string][]lab.Process{
		"hanse manager":           {e.manager.Process},
		"hanse kubelet":           {e.kubelet.Process},
		"consumer's API and etcd": consumer,
		"provider's API and etcd": provider,
	})
	return nil
}

// connect peers the consumer with every provider, and waits until all links work.
func (e *experiment) connect(ctx context.Context) error {
	version, err := e.Bed.Version(ctx)
	if err != nil {
		return err
	}
	namespaces, err := e.consumer.Observe(ctx, &corev1.NamespaceList{}, nil, lab.Milestone{Name: "active", Reached: tenant})
	if err != nil {
		return err
	}
	defer namespaces.Close()
	peers, err := e.consumer.Observe(ctx, &v1alpha1.PeerList{}, nil, lab.Milestone{Name: "authenticated", Reached: lab.Authenticated})
	if err != nil {
		return err
	}
	defer peers.Close()

	var kubeconfigs sync.Map // cluster id → kubeconfig
	err = each(ctx, 1, e.Count, func(ctx context.Context, id string) error {
		kubeconfig, err := provide(ctx, e.provider, id, version)
		kubeconfigs.Store(id, kubeconfig)
		return errors.Join(err, e.consumer.Create(ctx, peer(id)))
	})
	if err != nil {
		return err
	}
	if err := namespaces.Wait(ctx, "active", e.Count); err != nil {
		return fmt.Errorf("tenant namespaces: %w", err)
	}
	err = each(ctx, 1, e.Count, func(ctx context.Context, id string) error {
		kubeconfig, _ := kubeconfigs.Load(id)
		return linkTo(ctx, e.consumer, id, kubeconfig.([]byte)) //nolint:forcetypeassert // stored above
	})
	if err != nil {
		return err
	}
	if err := peers.Wait(ctx, "authenticated", e.Count); err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	return nil
}

func tenant(object client.Object) bool {
	return strings.HasPrefix(object.GetName(), v1alpha1.TenantNamespacePrefix) && lab.Active(object)
}

func (e *experiment) observe(ctx context.Context) error {
	var err error
	e.offers, err = e.provider.Observe(ctx, &v1alpha1.AdvertisementList{}, nil, lab.Milestone{Name: acknowledged, Reached: lab.Accepted})
	if err != nil {
		return err
	}
	e.copies, err = e.consumer.Observe(ctx, &v1alpha1.AdvertisementList{}, nil, lab.Milestone{Name: taken, Reached: lab.TakenIn})
	if err != nil {
		return err
	}
	e.nodes, err = e.consumer.Observe(ctx, &corev1.NodeList{}, nil,
		lab.Milestone{Name: created, Reached: lab.Created}, lab.Milestone{Name: ready, Reached: lab.Ready})
	return err
}

func (e *experiment) stop() {
	for _, o := range []*lab.Observer{e.offers, e.copies, e.nodes} {
		if o != nil {
			o.Close()
		}
	}
	for _, s := range []*lab.Server{e.manager, e.kubelet} {
		if s != nil {
			s.Stop()
		}
	}
}
