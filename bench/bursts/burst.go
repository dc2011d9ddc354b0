// SPDX-License-Identifier: Apache-2.0

package bursts

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/bench/audit"
	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
)

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
	Writes   map[string][]audit.Request // cluster → writes until they had ended
	Link     map[string]lab.Bytes       // process → what it sent to the other cluster and received, until then
	Gone     time.Duration              // from the first deletion until the last pod was gone
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
		{w.Provider, Plain, func(*corev1.PodSpec) {}},
		{w.Consumer, Null, toNull(Null)},
	}
	if w.Floors {
		return sides
	}
	return append(sides, side{w.Consumer, Offloaded, func(*corev1.PodSpec) {}})
}

// toNull has pods run on the node of a null offloader.
func toNull(node string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		spec.NodeSelector = map[string]string{"type": node}
		spec.Tolerations = []corev1.Toleration{{Key: node, Operator: corev1.TolerationOpExists}}
	}
}

func (s side) pod(name string) *corev1.Pod {
	p := lab.Pod(s.namespace, name)
	s.change(&p.Spec)
	return p
}

// remote is the namespace at the provider in which pods of the side run.
func (w *world) remote(s side) string {
	switch s.namespace {
	case Offloaded:
		return w.Twin
	case Guarded:
		return w.guarded
	default:
		return s.namespace
	}
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
	before, err := w.spent()
	if err != nil {
		return b, err
	}
	start := w.clock.Now()
	written, err := s.cluster.CreatePods(ctx, size, func(n int) *corev1.Pod { return s.pod(fmt.Sprintf("%s-%d", prefix, n)) })
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
	after, err := w.spent()
	if err != nil {
		return b, err
	}
	b.Took, b.CPU, b.Link = w.clock.Since(start), after.cpu.Since(before.cpu), w.since(before, after)
	if b.Gone, err = w.remove(ctx, s, pods, size); err != nil {
		return b, err
	}
	_, err = w.writes(ctx, s, logs) // what comes after must not burden the next burst
	return b, err
}

// spent is what was spent until a moment.
type spent struct {
	cpu  lab.Reading
	link map[string]lab.Traffic // by process
}

func (w *world) spent() (spent, error) {
	cpu, err := w.meter.Read()
	if err != nil {
		return spent{}, err
	}
	link, err := w.traffic()
	return spent{cpu, link}, err
}

// since returns what went over the link between two moments.
func (w *world) since(before, after spent) map[string]lab.Bytes {
	link := map[string]lab.Bytes{}
	for process, traffic := range after.link {
		went, ended := traffic.Since(before.link[process])
		if ended > 0 {
			w.Say("%s: %d connections have ended, the last bytes over them are not counted", process, ended)
		}
		link[process] = went
	}
	return link
}

func (s side) observe(ctx context.Context) (*lab.Observer, error) {
	return s.cluster.Observe(ctx, &corev1.PodList{}, []client.ListOption{client.InNamespace(s.namespace)},
		lab.Milestone{Name: created, Reached: lab.Created},
		lab.Milestone{Name: bound, Reached: lab.Bound},
		lab.Milestone{Name: ready, Reached: lab.Ready})
}

// remove deletes the pods of a burst and waits until nothing of them is left, at the provider neither.
func (w *world) remove(ctx context.Context, s side, pods *lab.Observer, size int) (time.Duration, error) {
	start := w.clock.Now()
	if err := s.cluster.DeletePods(ctx, s.namespace); err != nil {
		return 0, err
	}
	if err := pods.Wait(ctx, lab.Deleted, size); err != nil {
		return 0, err
	}
	gone := w.clock.Since(start)
	return gone, w.Provider.AwaitNone(ctx, &corev1.PodList{}, w.remote(s))
}
