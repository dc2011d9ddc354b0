// SPDX-License-Identifier: Apache-2.0

package bursts

import (
	"context"
	"errors"
	"fmt"

	"github.com/hanse-dev/hanse/bench/lab"
)

// warmUp is the size of the first burst on each side, which is not measured: it opens connections and fills caches.
const warmUp = 20

// A Result is what was measured in one run.
type Result struct {
	Config
	Twin   string
	Single map[string]*Single // way → one pod alone
	Rounds []Round            // in the order in which they were measured
	Memory map[string]lab.Usage
}

// A Round is the same burst once in each way, one right after the other.
type Round map[string]Burst

// Run brings the clusters up, measures, and ends them.
func Run(ctx context.Context, config Config) (result Result, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	w, err := open(ctx, config, fail)
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	if err != nil {
		return Result{}, fmt.Errorf("prepare two clusters: %w", err)
	}
	result = Result{Config: config, Twin: w.Twin, Single: map[string]*Single{}, Memory: map[string]lab.Usage{}}
	return result, w.measure(ctx, &result)
}

func (w *world) measure(ctx context.Context, result *Result) error {
	if _, err := w.round(ctx, "warm-up", warmUp); err != nil {
		return err
	}
	if err := w.singles(ctx, result); err != nil {
		return err
	}
	for _, size := range w.Sizes {
		for n := range w.Rounds {
			round, err := w.round(ctx, fmt.Sprintf("b%d-%d", size, n), size)
			if err != nil {
				return err
			}
			result.Rounds = append(result.Rounds, round)
		}
	}
	for _, server := range w.Servers() {
		usage, err := server.Usage()
		if err != nil {
			return err
		}
		result.Memory[server.Name] = usage
	}
	return nil
}

func (w *world) singles(ctx context.Context, result *Result) error {
	for n := range w.Single {
		for _, s := range w.sides() {
			if result.Single[s.namespace] == nil {
				result.Single[s.namespace] = &Single{}
			}
			if err := w.one(ctx, s, fmt.Sprintf("single-%d", n), result.Single[s.namespace]); err != nil {
				return fmt.Errorf("one pod, %s: %w", s.namespace, err)
			}
		}
	}
	return nil
}

func (w *world) round(ctx context.Context, prefix string, size int) (Round, error) {
	round := Round{}
	for _, s := range w.sides() {
		burst, err := w.burst(ctx, s, prefix, size)
		if err != nil {
			return round, fmt.Errorf("burst %s, %s: %w", prefix, s.namespace, err)
		}
		w.Say("%s: %d pods, %s: all Ready in %s", prefix, size, s.namespace, burst.AllReady)
		round[s.namespace] = burst
	}
	return round, nil
}
