// SPDX-License-Identifier: Apache-2.0

package bursts

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hanse-dev/hanse/bench/measure"
)

func (r *Result) link(size int) measure.Table {
	t := measure.Table{
		Title:   fmt.Sprintf("Bytes on the link for each of %d pods, from creation until writes ended", size),
		Columns: append([]string{"process"}, r.ways()...),
		Notes: []string{
			"As the kernel counts them on the connections to the other cluster's API server: with TLS, without headers of packets.",
		},
	}
	went, sum := tallies{}, tallies{}
	const all = "= all, both ways"
	r.each(size, func(way string, b Burst, share float64) {
		for process, bytes := range b.Link {
			sent, received := float64(bytes.Sent)/1000*share, float64(bytes.Received)/1000*share
			went.add(process+", sent", way, sent)
			went.add(process+", received", way, received)
			sum.add(all, way, sent+received)
		}
	})
	for _, what := range slices.Sorted(maps.Keys(went)) {
		t.Add(went.row(what, "kB", r.ways())...)
	}
	t.Add(sum.row(all, "kB", r.ways())...)
	return t
}
