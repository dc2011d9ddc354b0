// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
)

// A Config says what to measure. A part whose number is 0 is left out.
type Config struct {
	Bed      lab.Testbed
	Clusters lab.PairConfig
	Running  int // pods that run while the kubelet is killed
	Restarts int // how often it is killed then
	Pods     int // pods that run while it is measured what they take
	Cycles   int // pods that are created, become Ready and are deleted
	Limit    time.Duration
	Show     func(...measure.Table) // is given what was measured as soon as it was
	Say      func(format string, args ...any)
}

// batch is how many pods are created before they are waited for.
const batch = 200

// A part is one measurement. What it returns is shown also if it breaks.
type part struct {
	name    string
	size    int
	measure func(context.Context) ([]measure.Table, error)
}

// Run brings the clusters up, measures part by part, and ends them.
func Run(ctx context.Context, config Config) (err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	w, err := open(ctx, config, fail)
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	if err != nil {
		return fmt.Errorf("prepare two clusters: %w", err)
	}
	for _, p := range []part{
		{"restart", min(w.Running, w.Restarts), w.restart},
		{"many pods", w.Pods, w.many},
		{"restart with many pods", w.Pods, w.relist},
		{"cycles", w.Cycles, w.cycles},
	} {
		if p.size == 0 {
			continue
		}
		if err := w.measure(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

func (w *world) measure(ctx context.Context, p part) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.Limit, fmt.Errorf("it took longer than %s", w.Limit))
	defer cancel()
	tables, err := p.measure(ctx)
	for _, table := range tables {
		if len(table.Rows) > 0 {
			w.Show(table)
		}
	}
	return err
}
