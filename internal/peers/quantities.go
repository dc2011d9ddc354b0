package peers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

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
	places sanitize.Quantities
	answer io.Reader // nil until it is read
}

// Read implements io.Reader.
func (b *checkedBody) Read(p []byte) (int, error) {
	if b.answer == nil {
		answer, err := io.ReadAll(b.ReadCloser)
		if err != nil {
			return 0, err
		}
		if err := checkQuantities(b.places, answer); err != nil {
			return 0, err
		}
		b.answer = bytes.NewReader(answer)
	}
	return b.answer.Read(p)
}

// A checkedEvents is the answer to a watch. Each event is checked before it is given out.
type checkedEvents struct {
	io.ReadCloser
	places sanitize.Quantities
	events *json.Decoder
	event  json.RawMessage // what is left of it
}

// Read implements io.Reader.
func (b *checkedEvents) Read(p []byte) (int, error) {
	if b.events == nil {
		b.events = json.NewDecoder(b.ReadCloser)
	}
	if len(b.event) == 0 {
		if err := b.events.Decode(&b.event); err != nil {
			return 0, err
		}
		if err := checkQuantities(b.places, b.event); err != nil {
			b.event = nil
			return 0, err
		}
		b.event = append(b.event, '\n')
	}
	n := copy(p, b.event)
	b.event = b.event[n:]
	return n, nil
}
