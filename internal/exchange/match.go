package exchange

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

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
	if err != nil {
		return fmt.Errorf("%s=%s: %w", name, quoted(value), err)
	}
	if problem := quantityProblem(name, quantity); problem != "" {
		return fmt.Errorf("%s=%s: %s", name, quoted(value), problem)
	}
	q.Request[name] = quantity
	return nil
}

// parseQuantity takes no text that would keep the parser busy.
func parseQuantity(text string) (resource.Quantity, error) {
	if !sanitize.Quantity(text) {
		return resource.Quantity{}, errQuantityText
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
	hourly hourly
}

// Cost returns what the pod costs there.
func (m *Match) Cost() Cost {
	cost := PricePerHour(m.Offer.Prices, m.demand.request)
	cost.PerPlacement = pricePerPlacement(m.Offer.Prices, m.demand.images)
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
		matches[i] = Match{Row: row, Fits: why == "", Why: why, ImagesThere: d.imagesAt(row), demand: d, hourly: d.hourly(row)}
	}
	slices.SortFunc(matches, func(a, b Match) int { return a.compare(&b) })
	return matches
}

func (m *Match) compare(other *Match) int {
	if order := first(m.Fits, other.Fits); order != 0 {
		return order
	}
	if order := m.compareCosts(other); order != 0 {
		return order
	}
	if order := cmp.Compare(other.ImagesThere, m.ImagesThere); order != 0 {
		return order
	}
	return cmp.Or(nearer(m.RoundTrip, other.RoundTrip), strings.Compare(m.ClusterID, other.ClusterID))
}

// compareCosts is Cheaper, and a hundred times faster where costs are whole: thousands of offers are sorted by it.
func (m *Match) compareCosts(other *Match) int {
	a, b := &m.hourly, &other.hourly
	if !a.whole || !b.whole {
		return Cheaper(m.Cost(), other.Cost())
	}
	if aFree, bFree := a.high|a.low == 0, b.high|b.low == 0; aFree || bFree {
		return first(aFree, bFree)
	}
	if order := strings.Compare(m.Offer.Prices.Currency, other.Offer.Prices.Currency); order != 0 {
		return order
	}
	if order := cmp.Compare(a.high, b.high); order != 0 {
		return order
	}
	return cmp.Compare(a.low, b.low)
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
	images  []spellings
}

// A need is what the pod asks for of one resource.
type need struct {
	name     corev1.ResourceName
	quantity resource.Quantity
	column   int    // of figures; -1 if there is none, or if the quantity is not whole thousandths
	amount   uint64 // in thousandths, if there is a column
	parts    uint64 // the quantity as a number of parts: 2^-30 of a thousandth of what has a price, which is a core or a Gi
	whole    bool   // it is that many parts exactly
}

func demandOf(q Query) *demand {
	d := &demand{request: q.Request, images: spellingsOf(q.Images)}
	for _, name := range slices.Sorted(maps.Keys(q.Request)) {
		if quantity := q.Request[name]; !quantity.IsZero() {
			n := need{name: name, quantity: quantity, column: slices.Index(columns[:], name)}
			var whole bool
			if n.amount, whole = scaled(quantity, resource.Milli); !whole {
				n.column = -1
			}
			n.parts, n.whole = partsOf(name, quantity)
			d.needs = append(d.needs, n)
		}
	}
	return d
}

func partsOf(name corev1.ResourceName, quantity resource.Quantity) (parts uint64, whole bool) {
	thousandths, whole := scaled(quantity, resource.Milli)
	switch {
	case !whole:
		return 0, false
	case isBytes(name): // which have their price by 2^30
		return thousandths, true
	default:
		return thousandths << 30, thousandths <= math.MaxUint64>>30
	}
}

// scaled returns the quantity as a number of units, and whether it is that many exactly.
func scaled(quantity resource.Quantity, unit resource.Scale) (units uint64, whole bool) {
	amount := quantity.ScaledValue(unit)
	return uint64(max(0, amount)), amount >= 0 && quantity.Cmp(*resource.NewScaledQuantity(amount, unit)) == 0
}

// hourly is what a demand costs for an hour, as a number of units of 128 bits that are the same for all offers.
type hourly struct {
	high, low uint64
	whole     bool // it is that many units exactly, and there is no other cost
}

func (d *demand) hourly(r *Row) hourly {
	sum, prices := hourly{whole: true}, r.Offer.Prices
	if prices == nil {
		return sum
	}
	sum.whole = len(d.images) == 0 || len(prices.PerPlacement) == 0
	for i := range d.needs {
		need := &d.needs[i]
		price, whole := r.price(need)
		high, low := bits.Mul64(price, need.parts)
		var carry, overflow uint64
		sum.low, carry = bits.Add64(sum.low, low, 0)
		sum.high, overflow = bits.Add64(sum.high, high, carry)
		sum.whole = sum.whole && whole && need.whole && overflow == 0
	}
	return sum
}

// columns are the resources that nearly every pod asks for.
var columns = [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// figures are what an offer says of the columns, as plain numbers that are read once for each table, because looking up
// and comparing quantities for each query takes several times as long. Where a number is missing, quantities are compared.
type figures struct {
	perPod [len(columns)]uint64 // how much one pod can have, in thousandths; 0 if no number says it exactly
	prices [len(columns)]uint64 // in 10^-9
	priced bool                 // the prices are these numbers exactly
}

func figuresOf(offer *v1alpha1.AdvertisementSpec) figures {
	f, offered := figures{priced: true}, Offered(offer)
	for i, name := range columns {
		amount, whole := scaled(offered[name], resource.Milli)
		if largest, known := offer.LargestPod[name]; known && whole {
			var most uint64
			most, whole = scaled(largest, resource.Milli)
			amount = min(amount, most)
		}
		if whole {
			f.perPod[i] = amount
		}
		if offer.Prices != nil {
			f.prices[i], whole = scaled(offer.Prices.PerHour[name], resource.Nano)
			f.priced = f.priced && whole
		}
	}
	return f
}

// price returns the price of what is needed in units of 10^-9, and whether it is that many exactly.
func (r *Row) price(n *need) (units uint64, whole bool) {
	if n.column >= 0 && r.figures.priced {
		return r.figures.prices[n.column], true
	}
	return scaled(r.Offer.Prices.PerHour[n.name], resource.Nano)
}

// has reports whether the figures say that one pod can have what it needs.
func (r *Row) has(n *need) bool { return n.column >= 0 && n.amount <= r.figures.perPod[n.column] }

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
		if r.has(n) {
			continue
		}
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
func (d *demand) imagesAt(r *Row) int {
	found := 0
	for _, image := range d.images {
		if slices.ContainsFunc(r.Offer.Images, func(there v1alpha1.Image) bool { return slices.ContainsFunc(there.Names, image.contain) }) {
			found++
		}
	}
	return found
}

// spellings are the names of one image: the canonical one, and what is short for it.
type spellings []string

func (s spellings) contain(name string) bool { return slices.Contains(s, name) }

func spellingsOf(images []string) []spellings {
	var all []spellings
	for _, image := range images {
		canonical := canonicalImage(image)
		var names spellings
		image := strings.TrimPrefix(canonical, "docker.io/library/")
		for _, name := range []string{canonical, strings.TrimPrefix(canonical, "docker.io/"), image, "docker.io/" + image} {
			names = append(names, name, strings.TrimSuffix(name, ":latest"))
		}
		slices.Sort(names)
		names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return canonicalImage(name) != canonical })
		all = append(all, names)
	}
	return all
}
