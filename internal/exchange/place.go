package exchange

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

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
