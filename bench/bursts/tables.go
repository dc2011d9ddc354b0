// SPDX-License-Identifier: Apache-2.0

package bursts

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hanse-dev/hanse/bench/measure"
)

// Bounds of the design.
const (
	maxRatio     = 2.8                  // time of a burst, offloaded by plain
	maxNullRatio = 1.4                  // the same by null offloader
	maxBeyond    = 5 * time.Millisecond // of one pod, beyond the null offloader

	maxGoneRatio = 2.8  // time until so many are deleted, offloaded by plain
	goneSize     = 1000 // how many that is said of
)

// Tables renders what was measured.
func (r *Result) Tables() []measure.Table {
	var tables []measure.Table
	if len(r.Single) > 0 {
		tables = append(tables, r.single())
	}
	if len(r.Rounds) == 0 {
		return tables
	}
	tables = append(tables, r.times(), r.deletions())
	for _, size := range r.Sizes {
		if len(r.of(size)) > 0 {
			tables = append(tables, r.writes(size), r.cpu(size), r.link(size))
		}
	}
	return append(tables, r.memory())
}

func (r *Result) schedulers() string {
	if r.Clusters.SchedulerQPS > 0 {
		return fmt.Sprintf("The schedulers may make %d requests a second, so that their default of 50 does not hide what Hanse costs.", r.Clusters.SchedulerQPS)
	}
	return "The schedulers may make 50 requests a second, their default, which hides what is faster than that."
}

// ways are those that were measured, in their order.
func (r *Result) ways() []string {
	if r.Floors {
		return []string{Plain, Null}
	}
	return []string{Plain, Null, Offloaded}
}

func (r *Result) single() measure.Table {
	t := measure.Table{
		Title: "One pod, idle",
		Intro: "One pod at a time, in turn in the provider directly, by the null offloader, and offloaded by Hanse. Simulated nodes start\n" +
			"a pod at once, so this is the way there and back.",
		Columns: measure.DistributionColumns,
		Notes: []string{
			"Beyond is bound → Ready at home less created → Ready at the provider, pod by pod: what offloading itself takes. Its bound\n" +
				"  is the median of the null offloader and 5 ms, held against the median.",
		},
	}
	for _, way := range r.ways() {
		s := r.Single[way]
		if s == nil {
			continue
		}
		t.Distribution(way+": created → Ready", s.FromCreated, 0)
		t.Distribution(way+": bound → Ready", s.FromBound, 0)
		if way != Plain {
			t.Distribution(way+": beyond the provider's own time", s.Beyond, 0)
		}
	}
	if null, hanse := r.Single[Null], r.Single[Offloaded]; null != nil && hanse != nil {
		bound, row := null.Beyond.Median()+maxBeyond, t.Rows[len(t.Rows)-1]
		row[len(row)-2] = "p50 ≤ " + measure.Duration(bound)
		row[len(row)-1] = measure.Verdict(hanse.Beyond.Median().Seconds(), bound.Seconds())
	}
	return t
}

func (r *Result) times() measure.Table {
	t := measure.Table{
		Title: "Bursts",
		Intro: fmt.Sprintf("Pods at once, in each way in turn; the provider has %d simulated nodes. Times run from the first creation until the\n"+
			"last pod is Ready where it was created. %s", r.Clusters.Nodes, r.schedulers()),
		Columns: []string{"pods", "round", "way", "all Ready", "by plain", "bound", "", "by null", "bound", ""},
		Notes: []string{
			"The best known system takes 12.5 times as long as plain for 1,000 pods, with 26 writes a pod and 12 times the processor time.",
		},
	}
	for _, size := range r.Sizes {
		rounds := r.of(size)
		if len(rounds) == 0 {
			continue
		}
		for n, round := range rounds {
			for _, way := range r.ways() {
				b := round[way]
				t.Add(fmt.Sprint(size), fmt.Sprint(n+1), way, measure.Duration(b.AllReady),
					ratio(b.AllReady.Seconds(), round[Plain].AllReady.Seconds()), "", "",
					ratio(b.AllReady.Seconds(), round[Null].AllReady.Seconds()), "", "")
			}
		}
		r.means(&t, size, rounds)
	}
	return t
}

func (r *Result) means(t *measure.Table, size int, rounds []Round) {
	mean := r.mean(rounds, func(b Burst) time.Duration { return b.AllReady })
	for _, way := range r.ways() {
		row := []string{
			fmt.Sprint(size), "mean", way, measure.Number(mean[way], "s"),
			ratio(mean[way], mean[Plain]), "", "", ratio(mean[way], mean[Null]), "", "",
		}
		if way == Offloaded {
			row[5], row[6] = "≤ "+measure.Number(maxRatio, "×"), measure.Verdict(mean[way]/mean[Plain], maxRatio)
			row[8], row[9] = "≤ "+measure.Number(maxNullRatio, "×"), measure.Verdict(mean[way]/mean[Null], maxNullRatio)
		}
		t.Add(row...)
	}
}

func (r *Result) deletions() measure.Table {
	t := measure.Table{
		Title:   "Deletion",
		Intro:   "The pods of each burst, deleted at once: from the first deletion until the last pod is gone where it was created.",
		Columns: []string{"pods", "round", "way", "all gone", "by plain", "bound", ""},
	}
	gone := func(b Burst) time.Duration { return b.Gone }
	for _, size := range r.Sizes {
		rounds := r.of(size)
		if len(rounds) == 0 {
			continue
		}
		for n, round := range rounds {
			for _, way := range r.ways() {
				t.Add(fmt.Sprint(size), fmt.Sprint(n+1), way, measure.Duration(gone(round[way])),
					ratio(gone(round[way]).Seconds(), gone(round[Plain]).Seconds()), "", "")
			}
		}
		mean := r.mean(rounds, gone)
		for _, way := range r.ways() {
			bound, verdict := "", ""
			if way == Offloaded && size == goneSize {
				bound, verdict = "≤ "+measure.Number(maxGoneRatio, "×"), measure.Verdict(mean[way]/mean[Plain], maxGoneRatio)
			}
			t.Add(fmt.Sprint(size), "mean", way, measure.Number(mean[way], "s"), ratio(mean[way], mean[Plain]), bound, verdict)
		}
	}
	return t
}

// mean returns the mean of a time in seconds, by way.
func (r *Result) mean(rounds []Round, of func(Burst) time.Duration) map[string]float64 {
	mean := map[string]float64{}
	for _, way := range r.ways() {
		var seconds []float64
		for _, round := range rounds {
			seconds = append(seconds, of(round[way]).Seconds())
		}
		mean[way] = measure.Mean(seconds)
	}
	return mean
}

func ratio(a, b float64) string {
	if b == 0 {
		return ""
	}
	return measure.Number(a/b, "×")
}

func (r *Result) of(size int) []Round {
	var rounds []Round
	for _, round := range r.Rounds {
		if round[Plain].Size == size {
			rounds = append(rounds, round)
		}
	}
	return rounds
}

// A tally is an amount for each pod, by way.
type tally map[string]float64

// tallies are amounts by what they are of.
type tallies map[string]tally

func (t tallies) add(what, way string, amount float64) {
	if t[what] == nil {
		t[what] = tally{}
	}
	t[what][way] += amount
}

// row renders the tally, in the order of the ways.
func (t tallies) row(what, unit string, ways []string) []string {
	cells := []string{what}
	for _, way := range ways {
		if t[what][way] == 0 {
			cells = append(cells, "")
			continue
		}
		cells = append(cells, measure.Number(t[what][way], unit))
	}
	return cells
}

// each calls do for every burst of a size, with the share of one unit of it in the mean for each pod.
func (r *Result) each(size int, do func(way string, b Burst, share float64)) {
	rounds := r.of(size)
	for _, round := range rounds {
		for way, b := range round {
			do(way, b, 1/float64(size*len(rounds)))
		}
	}
}

func (r *Result) cpu(size int) measure.Table {
	t := measure.Table{
		Title:   fmt.Sprintf("Processor time for each of %d pods, from creation until writes ended", size),
		Columns: append([]string{"process"}, r.ways()...),
		Notes: []string{
			"Others is what the machine did besides: the rest of the two clusters, and whoever else used it. If it is much, the times\n" +
				"  above are worth little.",
			"Bench is the load generator. What Hanse and the clusters do anyway while they are idle is in these numbers.",
		},
	}
	used := tallies{}
	r.each(size, func(way string, b Burst, share float64) {
		for process, cpu := range b.CPU {
			used.add(process, way, cpu.Seconds()*share)
		}
	})
	for _, process := range slices.Sorted(maps.Keys(used)) {
		t.Add(used.row(process, "s", r.ways())...)
	}
	return t
}

func (r *Result) memory() measure.Table {
	t := measure.Table{Title: "Memory of Hanse after the bursts", Columns: measure.FigureColumns}
	for _, name := range slices.Sorted(maps.Keys(r.Memory)) {
		t.Figure(name+": now", float64(r.Memory[name].Resident)/(1<<20), "MiB", 0)
		t.Figure(name+": at most", float64(r.Memory[name].Peak)/(1<<20), "MiB", 0)
	}
	return t
}
