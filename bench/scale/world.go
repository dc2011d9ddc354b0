// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/lab"
)

// namespace is the one of the consumer whose pods are offloaded.
const namespace = "offloaded"

// Milestones of a pod.
const (
	bound = "bound"
	ready = "Ready"
)

// A world is two clusters with Hanse in them, and offloaded pods.
type world struct {
	Config
	*lab.Pair
	fail  context.CancelCauseFunc
	logs  *ledger
	pods  *lab.Observer
	made  int // pods that were ever created
	clock clock.Clock
}

func open(ctx context.Context, config Config, fail context.CancelCauseFunc) (*world, error) {
	w := &world{Config: config, fail: fail, clock: clock.RealClock{}}
	var err error
	if w.Pair, err = w.Bed.Pair(ctx, w.Clusters); err != nil {
		return w, err
	}
	// Before Hanse starts, so that each of its watches is seen to begin.
	if w.logs, err = openLedger(w.Consumer, w.Provider); err != nil {
		return w, err
	}
	if err := w.Offload(ctx, fail, namespace, max(w.Pods, w.Running+w.Restarts, batch)); err != nil {
		return w, err
	}
	w.pods, err = w.Consumer.Observe(ctx, &corev1.PodList{}, []client.ListOption{client.InNamespace(namespace)},
		lab.Milestone{Name: bound, Reached: lab.Bound}, lab.Milestone{Name: ready, Reached: lab.Ready})
	return w, err
}

func (w *world) close(ctx context.Context) error {
	if w.pods != nil {
		w.pods.Close()
	}
	return w.Close(ctx)
}

// create creates pods.
func (w *world) create(ctx context.Context, count int) error {
	made := w.made
	w.made += count
	_, err := w.Consumer.CreatePods(ctx, count, func(n int) *corev1.Pod {
		return lab.Pod(namespace, fmt.Sprintf("pod-%d", made+n))
	})
	return err
}

// grow creates pods, and waits until all are Ready, until there are so many.
func (w *world) grow(ctx context.Context, until int) error {
	w.Say("%d pods run, growing to %d", w.made, until)
	for w.made < until {
		if err := w.create(ctx, min(batch, until-w.made)); err != nil {
			return err
		}
		if err := w.pods.Wait(ctx, ready, w.made); err != nil {
			return err
		}
	}
	return nil
}

// clear deletes all pods and waits until nothing of them is left on either side.
func (w *world) clear(ctx context.Context) error {
	if err := w.Consumer.DeletePods(ctx, namespace); err != nil {
		return err
	}
	if err := w.pods.Wait(ctx, lab.Deleted, w.made); err != nil {
		return err
	}
	for _, list := range []client.ObjectList{&v1alpha1.ShadowPodList{}, &corev1.PodList{}} {
		if err := w.Provider.AwaitNone(ctx, list, w.Twin); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until Hanse has nothing to do.
func (w *world) settle(ctx context.Context) error {
	for _, server := range w.Servers() {
		if err := server.Settle(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}
