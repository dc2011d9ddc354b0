// SPDX-License-Identifier: Apache-2.0

package bursts

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/lab"
)

// Guarded is the null offloader into a twin with all that guards one, with the rights of Hanse's manager.
const Guarded = "guarded"

// guards are those of the provider that look at pods of twins and at their records.
var guards = []lab.Guard{
	"hanse-guard-pods", "hanse-guard-objects", "hanse-own-writes", "hanse-finalizers", "hanse-hold-shadow-pods", "hanse-place-pods",
}

// A GuardsResult is the same burst with all guards, and without each of them.
type GuardsResult struct {
	Size   int
	Bursts map[lab.Guard][]Round // the one that is missing → rounds
}

// Guards measures what each guard costs: the same bursts with all of them, and then with one taken away at a time.
func Guards(ctx context.Context, config Config) (result GuardsResult, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	result = GuardsResult{Size: slices.Max(config.Sizes), Bursts: map[lab.Guard][]Round{}}
	w, err := open(ctx, config, fail)
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	if err != nil {
		return result, fmt.Errorf("prepare two clusters: %w", err)
	}
	if err := w.openGuarded(ctx, fail, result.Size); err != nil {
		return result, fmt.Errorf("prepare a guarded twin: %w", err)
	}
	if _, err := w.guardedRound(ctx, "warm-up", warmUp); err != nil {
		return result, err
	}
	for n := range config.Rounds {
		// All guards come first and last: what differs between the two is chance.
		for i, guard := range slices.Concat([]lab.Guard{lab.NoGuard}, guards, []lab.Guard{lab.NoGuard}) {
			err := w.Provider.Without(ctx, guard, func(ctx context.Context) error {
				round, err := w.guardedRound(ctx, fmt.Sprintf("g%d-%d", n, i), result.Size)
				result.Bursts[guard] = append(result.Bursts[guard], round)
				return err
			})
			if err != nil {
				return result, fmt.Errorf("without %q: %w", guard, err)
			}
		}
	}
	return result, nil
}

// openGuarded starts a null offloader into the twin of a namespace that has no pods of its own.
func (w *world) openGuarded(ctx context.Context, fail context.CancelCauseFunc, room int) error {
	var err error
	if w.guarded, err = w.OffloadNamespace(ctx, Guarded+"-twin", room); err != nil {
		return err
	}
	if err := w.Consumer.Namespace(ctx, Guarded); err != nil {
		return err
	}
	manager, err := w.Provider.ServerKubeconfig(ctx, v1alpha1.SystemNamespace, "manager")
	if err != nil {
		return err
	}
	if err := w.startNull(fail, Guarded, w.guarded, manager); err != nil {
		return err
	}
	w.meter, err = w.Meter(w.nulls...)
	return err
}

// guardedRound is one burst by each of those who are guarded.
func (w *world) guardedRound(ctx context.Context, prefix string, size int) (Round, error) {
	round := Round{}
	toGuarded := toNull(Guarded)
	for _, s := range []side{
		{w.Consumer, Guarded, func(spec *corev1.PodSpec) {
			toGuarded(spec)
			spec.AutomountServiceAccountToken = ptr.To(false) // no guard lets one in
		}},
		{w.Consumer, Offloaded, func(*corev1.PodSpec) {}},
	} {
		burst, err := w.burst(ctx, s, prefix, size)
		if err != nil {
			return round, fmt.Errorf("burst %s, %s: %w", prefix, s.namespace, err)
		}
		w.Say("%s: %d pods, %s: all Ready in %s", prefix, size, s.namespace, burst.AllReady)
		round[s.namespace] = burst
	}
	return round, nil
}
