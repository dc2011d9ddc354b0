package bursts

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/bench/audit"
)

func TestWritesAreCountedForEachPodWhereTheyBelong(t *testing.T) {
	write := func(agent, namespace, resource string, failed bool) audit.Write {
		return audit.Write{Agent: agent, Namespace: namespace, Verb: "create", Resource: resource, Failed: failed}
	}
	result := &Result{Twin: "twin", Rounds: []Round{{
		Plain: {Size: 2, Writes: map[string][]audit.Write{"provider": {
			write("bench", Plain, "pods", false), write("bench", Plain, "pods", false), write("hanse-manager", "tenant", "advertisements", false),
		}}},
		Offloaded: {Size: 2, Writes: map[string][]audit.Write{
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
	if got := strings.Join(last, " "); got != "5 mean offloaded 6.00 s 3.00 × ≤ 2.80 × OVER 2.00 × ≤ 1.40 × OVER " {
		t.Errorf("the last row is %q", got)
	}
}
