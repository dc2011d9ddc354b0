// SPDX-License-Identifier: Apache-2.0

package advertisements

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hanse-dev/hanse/bench/measure"
)

// bounds on the time from the first advertisement to the last node Ready, by how many there are at once.
var bounds = map[int]time.Duration{100: 3 * time.Second, 1000: 30 * time.Second}

// oneBound is on the p99 of one advertisement at a time, from accepted to node Ready. It is held against the time from
// creation too, which is longer.
const oneBound = 300 * time.Millisecond

// idleBounds are in percent of a core, for a thousand peers.
var idleBounds = map[string]float64{"hanse manager": 2}

// Tables renders results.
func Tables(results []Result) []measure.Table {
	return []measure.Table{latency(results), footprint(results)}
}

func latency(results []Result) measure.Table {
	t := measure.Table{
		Title: "Advertisements",
		Intro: "Hand-made Advertisements are written into one API server that plays all providers; one `hanse manager` and one\n" +
			"`hanse kubelet` take them in. Times run from just before the write until a watch shows the effect.",
		Columns: measure.DistributionColumns,
		Notes: []string{
			"The prototype of 2020 took 8 to 10 s for one, and nearly 2 minutes for a hundred.",
			"Each number of advertisements has fresh clusters and fresh processes.",
			"A decision where pods go is made at most once a second for each namespace, and admission learns of it by a watch.",
		},
	}
	for _, r := range results {
		name, bound := fmt.Sprintf("%d at once", r.Count), time.Duration(0)
		if r.OneByOne {
			name, bound = "one at a time", oneBound
		}
		t.Distribution(name+": created → acknowledged", r.Acknowledged, 0)
		t.Distribution(name+": created → Node created", r.NodeCreated, 0)
		t.Distribution(name+": created → Node Ready", r.NodeReady, bound)
		t.Distribution(name+": accepted → Node Ready", r.AcceptedToReady, bound)
		if !r.OneByOne {
			t.Distribution(name+": new price → decided where pods go", r.Placement.Decided, 0)
			t.Distribution(name+": new price → new pods go there", r.Placement.Obeyed, 0)
			if len(r.Auctions.Late) > 0 {
				t.Distribution(name+": deadline of an auction → its end, one is silent", r.Auctions.Late, auctionBound)
				t.Distribution(name+": Application created → end of its auction, all offer", r.Auctions.Early, 0)
			}
			text, verdict := "", ""
			if limit, ok := bounds[r.Count]; ok {
				text, verdict = "≤ "+measure.Duration(limit), measure.Verdict(r.AllReady.Seconds(), limit.Seconds())
			}
			t.Add(name+": first created → all Ready", "1", "", "", measure.Duration(r.AllReady), text, verdict)
		}
	}
	return t
}

func footprint(results []Result) measure.Table {
	t := measure.Table{
		Title:   "What advertisements cost",
		Columns: measure.FigureColumns,
		Notes: []string{
			"Until all links work includes what this program does meanwhile: at the provider it makes a namespace and a token for each peer.",
			"Memory is the resident set. Before means: links to all peers are open, none has advertised.",
			"An idle virtual node renews its lease every 10 s, so a thousand of them make 100 writes a second.",
			"Others is what the machine did besides: the rest of the two clusters, and whoever else used it.",
		},
	}
	for _, r := range results {
		name := fmt.Sprintf("%d at once", r.Count)
		if r.OneByOne {
			name = fmt.Sprintf("%d one by one", r.Count)
		}
		t.Figure(name+": first Peer written → all links work", r.Connected.Seconds(), "s", 0)
		t.Figure(name+": memory of hanse manager before", mebibytes(r.Manager.Before.Resident), "MiB", 0)
		t.Figure(name+": memory of hanse manager after", mebibytes(r.Manager.After.Resident), "MiB", 0)
		t.Figure(name+": memory of hanse kubelet before", mebibytes(r.Kubelet.Before.Resident), "MiB", 0)
		t.Figure(name+": memory of hanse kubelet after", mebibytes(r.Kubelet.After.Resident), "MiB", 0)
		for _, group := range slices.Sorted(maps.Keys(r.CPU)) {
			t.Figure(name+": processor time of "+group, r.CPU[group].Seconds(), "s", 0)
		}
		for _, group := range slices.Sorted(maps.Keys(r.Idle)) {
			t.Figure(fmt.Sprintf("%s: idle for %s: %s", name, r.IdleFor, group), 100*r.Idle[group].Seconds()/r.IdleFor.Seconds(), "% of a core", idleBounds[group])
		}
	}
	return t
}

func mebibytes(bytes int) float64 { return float64(bytes) / (1 << 20) }
