// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hanse-dev/hanse/bench/measure"
)

// What may be more afterwards. Goroutines and files are those of connections and timers, too, which come and go.
const (
	moreHeap = 1.1 // of what it was at half time: before, not everything has been used
	moreOf   = 5   // goroutines, files
)

// A turnover is what was there before pods came and went, at half time, and afterwards.
type turnover struct {
	names  []string // of the servers
	counts []int    // pods that came and went before each state
	took   []time.Duration
	states []state
}

// moments of a turnover.
var moments = []string{"before", "half", "after"}

func (r *turnover) table() measure.Table {
	t := measure.Table{
		Title:   fmt.Sprintf("What %d pods leave behind that are created, Ready, and deleted", r.total()),
		Intro:   fmt.Sprintf("They come and go in batches of %d, the first of which is before the first look. At each look no pod is there.", batch),
		Columns: slices.Concat([]string{"what"}, moments, []string{"bound", ""}),
		Notes: []string{
			"In use is what a collection of garbage leaves of the heap. Watches are counted in the audit logs: all that began and have not\n" +
				"  ended. Objects are all that the API server lists but Events; kinds of which there are others than before have their own rows.",
		},
	}
	if len(r.states) == 0 {
		return t
	}
	for _, name := range r.names {
		server := func(s state) holding { return s.servers[name] }
		r.add(&t, name+": heap in use", "MB", func(s state) float64 { return server(s).heap / megabyte },
			func(of []float64) float64 { return of[1] * moreHeap })
		r.add(&t, name+": resident memory", "MB", func(s state) float64 { return server(s).resident / megabyte }, nil)
		r.add(&t, name+": goroutines", "", func(s state) float64 { return float64(server(s).goroutines) }, few)
		r.add(&t, name+": open files", "", func(s state) float64 { return float64(server(s).files) }, few)
	}
	for _, who := range slices.Sorted(maps.Keys(r.states[0].watches)) {
		r.add(&t, who+": open watches", "", func(s state) float64 { return float64(s.watches[who]) }, none)
	}
	for _, cluster := range slices.Sorted(maps.Keys(r.states[0].objects)) {
		r.add(&t, cluster+": objects", "", func(s state) float64 { return float64(sum(s.objects[cluster])) }, none)
		for _, kind := range r.differing(cluster) {
			r.add(&t, cluster+": "+kind, "", func(s state) float64 { return float64(s.objects[cluster][kind]) }, none)
		}
	}
	r.addTimes(&t)
	return t
}

// few allows for some more than before, none for none.
func few(of []float64) float64  { return of[0] + moreOf }
func none(of []float64) float64 { return of[0] }

// add adds a row of one value of each state. What the most is may depend on all of them; nil is no bound.
func (r *turnover) add(t *measure.Table, what, unit string, of func(state) float64, most func([]float64) float64) {
	row := make([]string, len(t.Columns))
	row[0] = what
	var values []float64
	for n, s := range r.states {
		values = append(values, of(s))
		row[n+1] = number(values[n], unit)
	}
	if most != nil && len(values) == len(moments) {
		bound := most(values)
		row[len(row)-2], row[len(row)-1] = "≤ "+number(bound, unit), measure.Verdict(values[len(values)-1], bound)
	}
	t.Add(row...)
}

// number renders what has no unit as what is counted.
func number(value float64, unit string) string {
	if unit == "" {
		return fmt.Sprintf("%.0f", value)
	}
	return measure.Number(value, unit)
}

// addTimes adds how long a pod took to come and go.
func (r *turnover) addTimes(t *measure.Table) {
	row := make([]string, len(t.Columns))
	row[0] = "time for each pod until then"
	for n, took := range r.took {
		row[n+1] = measure.Duration(took / time.Duration(max(1, r.counts[n])))
	}
	t.Add(row...)
}

// total is how many pods came and went, but for the first batch.
func (r *turnover) total() int {
	total := 0
	for _, count := range r.counts[min(1, len(r.counts)):] {
		total += count
	}
	return total
}

// differing returns the kinds of which the states have not equally many.
func (r *turnover) differing(cluster string) []string {
	kinds := map[string]bool{}
	first := r.states[0].objects[cluster]
	for _, s := range r.states {
		for _, counts := range []map[string]int{s.objects[cluster], first} {
			for kind := range counts {
				if s.objects[cluster][kind] != first[kind] {
					kinds[kind] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}

func sum(counts map[string]int) int {
	total := 0
	for _, count := range counts {
		total += count
	}
	return total
}
