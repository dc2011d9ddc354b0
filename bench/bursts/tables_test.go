// SPDX-License-Identifier: Apache-2.0

package bursts

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/bench/audit"
	"github.com/hanse-dev/hanse/bench/lab"
)

func TestWritesAreCountedForEachPodWhereTheyBelong(t *testing.T) {
	write := func(agent, namespace, resource string, failed bool) audit.Request {
		return audit.Request{Agent: agent, Namespace: namespace, Verb: "create", Resource: resource, Failed: failed}
	}
	result := &Result{Twin: "twin", Rounds: []Round{{
		Plain: {Size: 2, Writes: map[string][]audit.Request{"provider": {
			write("bench", Plain, "pods", false), write("bench", Plain, "pods", false), write("hanse-manager", "tenant", "advertisements", false),
		}}},
		Offloaded: {Size: 2, Writes: map[string][]audit.Request{
			"consumer": {write("bench", Offloaded, "pods", false), write("kube-scheduler", Offloaded, "events", false), write("kwok", "", "nodes/status", false)},
			"provider": {write("hanse-manager", "twin", "pods", true), write("hanse-manager", "tenant", "advertisements", false), write("kwok", Null, "pods", true)},
		}},
	}}}
	rows, sums := result.tallies(2)
	if diff := cmp.Diff(tallies{
		writesSum:    {Plain: 1, Offloaded: 1},
		eventsSum:    {Offloaded: 0.5},
		allSum:       {Plain: 1, Offloaded: 1.5},
		refusedSum:   {Offloaded: 0.5},
		elsewhereSum: {Offloaded: 0.5},
	}, sums); diff != "" {
		t.Errorf("sums (-want +got):\n%s", diff)
	}
	if got := rows["consumer: bench: create pods"][Offloaded]; got != 0.5 {
		t.Errorf("the consumer's pods count %v for each, want 0.5", got)
	}
	if _, found := rows["provider: kwok: create pods"]; found {
		t.Error("the end of the burst before is counted")
	}
}

func TestRatiosAreOfMeans(t *testing.T) {
	round := func(plain, null, offloaded time.Duration) Round {
		return Round{
			Plain: {Size: 5, AllReady: plain}, Null: {Size: 5, AllReady: null}, Offloaded: {Size: 5, AllReady: offloaded},
		}
	}
	result := &Result{Config: Config{Sizes: []int{5}}, Rounds: []Round{
		round(time.Second, 2*time.Second, 2*time.Second), round(3*time.Second, 4*time.Second, 10*time.Second),
	}}
	table := result.times()
	last := table.Rows[len(table.Rows)-1]
	if got := strings.Join(last, " "); got != "5 mean offloaded 6.00 s 3.00 × ≤ 2.80 × OVER 2.00 × ≤ 1.40 × OVER" {
		t.Errorf("the last row is %q", got)
	}
}

func TestDeletionHasABoundForAThousand(t *testing.T) {
	for size, want := range map[int]string{
		100:  "100 mean offloaded 6.00 s 3.00 ×  ",
		1000: "1000 mean offloaded 6.00 s 3.00 × ≤ 2.80 × OVER",
	} {
		result := &Result{Config: Config{Sizes: []int{size}}, Rounds: []Round{{
			Plain: {Size: size, Gone: 2 * time.Second}, Null: {Size: size, Gone: 3 * time.Second}, Offloaded: {Size: size, Gone: 6 * time.Second},
		}}}
		table := result.deletions()
		if got := strings.Join(table.Rows[len(table.Rows)-1], " "); got != want {
			t.Errorf("the last row is %q, want %q", got, want)
		}
	}
}

func TestBytesOnTheLinkAreForEachPod(t *testing.T) {
	result := &Result{Rounds: []Round{{
		Plain:     {Size: 2},
		Null:      {Size: 2, Link: map[string]lab.Bytes{"null": {Sent: 4000, Received: 6000}, "hanse-kubelet": {Sent: 2}}},
		Offloaded: {Size: 2, Link: map[string]lab.Bytes{"hanse-kubelet": {Sent: 20_000, Received: 30_000}, "hanse-manager": {Received: 100}}},
	}}}
	want := [][]string{
		{"hanse-kubelet, received", "", "", "15.0 kB"},
		{"hanse-kubelet, sent", "", "0.0010 kB", "10.0 kB"},
		{"hanse-manager, received", "", "", "0.0500 kB"},
		{"hanse-manager, sent", "", "", ""},
		{"null, received", "", "3.00 kB", ""},
		{"null, sent", "", "2.00 kB", ""},
		{"= all, both ways", "", "5.00 kB", "25.1 kB"},
	}
	if diff := cmp.Diff(want, result.link(2).Rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatWasMeasuredUntilSomethingBrokeIsShown(t *testing.T) {
	round := Round{Plain: {Size: 5, AllReady: time.Second}, Null: {Size: 5}, Offloaded: {Size: 5}}
	result := &Result{Config: Config{Sizes: []int{5, 10}}}
	if tables := result.Tables(); len(tables) != 0 {
		t.Errorf("%d tables of nothing", len(tables))
	}
	result.Rounds = []Round{round}
	for _, table := range result.Tables() {
		if strings.Contains(table.Title, "10") {
			t.Errorf("there is a table %q of what was not measured", table.Title)
		}
		for _, row := range table.Rows {
			if row[0] == "10" {
				t.Errorf("%s has a row %q of what was not measured", table.Title, row)
			}
		}
	}
}
