// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// queryImage is the key of images in the text of a query.
const queryImage = "image"

// A Query is a pod that a cluster is looked for.
type Query struct {
	// Request is what the pod asks for.
	Request corev1.ResourceList
	// Images are those of its containers.
	Images []string
}

// ParseQuery reads a query such as cpu=2,memory=4Gi,image=nginx. An image may be named more than once.
func ParseQuery(text string) (Query, error) {
	query := Query{Request: corev1.ResourceList{}}
	if strings.TrimSpace(text) == "" {
		return query, errors.New("name at least one resource or image, such as cpu=2,memory=4Gi,image=nginx")
	}
	for part := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(strings.TrimSpace(part), "=")
		if !found || key == "" || value == "" {
			return Query{}, fmt.Errorf("%s is not of the form name=value, such as cpu=2", quoted(part))
		}
		if key == queryImage {
			query.Images = append(query.Images, value)
			continue
		}
		if err := query.ask(corev1.ResourceName(key), value); err != nil {
			return Query{}, err
		}
	}
	return query, nil
}

func (q *Query) ask(name corev1.ResourceName, value string) error {
	if _, twice := q.Request[name]; twice {
		return fmt.Errorf("%s is named twice", quoted(string(name)))
	}
	if !validResource(name) {
		return fmt.Errorf("%s is not the name of a node's resource, such as cpu or example.com/gpu, and not image", quoted(string(name)))
	}
	quantity, err := parseQuantity(value)
	if err == nil {
		err = checkQuantity(name, quantity)
	}
	if err != nil {
		return fmt.Errorf("%s=%s: %w", name, quoted(value), err)
	}
	q.Request[name] = quantity
	return nil
}

// parseQuantity takes no text that would keep the parser busy.
func parseQuantity(text string) (resource.Quantity, error) {
	if !sanitize.Quantity(text) {
		return resource.Quantity{}, sanitize.ErrQuantity
	}
	return resource.ParseQuantity(text)
}

// A Match says how an offer suits a query.
type Match struct {
	*Row // of the table
	// Fits says whether the pod can be sent there, and Why why not.
	Fits bool
	Why  string
	// ImagesThere is how many of the pod's images are there already.
	ImagesThere int

	demand *demand
	charge charge
}

// Cost returns what the pod costs there.
func (m *Match) Cost() Cost {
	cost := PricePerHour(m.Offer.Prices, m.demand.request)
	if m.Offer.Prices == nil {
		return cost
	}
	for _, price := range m.demand.placementPrices(m.Offer.Prices) {
		cost.PerPlacement = new(inf.Dec).Add(cmp.Or(cost.PerPlacement, new(inf.Dec)), exact(price))
	}
	return cost
}

// Match returns how each row of the table suits the query: those that fit come first, then the cheaper ones, then those
// with more of the images, then the nearer ones.
func (t Table) Match(q Query) []Match {
	d := demandOf(q)
	matches := make([]Match, len(t.Rows))
	for i := range t.Rows {
		row := &t.Rows[i]
		why := d.misfit(row)
		matches[i] = Match{
			Row: row, Fits: why == "", Why: why, ImagesThere: d.imagesAt(&row.Offer), demand: d, charge: d.charge(row.Offer.Prices),
		}
	}
	slices.SortFunc(matches, func(a, b Match) int { return a.compare(&b) })
	return matches
}

func (m *Match) compare(other *Match) int {
	if order := cmp.Or(first(m.Fits, other.Fits), m.charge.compare(&other.charge)); order != 0 {
		return order
	}
	return cmp.Or(
		cmp.Compare(other.ImagesThere, m.ImagesThere), nearer(m.RoundTrip, other.RoundTrip), strings.Compare(m.ClusterID, other.ClusterID),
	)
}

// first puts what is true before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// nearer puts what is not known last.
func nearer(a, b time.Duration) int {
	return cmp.Or(first(a > 0, b > 0), cmp.Compare(a, b))
}

// A demand is a query made ready to be compared with thousands of offers.
type demand struct {
	request corev1.ResourceList
	needs   []need // by name
	images  []*demandedImage
	byName  map[string]*demandedImage // each name of an image → the image
	// lengths says which lengths the names have: most images of an offer are not asked for, and need no more of a look.
	lengths [maxImageNameLength + 1]bool
}

// A need is what the pod asks for of one resource.
type need struct {
	name     corev1.ResourceName
	quantity resource.Quantity
	units    float64 // how many of the units that have a price
}

type demandedImage struct {
	names      []string
	containers int // with this image
}

func demandOf(q Query) *demand {
	d := &demand{request: q.Request, byName: map[string]*demandedImage{}}
	for _, name := range slices.Sorted(maps.Keys(q.Request)) {
		if quantity := q.Request[name]; !quantity.IsZero() {
			units := quantity.AsApproximateFloat64()
			if isBytes(name) {
				units /= 1 << 30
			}
			d.needs = append(d.needs, need{name: name, quantity: quantity, units: units})
		}
	}
	for _, text := range q.Images {
		if d.byName[canonicalImage(text)] == nil {
			image := &demandedImage{names: imageNames(text)}
			d.images = append(d.images, image)
			for _, name := range image.names {
				d.byName[name] = image
				d.lengths[min(len(name), maxImageNameLength)] = true
			}
		}
		d.byName[canonicalImage(text)].containers++
	}
	return d
}

// misfit says why the pod cannot be sent to where the offer comes from; it is empty if it can.
func (d *demand) misfit(r *Row) string {
	switch {
	case !r.Accepted:
		return "Its offer is not accepted: " + r.Reason
	case !r.Open:
		return "It takes no more pods"
	}
	offered := Offered(&r.Offer)
	for i := range d.needs {
		n := &d.needs[i]
		if n.quantity.Cmp(offered[n.name]) > 0 {
			return "It has less than " + n.quantity.String() + " of " + string(n.name) + " free"
		}
		if largest, known := r.Offer.LargestPod[n.name]; known && n.quantity.Cmp(largest) > 0 {
			return "No node of it has " + n.quantity.String() + " of " + string(n.name) + " free"
		}
	}
	return ""
}

// imagesAt returns how many of the pod's images are already where the offer comes from.
func (d *demand) imagesAt(offer *v1alpha1.AdvertisementSpec) int {
	if len(d.images) == 0 {
		return 0
	}
	var found []*demandedImage
	containers := 0
	for i := range offer.Images {
		for _, name := range offer.Images[i].Names {
			if !d.lengths[min(len(name), maxImageNameLength)] {
				continue
			}
			if image := d.byName[name]; image != nil && !slices.Contains(found, image) {
				found = append(found, image)
				containers += image.containers
			}
		}
	}
	return containers
}

// placementPrices returns what each container's image costs at the prices, if it costs anything.
func (d *demand) placementPrices(prices *v1alpha1.Prices) []resource.Quantity {
	var all []resource.Quantity
	for _, image := range d.images {
		for _, name := range image.names {
			if price, found := prices.PerPlacement[name]; found {
				all = append(all, slices.Repeat([]resource.Quantity{price}, image.containers)...)
				break
			}
		}
	}
	return all
}

// A charge is a cost as thousands of offers are sorted by it: to 15 digits, since exact sums take a hundred times as long.
type charge struct {
	currency              string
	perHour, perPlacement float64
}

func (d *demand) charge(prices *v1alpha1.Prices) charge {
	if prices == nil {
		return charge{}
	}
	c := charge{currency: prices.Currency}
	for i := range d.needs {
		if price, found := prices.PerHour[d.needs[i].name]; found {
			c.perHour += price.AsApproximateFloat64() * d.needs[i].units
		}
	}
	if len(prices.PerPlacement) > 0 {
		for _, price := range d.placementPrices(prices) {
			c.perPlacement += price.AsApproximateFloat64()
		}
	}
	return c
}

func (c *charge) free() bool { return c.perHour == 0 && c.perPlacement == 0 }

// compare puts the lower charge first, by the hour and then by the placement. What is free comes before all else. Amounts in
// different currencies do not compare, and come by the name of the currency.
func (c *charge) compare(other *charge) int {
	if c.free() || other.free() {
		return first(c.free(), other.free())
	}
	return cmp.Or(
		strings.Compare(c.currency, other.currency), cmp.Compare(c.perHour, other.perHour), cmp.Compare(c.perPlacement, other.perPlacement),
	)
}
