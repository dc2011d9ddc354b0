// SPDX-License-Identifier: Apache-2.0

package bursts

import (
	"context"
	"errors"
	"slices"

	"k8s.io/utils/clock"

	"github.com/hanse-dev/hanse/bench/lab"
)

// Ways to run a pod in the provider. Each is also the name of the namespace that its pods are created in.
const (
	Plain     = "plain" // created in the provider directly
	Null      = "null"  // offloaded by the null offloader, which has the same name for its node
	Offloaded = "offloaded"
)

// A Config says what to measure.
type Config struct {
	Bed    lab.Testbed
	Sizes  []int // of bursts
	Rounds int   // of each burst
	Single int   // rounds of one pod alone
	Floors bool  // measure the floors alone, without Hanse
	// Clusters says what those are like that it happens in.
	Clusters lab.PairConfig
	Say      func(format string, args ...any)
}

// A world is the two clusters with the null offloader and Hanse in them.
type world struct {
	Config
	*lab.Pair
	nulls []*lab.Server // null offloaders
	// guarded is the namespace of the provider that the second null offloader uses, which Guards alone has.
	guarded string
	meter   lab.Meter
	clock   clock.Clock
}

// open brings the clusters up and peers them.
func open(ctx context.Context, config Config, fail context.CancelCauseFunc) (*world, error) {
	w := &world{Config: config, clock: clock.RealClock{}}
	var err error
	if w.Pair, err = w.Bed.Pair(ctx, w.Clusters); err != nil {
		return w, err
	}
	if err := errors.Join(w.Consumer.Namespace(ctx, Null), w.Provider.Namespace(ctx, Null), w.Provider.Namespace(ctx, Plain)); err != nil {
		return w, err
	}
	if err := w.startNull(fail, Null, Null, w.Provider.Kubeconfig); err != nil {
		return w, err
	}
	if !w.Floors {
		if err := w.Offload(ctx, fail, Offloaded, slices.Max(append(w.Sizes, warmUp))); err != nil {
			return w, err
		}
	}
	w.meter, err = w.Meter(w.nulls...)
	return w, err
}

// startNull starts a null offloader that takes pods of its node, and of the namespace of the same name, to a namespace of the
// provider, with the rights of a kubeconfig there.
func (w *world) startNull(fail context.CancelCauseFunc, node, twin, remote string) error {
	null, err := w.Consumer.StartProgram(fail, node, "null",
		"-home", w.Consumer.Kubeconfig, "-remote", remote, "-node", node, "-twin", twin)
	if err == nil {
		w.nulls = append(w.nulls, null)
	}
	return err
}

// overLink are the processes that talk to the other cluster.
func (w *world) overLink() []lab.Process {
	var processes []lab.Process
	for _, null := range w.nulls {
		processes = append(processes, null.Process)
	}
	if !w.Floors {
		processes = append(processes, w.Kubelet.Process, w.Manager.Process)
	}
	return processes
}

// traffic reads what has gone over the link, by process.
func (w *world) traffic() (map[string]lab.Traffic, error) {
	provider, err := w.Provider.Address()
	if err != nil {
		return nil, err
	}
	traffic := map[string]lab.Traffic{}
	for _, process := range w.overLink() {
		if traffic[process.Name], err = process.Traffic(provider); err != nil {
			return nil, err
		}
	}
	return traffic, nil
}

// close ends the servers and the clusters.
func (w *world) close(ctx context.Context) error {
	for _, null := range w.nulls {
		null.Stop()
	}
	return w.Close(ctx)
}
