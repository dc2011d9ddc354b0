// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestExplain(t *testing.T) {
	for name, test := range map[string]struct {
		question Question
		sources  []string
		want     []Step
	}{
		"the default": {Incoming, nil, []Step{{"allow", "built-in:default/incoming.rego:7", "allow := true"}}},
		"rules that are true, and no others": {Incoming, []string{`
deny contains "no" if {
	helper
	input.x == 1
}

deny contains "never" if input.x == 2

helper if input.x > 0`, `patch.labels.a := "b" if input.x == 1
pend contains reason if { reason := "ask" }`}, []Step{
			{"deny", "cm/0.rego:3", `deny contains "no" if`},
			{"patch.labels.a", "cm/1.rego:2", `patch.labels.a := "b" if input.x == 1`},
			{"pend", "cm/1.rego:3", `pend contains reason if { reason := "ask" }`},
		}},
		"one that is true for several": {Placement, []string{`score[p] := 1 if some p in input.peers
exclude[p] := "x" if { some p in input.peers; p == "b" }`}, []Step{
			{"exclude", "cm/0.rego:3", `exclude[p] := "x" if { some p in input.peers; p == "b" }`},
			{"score", "cm/0.rego:2", `score[p] := 1 if some p in input.peers`},
		}},
		"the default order": {Placement, []string{`strict := true`}, []Step{
			{"score", "built-in:default/placement.rego:25", `score[row.peer] := 0 - row.roundTripSeconds if`},
			{"strict", "cm/0.rego:2", "strict := true"},
		}},
		"the branch that is true": {Incoming, []string{"allow if {\n\tinput.x == 2\n} else if {\n\tinput.x == 1\n}"}, []Step{
			{"allow", "cm/0.rego:4", "else if"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			set := compile(t, test.question, test.sources...)
			in := input(t, `{"x": 1, "peers": ["a", "b"], "wish": {"prefer": "Latency"}, "table": [{"peer": "a", "roundTripSeconds": 1}]}`)
			decision, steps, err := set.Explain(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, steps); diff != "" {
				t.Error(diff)
			}
			asked, err := set.Decide(t.Context(), in)
			if diff := cmp.Diff(asked, decision); diff != "" || err != nil {
				t.Error(diff, err)
			}
		})
	}
}

func TestExplainIsBounded(t *testing.T) {
	source := ""
	for range maxSteps + 1 {
		source += "deny contains \"no\" if input.x\n"
	}
	_, steps, err := compile(t, Incoming, source).Explain(t.Context(), input(t, `{"x": true}`))
	if err != nil || len(steps) != maxSteps {
		t.Errorf("%d steps, %v", len(steps), err)
	}
}

func TestExplainTellsWhatLedToAnError(t *testing.T) {
	_, steps, err := compile(t, Incoming, `patch.sequence := 1`).Explain(t.Context(), input(t, `{}`))
	if !errors.Is(err, ErrAnswer) || len(steps) != 1 || steps[0].Location != "cm/0.rego:2" {
		t.Errorf("%v %v", steps, err)
	}
}
