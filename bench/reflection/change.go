// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
)

const (
	// pause is how long nothing happens before one change.
	pause = 300 * time.Millisecond
	// perSecond is how many changes are made a second when they follow each other.
	perSecond = 10
)

// A changer changes objects, one after the other, and sees when that is at the provider.
type changer struct {
	*world
	objects []client.Object // as they are now
	by      client.Client   // who writes them
	seen    *lab.Observer
	made    map[string]time.Time // number of the object → when it was changed
}

// changes measures how soon a change of one of the objects is at the provider: first one by one, the direct client's and ours in turn, and
// then one after the other.
func (w *world) changes(ctx context.Context, k *kind, result *Measured) error {
	if w.Changes == 0 {
		return nil
	}
	floor, err := w.changer(ctx, k, direct, w.peer)
	if err != nil {
		return err
	}
	defer floor.seen.Close()
	floor.objects = result.written
	ours, err := w.changer(ctx, k, k.namespaceOf(), w.Consumer)
	if err != nil {
		return err
	}
	defer ours.seen.Close()
	if ours.objects, err = w.atHome(ctx, k); err != nil {
		return err
	}
	for range w.Changes {
		if err := errors.Join(floor.alone(ctx), ours.alone(ctx)); err != nil {
			return err
		}
	}
	result.FloorAlone, result.HanseAlone = floor.took(), ours.took()
	if err := errors.Join(floor.many(ctx, w.Changes), ours.many(ctx, w.Changes)); err != nil {
		return err
	}
	result.FloorRow, result.HanseRow = floor.took()[w.Changes:], ours.took()[w.Changes:]
	w.Say("%s, a change: direct p99 %s and %s, Hanse %s and %s", k.name,
		result.FloorAlone.P99(), result.FloorRow.P99(), result.HanseAlone.P99(), result.HanseRow.P99())
	return nil
}

func (w *world) changer(ctx context.Context, k *kind, namespace string, by client.Client) (*changer, error) {
	seen, err := w.observe(ctx, k.there[len(k.there)-1:], namespace)
	if err != nil {
		return nil, err
	}
	return &changer{world: w, by: by, seen: seen[0], made: map[string]time.Time{}}, nil
}

// atHome are the objects of the kind that are changed, as they are now.
func (w *world) atHome(ctx context.Context, k *kind) ([]client.Object, error) {
	all := make([]client.Object, w.Objects)
	return all, lab.Each(ctx, w.Objects, atOnce, func(ctx context.Context, n int) error {
		objects := k.objects(k.namespaceOf(), n)
		all[n] = objects[len(objects)-1]
		return w.Consumer.Get(ctx, client.ObjectKeyFromObject(all[n]), all[n])
	})
}

// alone changes the next object after some time in which nothing happens, and waits until that is seen.
func (c *changer) alone(ctx context.Context) error {
	if err := lab.Rest(ctx, pause); err != nil {
		return err
	}
	if err := c.change(ctx); err != nil {
		return err
	}
	return c.await(ctx)
}

// many changes so many objects at the same pace, and waits until the last is seen.
func (c *changer) many(ctx context.Context, count int) error {
	begin := c.clock.Now()
	for n := range count {
		if err := lab.Rest(ctx, begin.Add(time.Duration(n)*time.Second/perSecond).Sub(c.clock.Now())); err != nil {
			return err
		}
		if err := c.change(ctx); err != nil {
			return err
		}
	}
	return c.await(ctx)
}

func (c *changer) change(ctx context.Context) error {
	next := len(c.made)
	before := c.objects[next]
	after := before.DeepCopyObject().(client.Object) //nolint:forcetypeassert // the copy of an object is one
	setValue(after, initial+1)
	c.made[before.GetName()] = c.clock.Now()
	if err := c.by.Update(ctx, after); err != nil {
		return fmt.Errorf("change %T %s: %w", before, before.GetName(), err)
	}
	return nil
}

// await waits until all changes are seen.
func (c *changer) await(ctx context.Context) error { return c.seen.Wait(ctx, changed, len(c.made)) }

// took is how long each change took, in the order in which they were made.
func (c *changer) took() measure.Sample {
	moments := c.seen.Moments(changed)
	var all measure.Sample
	for n := range len(c.made) {
		name := c.objects[n].GetName()
		at, there := moments[name]
		if !there { // an EndpointSlice for a message of that name
			at = moments["hanse-"+name]
		}
		all = append(all, at.Sub(c.made[name]))
	}
	return all
}
