// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
)

// A state is what Hanse holds at one moment at which no pod runs.
type state struct {
	servers map[string]holding
	watches map[string]int            // cluster and program → its open watches there
	objects map[string]map[string]int // cluster → kind → how many are stored
}

// A holding is what one server holds.
type holding struct {
	heap, resident    float64 // bytes
	goroutines, files int
}

// cycles creates pods and deletes them when they are Ready, over and over, and looks what that leaves behind.
func (w *world) cycles(ctx context.Context) ([]measure.Table, error) {
	r := turnover{names: []string{}}
	for _, server := range w.Servers() {
		r.names = append(r.names, server.Name)
	}
	if err := w.clear(ctx); err != nil {
		return nil, err
	}
	// The first batch opens connections and makes room, so it does not count.
	for _, count := range []int{batch, w.Cycles / 2, w.Cycles - w.Cycles/2} {
		start := w.clock.Now()
		if err := w.turn(ctx, count); err != nil {
			return []measure.Table{r.table()}, err
		}
		r.took = append(r.took, w.clock.Since(start))
		r.counts = append(r.counts, count)
		s, err := w.state(ctx)
		if err != nil {
			return []measure.Table{r.table()}, err
		}
		r.states = append(r.states, s)
		w.Say("%d cycles in %s", count, r.took[len(r.took)-1])
	}
	return []measure.Table{r.table()}, nil
}

// turn lets so many pods come and go.
func (w *world) turn(ctx context.Context, count int) error {
	for until := w.made + count; w.made < until; {
		if err := w.create(ctx, min(batch, until-w.made)); err != nil {
			return err
		}
		if err := w.pods.Wait(ctx, ready, w.made); err != nil {
			return err
		}
		if err := w.clear(ctx); err != nil {
			return err
		}
		if _, err := w.logs.next(); err != nil { // or there is much to read in the end
			return err
		}
	}
	return nil
}

func (w *world) state(ctx context.Context) (state, error) {
	s := state{servers: map[string]holding{}, objects: map[string]map[string]int{}}
	if err := w.settle(ctx); err != nil {
		return s, err
	}
	var err error
	for _, server := range w.Servers() {
		if s.servers[server.Name], err = hold(ctx, server); err != nil {
			return s, err
		}
	}
	for _, cluster := range []*lab.Cluster{w.Consumer, w.Provider} {
		if s.objects[cluster.Name], err = cluster.Objects(ctx); err != nil {
			return s, err
		}
	}
	s.watches, err = w.openWatches(ctx)
	return s, err
}

func hold(ctx context.Context, server *lab.Server) (holding, error) {
	heap, metrics, err := server.Live(ctx)
	if err != nil {
		return holding{}, err
	}
	usage, err := server.Usage()
	return holding{
		heap: heap, resident: float64(usage.Resident),
		goroutines: int(metrics.Sum("go_goroutines")), files: int(metrics.Sum("process_open_fds")),
	}, err
}

// openWatches counts the open watches. A watch ends after some minutes by itself and is opened again, so what counts is
// what is found twice in a row.
func (w *world) openWatches(ctx context.Context) (map[string]int, error) {
	var last map[string]int
	err := lab.Until(ctx, "watches stay open", time.Second, time.Minute, func(context.Context) error {
		now, err := w.logs.open()
		if err != nil {
			return err
		}
		before := last
		if last = now; !maps.Equal(before, now) {
			return fmt.Errorf("%v before, %v now", before, now)
		}
		return nil
	})
	return last, err
}
