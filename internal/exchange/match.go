package exchange

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A Match says how an offer suits a query.
type Match struct {
	Row
	// Fits says whether the pod can be sent there, and Why why not.
	Fits bool
	Why  string
	// Cost is what the pod costs there.
	Cost Cost
	// ImagesThere is how many of the pod's images are there already.
	ImagesThere int
}

// Match returns how each row of the table suits the query: those that fit come first, then the cheaper ones, then those
// with more of the images, then the nearer ones.
func (t Table) Match(query Query) []Match {
	demand, images := demandOf(query.Request), lookupOf(query.Images)
	amounts, marks, order := make([]inf.Dec, len(t.Rows)), make([]mark, len(t.Rows)), make([]*mark, len(t.Rows))
	for i := range t.Rows {
		row, m := &t.Rows[i], &marks[i]
		m.row, m.why, m.there = row, demand.misfit(row), images.thereOf(row.Offer.Images)
		m.cost, m.units, m.inUnits = demand.price(row, &amounts[i])
		if m.cost.PerPlacement = pricePerPlacement(row.Offer.Prices, images.images); m.cost.PerPlacement != nil {
			m.inUnits = false
		}
		order[i] = m
	}
	slices.SortFunc(order, (*mark).compare)
	matches := make([]Match, len(order))
	for i, m := range order {
		matches[i].Row = *m.row
		matches[i].Fits, matches[i].Why, matches[i].Cost, matches[i].ImagesThere = m.why == "", m.why, m.cost, m.there
	}
	return matches
}

// mark is what a row is sorted by.
type mark struct {
	row     *Row
	units   int64 // the cost, all in the same unit
	inUnits bool  // the units say it
	there   int
	why     string
	cost    Cost
}

func (m *mark) compare(other *mark) int {
	if order := first(m.why == "", other.why == ""); order != 0 {
		return order
	}
	if order := m.compareCosts(other); order != 0 {
		return order
	}
	if m.there != other.there {
		return cmp.Compare(other.there, m.there)
	}
	if order := nearer(m.row.RoundTrip, other.row.RoundTrip); order != 0 {
		return order
	}
	return strings.Compare(m.row.ClusterID, other.row.ClusterID)
}

func (m *mark) compareCosts(other *mark) int {
	bothInUnits := m.inUnits && other.inUnits
	switch {
	case bothInUnits && m.units == other.units && m.units == 0:
		return 0
	case bothInUnits && m.cost.Currency == other.cost.Currency:
		return cmp.Compare(m.units, other.units)
	default:
		return Cheaper(m.cost, other.cost)
	}
}

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

func demandOf(request corev1.ResourceList) *demand {
	d := &demand{request: request, plain: true}
	for _, name := range slices.Sorted(maps.Keys(request)) {
		quantity := request[name]
		if quantity.IsZero() {
			continue
		}
		amount, held := scaled(quantity, resource.Milli)
		column := slices.Index(columns[:], name)
		if column < 0 || !held {
			column, d.plain = noColumn, false
		}
		d.needs = append(d.needs, need{
			name: name, quantity: quantity, column: column, amount: amount,
			tooLittle:    "It has less than " + quantity.String() + " of " + string(name) + " free",
			tooScattered: "No node of it has " + quantity.String() + " of " + string(name) + " free",
		})
	}
	return d
}

// misfit says why a pod cannot be sent to where the offer comes from; it is empty if it can.
func (d *demand) misfit(r *Row) string {
	switch {
	case !r.Accepted:
		return "Its offer is not accepted: " + r.Reason
	case !r.Open:
		return "It takes no more pods"
	}
	for i := range d.needs {
		if why := d.needs[i].unmet(r); why != "" {
			return why
		}
	}
	return ""
}

func (n *need) unmet(r *Row) string {
	if n.column < noColumn && r.figures != nil {
		switch {
		case n.amount > r.figures.available[n.column]:
			return n.tooLittle
		case n.amount > r.figures.largest[n.column]:
			return n.tooScattered
		default:
			return ""
		}
	}
	if n.quantity.Cmp(r.Offer.Availability[n.name]) > 0 {
		return n.tooLittle
	}
	if largest, known := r.Offer.LargestPod[n.name]; known && n.quantity.Cmp(largest) > 0 {
		return n.tooScattered
	}
	return ""
}

// thereOf counts how many of the images an offer names. It reads each name once.
func (l lookup) thereOf(offered []v1alpha1.Image) int {
	if len(l.images) == 0 {
		return 0
	}
	var found [maxLookup]bool
	count := 0
	for i := range offered {
		for _, name := range offered[i].Names {
			if !l.lengths[len(name)%len(l.lengths)] {
				continue
			}
			for n, image := range l.images[:min(len(l.images), maxLookup)] {
				if !found[n] && image.contain(name) {
					found[n] = true
					count++
				}
			}
		}
	}
	return count
}
