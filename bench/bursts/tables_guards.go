// SPDX-License-Identifier: Apache-2.0

package bursts

import (
	"fmt"
	"time"

	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/bench/measure"
)

// apiServers are the processes that guards cost time, by cluster.
var apiServers = []string{"consumer apiserver", "provider apiserver"}

// Tables renders what guards cost.
func (r *GuardsResult) Tables() []measure.Table {
	t := measure.Table{
		Title: "What guards cost",
		Intro: fmt.Sprintf("The same burst of %d pods with all guards and with one of them taken away at a time, by the null offloader into a\n"+
			"guarded twin with the rights of Hanse's manager, and by Hanse: processor time of the API servers for each pod, from\n"+
			"creation until writes ended. Saved is what it is less than with all guards.", r.Size),
		Columns: []string{"without", "way"},
		Notes: []string{
			"With all guards (nothing is taken away) each round has two bursts, the first and the last. What differs by no more than\n" +
				"  these two do says nothing. The others are means of their rounds.",
			"The API servers also heartbeat, watch and collect garbage meanwhile, which is in these numbers.",
		},
	}
	for _, process := range apiServers {
		t.Columns = append(t.Columns, process, "saved")
	}
	t.Columns = append(t.Columns, "all Ready")
	for _, way := range []string{Guarded, Offloaded} {
		for n := range r.Bursts[lab.NoGuard] {
			t.Add(r.row(lab.NoGuard, way, r.Bursts[lab.NoGuard][n:n+1])...)
		}
		for _, guard := range guards {
			if len(r.Bursts[guard]) > 0 {
				t.Add(r.row(guard, way, r.Bursts[guard])...)
			}
		}
	}
	return []measure.Table{t}
}

func (r *GuardsResult) row(guard lab.Guard, way string, rounds []Round) []string {
	name := string(guard)
	if guard == lab.NoGuard {
		name = "(nothing)"
	}
	row := []string{name, way}
	for _, process := range apiServers {
		cost, all := r.perPod(rounds, way, process), r.perPod(r.Bursts[lab.NoGuard], way, process)
		saved := ""
		if guard != lab.NoGuard {
			saved = measure.Duration(all - cost)
		}
		row = append(row, measure.Duration(cost), saved)
	}
	var ready []float64
	for _, round := range rounds {
		ready = append(ready, round[way].AllReady.Seconds())
	}
	return append(row, measure.Number(measure.Mean(ready), "s"))
}

// perPod is the mean of what a process took for a pod in some rounds.
func (r *GuardsResult) perPod(rounds []Round, way, process string) time.Duration {
	var took []float64
	for _, round := range rounds {
		took = append(took, float64(round[way].CPU[process])/float64(r.Size))
	}
	return time.Duration(measure.Mean(took))
}
