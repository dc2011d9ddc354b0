// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// perTerm is what a value takes up besides its text.
const perTerm = 8

// A builder makes OPA's values straight from ours, and counts how large they are. A nil term is what is not known.
type builder struct {
	size   int
	failed error
}

func (b *builder) set(o ast.Object, field string, term *ast.Term) {
	if term != nil {
		b.size += len(field) + perTerm
		o.Insert(ast.StringTerm(field), term)
	}
}

func (b *builder) text(text string) *ast.Term {
	b.size += len(text) + perTerm
	return ast.StringTerm(text)
}

func (b *builder) number(digits string) *ast.Term {
	b.size += len(digits) + perTerm
	return ast.NumberTerm(json.Number(digits))
}

func (b *builder) decimal(unscaled int64, decimals inf.Scale) *ast.Term {
	return b.number(plain(inf.NewDec(unscaled, decimals)))
}

// quantity is the exact number: cores, bytes, or whatever the base unit is.
func (b *builder) quantity(q resource.Quantity) *ast.Term {
	if value, fast := q.AsInt64(); fast {
		return b.number(strconv.FormatInt(value, 10))
	}
	q = q.DeepCopy() // AsDec changes what it is called on
	return b.number(plain(q.AsDec()))
}

// Fields that are not like the others.
var (
	untold = []string{"sequence", "fullSequence", "network"}          // of an offer: policies are not told them
	long   = []string{"extensions", "images", "nested"}               // all others are short, or bounded by what peers agree on
	nilled = []string{"largestPod", "request", "allocatable", "free"} // nil says that nothing is known; other nil lists are {}
)

// row is a row of the table, without what is long if it would be too large.
func (b *builder) row(row TableRow) *ast.Term {
	before := b.size
	offer := v1alpha1.AdvertisementSpec{}
	if row.Offer != nil {
		offer = *row.Offer
	}
	o := ast.NewObjectWithCapacity(23)
	b.offer(o, offer, func(field string) bool { return !slices.Contains(long, field) })
	b.set(o, "peer", b.text(row.Peer))
	b.set(o, "open", ast.BooleanTerm(row.Open))
	for name, value := range map[string]any{
		"roundTripSeconds": seconds(row.RoundTrip), "bandwidthBytesPerSecond": measured(row.Bandwidth),
		"throughputBytesPerSecond": measured(row.Throughput), "lossPercent": row.Loss,
	} {
		b.set(o, name, b.value(reflect.ValueOf(value)))
	}
	rest, details := &builder{}, ast.NewObjectWithCapacity(len(long))
	rest.offer(details, offer, func(field string) bool { return slices.Contains(long, field) })
	if b.size-before+rest.size <= maxRow {
		details.Foreach(o.Insert)
		b.size += rest.size
	}
	return ast.NewTerm(o)
}

// offer sets the wanted fields.
func (b *builder) offer(o ast.Object, ad v1alpha1.AdvertisementSpec, wanted func(field string) bool) {
	ad.Phase = cmp.Or(ad.Phase, v1alpha1.OfferOpen)
	b.fields(o, reflect.ValueOf(ad), wanted)
}

// fields sets the wanted fields of a struct, or all, under the names that they have in JSON. So policies are told a new
// field of an offer without a word here.
func (b *builder) fields(o ast.Object, of reflect.Value, wanted func(field string) bool) {
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Type().Field(i).Tag.Get("json"), ",")
		known := !slices.Contains(untold, name) && (!slices.Contains(nilled, name) || !of.Field(i).IsNil())
		if known && (wanted == nil || wanted(name)) {
			b.set(o, name, b.value(of.Field(i)))
		}
	}
}

// value is the value of a field. A text or time that is empty, and what a nil pointer leads to, is not known.
func (b *builder) value(v reflect.Value) *ast.Term {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return b.value(v.Elem())
	case reflect.String:
		if v.Len() == 0 {
			return nil
		}
		return b.text(v.String())
	case reflect.Bool:
		return ast.BooleanTerm(v.Bool())
	case reflect.Int64, reflect.Int32:
		if v.Type() == reflect.TypeFor[seconds]() {
			return b.seconds(v.Int())
		}
		return b.decimal(v.Int(), 0)
	case reflect.Slice:
		return b.items(v)
	case reflect.Map:
		return b.entries(v)
	case reflect.Struct:
		return b.object(v)
	default:
		panic("an offer has a field of type " + v.Type().String() + ", which policies cannot be told")
	}
}

func (b *builder) seconds(nanoseconds int64) *ast.Term {
	if nanoseconds == 0 {
		return nil
	}
	return b.decimal(nanoseconds, nano)
}

func (b *builder) object(v reflect.Value) *ast.Term {
	o := ast.NewObjectWithCapacity(v.NumField())
	switch value := v.Interface().(type) {
	case resource.Quantity:
		return b.quantity(value)
	case time.Time:
		if value.IsZero() {
			return nil
		}
		return b.text(value.UTC().Format(time.RFC3339))
	case metav1.Time:
		return b.object(reflect.ValueOf(value.Time))
	case Value:
		return value.term
	case corev1.PodSpec:
		return b.asWritten(value)
	case v1alpha1.AdvertisementSpec:
		b.offer(o, value, nil)
	case v1alpha1.Peer, v1alpha1.Placement, v1alpha1.MemberMarks, corev1.Namespace, corev1.Pod:
		b.fields(o, reflect.ValueOf(described(value)), nil)
	default:
		b.fields(o, v, nil)
	}
	return ast.NewTerm(o)
}

func (b *builder) items(v reflect.Value) *ast.Term {
	terms := make([]*ast.Term, v.Len())
	for i := range terms {
		b.size += perTerm
		terms[i] = b.entry(v.Index(i))
	}
	return ast.ArrayTerm(terms...)
}

func (b *builder) entries(v reflect.Value) *ast.Term {
	o := ast.NewObjectWithCapacity(v.Len())
	for entries := v.MapRange(); entries.Next(); {
		b.set(o, entries.Key().String(), b.entry(entries.Value()))
	}
	return ast.NewTerm(o)
}

// entry is a value in a list or map, where an empty text is one.
func (b *builder) entry(v reflect.Value) *ast.Term {
	if v.Kind() == reflect.String {
		return b.text(v.String())
	}
	return b.value(v)
}
