// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/internal/unread"
)

const (
	writers   = 8
	namespace = "requests"      // of those that are changed
	twin      = "requests-twin" // of those that are made
)

// A Config says what to measure.
type Config struct {
	Bed    lab.Testbed
	Count  int // writes of each way at a time
	Rounds int // in each of which every way has its turn
	Say    func(format string, args ...any)
}

// A Result is what each way took.
type Result struct {
	Config
	Cost map[string][]time.Duration // way → processor time of the API server for each write, by round
}

// A world is a cluster with objects to write to.
type world struct {
	Config
	*lab.Cluster
	server lab.Process
	made   int // so many objects were made, for their names
}

// Run brings a cluster up, measures, and ends it.
func Run(ctx context.Context, config Config) (result Result, err error) {
	result = Result{Config: config, Cost: map[string][]time.Duration{}}
	defer func() { err = errors.Join(err, config.Bed.Down(context.WithoutCancel(ctx))) }()
	w, err := open(ctx, config)
	if err != nil {
		return result, fmt.Errorf("prepare a cluster: %w", err)
	}
	ways, err := w.ways(ctx)
	if err != nil {
		return result, err
	}
	for range config.Rounds {
		for _, i := range rand.Perm(len(ways)) { //nolint:gosec // the order is no secret
			if err := w.measure(ctx, &ways[i], &result); err != nil {
				return result, err
			}
		}
		if err := w.ablate(ctx, &result); err != nil {
			return result, err
		}
	}
	return result, nil
}

func open(ctx context.Context, config Config) (*world, error) {
	w := &world{Config: config}
	if err := config.Bed.Up(ctx, []string{"--workers", "0"}, "alone"); err != nil {
		return w, err
	}
	var err error
	if w.Cluster, err = config.Bed.Cluster(ctx, "alone"); err != nil {
		return w, err
	}
	// Once Hanse is installed, nobody but its manager makes a twin.
	if err := errors.Join(w.makeTwin(ctx), w.Install(ctx), w.Namespace(ctx, namespace)); err != nil {
		return w, err
	}
	// Its answers can be left unread.
	unreading := rest.CopyConfig(w.Cluster.Config)
	unreading.WrapTransport = func(next http.RoundTripper) http.RoundTripper { return unread.Transport(next) }
	if w.WithWatch, err = client.NewWithWatch(unreading, client.Options{Scheme: w.Scheme()}); err != nil {
		return w, err
	}
	w.server, err = w.Process("apiserver")
	return w, err
}

// measure adds what a write in that way takes of the API server's time.
func (w *world) measure(ctx context.Context, way *way, into *Result) error {
	do, err := way.prepare(ctx)
	if err != nil {
		return fmt.Errorf("prepare %s: %w", way.name, err)
	}
	before, err := w.server.Usage()
	if err != nil {
		return err
	}
	if err := w.all(ctx, do); err != nil {
		return fmt.Errorf("%s: %w", way.name, err)
	}
	after, err := w.server.Usage()
	cost := (after.CPU - before.CPU) / time.Duration(w.Count)
	w.Say("%s: %s", way.name, cost)
	into.Cost[way.name] = append(into.Cost[way.name], cost)
	return err
}

// pods are those that are written to, as they are now.
func (w *world) pods(ctx context.Context) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := w.List(ctx, list, client.InNamespace(namespace))
	return list.Items, err
}

func (w *world) records(ctx context.Context) ([]v1alpha1.ShadowPod, error) {
	list := &v1alpha1.ShadowPodList{}
	err := w.List(ctx, list, client.InNamespace(namespace))
	return list.Items, err
}
