// SPDX-License-Identifier: Apache-2.0

package bursts

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hanse-dev/hanse/bench/audit"
	"github.com/hanse-dev/hanse/bench/measure"
)

// Bounds on the API writes for each offloaded pod on both sides: without events, and with them.
const (
	maxWrites       = 8
	maxWritesEvents = 10
)

// Sums over the writes of a burst.
const (
	writesSum    = "= writes"
	eventsSum    = "= events"
	elsewhereSum = "besides, elsewhere, by Hanse"
	allSum       = "= writes and events"
	refusedSum   = "(of these refused, such as for a conflict)"
)

func (r *Result) writes(size int) measure.Table {
	t := measure.Table{
		Title:   fmt.Sprintf("API writes for each of %d pods, from creation to Ready", size),
		Columns: append(append([]string{"who, what"}, r.ways()...), "bound", ""),
		Notes: []string{
			"Counted in the audit logs of both clusters until no more followed; renewals of leases are left out.",
			"Elsewhere is what Hanse writes outside the pods' namespaces meanwhile, such as advertisements: it does not grow with the\n" +
				"  number of pods, and is outside the bound.",
		},
	}
	rows, sums := r.tallies(size)
	for _, what := range slices.Sorted(maps.Keys(rows)) {
		t.Add(append(rows.row(what, "", r.ways()), "", "")...)
	}
	for _, sum := range []string{writesSum, eventsSum, allSum, refusedSum, elsewhereSum} {
		bound, verdict := "", ""
		if most, ok := map[string]float64{writesSum: maxWrites, allSum: maxWritesEvents}[sum]; ok && !r.Floors {
			bound, verdict = "≤ "+measure.Number(most, ""), measure.Verdict(sums[sum][Offloaded], most)
		}
		t.Add(append(sums.row(sum, "", r.ways()), bound, verdict)...)
	}
	return t
}

// tallies counts the writes of all bursts of a size for each pod: by who and what, and in sums.
func (r *Result) tallies(size int) (rows, sums tallies) {
	rows, sums = tallies{}, tallies{}
	r.each(size, func(way string, b Burst, share float64) {
		s := side{namespace: way}
		for cluster, writes := range b.Writes {
			for _, w := range writes {
				in := r.sumsOf(s, w)
				if len(in) > 0 {
					rows.add(fmt.Sprintf("%s: %s: %s %s", cluster, w.Agent, w.Verb, w.Resource), way, share)
				}
				for _, sum := range in {
					sums.add(sum, way, share)
				}
			}
		}
	})
	return rows, sums
}

// sumsOf names the sums that a write belongs into while the pods of a side were started.
func (r *Result) sumsOf(s side, w audit.Request) []string {
	remote := s.namespace
	if s.namespace == Offloaded {
		remote = r.Twin
	}
	if !s.about(w, remote) {
		if s.namespace == Offloaded && strings.HasPrefix(w.Agent, "hanse") {
			return []string{elsewhereSum}
		}
		return nil // not for these pods: heartbeats of simulated nodes, and the end of the burst before
	}
	in := []string{writesSum, allSum}
	if w.IsEvent() {
		in[0] = eventsSum
	}
	if w.Failed {
		in = append(in, refusedSum)
	}
	return in
}
