// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/audit"
	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
)

// Ways in which a pod of the Deployment comes to be in the place of another.
const (
	Replaced = "replaced" // it is deleted, one after the other
	Alone    = "moved"    // by a PodMove, one after the other
	Together = "together" // by PodMoves, several at a time
)

// A Config says what to measure.
type Config struct {
	Bed          lab.Testbed
	Count        int // pods of the Deployment, each of which is replaced once in each way
	AtOnce       int // PodMoves at a time
	SchedulerQPS int
	Say          func(format string, args ...any)
}

// Measured is what was measured of one way.
type Measured struct {
	Took        time.Duration
	Whole       measure.Sample  // from the creation of a PodMove until the pod has moved
	Beyond      measure.Sample  // the same from when it began, less the start of the copy
	Start       measure.Sample  // of the copies, from created to Ready
	Writes      []audit.Request // in the namespace, until they had ended
	Least, Most int32           // Ready pods of the Deployment, at any time
}

// A Result is what was measured.
type Result struct {
	Config
	Ways map[string]*Measured
}

// Run brings a cluster up, measures, and ends it.
func Run(ctx context.Context, config Config) (result Result, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	result = Result{Config: config, Ways: map[string]*Measured{}}
	w, err := open(ctx, config, fail)
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	if err != nil {
		return result, fmt.Errorf("prepare a cluster: %w", err)
	}
	for _, way := range []struct {
		name string
		do   func(context.Context, *Measured) error
	}{
		{Replaced, w.replaceAll},
		{Alone, func(ctx context.Context, m *Measured) error { return w.moveAll(ctx, Alone, 1, m) }},
		{Together, func(ctx context.Context, m *Measured) error { return w.moveAll(ctx, Together, w.AtOnce, m) }},
	} {
		m := &Measured{}
		if err := w.measure(ctx, m, way.do); err != nil {
			return result, fmt.Errorf("pods are %s: %w", way.name, err)
		}
		w.Say("%s: %d pods in %s", way.name, w.Count, m.Took)
		result.Ways[way.name] = m
	}
	return result, nil
}

// measure does something, and counts what is written and which pods are Ready meanwhile.
func (w *world) measure(ctx context.Context, m *Measured, do func(context.Context, *Measured) error) error {
	log, err := audit.Open(w.AuditLog())
	if err != nil {
		return err
	}
	stop, err := w.countReady(ctx, m)
	if err != nil {
		return err
	}
	start := w.clock.Now()
	err = do(ctx, m)
	m.Took = w.clock.Since(start)
	return errors.Join(err, w.settle(ctx, log, m), stop())
}

// replaceAll deletes each pod when the one in the place of that before it is Ready.
func (w *world) replaceAll(ctx context.Context, _ *Measured) error {
	pods, err := w.active(ctx)
	if err != nil {
		return err
	}
	were := len(w.pods.Moments(ready))
	for i := range pods {
		if err := w.Delete(ctx, &pods[i]); err != nil {
			return err
		}
		if err := w.pods.Wait(ctx, ready, were+i+1); err != nil {
			return err
		}
	}
	return nil
}

// moveAll moves each pod to another node, so many at a time.
func (w *world) moveAll(ctx context.Context, name string, atOnce int, m *Measured) error {
	pods, err := w.active(ctx)
	if err != nil {
		return err
	}
	were := len(w.moves.Moments(over))
	written := map[string]time.Time{}
	for i := range pods {
		if err := w.moves.Wait(ctx, over, were+i+1-atOnce); err != nil {
			return err
		}
		move := w.moveOf(&pods[i], name+"-"+strconv.Itoa(i))
		written[move.Name] = w.clock.Now()
		if err := w.Create(ctx, move); err != nil {
			return fmt.Errorf("create PodMove: %w", err)
		}
	}
	if err := w.moves.Wait(ctx, over, were+len(pods)); err != nil {
		return err
	}
	return w.times(ctx, written, atOnce, m)
}

// moveOf asks for the pod to go to the next node.
func (w *world) moveOf(pod *corev1.Pod, name string) *v1alpha1.PodMove {
	next := w.nodes[(slices.Index(w.nodes, pod.Spec.NodeName)+1)%len(w.nodes)]
	return &v1alpha1.PodMove{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.PodMoveSpec{
			Pod: v1alpha1.MovedPod{Name: pod.Name, UID: pod.UID}, Destination: v1alpha1.MoveDestination{Node: next},
		},
	}
}

// times reads off how long the moves took that were written at these moments. Each must have succeeded.
func (w *world) times(ctx context.Context, written map[string]time.Time, atOnce int, m *Measured) error {
	list := &v1alpha1.PodMoveList{}
	if err := w.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return err
	}
	begun, ended := w.moves.Moments(begins), w.moves.Moments(over)
	made, runs := w.pods.Moments(created), w.pods.Moments(ready)
	for i := range list.Items {
		move := &list.Items[i]
		asked, ours := written[move.Name]
		if !ours {
			continue
		}
		if move.Status.Phase != v1alpha1.MoveSucceeded {
			return fmt.Errorf("PodMove %s is %s: %v", move.Name, move.Status.Phase, move.Status.Conditions)
		}
		start := runs[move.Status.Copy.Name].Sub(made[move.Status.Copy.Name])
		m.Start = append(m.Start, start)
		m.Whole = append(m.Whole, ended[move.Name].Sub(asked))
		from := asked
		if atOnce > 1 { // it waited for those before it
			from = begun[move.Name]
		}
		m.Beyond = append(m.Beyond, ended[move.Name].Sub(from)-start)
	}
	return nil
}
