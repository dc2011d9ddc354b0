package exchange

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

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
	demand := demandOf(f.request)
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
