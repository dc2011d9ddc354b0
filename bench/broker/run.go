// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
	"github.com/hanse-dev/hanse/internal/trust"
)

// Bounds of issue 16.
const (
	heardBound  = 2 * time.Second
	memoryBound = 500 * mebibyte
	mebibyte    = 1 << 20
)

const (
	// writers is how many objects are written at the same time.
	writers = 32
	// perConnection is how many members share a connection to the API server, which takes 250 requests at a time over one.
	perConnection = 100
	// prepareLimit is how long it may take until the tenant namespaces are there.
	prepareLimit = 20 * time.Minute
	// statementLife is longer than the experiment.
	statementLife = 3 * time.Hour
)

// A Config says what to measure.
type Config struct {
	Bed     lab.Testbed
	Members int
	Rounds  int // introductions, one after the other
	Say     func(format string, args ...any)
}

// A Result is what was measured.
type Result struct {
	Config
	AtOnce measure.Sample // each member introduces itself, all at once: from its write until one other member hears it
	Heard  measure.Sample // one member introduces itself anew: from its write until the last of all members hears it
	Memory lab.Usage      // of the manager with all of them
}

// world is a broker, and its members.
type world struct {
	Config
	*lab.Cluster
	clock clock.Clock
	keys  []ed25519.PrivateKey
	ears  []*ear
}

// An ear is a member that hears what is said to all.
type ear struct {
	watch.Interface

	heard chan string // statements, in the order of their arrival
}

// Run brings a broker up, measures, and ends it.
func Run(ctx context.Context, config Config) (result Result, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	result = Result{Config: config}
	w := &world{Config: config, clock: clock.RealClock{}}
	defer func() { err = errors.Join(err, config.Bed.Down(context.WithoutCancel(ctx))) }()
	if err := config.Bed.Up(ctx, []string{"--workers", "0"}, "broker"); err != nil {
		return result, err
	}
	if w.Cluster, err = config.Bed.Cluster(ctx, "broker"); err != nil {
		return result, err
	}
	if err := w.Install(ctx, "broker.enabled=true"); err != nil {
		return result, err
	}
	manager, err := w.StartManager(ctx, fail)
	if err != nil {
		return result, err
	}
	defer manager.Stop()
	if err := w.gather(ctx); err != nil {
		return result, fmt.Errorf("prepare %d members: %w", w.Members, err)
	}
	if result.AtOnce, err = w.introduceAll(ctx); err != nil {
		return result, fmt.Errorf("introduce %d members: %w", w.Members, err)
	}
	config.Say("%d members at once: p50 %s, p99 %s", w.Members, result.AtOnce.Median(), result.AtOnce.P99())
	if result.Heard, err = w.renew(ctx); err != nil {
		return result, fmt.Errorf("introduce members anew: %w", err)
	}
	config.Say("one heard by %d: p50 %s, p99 %s", w.Members, result.Heard.Median(), result.Heard.P99())
	result.Memory, err = manager.Usage()
	return result, err
}

func id(n int) string { return fmt.Sprintf("m%04d", n) }

// gather makes the Peers of the members, and waits until each has its namespace and may read.
func (w *world) gather(ctx context.Context) error {
	w.Say("%d members: preparing their namespaces", w.Members)
	for range w.Members {
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			return err
		}
		w.keys = append(w.keys, key)
	}
	err := lab.Each(ctx, w.Members, writers, func(ctx context.Context, n int) error {
		public := trust.FormatPublicKey(w.keys[n].Public().(ed25519.PublicKey)) //nolint:forcetypeassert // as the package says
		return w.Create(ctx, &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: id(n)}, Spec: v1alpha1.PeerSpec{
			ClusterID: id(n), PublicKey: public, Roles: []v1alpha1.PeerRole{v1alpha1.RoleConsumer, v1alpha1.RoleMember},
		}})
	})
	if err != nil {
		return err
	}
	return lab.Until(ctx, "all members may read", time.Second, prepareLimit, func(ctx context.Context) error {
		namespaces, bindings := &corev1.NamespaceList{}, &rbacv1.RoleBindingList{}
		err := errors.Join(
			w.List(ctx, namespaces, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeTenant}),
			w.List(ctx, bindings, client.InNamespace(v1alpha1.MembersNamespace)),
		)
		if err == nil && (len(namespaces.Items) < w.Members || len(bindings.Items) < w.Members) {
			err = fmt.Errorf("%d have a namespace, and %d may read", len(namespaces.Items), len(bindings.Items))
		}
		return err
	})
}

// introduction is what the member says for the nth time.
func (w *world) introduction(member, nth int) (v1alpha1.MessageSpec, error) {
	quantity := resource.MustParse
	offer := v1alpha1.MemberOffer{
		Availability: corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewQuantity(int64(100+nth), resource.DecimalSI), corev1.ResourceMemory: quantity("1280Gi"),
			corev1.ResourcePods: quantity("1100"), corev1.ResourceEphemeralStorage: quantity("10Ti"), "nvidia.com/gpu": quantity("8"),
		},
		Prices: &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{
			corev1.ResourceCPU: quantity("20m"), corev1.ResourceMemory: quantity("3m"),
		}},
		Labels: map[string]v1alpha1.Text{"topology.kubernetes.io/region": "north", "topology.kubernetes.io/zone": "north-1"},
	}
	now := w.clock.Now()
	signed, err := trust.SignStatement(w.keys[member], trust.Statement{
		Type: trust.Introduction, From: id(member), Sequence: now.UnixNano(), Expires: now.Add(statementLife),
	}, offer)
	if err != nil {
		return v1alpha1.MessageSpec{}, err
	}
	return v1alpha1.MessageSpec{SignedStatement: *signed}, nil
}

// introduceAll has each member introduce itself. Who is about to hear it is one that listens from the beginning.
func (w *world) introduceAll(ctx context.Context) (measure.Sample, error) {
	seen, err := w.Observe(ctx, &v1alpha1.MessageList{}, []client.ListOption{client.InNamespace(v1alpha1.MembersNamespace), client.HasLabels{v1alpha1.LabelFrom}},
		lab.Milestone{Name: "heard", Reached: lab.Created})
	if err != nil {
		return nil, err
	}
	defer seen.Close()
	begun, lock := map[string]time.Time{}, sync.Mutex{}
	err = lab.Each(ctx, w.Members, writers, func(ctx context.Context, n int) error {
		spec, err := w.introduction(n, 0)
		if err != nil {
			return err
		}
		lock.Lock()
		begun[id(n)] = w.clock.Now()
		lock.Unlock()
		return w.Create(ctx, &v1alpha1.Message{
			ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(id(n)), Name: v1alpha1.MessageIntroduction}, Spec: spec,
		})
	})
	if err != nil {
		return nil, err
	}
	if err := seen.Wait(ctx, "heard", w.Members); err != nil {
		return nil, err
	}
	return measure.Between(begun, seen.Moments("heard")), nil
}

// renew has members introduce themselves anew, one when all others have heard the one before.
func (w *world) renew(ctx context.Context) (measure.Sample, error) {
	if err := w.listen(ctx); err != nil {
		return nil, err
	}
	defer func() {
		for _, ear := range w.ears {
			ear.Stop()
		}
	}()
	var sample measure.Sample
	for round := range w.Rounds {
		n := round % w.Members
		spec, err := w.introduction(n, round+1)
		if err != nil {
			return nil, err
		}
		message := &v1alpha1.Message{}
		key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(id(n)), Name: v1alpha1.MessageIntroduction}
		if err := w.Get(ctx, key, message); err != nil {
			return nil, err
		}
		message.Spec = spec
		start := w.clock.Now()
		if err := w.Update(ctx, message); err != nil {
			return nil, err
		}
		for _, ear := range w.ears {
			if err := ear.hears(ctx, spec.Statement); err != nil {
				return nil, err
			}
		}
		sample = append(sample, w.clock.Since(start))
	}
	return sample, nil
}

// listen has as many listen as there are members, each by a watch of its own.
func (w *world) listen(ctx context.Context) error {
	var shared client.WithWatch
	for n := range w.Members {
		if n%perConnection == 0 {
			config := rest.CopyConfig(w.Cluster.Config)
			var err error
			if shared, err = client.NewWithWatch(config, client.Options{Scheme: w.Scheme()}); err != nil {
				return err
			}
		}
		now := &v1alpha1.MessageList{}
		if err := shared.List(ctx, now, client.InNamespace(v1alpha1.MembersNamespace), client.Limit(1)); err != nil {
			return err
		}
		raw := &metav1.ListOptions{ResourceVersion: now.ResourceVersion}
		stream, err := shared.Watch(ctx, &v1alpha1.MessageList{}, &client.ListOptions{Namespace: v1alpha1.MembersNamespace, Raw: raw})
		if err != nil {
			return err
		}
		ear := &ear{stream, make(chan string, w.Rounds)}
		w.ears = append(w.ears, ear)
		go ear.run()
	}
	return nil
}

// run passes on what is heard, until the watch ends.
func (e *ear) run() {
	defer close(e.heard)
	for event := range e.ResultChan() {
		if message, ok := event.Object.(*v1alpha1.Message); ok && message.Relayed() { // and is not what the broker says itself
			e.heard <- message.Spec.Statement
		}
	}
}

// hears waits until the statement is heard.
func (e *ear) hears(ctx context.Context, statement string) error {
	for {
		select {
		case heard, open := <-e.heard:
			switch {
			case !open:
				return errors.New("a member hears nothing any more")
			case heard == statement:
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Tables renders what was measured.
func (r *Result) Tables() []measure.Table {
	if len(r.Heard) == 0 {
		return nil
	}
	times := measure.Table{
		Title: fmt.Sprintf("A broker with %d members", r.Members), Columns: measure.DistributionColumns,
		Notes: []string{
			"One: from the call by which a member writes what it says into its namespace until the last of all members has it, each by a watch of its own.",
			"All at once: until one of them has it. The members are simulated; those who watch share this machine with the broker.",
		},
	}
	times.Distribution("one introduces itself anew", r.Heard, heardBound)
	times.Distribution("all introduce themselves at once", r.AtOnce, 0)
	memory := measure.Table{Title: "Memory of the broker's manager", Columns: measure.FigureColumns}
	memory.Figure(fmt.Sprintf("with %d members, at most", r.Members), float64(r.Memory.Peak)/mebibyte, "MiB", memoryBound/mebibyte)
	return []measure.Table{times, memory}
}
