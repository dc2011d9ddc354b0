// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hanse-dev/hanse/bench/audit"
	"github.com/hanse-dev/hanse/bench/measure"
)

// Bounds of issue 15.
const (
	mostBeyond = 300 * time.Millisecond
	mostWrites = 8 // beside those of a pod that is replaced
)

// Tables renders what was measured.
func (r *Result) Tables() []measure.Table {
	if len(r.Ways) == 0 {
		return nil
	}
	return []measure.Table{r.times(), r.readiness(), r.writes()}
}

// ways are those that were measured, in their order.
func (r *Result) ways() []string {
	return slices.DeleteFunc([]string{Replaced, Alone, Together}, func(way string) bool { return r.Ways[way] == nil })
}

func (r *Result) times() measure.Table {
	t := measure.Table{
		Title:   fmt.Sprintf("Moves of the %d pods of a Deployment between simulated nodes", r.Count),
		Columns: measure.DistributionColumns,
		Notes: []string{
			"From the creation of the PodMove until a watch tells that the pod has moved. Beyond: less the start of the copy, from created to Ready.",
			fmt.Sprintf("Together: %d PodMoves at a time. Pods of one owner move one after another, so beyond is from when the move begins.", r.AtOnce),
		},
	}
	for _, way := range r.ways() {
		m := r.Ways[way]
		if len(m.Beyond) == 0 {
			continue
		}
		t.Distribution(way+", beyond the start of the copy", m.Beyond, mostBeyond)
		t.Distribution(way+", start of the copy", m.Start, 0)
		t.Distribution(way+", whole", m.Whole, 0)
	}
	return t
}

func (r *Result) readiness() measure.Table {
	t := measure.Table{
		Title:   fmt.Sprintf("Ready pods of the %d meanwhile", r.Count),
		Columns: []string{"way", "took", "least", "most", "missing", "bound", ""},
		Notes:   []string{"As the ReplicaSet says in its status. A pod that is replaced is missing until the next one is Ready."},
	}
	for _, way := range r.ways() {
		m := r.Ways[way]
		missing, bound, verdict := r.Count-int(m.Least), "", ""
		if way != Replaced {
			bound, verdict = "≤ 0", measure.Verdict(float64(missing), 0)
		}
		t.Add(way, measure.Duration(m.Took), fmt.Sprint(m.Least), fmt.Sprint(m.Most), fmt.Sprint(missing), bound, verdict)
	}
	return t
}

// Sums over the writes.
const (
	writesSum  = "= writes"
	besideSum  = "= writes beside those of a pod that is replaced"
	hanseSum   = "of these by Hanse, without the creation of the copy"
	eventsSum  = "= events"
	refusedSum = "(of these refused, such as for a conflict)"
)

func (r *Result) writes() measure.Table {
	t := measure.Table{
		Title:   fmt.Sprintf("API writes for each of %d pods", r.Count),
		Columns: append(append([]string{"who, what"}, r.ways()...), "bound", ""),
		Notes: []string{
			"Counted in the audit log, in the namespace of the pods. A pod that is replaced is deleted by hand, and its controller makes another one:\n" +
				"  what is written then is the pod's own.",
		},
	}
	rows, sums := r.tallies()
	for _, what := range slices.Sorted(maps.Keys(rows)) {
		t.Add(append(r.row(what, rows[what]), "", "")...)
	}
	for _, sum := range []string{writesSum, besideSum, hanseSum, eventsSum, refusedSum} {
		bound, verdict := "", ""
		if sum == besideSum {
			bound, verdict = "≤ "+measure.Number(mostWrites, ""), measure.Verdict(max(sums[sum][Alone], sums[sum][Together]), mostWrites)
		}
		t.Add(append(r.row(sum, sums[sum]), bound, verdict)...)
	}
	return t
}

// tally is how often something was written for each pod, by way.
type tally map[string]float64

// tallies counts the writes by who and what, and in sums.
func (r *Result) tallies() (rows, sums map[string]tally) {
	rows, sums = map[string]tally{}, map[string]tally{}
	add := func(to map[string]tally, what, way string) {
		if to[what] == nil {
			to[what] = tally{}
		}
		to[what][way] += 1 / float64(r.Count)
	}
	for _, way := range r.ways() {
		for _, w := range r.Ways[way].Writes {
			add(rows, fmt.Sprintf("%s: %s %s", w.Agent, w.Verb, w.Resource), way)
			for _, sum := range sumsOf(w) {
				add(sums, sum, way)
			}
		}
	}
	sums[besideSum] = tally{}
	for _, way := range r.ways() {
		sums[besideSum][way] = sums[writesSum][way] - sums[writesSum][Replaced]
	}
	return rows, sums
}

// sumsOf names the sums that a write belongs into.
func sumsOf(w audit.Request) []string {
	in := []string{writesSum}
	switch {
	case w.IsEvent():
		in[0] = eventsSum
	case strings.HasPrefix(w.Agent, "hanse") && (w.Verb != "create" || w.Resource != "pods"):
		in = append(in, hanseSum)
	}
	if w.Failed {
		in = append(in, refusedSum)
	}
	return in
}

// row renders a tally in the order of the ways.
func (r *Result) row(what string, numbers tally) []string {
	cells := []string{what}
	for _, way := range r.ways() {
		cell := ""
		if numbers[way] != 0 {
			cell = measure.Number(numbers[way], "")
		}
		cells = append(cells, cell)
	}
	return cells
}
