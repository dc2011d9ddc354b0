// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
)

// A Config says what to measure.
type Config struct {
	Bed          lab.Testbed
	SchedulerQPS int
	Objects      int // of each kind
	Rounds       int // in each of which all of a kind go once by each of the two
	Changes      int // one by one, and as many one after the other; 0: none
	Held         int // objects of all kinds while memory is read; 0: it is not read
	Say          func(format string, args ...any)
}

// Measured is what was measured of one kind.
type Measured struct {
	Kind         string
	Floor, Hanse measure.Sample // until all objects are there
	// Until a change is seen, one by one and in a row.
	FloorAlone, HanseAlone, FloorRow, HanseRow measure.Sample

	written []client.Object // by the direct client, in the last round
}

// A Result is what was measured, as far as it came.
type Result struct {
	Config
	Kinds       []Measured
	Empty, Full Load
	Namespaces  int // that have objects at the provider
}

// Run brings the clusters up, measures, and ends them.
func Run(ctx context.Context, config Config) (result Result, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	result = Result{Config: config}
	w, err := open(ctx, config, fail)
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	if err != nil {
		return result, fmt.Errorf("prepare two clusters: %w", err)
	}
	return result, w.measure(ctx, &result)
}

func (w *world) measure(ctx context.Context, result *Result) error {
	var err error
	if result.Empty, err = w.load(ctx, 0); err != nil {
		return err
	}
	objects := 0
	for i := range kinds {
		k := &kinds[i]
		result.Kinds = append(result.Kinds, Measured{Kind: k.name})
		m := &result.Kinds[i]
		if err := w.many(ctx, k, m); err != nil {
			return fmt.Errorf("%d × %s: %w", w.Objects, k.name, err)
		}
		if err := w.changes(ctx, k, m); err != nil {
			return fmt.Errorf("changes of %s: %w", k.name, err)
		}
		if err := w.empty(ctx, k, direct); err != nil {
			return err
		}
		objects += w.Objects * len(k.there)
	}
	if w.Held == 0 {
		return nil
	}
	if err := w.hold(ctx, objects); err != nil {
		return err
	}
	result.Namespaces = len(w.twins) - 1 // without the direct client's
	result.Full, err = w.load(ctx, max(objects, w.Held))
	return err
}
