// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// A receipt counts what has arrived of one answer and is not yet decoded. An answer may be closed while it is being read,
// so that its methods may be called at the same time.
type receipt struct {
	books  *ledger
	held   int  // bytes; this and closed are guarded by the mutex of the ledger
	closed bool // nothing counts any more
}

// add counts bytes that have arrived.
func (r *receipt) add(n int) error {
	r.books.mu.Lock()
	defer r.books.mu.Unlock()
	return r.hold(r.held + n)
}

// restart counts bytes that have arrived behind what is decoded now.
func (r *receipt) restart(n int) error {
	r.books.mu.Lock()
	defer r.books.mu.Unlock()
	return r.hold(n)
}

// hold is called with the mutex of the ledger held.
func (r *receipt) hold(held int) error {
	if r.closed {
		return nil
	}
	grows := held > r.held
	r.books.received += held - r.held
	r.held = held
	if grows && r.books.received > r.books.limit.ReceivedBytes {
		return r.books.exceeded()
	}
	return nil
}

// close ends the count.
func (r *receipt) close() {
	r.books.mu.Lock()
	defer r.books.mu.Unlock()
	_ = r.hold(0)
	r.closed = true
}

// A countedBody counts what has been read of an answer until it is closed.
type countedBody struct {
	io.ReadCloser
	receipt *receipt
}

// Read implements io.Reader.
func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if over := c.receipt.add(n); over != nil {
		return 0, over
	}
	return n, err
}

// Close implements io.Closer.
func (c *countedBody) Close() error {
	c.receipt.close()
	return c.ReadCloser.Close()
}

// delay returns how long to wait behind so many bytes that were read for a mirror.
func (b *ledger) delay(n int, now time.Time) time.Duration {
	if b.spent(n, now) {
		b.findRoom()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reads.ReserveN(now, min(n, b.reads.Burst())).DelayFrom(now)
}

// spent says whether so many bytes would have to wait.
func (b *ledger) spent(n int, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reads.TokensAt(now) < float64(n)
}

// waitFor waits for so long, or until ctx ends.
func waitFor(ctx context.Context, long time.Duration) error {
	if long <= 0 {
		return nil
	}
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// late returns what is wrong when there was no turn, or no room, in the time that an answer has.
func (b *ledger) late(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return b.exceeded()
	}
	return err
}

// A pacedBody is read no faster than the budget of the peer says.
type pacedBody struct {
	io.ReadCloser
	books *ledger
	now   func() time.Time
	ctx   context.Context //nolint:containedctx // ends with the body
	end   context.CancelFunc
}

// Read implements io.Reader.
func (b *pacedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if waited := waitFor(b.ctx, b.books.delay(n, b.now())); waited != nil {
		return 0, b.books.late(waited)
	}
	return n, err
}

// Close implements io.Closer.
func (b *pacedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// Turns are taken by so many at a time. Whoever has taken one gives it back.
type turns chan struct{}

func newTurns(count int) turns { return make(turns, max(count, 1)) }

func (t turns) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turns) give() { <-t }

// A decoding is the turn of one answer, or of one watch, to be decoded: what a peer sends is decoded one after the other,
// because it takes more memory then than before, and may be made so that it takes much more.
type decoding struct {
	books *ledger

	mu    sync.Mutex
	has   bool // the turn is taken
	ended bool
}

// begin takes the turn, which lasts until pause or end. A decoding that is nil takes none. It is called by one at a time.
func (d *decoding) begin(ctx context.Context) error {
	if d == nil || d.taken() {
		return nil
	}
	if err := d.books.decode.take(ctx); err != nil {
		return d.books.late(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.has = !d.ended; d.ended {
		d.books.decode.give()
		return context.Canceled
	}
	return nil
}

func (d *decoding) taken() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.has
}

func (d *decoding) pause() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.has {
		d.books.decode.give()
	}
	d.has = false
}

func (d *decoding) end() {
	d.pause()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
}

type decodingKey struct{}

// withDecoding has the answer to a request decoded in its turn, which lasts until the decoding is ended.
func withDecoding(ctx context.Context, d *decoding) context.Context {
	return context.WithValue(ctx, decodingKey{}, d)
}

func decodingOf(ctx context.Context) *decoding {
	d, _ := ctx.Value(decodingKey{}).(*decoding)
	return d
}
