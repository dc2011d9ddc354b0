package bursts

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/bench/audit"
	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
)

// writers is how many pods are created at the same time.
const writers = 32

// Milestones of a pod.
const (
	created = "created"
	bound   = "bound"
	ready   = "Ready"
)

// A Burst is what was measured of one burst.
type Burst struct {
	Size     int
	AllReady time.Duration // from the first creation to the last pod Ready, where it was created
	Ready    measure.Sample
	CPU      lab.Reading // by process, until the writes had ended
	Took     time.Duration
	Writes   map[string][]audit.Write // cluster → writes until they had ended
	Gone     time.Duration            // from the first deletion until the last pod was gone
}

// A side is where the pods of a burst are created, and what is special about them.
type side struct {
	cluster   *lab.Cluster
	namespace string
	change    func(*corev1.PodSpec)
}

// sides are the ways to be measured, in turn.
func (w *world) sides() []side {
	sides := []side{
		{w.provider, Plain, func(*corev1.PodSpec) {}},
		{w.consumer, Null, func(spec *corev1.PodSpec) {
			spec.NodeSelector = map[string]string{"type": Null}
			spec.Tolerations = []corev1.Toleration{{Key: Null, Operator: corev1.TolerationOpExists}}
		}},
	}
	if w.Floors {
		return sides
	}
	return append(sides, side{w.consumer, Offloaded, func(*corev1.PodSpec) {}})
}

func (s side) pod(name string) *corev1.Pod {
	p := Pod(s.namespace, name)
	s.change(&p.Spec)
	return p
}

// remote is the namespace at the provider in which pods of the side run.
func (w *world) remote(s side) string {
	if s.namespace == Offloaded {
		return w.twin
	}
	return s.namespace
}

// burst creates pods on a side, waits until all are Ready, and removes them.
func (w *world) burst(ctx context.Context, s side, prefix string, size int) (Burst, error) {
	b := Burst{Size: size}
	pods, err := s.observe(ctx)
	if err != nil {
		return b, err
	}
	defer pods.Close()
	logs, err := w.openLogs()
	if err != nil {
		return b, err
	}
	before, err := w.meter.Read()
	if err != nil {
		return b, err
	}
	start := w.clock.Now()
	written, err := w.create(ctx, s, prefix, size)
	if err != nil {
		return b, err
	}
	if err := pods.Wait(ctx, ready, size); err != nil {
		return b, err
	}
	b.AllReady = measure.Span(written, pods.Moments(ready))
	b.Ready = measure.Between(written, pods.Moments(ready))
	if b.Writes, err = w.writes(ctx, s, logs); err != nil {
		return b, err
	}
	after, err := w.meter.Read()
	if err != nil {
		return b, err
	}
	b.CPU, b.Took = after.Since(before), w.clock.Since(start)
	if b.Gone, err = w.remove(ctx, s, pods, size); err != nil {
		return b, err
	}
	_, err = w.writes(ctx, s, logs) // what comes after must not burden the next burst
	return b, err
}

func (s side) observe(ctx context.Context) (*lab.Observer, error) {
	return s.cluster.Observe(ctx, &corev1.PodList{}, []client.ListOption{client.InNamespace(s.namespace)},
		lab.Milestone{Name: created, Reached: lab.Created},
		lab.Milestone{Name: bound, Reached: lab.Bound},
		lab.Milestone{Name: ready, Reached: lab.Ready})
}

// create creates pods, several at a time, and returns when each was: just before the request.
func (w *world) create(ctx context.Context, s side, prefix string, size int) (map[string]time.Time, error) {
	var mutex sync.Mutex
	written := make(map[string]time.Time, size)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for n := range size {
		group.Go(func() error {
			p := s.pod(fmt.Sprintf("%s-%d", prefix, n))
			now := w.clock.Now()
			mutex.Lock()
			written[p.Name] = now
			mutex.Unlock()
			if err := s.cluster.Create(ctx, p); err != nil {
				return fmt.Errorf("create Pod %s: %w", p.Name, err)
			}
			return nil
		})
	}
	return written, group.Wait()
}

// remove deletes the pods of a burst and waits until nothing of them is left, at the provider neither.
func (w *world) remove(ctx context.Context, s side, pods *lab.Observer, size int) (time.Duration, error) {
	start := w.clock.Now()
	if err := s.cluster.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(s.namespace)); err != nil {
		return 0, fmt.Errorf("delete pods: %w", err)
	}
	if err := pods.Wait(ctx, lab.Deleted, size); err != nil {
		return 0, err
	}
	gone := w.clock.Since(start)
	return gone, lab.Until(ctx, "the provider is empty again", 200*time.Millisecond, patience, func(ctx context.Context) error {
		left := &corev1.PodList{}
		if err := w.provider.List(ctx, left, client.InNamespace(w.remote(s)), client.Limit(1)); err != nil {
			return err
		}
		if len(left.Items) > 0 {
			return fmt.Errorf("pod %s is still there", left.Items[0].Name)
		}
		return nil
	})
}
