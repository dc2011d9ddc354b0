// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Milestone is a state that objects reach.
type Milestone struct {
	Name    string
	Reached func(client.Object) bool
}

// Deleted is the milestone of objects that are gone. Every Observer notes it.
const Deleted = "deleted"

// An Observer watches objects and notes the moment at which each first reached each milestone, as the watch told it.
type Observer struct {
	cluster    *Cluster
	list       client.ObjectList
	options    client.ListOptions
	milestones []Milestone
	clock      clock.PassiveClock
	stop       context.CancelFunc
	done       chan struct{}

	mutex   sync.Mutex
	reached map[string]map[string]time.Time // milestone → name of the object → when
	changed chan struct{}                   // closed when reached changes
	err     error
}

// Observe watches the objects of a list's kind until Close. Names of the objects must be unique among those watched.
func (c *Cluster) Observe(
	ctx context.Context, list client.ObjectList, options []client.ListOption, milestones ...Milestone,
) (*Observer, error) {
	ctx, stop := context.WithCancel(ctx)
	o := &Observer{
		cluster: c, list: list, milestones: milestones, clock: clock.RealClock{}, stop: stop, done: make(chan struct{}),
		reached: map[string]map[string]time.Time{Deleted: {}}, changed: make(chan struct{}),
	}
	o.options.ApplyOptions(options)
	for _, m := range milestones {
		o.reached[m.Name] = map[string]time.Time{}
	}
	watcher, version, err := o.begin(ctx)
	if err != nil {
		stop()
		return nil, fmt.Errorf("watch %T in %s: %w", list, c.Name, err)
	}
	go o.run(ctx, watcher, version)
	return o, nil
}

// begin notes what is there already and watches from then on.
func (o *Observer) begin(ctx context.Context) (watch.Interface, string, error) {
	if err := o.cluster.List(ctx, o.list, &o.options); err != nil {
		return nil, "", err
	}
	now := o.clock.Now()
	err := meta.EachListItem(o.list, func(item runtime.Object) error {
		if object, ok := item.(client.Object); ok {
			o.note(watch.Added, object, now)
		}
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	watcher, err := o.watch(ctx, o.list.GetResourceVersion())
	return watcher, o.list.GetResourceVersion(), err
}

func (o *Observer) watch(ctx context.Context, version string) (watch.Interface, error) {
	options := o.options
	options.Raw = &metav1.ListOptions{ResourceVersion: version}
	return o.cluster.Watch(ctx, o.list, &options)
}

// Close ends the watch.
func (o *Observer) Close() {
	o.stop()
	<-o.done
}

// run follows the watch. An API server ends watches whose client is too slow for it, which on a busy machine happens:
// then the next one goes on where that one ended.
func (o *Observer) run(ctx context.Context, watcher watch.Interface, version string) {
	defer close(o.done)
	for {
		var err error
		version, err = o.follow(watcher, version)
		if ctx.Err() != nil { // then the watch has ended with whatever error
			o.fail(context.Cause(ctx))
			return
		}
		if err != nil {
			o.fail(err)
			return
		}
		if watcher, err = o.watch(ctx, version); err != nil {
			o.fail(fmt.Errorf("watch %T again: %w", o.list, err))
			return
		}
	}
}

// follow notes events until the watch ends, and returns the version of the last one.
func (o *Observer) follow(watcher watch.Interface, version string) (string, error) {
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		now := o.clock.Now()
		object, ok := event.Object.(client.Object)
		if !ok || event.Type == watch.Error {
			return version, fmt.Errorf("watch %T: %w", o.list, apierrors.FromObject(event.Object))
		}
		version = object.GetResourceVersion()
		o.note(event.Type, object, now)
	}
	return version, nil
}

func (o *Observer) fail(err error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.err = err
	o.wake()
}

func (o *Observer) note(kind watch.EventType, object client.Object, now time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if kind == watch.Deleted {
		o.mark(Deleted, object.GetName(), now)
		return
	}
	for _, m := range o.milestones {
		if _, known := o.reached[m.Name][object.GetName()]; !known && m.Reached(object) {
			o.mark(m.Name, object.GetName(), now)
		}
	}
}

func (o *Observer) mark(milestone, name string, now time.Time) {
	o.reached[milestone][name] = now
	o.wake()
}

func (o *Observer) wake() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// Moments returns when each object that has reached the milestone did so.
func (o *Observer) Moments(milestone string) map[string]time.Time {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return maps.Clone(o.reached[milestone])
}

// Wait waits until so many objects have reached the milestone.
func (o *Observer) Wait(ctx context.Context, milestone string, count int) error {
	for {
		seen, changed, err := o.look(milestone)
		if seen >= count {
			return nil
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("%d of %d objects are %s: %w", seen, count, milestone, err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func (o *Observer) look(milestone string) (int, <-chan struct{}, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return len(o.reached[milestone]), o.changed, o.err
}

// Created is a milestone that every object has reached.
func Created(client.Object) bool { return true }
