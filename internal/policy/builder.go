package policy

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

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

func (b *builder) advertisement(ad *v1alpha1.AdvertisementSpec) *ast.Term {
	if ad == nil {
		return nil
	}
	o := b.essentials(ad)
	b.details(o, ad)
	return ast.NewTerm(o)
}

// row is a row of the table, without what is long if it would be too large.
func (b *builder) row(row TableRow) *ast.Term {
	before := b.size
	offer := row.Offer
	if offer == nil {
		offer = &v1alpha1.AdvertisementSpec{}
	}
	o := b.essentials(offer)
	b.set(o, "peer", b.text(row.Peer))
	b.set(o, "open", ast.BooleanTerm(row.Open))
	if row.RoundTrip > 0 {
		b.set(o, "roundTripSeconds", b.seconds(row.RoundTrip))
	}
	long, details := &builder{}, ast.NewObjectWithCapacity(3)
	long.details(details, offer)
	if b.size-before+long.size <= maxRow {
		details.Foreach(o.Insert)
		b.size += long.size
	}
	return ast.NewTerm(o)
}

// essentials are the fields that are short, or bounded by what peers agree on.
func (b *builder) essentials(ad *v1alpha1.AdvertisementSpec) ast.Object {
	o := ast.NewObjectWithCapacity(20)
	b.set(o, "clusterID", b.known(ad.ClusterID))
	b.set(o, "phase", b.text(string(phase(ad))))
	b.set(o, "availability", quantities(b, ad.Availability))
	b.set(o, "largestPod", b.list(ad.LargestPod))
	b.set(o, "guarantee", quantities(b, ad.Guarantee))
	b.set(o, "prices", b.prices(ad.Prices))
	b.set(o, "labels", texted(b, ad.Labels))
	b.set(o, "flags", texted(b, ad.Flags))
	b.set(o, "architectures", array(b, ad.Architectures, b.text))
	b.set(o, "kubernetesVersion", b.known(ad.KubernetesVersion))
	b.set(o, "timestamp", b.time(ad.Timestamp.Time))
	b.set(o, "timeToLive", b.time(ad.TimeToLive.Time))
	return o
}

// details are the fields that may be long.
func (b *builder) details(o ast.Object, ad *v1alpha1.AdvertisementSpec) {
	b.set(o, "extensions", texted(b, ad.Extensions))
	b.set(o, "images", array(b, ad.Images, b.image))
	b.set(o, "nested", array(b, ad.Nested, b.nested))
}

func phase(ad *v1alpha1.AdvertisementSpec) v1alpha1.OfferPhase {
	if ad.Phase == "" {
		return v1alpha1.OfferOpen
	}
	return ad.Phase
}

func (b *builder) image(image v1alpha1.Image) *ast.Term {
	o := ast.NewObjectWithCapacity(2)
	b.set(o, "names", array(b, image.Names, b.text))
	b.set(o, "sizeBytes", b.decimal(image.SizeBytes, 0))
	return ast.NewTerm(o)
}

func (b *builder) nested(offer v1alpha1.NestedOffer) *ast.Term {
	o := ast.NewObjectWithCapacity(5)
	b.set(o, "clusterID", b.text(offer.ClusterID))
	b.set(o, "path", array(b, offer.Path, b.text))
	b.set(o, "availability", quantities(b, offer.Availability))
	b.set(o, "prices", b.prices(offer.Prices))
	b.set(o, "labels", texted(b, offer.Labels))
	return ast.NewTerm(o)
}

// prices of an offer that is free are absent.
func (b *builder) prices(prices *v1alpha1.Prices) *ast.Term {
	if prices == nil {
		return nil
	}
	o := ast.NewObjectWithCapacity(3)
	b.set(o, "currency", b.text(prices.Currency))
	b.set(o, "perHour", quantities(b, prices.PerHour))
	b.set(o, "perPlacement", quantities(b, prices.PerPlacement))
	return ast.NewTerm(o)
}
