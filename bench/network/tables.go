// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"time"

	"github.com/hanse-dev/hanse/bench/measure"
)

// Bounds of the design.
const (
	leastThroughput = 0.95 // of the bare tunnel
	mostLonger      = 50.0 // µs
	flat            = 0.03 // how much more peers and addresses may cost
	firstPacket     = 2 * time.Second
	mostMemory      = 100 // MB
)

// Ways through the gateways, by the names that internal/kernel has for them.
const (
	bare       = "bare"
	translated = "translated"
	addresses  = "addresses=10000"
	peers      = "peers=100"
)

const megabyte = 1e6

// Tables renders what was measured.
func (r *Result) Tables() []measure.Table {
	var tables []measure.Table
	if r.Figures != nil {
		tables = append(tables, r.paths())
	}
	if len(r.New) > 0 {
		tables = append(tables, r.first())
	}
	if r.Idle.Resident > 0 {
		tables = append(tables, r.memory())
	}
	return tables
}

// paths are bounded by what is lost against the floor, so that less is better as in all other tables.
func (r *Result) paths() measure.Table {
	t := measure.Table{
		Title: "What translation costs",
		Intro: fmt.Sprintf("From a pod to a pod of another cluster, through both nodes, both VXLANs and both gateways with wireguard-go, all in this\n"+
			"machine and one process. Medians of %d rounds in which each way has its turn.", r.Rounds),
		Columns: []string{"what", "measured", "floor", "compared", "bound", ""},
		Notes: []string{
			"The floor of `" + translated + "` is `" + bare + "`: the same links, routes and MTU, and no table of ours on nodes and gateways. The\n" +
				"  pods have the translated addresses themselves. Nodes have the rules of a CNI in each way.",
			"The floor of `" + addresses + "` and `" + peers + "` is `" + translated + "`, which has one address and two peers.",
			"Throughput is compared round by round; of that the median is shown.",
		},
	}
	for _, name := range r.Figures.of("Throughput/") {
		ways := r.Figures[name]
		for _, way := range []string{translated, addresses, peers} {
			floor, least := floorOf(way)
			ratio := ways[way]["ratio"] / max(ways[floor]["ratio"], 1e-9)
			t.Add(name+"/"+way, measure.Number(ways[way]["MB/s"], "MB/s"), measure.Number(ways[floor]["MB/s"], "MB/s"),
				measure.Number(ratio, "×"), "≥ "+measure.Number(least, "×"), measure.Verdict(least, ratio))
		}
	}
	for _, name := range r.Figures.of("RoundTrip") {
		ways := r.Figures[name]
		for _, way := range []string{translated, addresses, peers} {
			floor, _ := floorOf(way)
			most := mostLonger
			if floor != bare {
				most = flat * ways[floor]["us"]
			}
			more := ways[way]["us"] - ways[floor]["us"]
			t.Add(name+"/"+way, measure.Number(ways[way]["us"], "µs"), measure.Number(ways[floor]["us"], "µs"),
				measure.Number(more, "µs")+" more", "≤ "+measure.Number(most, "µs"), measure.Verdict(more, most))
		}
	}
	if ways := r.Figures["Tunnels"]; ways != nil {
		t.Add("Throughput/streams=4/tunnels=2", measure.Number(ways["tunnels=2"]["MB/s"], "MB/s"),
			measure.Number(ways["tunnels=1"]["MB/s"], "MB/s"), measure.Number(ways["tunnels=2"]["ratio"], "×"), "", "")
	}
	return t
}

// floorOf returns what a way is compared with, and the least throughput that it may have of that.
func floorOf(way string) (floor string, least float64) {
	if way == translated {
		return bare, leastThroughput
	}
	return translated, 1 - flat
}

func (r *Result) first() measure.Table {
	t := measure.Table{
		Title:   "First packets",
		Columns: measure.DistributionColumns,
		Notes: []string{
			"Real managers, gateways and fabrics with real API servers. Of a peer: from the moment at which the offer is accepted on both\n" +
				"  sides to the first echo of its gateway through the tunnel.",
			"Of a node: from the start of its `hanse fabric`, which is before there is a Node, to the first echo of the gateway through the VXLAN.",
		},
	}
	t.Distribution("a new peer", r.New, firstPacket)
	if len(r.Nodes) > 0 {
		t.Distribution("a new node", r.Nodes, firstPacket)
	}
	return t
}

func (r *Result) memory() measure.Table {
	t := measure.Table{
		Title:   fmt.Sprintf("`hanse gateway` with %d peers", r.Peers),
		Intro:   "One of them is there, and the others never answer.",
		Columns: measure.FigureColumns,
	}
	t.Figure("resident memory, idle", float64(r.Idle.Resident)/megabyte, "MB", mostMemory)
	t.Figure("without its program", float64(r.Idle.Own)/megabyte, "MB", 0)
	t.Figure("resident memory, after a gigabyte from one peer", float64(r.Loaded.Resident)/megabyte, "MB", mostMemory)
	t.Figure("at most", float64(r.Loaded.Peak)/megabyte, "MB", 0)
	return t
}
