// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"

	"github.com/hanse-dev/hanse/bench/audit"
	"github.com/hanse-dev/hanse/bench/lab"
)

// A Load is what Hanse's manager at home has open and in memory at one moment.
type Load struct {
	Objects int // that are reflected
	Usage   lab.Usage
	Heap    float64 // bytes in use
	Watches map[audit.Kind]int
}

// load measures when there is nothing to do.
func (w *world) load(ctx context.Context, objects int) (l Load, err error) {
	if err := w.Manager.Settle(ctx, nil); err != nil {
		return l, err
	}
	l.Objects = objects
	if l.Heap, _, err = w.Manager.Live(ctx); err != nil {
		return l, err
	}
	if l.Usage, err = w.Manager.Usage(); err != nil {
		return l, err
	}
	l.Watches, err = w.openWatches()
	return l, err
}

// hold has so many objects reflected, of each kind in one namespace, beside those that are there already.
func (w *world) hold(ctx context.Context, already int) error {
	size := 0 // of one number of each kind
	for i := range kinds {
		size += len(kinds[i].there)
	}
	each := (w.Held - already + size - 1) / size
	if each <= 0 {
		return nil
	}
	for i := range kinds {
		k := &kinds[i]
		namespace := "held-" + k.resource
		w.Say("%d × %s are held", each, k.name)
		if err := w.fill(ctx, k, namespace, each); err != nil {
			return err
		}
		seen, err := w.observe(ctx, k.there, namespace)
		if err != nil {
			return err
		}
		defer closeAll(seen)
		if _, err := w.startPod(ctx, namespace); err != nil {
			return err
		}
		for _, o := range seen {
			if err := o.Wait(ctx, there, each); err != nil {
				return fmt.Errorf("hold %d × %s: %w", each, k.name, err)
			}
		}
	}
	return nil
}
