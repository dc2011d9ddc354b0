// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hanse-dev/hanse/bench/measure"
)

// Tables renders what each way took.
func (r *Result) Tables() []measure.Table {
	t := measure.Table{
		Title: "What one write costs",
		Intro: fmt.Sprintf("Processor time of one API server for each of %d writes in the same way, of an administrator, the median and the\n"+
			"extremes of %d rounds in which each way has its turn.", r.Count, r.Rounds),
		Columns: []string{"write", "median", "least", "most"},
		Notes: []string{
			"Unread means that the API server answers with the metadata alone, which nobody decodes.",
		},
	}
	for _, name := range slices.Sorted(maps.Keys(r.Cost)) {
		cost := measure.Sample(slices.Sorted(slices.Values(r.Cost[name])))
		t.Add(name, rounded(cost.Median()), rounded(cost.Quantile(0)), rounded(cost.Max()))
	}
	return []measure.Table{t}
}

func rounded(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }
