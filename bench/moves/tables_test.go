// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/bench/audit"
)

func TestWritesOfAMoveAreComparedWithThoseOfAPodThatIsReplaced(t *testing.T) {
	write := func(agent, verb, resource string, failed bool) audit.Request {
		return audit.Request{Agent: agent, Verb: verb, Resource: resource, Failed: failed}
	}
	bind := write("kube-scheduler", "create", "pods/binding", false)
	result := &Result{Config: Config{Count: 2}, Ways: map[string]*Measured{
		Replaced: {Writes: []audit.Request{bind, bind, write("bench", "delete", "pods", false)}},
		Alone: {Writes: []audit.Request{
			bind, bind, write("bench", "create", "podmoves", false), write("hanse-manager", "create", "pods", false),
			write("hanse-manager", "patch", "pods", true), write("hanse-manager", "create", "events", false),
		}},
	}}
	rows, sums := result.tallies()
	if diff := cmp.Diff(map[string]tally{
		writesSum:  {Replaced: 1.5, Alone: 2.5},
		besideSum:  {Replaced: 0, Alone: 1},
		hanseSum:   {Alone: 0.5},
		eventsSum:  {Alone: 0.5},
		refusedSum: {Alone: 0.5},
	}, sums); diff != "" {
		t.Errorf("sums (-want +got):\n%s", diff)
	}
	if got := rows["kube-scheduler: create pods/binding"]; !cmp.Equal(got, tally{Replaced: 1, Alone: 1}) {
		t.Errorf("bindings count %v", got)
	}
}
