// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hanse-dev/hanse/testbed/internal/plan"
)

// Relay says what happens to the packets between a cluster and the outside.
type Relay struct {
	Exempt []netip.Prefix // addresses outside to and from which everything passes as if there were no relay
	Links  []plan.Link
	Now    func() time.Time `json:"-"`
}

// End is one end of the cable: each read and each write is of one frame.
type End = io.ReadWriteCloser

// Run carries frames between both ends until one of them breaks, an error, or the context ends, which is none. It closes both.
func (r Relay) Run(ctx context.Context, inside, outside End) error {
	tasks, running := errgroup.WithContext(ctx)
	out := r.direction(inside, outside, func(p packet) netip.Addr { return p.destination })
	in := r.direction(outside, inside, func(p packet) netip.Addr { return p.source })
	for _, way := range []*direction{out, in} {
		tasks.Go(func() error { return way.carry(running) })
		for _, late := range way.lanes {
			tasks.Go(func() error { return late.deliver(running, way) })
		}
	}
	tasks.Go(func() error {
		<-running.Done()
		return errors.Join(inside.Close(), outside.Close())
	})
	if err := tasks.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// direction is one way through the cable.
type direction struct {
	from   io.Reader
	to     io.Writer
	far    func(packet) netip.Addr // the address outside
	exempt []netip.Prefix
	lanes  []*lane
	now    func() time.Time
}

// lane is one line of a direction, with the frames that are on their way.
type lane struct {
	link plan.Link
	line line
	late chan parcel
}

type parcel struct {
	frame []byte
	due   time.Time
}

// maxLate is how many frames are on their way in one lane, at most: 48 MB of large ones, or 400 Mbit/s for a second.
const maxLate = 1 << 15

func (r Relay) direction(from io.Reader, to io.Writer, far func(packet) netip.Addr) *direction {
	way := &direction{from: from, to: to, far: far, exempt: r.Exempt, now: r.Now}
	for _, link := range r.Links {
		way.lanes = append(way.lanes, &lane{
			link: link, late: make(chan parcel, maxLate),
			line: line{Impairment: link.Impairment, chance: rand.Float64},
		})
	}
	return way
}

// maxFrame is more than any frame has.
const maxFrame = 1 << 16

// carry reads frames, and passes each on or gives it to its lane.
func (d *direction) carry(ctx context.Context) error {
	buffer := make([]byte, maxFrame)
	for ctx.Err() == nil {
		n, err := d.from.Read(buffer)
		if err != nil {
			return err
		}
		d.handle(buffer[:n])
	}
	return nil
}

func (d *direction) handle(frame []byte) {
	found, ok := parse(frame)
	var chosen *lane
	if ok {
		chosen = d.choose(d.far(found))
	}
	if chosen == nil {
		d.send(frame)
		return
	}
	now := d.now()
	due, ok := chosen.line.take(found.length, now)
	switch {
	case !ok:
	case !due.After(now): // then none of this lane is ever late
		d.send(frame)
	default:
		select {
		case chosen.late <- parcel{slices.Clone(frame), due}:
		default: // too much is on its way
		}
	}
}

// choose finds the lane of an address outside: that of the link that names it, or else that of the link with everybody.
func (d *direction) choose(far netip.Addr) *lane {
	contains := func(subnet netip.Prefix) bool { return subnet.Contains(far) }
	if slices.ContainsFunc(d.exempt, contains) {
		return nil
	}
	var everybody *lane
	for _, lane := range d.lanes {
		if slices.ContainsFunc(lane.link.Subnets, contains) {
			return lane
		}
		if lane.link.Peer == "" {
			everybody = lane
		}
	}
	return everybody
}

// send is best effort, as a network is: what an interface that is down does not take is lost.
func (d *direction) send(frame []byte) {
	_, _ = d.to.Write(frame)
}

// deliver sends the frames of a lane when they are due, in their order.
func (l *lane) deliver(ctx context.Context, way *direction) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case next := <-l.late:
			if !way.until(ctx, next.due) {
				return nil
			}
			way.send(next.frame)
		}
	}
}

// until waits for a time, and tells whether it has come.
func (d *direction) until(ctx context.Context, due time.Time) bool {
	left := due.Sub(d.now())
	if left <= 0 {
		return true
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
