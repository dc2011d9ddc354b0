// SPDX-License-Identifier: Apache-2.0

package sanitize

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// ErrQuantity says that a quantity would keep the decoder busy.
var ErrQuantity = errors.New("is longer than 64 characters or has an exponent beyond 30")

// Quantities are the places in a JSON text where the decoder would parse a quantity. All else is text, whatever it looks
// like: the value 1e12345 of an environment variable is one.
type Quantities struct{ root *place }

// QuantitiesIn returns the places of the quantities in values of the types. A text that may become a value of any of them
// is checked for the places of all of them.
func QuantitiesIn(types ...reflect.Type) Quantities {
	found, walk := Quantities{}, typeWalk{}
	for _, t := range types {
		found.root = found.root.with(walk.placeOf(t))
	}
	return found
}

// Within returns the places in a text that has such a value in the field.
func (q Quantities) Within(field string) Quantities {
	return Quantities{&place{fields: map[string]*place{field: q.root}}}
}

// A place is where a value may stand. Nil is one that neither is a quantity nor has any in it.
type place struct {
	quantity bool
	fields   map[string]*place // by name, of a struct
	each     *place            // of a list, or of a map
}

var (
	quantityType  = reflect.TypeFor[resource.Quantity]()
	decodesItself = reflect.TypeFor[json.Unmarshaler]()
)

// A typeWalk knows the places in the types that it has seen. Those in a type around the one that it looks at are not known
// yet, so that a type that contains itself comes to an end: no kind of Kubernetes has quantities in such a one.
type typeWalk map[reflect.Type]*place

func (w typeWalk) placeOf(t reflect.Type) *place {
	known, seen := w[t]
	if !seen {
		w[t] = nil
		known = w.look(t)
		w[t] = known
	}
	return known
}

func (w typeWalk) look(t reflect.Type) *place {
	switch {
	case t == quantityType:
		return &place{quantity: true}
	case t.Kind() == reflect.Pointer:
		return w.placeOf(t.Elem())
	case reflect.PointerTo(t).Implements(decodesItself):
		return nil
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		if each := w.placeOf(t.Elem()); each != nil {
			return &place{each: each}
		}
		return nil
	case reflect.Struct:
		return w.lookIntoStruct(t)
	default:
		return nil
	}
}

func (w typeWalk) lookIntoStruct(t reflect.Type) *place {
	var all *place
	for field := range t.Fields() {
		inner := w.placeOf(field.Type)
		if inner == nil {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name != "":
			inner = &place{fields: map[string]*place{name: inner}}
		case !field.Anonymous:
			inner = &place{fields: map[string]*place{field.Name: inner}}
		}
		all = all.with(inner)
	}
	return all
}

// with returns the places of both.
func (p *place) with(other *place) *place {
	switch {
	case p == nil:
		return other
	case other == nil, other == p:
		return p
	}
	both := &place{quantity: p.quantity || other.quantity, each: p.each.with(other.each), fields: map[string]*place{}}
	for _, one := range []*place{p, other} {
		for name, inner := range one.fields {
			both.fields[name] = both.fields[name].with(inner)
		}
	}
	return both
}

// Check returns an error that names the first quantity which cannot be parsed quickly. It reads the text token by token,
// so that escapes and repeated keys hide nothing.
func (q Quantities) Check(raw []byte) error {
	r := &quantityReader{tokens: json.NewDecoder(bytes.NewReader(raw))}
	r.tokens.UseNumber()
	return r.read("", q.root)
}

type quantityReader struct {
	tokens  *json.Decoder
	skipped json.RawMessage
}

// read reads one value.
func (r *quantityReader) read(path string, at *place) error {
	if at == nil {
		r.skipped = r.skipped[:0]
		return r.tokens.Decode(&r.skipped)
	}
	token, err := r.tokens.Token()
	if err != nil {
		return err
	}
	switch token := token.(type) {
	case json.Delim:
		return r.readAll(path, at, token)
	case string:
		return at.check(path, token)
	case json.Number:
		return at.check(path, token.String())
	default:
		return nil
	}
}

// readAll reads what is in an object or a list, and its end.
func (r *quantityReader) readAll(path string, at *place, begin json.Delim) error {
	for i := 0; r.tokens.More(); i++ {
		inner, step := at.each, strconv.Itoa(i)
		if begin == '{' {
			token, err := r.tokens.Token()
			if err != nil {
				return err
			}
			step, _ = token.(string)
			inner = at.fields[step].with(at.each)
		}
		if err := r.read(at.path(path, step), inner); err != nil {
			return err
		}
	}
	_, err := r.tokens.Token()
	return err
}

func (p *place) path(path, step string) string {
	if _, isField := p.fields[step]; !isField {
		return path + "[" + step + "]"
	}
	return strings.TrimPrefix(path+"."+step, ".")
}

func (p *place) check(path, text string) error {
	if p.quantity && !Quantity(text) {
		return fmt.Errorf("%s %w", path, ErrQuantity)
	}
	return nil
}
