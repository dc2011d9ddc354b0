package policy

import (
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
type builder struct{ size int }

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

// known is a text that is not known if it is empty.
func (b *builder) known(text string) *ast.Term {
	if text == "" {
		return nil
	}
	return b.text(text)
}

func (b *builder) time(t time.Time) *ast.Term {
	if t.IsZero() {
		return nil
	}
	return b.text(t.UTC().Format(time.RFC3339))
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

// list is absent only if it is nil: one that is known to be empty is {}.
func (b *builder) list(list corev1.ResourceList) *ast.Term {
	if list == nil {
		return nil
	}
	return quantities(b, list)
}

func quantities[K ~string](b *builder, list map[K]resource.Quantity) *ast.Term {
	o := ast.NewObjectWithCapacity(len(list))
	for name, quantity := range list {
		b.set(o, string(name), b.quantity(quantity))
	}
	return ast.NewTerm(o)
}

func texted[V ~string](b *builder, texts map[string]V) *ast.Term {
	o := ast.NewObjectWithCapacity(len(texts))
	for key, value := range texts {
		b.set(o, key, b.text(string(value)))
	}
	return ast.NewTerm(o)
}

func array[E any](b *builder, elements []E, build func(E) *ast.Term) *ast.Term {
	terms := make([]*ast.Term, len(elements))
	for i, element := range elements {
		b.size += perTerm
		terms[i] = build(element)
	}
	return ast.ArrayTerm(terms...)
}

// Fields of an offer that are not like the others.
var (
	untold = []string{"sequence", "fullSequence", "network"} // policies are not told them
	long   = []string{"extensions", "images", "nested"}      // all others are short, or bounded by what peers agree on
)

func (b *builder) advertisement(ad *v1alpha1.AdvertisementSpec) *ast.Term {
	if ad == nil {
		return nil
	}
	o := ast.NewObjectWithCapacity(20)
	b.offer(o, ad, func(string) bool { return true })
	return ast.NewTerm(o)
}

// row is a row of the table, without what is long if it would be too large.
func (b *builder) row(row TableRow) *ast.Term {
	before := b.size
	offer := row.Offer
	if offer == nil {
		offer = &v1alpha1.AdvertisementSpec{}
	}
	o := ast.NewObjectWithCapacity(20)
	b.offer(o, offer, func(field string) bool { return !slices.Contains(long, field) })
	b.set(o, "peer", b.text(row.Peer))
	b.set(o, "open", ast.BooleanTerm(row.Open))
	if row.RoundTrip > 0 {
		b.set(o, "roundTripSeconds", b.seconds(row.RoundTrip))
	}
	rest, details := &builder{}, ast.NewObjectWithCapacity(len(long))
	rest.offer(details, offer, func(field string) bool { return slices.Contains(long, field) })
	if b.size-before+rest.size <= maxRow {
		details.Foreach(o.Insert)
		b.size += rest.size
	}
	return ast.NewTerm(o)
}

// offer sets the wanted fields. A nil list is {}, but for the largest pod: there it says that nothing is known.
func (b *builder) offer(o ast.Object, ad *v1alpha1.AdvertisementSpec, wanted func(field string) bool) {
	told := *ad
	if told.Phase == "" {
		told.Phase = v1alpha1.OfferOpen
	}
	b.fields(o, reflect.ValueOf(told), func(field string) bool {
		known := field != "largestPod" || ad.LargestPod != nil
		return known && wanted(field) && !slices.Contains(untold, field)
	})
}

// fields sets the wanted fields of a struct of the API under the names that they have there. So policies are told a new
// field of an offer without a word here.
func (b *builder) fields(o ast.Object, of reflect.Value, wanted func(field string) bool) {
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Type().Field(i).Tag.Get("json"), ",")
		if wanted(name) {
			b.set(o, name, b.value(of.Field(i)))
		}
	}
}

// value is the value of a field. A text or time that is empty, and what a nil pointer leads to, is not known.
func (b *builder) value(v reflect.Value) *ast.Term {
	switch value := v.Interface().(type) {
	case resource.Quantity:
		return b.quantity(value)
	case metav1.Time:
		return b.time(value.Time)
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return b.value(v.Elem())
	case reflect.String:
		return b.known(v.String())
	case reflect.Bool:
		return ast.BooleanTerm(v.Bool())
	case reflect.Int64, reflect.Int32:
		return b.decimal(v.Int(), 0)
	case reflect.Slice:
		return b.items(v)
	case reflect.Map:
		return b.entries(v)
	case reflect.Struct:
		o := ast.NewObjectWithCapacity(v.NumField())
		b.fields(o, v, func(string) bool { return true })
		return ast.NewTerm(o)
	default:
		panic("an offer has a field of type " + v.Type().String() + ", which policies cannot be told")
	}
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
