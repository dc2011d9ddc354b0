// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// A scheduler decides which stories run on which clusters, and when clusters start and end. Only its run loop reads and writes the fields;
// what takes time happens in goroutines that send an event when they are done.
type scheduler struct {
	opts    options
	waiting []story
	beds    []*bed
	report  *report
	events  chan func()
	busy    int // how many goroutines will send an event
	running int // how many stories run
}

func newScheduler(opts options, stories []story, report *report) *scheduler {
	return &scheduler{opts: opts, waiting: slices.Clone(stories), report: report, events: make(chan func())}
}

// run runs all stories and ends all clusters. When the context ends, it starts no more stories and waits for those that run.
func (s *scheduler) run(ctx context.Context) {
	for {
		if ctx.Err() == nil {
			s.startStories(ctx)
			s.startBeds(ctx)
		}
		s.endBeds(ctx)
		if s.busy == 0 {
			return
		}
		apply := <-s.events
		s.busy--
		apply()
	}
}

// do does something that takes time, and then applies its result in the run loop.
func (s *scheduler) do(work func() (apply func())) {
	s.busy++
	go func() { s.events <- work() }()
}

// startStories starts what may run on the clusters that are ready.
func (s *scheduler) startStories(ctx context.Context) {
	for _, b := range s.beds {
		for s.running < s.opts.parallel {
			next := nextStory(s.waiting, b, s.isOnlyBed(b))
			if next < 0 {
				break
			}
			started := s.waiting[next]
			s.waiting = slices.Delete(s.waiting, next, next+1)
			s.startStory(ctx, b, started)
		}
	}
}

// nextStory returns the index of the story that may start on the bed now, or -1. Stories that run beside others come first, then those that
// run alone, and those that leave the clusters without Hanse when nothing else is waiting for clusters of this shape and the bed is the
// only one.
func nextStory(waiting []story, b *bed, only bool) int {
	if !b.ready || b.ending || b.alone {
		return -1
	}
	shared := slices.IndexFunc(waiting, func(w story) bool { return b.fits(w) && !w.needs.Alone })
	if shared >= 0 {
		return shared
	}
	if b.running > 0 {
		return -1
	}
	alone := slices.IndexFunc(waiting, func(w story) bool { return b.fits(w) && !w.needs.Last })
	if alone >= 0 {
		return alone
	}
	if !only {
		return -1
	}
	return slices.IndexFunc(waiting, b.fits)
}

// isOnlyBed reports whether no other bed has this shape.
func (s *scheduler) isOnlyBed(b *bed) bool {
	return !slices.ContainsFunc(s.beds, func(other *bed) bool { return other != b && other.shape == b.shape })
}

func (s *scheduler) startStory(ctx context.Context, b *bed, started story) {
	s.running++
	b.running++
	b.alone = started.needs.Alone
	s.do(func() func() {
		result := runStory(ctx, b, started, s.report.folder)
		return func() {
			s.running--
			b.running--
			b.alone = false
			s.report.add(result)
		}
	})
}

// manyStories is how many stories must wait for clusters alone until a second set of these clusters is worth its start, which takes as long
// as some stories.
const manyStories = 6

// startBeds starts clusters for stories that have none, and then second ones where many stories wait, as far as the budget allows. Stories
// that run side by side take the whole machine, so no other clusters start until the last of them has begun.
func (s *scheduler) startBeds(ctx context.Context) {
	for _, shape := range s.shapesWithoutBed() {
		wanted := newBed(shape.String(), shape, s.storiesOf(shape))
		if s.isTaken() || s.used() > 0 && s.used()+wanted.size() > s.opts.budget {
			return // larger ones must not starve
		}
		s.startBed(ctx, wanted)
	}
	if !s.opts.keep && !s.isTaken() {
		s.startSecondBed(ctx)
	}
}

// startSecondBed starts a second set of clusters for a shape where many stories wait that need the clusters alone.
func (s *scheduler) startSecondBed(ctx context.Context) {
	for _, b := range s.beds {
		plain := slices.DeleteFunc(s.storiesOf(b.shape), func(w story) bool { return len(w.needs.With) > 0 || w.needs.Last || !w.needs.Alone })
		second := newBed(b.shape.String()+"-2", b.shape, plain)
		if b.ready && len(plain) >= manyStories && s.isOnlyBed(b) && s.used()+second.size() <= s.opts.budget {
			s.startBed(ctx, second)
			return
		}
	}
}

// isTaken reports whether stories wait that will run side by side on clusters that are ready or start.
func (s *scheduler) isTaken() bool { return slices.ContainsFunc(s.waiting, s.runsBesideOthers) }

// runsBesideOthers reports whether the story needs no clusters alone, and has clusters that are ready or start.
func (s *scheduler) runsBesideOthers(w story) bool {
	return !w.needs.Alone && slices.ContainsFunc(s.beds, func(b *bed) bool { return !b.ending && b.fits(w) })
}

func newBed(name string, shape framework.Shape, stories []story) *bed {
	return &bed{name: name, shape: shape, extras: extrasOf(stories)}
}

// shapesWithoutBed returns the shapes that stories wait for and that no clusters have, those with the most stories first.
func (s *scheduler) shapesWithoutBed() []framework.Shape {
	count := map[framework.Shape]int{}
	var shapes []framework.Shape
	for _, w := range s.waiting {
		shape := w.needs.Shape()
		if slices.ContainsFunc(s.beds, func(b *bed) bool { return b.shape == shape }) {
			continue
		}
		if count[shape] == 0 {
			shapes = append(shapes, shape)
		}
		count[shape]++
	}
	slices.SortStableFunc(shapes, func(a, b framework.Shape) int { return count[b] - count[a] })
	return shapes
}

// storiesOf returns those that wait for clusters of the shape.
func (s *scheduler) storiesOf(shape framework.Shape) []story {
	return slices.DeleteFunc(slices.Clone(s.waiting), func(w story) bool { return w.needs.Shape() != shape })
}

// used returns how many clusters run.
func (s *scheduler) used() (clusters int) {
	for _, b := range s.beds {
		clusters += b.size()
	}
	return clusters
}

func (s *scheduler) startBed(ctx context.Context, b *bed) {
	s.beds = append(s.beds, b)
	s.do(func() func() {
		begin := time.Now()
		err := startLogged(ctx, b, s.opts.kubernetes, s.report.folder)
		return func() {
			if err != nil {
				s.failAll(b, err)
				return
			}
			b.ready = true
			fmt.Printf("=== clusters %s are ready (%.1fs)\n", b.name, time.Since(begin).Seconds())
		}
	})
}

func startLogged(ctx context.Context, b *bed, kubernetes, folder string) error {
	var err error
	if b.state, err = stateFolder(b.name); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(folder, "clusters-"+b.name+".log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the testbed has its own logs
	if err := b.start(ctx, kubernetes, log); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%w\n%s", err, lastLines(string(text), 30))
	}
	return nil
}

// failAll reports the stories that wait for the clusters, which could not be started. A second bed takes no stories with it.
func (s *scheduler) failAll(b *bed, err error) {
	b.ending = true
	if !s.isOnlyBed(b) {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	for _, w := range s.storiesOf(b.shape) {
		s.report.add(result{story: w, failed: true, output: err.Error()})
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(w story) bool { return w.needs.Shape() == b.shape })
}

// endBeds ends clusters that no waiting story can use, unless they are to be kept. After an interrupt it ends all that are idle.
func (s *scheduler) endBeds(ctx context.Context) {
	for _, b := range slices.Clone(s.beds) {
		isStarting := !b.ready && !b.ending
		if isStarting || b.running > 0 || (ctx.Err() == nil && !b.ending && s.isNeeded(b)) {
			continue
		}
		s.beds = slices.DeleteFunc(s.beds, func(other *bed) bool { return other == b })
		if s.opts.keep {
			fmt.Printf("=== clusters %s are kept: HANSE_TESTBED_STATE=%s\n", b.name, b.state)
			continue
		}
		s.do(func() func() {
			err := b.end()
			return func() {
				if err != nil {
					s.report.problem(err)
				}
			}
		})
	}
}

// isNeeded reports whether a waiting story can run on the bed. A second bed is not needed by stories that leave it without Hanse.
func (s *scheduler) isNeeded(b *bed) bool {
	only := s.isOnlyBed(b)
	return slices.ContainsFunc(s.waiting, func(w story) bool { return b.fits(w) && (only || !w.needs.Last) })
}
