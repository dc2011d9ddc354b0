// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hanse-dev/hanse/internal/sanitize"
)

// quantitiesOf returns where any kind of the scheme has quantities. The decoder makes of an answer the kind that the answer
// says it is of, whatever was asked for: so each answer is checked for the places of all kinds.
func quantitiesOf(scheme *runtime.Scheme) sanitize.Quantities {
	var kinds []reflect.Type
	for _, kind := range scheme.AllKnownTypes() {
		kinds = append(kinds, kind)
	}
	return sanitize.QuantitiesIn(kinds...)
}

// checkQuantities returns an error if a quantity in the answer would keep the decoder busy. What is no JSON, the decoder
// refuses by itself.
func checkQuantities(places sanitize.Quantities, answer []byte) error {
	if err := places.Check(answer); errors.Is(err, sanitize.ErrQuantity) {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

// A checkedBody is an answer that is read as a whole, as its decoder does, and checked before the first byte is given out.
type checkedBody struct {
	io.ReadCloser
	places   sanitize.Quantities
	most     int             // bytes of the decoded answer
	ctx      context.Context //nolint:containedctx // that of the request
	decoding *decoding       // may be nil
	answer   io.Reader       // nil until it is read
}

// Read implements io.Reader.
func (b *checkedBody) Read(p []byte) (int, error) {
	if b.answer == nil {
		answer, err := io.ReadAll(b.ReadCloser)
		if err == nil {
			err = b.decoding.begin(b.ctx)
		}
		if err == nil {
			err = checkAnswer(b.places, answer, b.most)
		}
		if err != nil {
			return 0, err
		}
		b.answer = bytes.NewReader(answer)
	}
	return b.answer.Read(p)
}

// checkAnswer returns an error if the answer would take too much memory when it is decoded, or too much time.
func checkAnswer(places sanitize.Quantities, answer []byte, most int) error {
	if err := checkDecoded(answer, most); err != nil {
		return err
	}
	return checkQuantities(places, answer)
}

const (
	// largeEvent is behind which a watch ends, because its buffers would stay as large.
	largeEvent = 256 << 10
	// eventCost is what an event counts for besides its bytes, so that small ones without number are read no faster either.
	eventCost = 4 << 10
)

// A checkedEvents is the answer to a watch. Each event is checked before it is given out.
type checkedEvents struct {
	io.ReadCloser
	places   sanitize.Quantities
	books    *ledger
	now      func() time.Time
	decoding *decoding
	ctx      context.Context //nolint:containedctx // ends with the body
	end      context.CancelFunc
	events   *json.Decoder
	event    json.RawMessage // what is left of it
	last     bool            // no further event is read
}

func checkEvents(
	ctx context.Context, body io.ReadCloser, places sanitize.Quantities, books *ledger, now func() time.Time,
) *checkedEvents {
	c := &checkedEvents{
		ReadCloser: body, places: places, books: books, now: now, decoding: &decoding{books: books}, events: json.NewDecoder(body),
	}
	c.ctx, c.end = context.WithCancel(ctx)
	return c
}

// Read implements io.Reader. Whoever reads on has decoded the event before.
func (b *checkedEvents) Read(p []byte) (int, error) {
	if len(b.event) == 0 {
		b.decoding.pause()
		if err := b.next(); err != nil {
			b.event = nil
			return 0, err
		}
	}
	n := copy(p, b.event)
	b.event = b.event[n:]
	return n, nil
}

// next reads and checks the next event.
func (b *checkedEvents) next() error {
	if b.last {
		return io.EOF
	}
	if err := b.events.Decode(&b.event); err != nil {
		return err
	}
	if err := waitFor(b.ctx, b.books.delay(eventCost, b.now())); err != nil {
		return err
	}
	if err := b.decoding.begin(b.ctx); err != nil {
		return err
	}
	if b.last = len(b.event) > largeEvent; b.last {
		b.events = nil // its buffer is as large as the event, which takes enough itself while it is decoded
	}
	if err := checkAnswer(b.places, b.event, mostOfObject); err != nil {
		return err
	}
	b.event = append(b.event, '\n')
	return nil
}

// Close implements io.Closer.
func (b *checkedEvents) Close() error {
	b.end()
	b.decoding.end()
	return b.ReadCloser.Close()
}
