// SPDX-License-Identifier: Apache-2.0

package advertisements

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
)

// calm is how long the servers rest before they are measured. A receiver without a link looks again after 10 s, so by then
// every watch over a link is open, and what an advertisement set off has ended.
const calm = 30 * time.Second

// probesPerSecond is how many peers the manager probes at most, as package peering has it.
const probesPerSecond = 10

// probeRound is how long it takes until each of so many peers has been probed once more.
func probeRound(peers int) time.Duration { return time.Duration(peers) * time.Second / probesPerSecond }

func (e *experiment) measure(ctx context.Context) (Result, error) {
	r := Result{Count: e.Count, OneByOne: e.OneByOne, IdleFor: e.idleFor(), Connected: e.connected}
	if err := lab.Rest(ctx, calm); err != nil {
		return r, err
	}
	if err := e.usage(&r.Manager.Before, &r.Kubelet.Before); err != nil {
		return r, err
	}
	before, err := e.meter.Read()
	if err != nil {
		return r, err
	}
	e.Say("%d providers: writing advertisements", e.Count)
	start := e.clock.Now()
	written, err := e.write(ctx)
	if err != nil {
		return r, err
	}
	after, err := e.meter.Read()
	if err != nil {
		return r, err
	}
	r.Took, r.CPU = e.clock.Since(start), after.Since(before)
	e.times(&r, written)
	if err := e.usage(&r.Manager.After, &r.Kubelet.After); err != nil {
		return r, err
	}
	if e.Idle > 0 {
		if r.Idle, err = e.idle(ctx); err != nil {
			return r, err
		}
	}
	if e.OneByOne {
		return r, nil
	}
	if r.Placement, err = e.place(ctx); err != nil {
		return r, err
	}
	r.Auctions, err = e.hold(ctx)
	return r, err
}

func (e *experiment) usage(manager, kubelet *lab.Usage) error {
	var managerErr, kubeletErr error
	*manager, managerErr = e.manager.Usage()
	*kubelet, kubeletErr = e.kubelet.Usage()
	return errors.Join(managerErr, kubeletErr)
}

// write writes all advertisements, waits until each is answered and has its node, and returns when each was written.
func (e *experiment) write(ctx context.Context) (map[string]time.Time, error) {
	var mutex sync.Mutex
	written := map[string]time.Time{} // cluster id → just before the write
	one := func(ctx context.Context, id string) error {
		now := e.clock.Now()
		mutex.Lock()
		written[id] = now
		mutex.Unlock()
		if err := e.provider.Create(ctx, Offer(id, now)); err != nil {
			return fmt.Errorf("create Advertisement %s: %w", id, err)
		}
		return nil
	}
	if !e.OneByOne {
		if err := each(ctx, 1, e.Count, one); err != nil {
			return nil, err
		}
		return written, e.await(ctx, e.Count)
	}
	for n := 1; n <= e.Count; n++ {
		if err := errors.Join(one(ctx, clusterID(n)), e.await(ctx, n)); err != nil {
			return nil, err
		}
	}
	return written, nil
}

func (e *experiment) await(ctx context.Context, count int) error {
	if err := e.nodes.Wait(ctx, ready, count); err != nil {
		return fmt.Errorf("virtual nodes: %w", err)
	}
	if err := e.offers.Wait(ctx, acknowledged, count); err != nil {
		return fmt.Errorf("advertisements: %w", err)
	}
	return e.copies.Wait(ctx, taken, count)
}

func (e *experiment) times(r *Result, written map[string]time.Time) {
	nodes := func(milestone string) map[string]time.Time {
		byID := map[string]time.Time{}
		for name, at := range e.nodes.Moments(milestone) {
			byID[strings.TrimPrefix(name, v1alpha1.VirtualNodePrefix)] = at
		}
		return byID
	}
	r.Acknowledged = measure.Between(written, e.offers.Moments(acknowledged))
	r.NodeCreated = measure.Between(written, nodes(created))
	r.NodeReady = measure.Between(written, nodes(ready))
	r.AcceptedToReady = measure.Between(e.copies.Moments(taken), nodes(ready))
	r.AllReady = measure.Span(written, nodes(ready))
}

// idle measures what everything takes when nothing changes. While many advertisements are taken in, all answers are slow, and
// the next probes correct what the Peers say of the round trip. Since all were probed for the first time at once, the probes
// are spread evenly only after some rounds.
func (e *experiment) idle(ctx context.Context) (lab.Reading, error) {
	e.Say("%d providers: measuring %s of idleness, once all Peers were probed some times", e.Count, e.idleFor())
	if err := lab.Rest(ctx, calm+3*probeRound(e.Count)); err != nil {
		return nil, err
	}
	before, err := e.meter.Read()
	if err != nil {
		return nil, err
	}
	if err := lab.Rest(ctx, e.idleFor()); err != nil {
		return nil, err
	}
	after, err := e.meter.Read()
	return after.Since(before), err
}

// idleFor is at least one round of probes.
func (e *experiment) idleFor() time.Duration { return max(e.Idle, probeRound(e.Count)) }
