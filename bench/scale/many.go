// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"time"

	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
)

const (
	// calm is how long Hanse rests before it is measured what it takes when nothing happens: the provider tells of
	// itself only after a while what many new pods have changed.
	calm = 45 * time.Second
	// idleFor is for how long that is measured.
	idleFor = time.Minute
)

// A load is what pods take that run and do not change.
type load struct {
	pods  int
	usage map[string]lab.Usage // server → what it has taken
	heap  map[string]float64   // server → bytes in use
	idle  lab.Reading          // processor time within idleFor
	names []string             // of the servers, the kubelet first
}

// many measures what it takes to have many pods running.
func (w *world) many(ctx context.Context) ([]measure.Table, error) {
	if err := w.grow(ctx, w.Pods); err != nil {
		return nil, err
	}
	l := load{pods: w.made, usage: map[string]lab.Usage{}, heap: map[string]float64{}}
	if err := w.settle(ctx); err != nil {
		return nil, err
	}
	if err := lab.Rest(ctx, calm); err != nil {
		return nil, err
	}
	var err error
	if l.idle, err = w.idle(ctx); err != nil {
		return nil, err
	}
	for _, server := range w.Servers() {
		l.names = append(l.names, server.Name)
		if l.usage[server.Name], err = server.Usage(); err != nil {
			return nil, err
		}
		if l.heap[server.Name], _, err = server.Live(ctx); err != nil {
			return []measure.Table{l.table()}, err
		}
	}
	return []measure.Table{l.table()}, nil
}

func (w *world) idle(ctx context.Context) (lab.Reading, error) {
	meter, err := w.Meter()
	if err != nil {
		return nil, err
	}
	before, err := meter.Read()
	if err != nil {
		return nil, err
	}
	w.Say("%d pods run: measuring %s of idleness", w.made, idleFor)
	if err := lab.Rest(ctx, idleFor); err != nil {
		return nil, err
	}
	after, err := meter.Read()
	return after.Since(before), err
}
