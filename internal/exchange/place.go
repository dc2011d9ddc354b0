package exchange

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

const (
	maxPlacedNodes = 200
	maxOnly        = 16
	maxExcluded    = 256
	maxPeerName    = 40
)

// A Placing is the question where the new pods of a namespace go.
type Placing struct {
	// Rows are those of the table, with links.
	Rows []Row
	// Wish is what the user of the namespace has asked for.
	Wish v1alpha1.Placement
	// Exclude is what the policies say of peers that must not be used: the name of the Peer → why.
	Exclude map[string]string
	// Scores is what the policies say of how good peers are, the higher the better: the name of the Peer → its score. It is
	// nil if they do not compare.
	Scores map[string]float64
	// Strict says that the policies want only the best one used. The wish may be strict too.
	Strict bool
}

// Place answers the question. What excludes a peer, by the wish or by policy, excludes its node. Of the others that take
// pods, those with the higher weight are preferred: by the scores of the policies, and where these do not compare by what
// the user prefers. Weights follow the rank alone, so that they do not move with every price.
//
// Scores compare peers with each other, and not with home: only the user can say that it does not come first.
//
// If more nodes are to be excluded than can be listed, only the best of the others may be used.
func Place(p Placing) v1alpha1.PlacementStatus {
	excluded := p.excluded()
	field := p.field(excluded)
	status := v1alpha1.PlacementStatus{PrefersRemote: p.Wish.Prefer != "", Nodes: nodes(excluded, field.weights())}
	switch {
	case p.Strict || p.Wish.Strict:
		status.Strict, status.Only = true, field.best(1)
	case len(excluded) > maxPlacedNodes:
		status.Strict, status.Only = true, field.best(maxOnly)
	}
	return status
}

func (p *Placing) request() corev1.ResourceList {
	if len(p.Wish.Request) > 0 {
		return p.Wish.Request
	}
	return DefaultRequest()
}

// excluded says of peers why they must not be used. What a name excludes need not be in the table: its node might be
// there before its row.
func (p *Placing) excluded() map[string]string {
	why := map[string]string{}
	for i := range p.Rows {
		if reason := p.objection(&p.Rows[i]); reason != "" {
			why[p.Rows[i].Peer] = reason
		}
	}
	for peer, reason := range p.Exclude {
		why[peer] = sanitize.Text(cmp.Or(strings.TrimSpace(reason), "A policy excludes it"), maxExcluded)
	}
	for _, peer := range p.Wish.Exclude {
		why[peer] = "exclude in spec.placement names it"
	}
	maps.DeleteFunc(why, func(peer, _ string) bool { return peer == "" || len(peer) > maxPeerName })
	return why
}

// objection is what the user's bounds have against the row.
func (p *Placing) objection(row *Row) string {
	if most := p.Wish.MaxPrice; most != nil {
		cost := row.PricePerHour(p.request())
		switch {
		case cost.free():
		case cost.Currency != most.Currency:
			return "It asks for another currency than that of maxPrice in spec.placement"
		case cost.PerHour.Cmp(exact(most.Amount)) > 0:
			return "It asks for more than maxPrice in spec.placement"
		}
	}
	if most := p.Wish.MaxLatency; most != nil {
		switch {
		case row.RoundTrip == 0:
			return "Its round-trip time is not known yet, and maxLatency in spec.placement is set"
		case row.RoundTrip > most.Duration:
			return "Its round-trip time is longer than maxLatency in spec.placement"
		}
	}
	return ""
}

// field are the peers that pods may be sent to now.
func (p *Placing) field(excluded map[string]string) field {
	f := field{prefer: p.Wish.Prefer, compared: p.Scores != nil, request: p.request()}
	for i := range p.Rows {
		row := &p.Rows[i]
		if _, out := excluded[row.Peer]; out || row.Peer == "" || !row.Accepted || !row.Open {
			continue
		}
		score, scored := p.Scores[row.Peer]
		f.runners = append(f.runners, runner{row: row, cost: row.PricePerHour(f.request), score: score, scored: scored})
	}
	return f
}

// nodes lists what was decided about each virtual node: first of all which are excluded, then which are preferred most.
func nodes(excluded map[string]string, weights map[string]v1alpha1.NodePlacement) []v1alpha1.NodePlacement {
	all := slices.Collect(maps.Values(weights))
	for peer, why := range excluded {
		all = append(all, v1alpha1.NodePlacement{Name: v1alpha1.VirtualNodeName(peer), Excluded: why})
	}
	slices.SortFunc(all, func(a, b v1alpha1.NodePlacement) int {
		return cmp.Or(first(a.Excluded != "", b.Excluded != ""), cmp.Compare(b.Weight, a.Weight), strings.Compare(a.Name, b.Name))
	})
	all = all[:min(len(all), maxPlacedNodes)]
	slices.SortFunc(all, func(a, b v1alpha1.NodePlacement) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// bestWeight is what the best has; the worst has 1.
const bestWeight = 100

// field are the peers that compete for the pods of a namespace.
type field struct {
	prefer   v1alpha1.PlacementPreference
	compared bool // by the policies
	request  corev1.ResourceList
	runners  []runner
}

type runner struct {
	row    *Row
	cost   Cost
	score  float64
	scored bool // by a policy
}

// A contest orders runners by one quality, the best first.
type contest struct {
	takesPart func(runner) bool
	compare   func(a, b runner) int
}

var (
	undecided = contest{func(runner) bool { return false }, func(runner, runner) int { return 0 }}

	byCost     = contest{func(runner) bool { return true }, func(a, b runner) int { return Cheaper(a.cost, b.cost) }}
	byDistance = contest{
		func(r runner) bool { return r.row.RoundTrip > 0 },
		func(a, b runner) int { return nearer(a.row.RoundTrip, b.row.RoundTrip) },
	}
	byScore = contest{
		func(r runner) bool { return r.scored },
		func(a, b runner) int { return cmp.Or(first(a.scored, b.scored), cmp.Compare(b.score, a.score)) },
	}
)

// wished is the contest that the user wants.
func (f field) wished() contest {
	switch f.prefer {
	case v1alpha1.PreferPrice:
		return byCost
	case v1alpha1.PreferLatency:
		return byDistance
	case v1alpha1.PreferSpread:
	}
	return undecided
}

// decisive is the contest that is held.
func (f field) decisive() contest {
	if f.compared {
		return byScore
	}
	return f.wished()
}

// weights says of each peer how much it is preferred.
func (f field) weights() map[string]v1alpha1.NodePlacement {
	weight, price, latency := f.rank(f.decisive()), f.rank(byCost), f.rank(byDistance)
	placements := map[string]v1alpha1.NodePlacement{}
	for _, r := range f.runners {
		peer := r.row.Peer
		placements[peer] = v1alpha1.NodePlacement{
			Name: v1alpha1.VirtualNodeName(peer), Weight: weight[peer], WeightByPrice: price[peer], WeightByLatency: latency[peer],
			LargestPod: f.shape(r.row),
		}
	}
	return placements
}

// rank gives the best bestWeight, the worst 1 and those between what lies between by their rank; equals have the same.
// Who does not take part has none.
func (f field) rank(c contest) map[string]int32 {
	runners := slices.DeleteFunc(slices.Clone(f.runners), func(r runner) bool { return !c.takesPart(r) })
	slices.SortStableFunc(runners, c.compare)
	places, last := make([]int, len(runners)), 0
	for i := 1; i < len(runners); i++ {
		if c.compare(runners[i-1], runners[i]) != 0 {
			last++
		}
		places[i] = last
	}
	weights := make(map[string]int32, len(runners))
	for i, r := range runners {
		weights[r.row.Peer] = bestWeight - int32((bestWeight-1)*places[i]/max(1, last)) //nolint:gosec // from 1 to 100
	}
	return weights
}

// best returns the nodes of the best peers that the request fits in, at most so many. Of equals the user may choose.
func (f field) best(most int) []string {
	demand := demandOf(Query{Request: f.request})
	runners := slices.DeleteFunc(slices.Clone(f.runners), func(r runner) bool { return demand.misfit(r.row) != "" })
	slices.SortFunc(runners, func(a, b runner) int {
		return cmp.Or(f.decisive().compare(a, b), f.wished().compare(a, b), strings.Compare(a.row.Peer, b.row.Peer))
	})
	var names []string
	for _, r := range runners[:min(len(runners), most)] {
		names = append(names, v1alpha1.VirtualNodeName(r.row.Peer))
	}
	return names
}

// shape is the largest pod that goes to the row, in cores and memory, and none where no other row could take what is
// larger. It has two significant digits, so that it does not move with every pod that comes or goes.
func (f field) shape(row *Row) corev1.ResourceList {
	if len(f.runners) < 2 {
		return nil
	}
	shape := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		largest, known := row.Offer.LargestPod[name]
		if !known {
			continue
		}
		if name == corev1.ResourceCPU {
			shape[name] = *resource.NewMilliQuantity(twoDigits(largest.MilliValue()), resource.DecimalSI)
			continue
		}
		shape[name] = *resource.NewQuantity(twoDigits(largest.Value()), resource.BinarySI)
	}
	if len(shape) == 0 {
		return nil
	}
	return shape
}

func twoDigits(value int64) int64 {
	unit := int64(1)
	for value/unit >= 100 {
		unit *= 10
	}
	return value / unit * unit
}
