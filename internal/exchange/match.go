package exchange

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A Match says how an offer suits a query.
type Match struct {
	*Row // of the table
	// Fits says whether the pod can be sent there, and Why why not.
	Fits bool
	Why  string
	// ImagesThere is how many of the pod's images are there already.
	ImagesThere int

	query *query
}

// Cost returns what the pod costs there.
func (m *Match) Cost() Cost { return m.query.cost(m.Row) }

// Match returns how each row of the table suits the query: those that fit come first, then the cheaper ones, then those
// with more of the images, then the nearer ones.
func (t Table) Match(q Query) []Match {
	query := query{demand: demandOf(q.Request), images: lookupOf(q.Images)}
	marks, order := make([]mark, len(t.Rows)), make([]*mark, len(t.Rows))
	for i := range t.Rows {
		marks[i].read(&query, &t.Rows[i])
		order[i] = &marks[i]
	}
	slices.SortFunc(order, (*mark).compare)
	matches := make([]Match, len(order))
	for i, m := range order {
		matches[i] = Match{Row: m.row, Fits: m.why == "", Why: m.why, ImagesThere: m.images, query: &query}
	}
	return matches
}

// query is a Query made ready.
type query struct {
	*demand
	images *lookup
}

func (q *query) cost(r *Row) Cost {
	cost := PricePerHour(r.Offer.Prices, q.request)
	cost.PerPlacement = pricePerPlacement(r.Offer.Prices, q.images.wanted)
	return cost
}

// mark is what a row is sorted by.
type mark struct {
	query   *query
	row     *Row
	why     string
	plain   bool // the currency and the expense are all of the cost
	expense expense
	cost    *Cost // of one that is not plain, once it was asked for
	images  int   // how many are there
}

func (m *mark) read(q *query, r *Row) {
	m.query, m.row, m.why, m.images = q, r, q.misfit(r), q.images.count(r)
	m.plain = q.plain && r.figures != nil && (len(q.images.wanted) == 0 || !r.figures.perPlacement)
	if m.plain {
		m.expense = q.expense(r.figures)
	}
}

func (m *mark) compare(other *mark) int {
	if order := first(m.why == "", other.why == ""); order != 0 {
		return order
	}
	if order := m.compareCosts(other); order != 0 {
		return order
	}
	if order := cmp.Compare(other.images, m.images); order != 0 {
		return order
	}
	if order := nearer(m.row.RoundTrip, other.row.RoundTrip); order != 0 {
		return order
	}
	return strings.Compare(m.row.ClusterID, other.row.ClusterID)
}

// compareCosts is Cheaper.
func (m *mark) compareCosts(other *mark) int {
	if !m.plain || !other.plain {
		return Cheaper(m.exactCost(), other.exactCost())
	}
	if free, otherFree := m.expense == (expense{}), other.expense == (expense{}); free || otherFree {
		return first(free, otherFree)
	}
	if order := strings.Compare(m.row.figures.currency, other.row.figures.currency); order != 0 {
		return order
	}
	return m.expense.compare(other.expense)
}

func (m *mark) exactCost() Cost {
	if m.cost == nil {
		cost := m.query.cost(m.row)
		m.cost = &cost
	}
	return *m.cost
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
		shares, priceable := sharesOf(name, amount)
		column := slices.Index(columns[:], name)
		if column < 0 || !held || !priceable {
			column, d.plain = noColumn, false
		}
		d.needs = append(d.needs, need{
			name: name, quantity: quantity, column: column, amount: amount, shares: shares,
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
	if n.quantity.Cmp(Offered(&r.Offer)[n.name]) > 0 {
		return n.tooLittle
	}
	if largest, known := r.Offer.LargestPod[n.name]; known && n.quantity.Cmp(largest) > 0 {
		return n.tooScattered
	}
	return ""
}
