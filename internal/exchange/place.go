// SPDX-License-Identifier: Apache-2.0

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
	// Asked is what the user of the namespace asks for. It has a request.
	Asked v1alpha1.Placement
	// Exclude is what the policies say of peers that must not be used: the name of the Peer → why.
	Exclude map[string]string
	// Scores is what the policies say of how good peers are, the higher the better: the name of the Peer → its score. It is
	// nil if they do not compare.
	Scores map[string]float64
	// Strict says that the policies want only the best one used. The user may want that too.
	Strict bool
}

// Place answers the question. What excludes a peer, by the user's words or by policy, excludes its node. Of the others that
// take pods, those with the higher weight are preferred: by the scores of the policies, and where these do not compare by
// what the user prefers. Weights follow the rank alone, so that they do not move with every price.
//
// Scores compare peers with each other, and not with home: only the user can say that it does not come first.
//
// If more nodes are to be excluded than can be listed, only the best of the others may be used.
func Place(p Placing) v1alpha1.PlacementStatus {
	excluded := p.excluded()
	demand := demandOf(Query{Request: p.Asked.Request})
	candidates := p.candidates(demand, excluded)
	price, latency := rank(candidates, cheaper), rank(candidates, closer)
	preferred := map[v1alpha1.PlacementPreference]ranking{v1alpha1.PreferPrice: price, v1alpha1.PreferLatency: latency}[p.Asked.Prefer]
	decisive := preferred
	if p.Scores != nil {
		decisive = rank(candidates, better)
	}
	placed := make([]v1alpha1.NodePlacement, 0, len(candidates))
	for _, c := range candidates {
		placed = append(placed, v1alpha1.NodePlacement{
			Name: v1alpha1.VirtualNodeName(c.Peer), Weight: decisive.weight(c), WeightByPrice: price.weight(c),
			WeightByLatency: latency.weight(c), LargestPod: roundedShape(c.Offer.LargestPod),
		})
	}
	status := v1alpha1.PlacementStatus{PrefersRemote: p.Asked.Prefer != "", Nodes: nodes(excluded, placed)}
	most := maxOnly
	if p.Strict || p.Asked.Strict {
		most = 1
	}
	if most == 1 || len(excluded) > maxPlacedNodes {
		status.Strict, status.Only = true, best(candidates, most, demand, decisive, preferred)
	}
	return status
}

// excluded says of peers why they must not be used. What a name excludes need not be in the table: its node might be
// there before its row.
func (p *Placing) excluded() map[string]string {
	why := map[string]string{}
	for i := range p.Rows {
		if reason := objection(&p.Asked, &p.Rows[i]); reason != "" {
			why[p.Rows[i].Peer] = reason
		}
	}
	for peer, reason := range p.Exclude {
		why[peer] = sanitize.Text(cmp.Or(strings.TrimSpace(reason), "A policy excludes it"), maxExcluded)
	}
	for _, peer := range p.Asked.Exclude {
		why[peer] = "exclude in spec.placement names it"
	}
	maps.DeleteFunc(why, func(peer, _ string) bool { return peer == "" || len(peer) > maxPeerName })
	return why
}

// objection is what the user's bounds have against the row.
func objection(asked *v1alpha1.Placement, row *Row) string {
	if most := asked.MaxPrice; most != nil {
		if why := tooDear(most, row.PricePerHour(asked.Request)); why != "" {
			return why + " in spec.placement"
		}
	}
	if most := asked.MaxLatency; most != nil {
		switch {
		case row.RoundTrip == 0:
			return "Its round-trip time is not known yet, and maxLatency in spec.placement is set"
		case row.RoundTrip > most.Duration:
			return "Its round-trip time is longer than maxLatency in spec.placement"
		}
	}
	if least := asked.MinBandwidth; least != nil && row.passes().Cmp(*least) < 0 {
		if row.Bandwidth == 0 {
			return "Its bandwidth is not known yet, and minBandwidth in spec.placement is set"
		}
		return "Its bandwidth is lower than minBandwidth in spec.placement"
	}
	return ""
}

// tooDear says why the cost is more than what it may be at most; it is empty if it is not.
func tooDear(most *v1alpha1.Price, cost Cost) string {
	switch {
	case cost.PerHour.Sign() == 0:
		return ""
	case cost.Currency != most.Currency:
		return "It asks for another currency than that of maxPrice"
	case cost.PerHour.Cmp(exact(most.Amount)) > 0:
		return "It asks for more than maxPrice"
	}
	return ""
}

// A candidate is a peer that pods may be sent to now.
type candidate struct {
	*Row
	charge charge
	score  float64
	scored bool // by a policy
}

func (p *Placing) candidates(demand *demand, excluded map[string]string) []candidate {
	var found []candidate
	for i := range p.Rows {
		row := &p.Rows[i]
		if _, out := excluded[row.Peer]; out || row.Peer == "" || !row.Accepted || !row.Open {
			continue
		}
		score, scored := p.Scores[row.Peer]
		found = append(found, candidate{Row: row, charge: demand.charge(row.Offer.Prices), score: score, scored: scored})
	}
	return found
}

// An order is a quality by which candidates compare: compare puts the best first. Those that it is not known of have no rank.
type order struct {
	known   func(c candidate) bool
	compare func(a, b candidate) int
}

var (
	cheaper = order{func(candidate) bool { return true }, func(a, b candidate) int { return a.charge.compare(&b.charge) }}
	closer  = order{
		func(c candidate) bool { return c.RoundTrip > 0 },
		func(a, b candidate) int { return cmp.Compare(a.RoundTrip, b.RoundTrip) },
	}
	better = order{func(c candidate) bool { return c.scored }, func(a, b candidate) int { return cmp.Compare(b.score, a.score) }}
)

// A ranking is the result of an order: peer → its place from 1 on. Equal ones share a place. The zero value ranks nobody.
type ranking struct {
	places map[string]int
	last   int
}

func rank(candidates []candidate, by order) ranking {
	ranked := slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool { return !by.known(c) })
	slices.SortFunc(ranked, by.compare)
	r := ranking{places: make(map[string]int, len(ranked))}
	for i := range ranked {
		if i == 0 || by.compare(ranked[i-1], ranked[i]) != 0 {
			r.last++
		}
		r.places[ranked[i].Peer] = r.last
	}
	return r
}

// bestWeight is what the best has; the worst has 1, and those between what lies between by their rank.
const bestWeight = 100

func (r ranking) weight(c candidate) int32 {
	place := r.places[c.Peer]
	if place == 0 {
		return 0
	}
	return bestWeight - int32((bestWeight-1)*(place-1)/max(1, r.last-1)) //nolint:gosec // from 1 to 100
}

// compare puts the better place first, and those without one last.
func (r ranking) compare(a, b candidate) int {
	placeA, placeB := r.places[a.Peer], r.places[b.Peer]
	return cmp.Or(first(placeA > 0, placeB > 0), cmp.Compare(placeA, placeB))
}

// best returns the nodes of the best candidates that the pod fits in, at most so many. Of equals the user may choose.
func best(candidates []candidate, most int, demand *demand, decisive, preferred ranking) []string {
	fitting := slices.DeleteFunc(candidates, func(c candidate) bool { return demand.misfit(c.Row) != "" })
	slices.SortFunc(fitting, func(a, b candidate) int {
		return cmp.Or(decisive.compare(a, b), preferred.compare(a, b), strings.Compare(a.Peer, b.Peer))
	})
	var names []string
	for _, c := range fitting[:min(len(fitting), most)] {
		names = append(names, v1alpha1.VirtualNodeName(c.Peer))
	}
	return names
}

// nodes lists what was decided about each virtual node: first of all which are excluded, then which are preferred most.
func nodes(excluded map[string]string, placed []v1alpha1.NodePlacement) []v1alpha1.NodePlacement {
	all := placed
	for peer, why := range excluded {
		all = append(all, v1alpha1.NodePlacement{Name: v1alpha1.VirtualNodeName(peer), Excluded: why})
	}
	slices.SortFunc(all, func(a, b v1alpha1.NodePlacement) int {
		return cmp.Or(first(a.Excluded != "", b.Excluded != ""), cmp.Compare(b.Weight, a.Weight), strings.Compare(a.Name, b.Name))
	})
	all = all[:min(len(all), maxPlacedNodes)]
	slices.SortFunc(all, func(a, b v1alpha1.NodePlacement) int { return strings.Compare(a.Name, b.Name) })
	if len(all) == 0 {
		return nil
	}
	return all
}

// roundedShape is the largest pod that goes to a cluster, in cores and memory. It has two significant digits, so that it
// does not move with every pod that comes or goes.
func roundedShape(largest corev1.ResourceList) corev1.ResourceList {
	shape := corev1.ResourceList{}
	if cpu, known := largest[corev1.ResourceCPU]; known {
		shape[corev1.ResourceCPU] = *resource.NewMilliQuantity(roundedDown(cpu.MilliValue()), resource.DecimalSI)
	}
	if memory, known := largest[corev1.ResourceMemory]; known {
		shape[corev1.ResourceMemory] = *resource.NewQuantity(roundedDown(memory.Value()), resource.BinarySI)
	}
	if len(shape) == 0 {
		return nil
	}
	return shape
}
