// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"math"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// FuzzAnswer decodes arbitrary answers, and applies what is accepted.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"deny": ["a", ""], "pend": 1, "allow": "x"}`,
		`{"patch": {"availability": {"cpu": 1e400, "memory": "1e-999999999", "nvidia.com/gpu": -0.0}}}`,
		`{"patch": {"prices": {"currency": "EUR", "perHour": {"cpu": 0.0000000001}, "perPlacement": {"": 1}}, "hideImages": true}}`,
		`{"patch": {"labels": {"hanse.dev/x": "y", "a": null}, "annotations": {"a/b": "c"}, "runtimeClassName": ""}}`,
		`{"exclude": {"turin": "x"}, "score": {"turin": 1e308, "milan": -1e309}, "strict": true}`,
	} {
		for i := range Questions() {
			f.Add(i, []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, n int, text []byte) {
		if n < 0 || n >= len(Questions()) {
			t.Skip()
		}
		answers := answersIn(t, text)
		decision, err := decode(Questions()[n], answers)
		if err != nil {
			if len(err.Error()) > 4*maxErrorText {
				t.Fatalf("error of %d bytes", len(err.Error()))
			}
			return
		}
		checkDecision(t, decision)
	})
}

// answersIn reads the answers from JSON, in which sets are lists.
func answersIn(t *testing.T, text []byte) map[string]ast.Value {
	t.Helper()
	in, err := ParseInput(text)
	if err != nil {
		t.Skip()
	}
	answers := map[string]ast.Value{}
	in.value.(ast.Object).Foreach(func(key, value *ast.Term) {
		name, _ := key.Value.(ast.String)
		answers[string(name)] = value.Value
		if elements, isList := value.Value.(*ast.Array); isList && isSet(string(name)) {
			set := ast.NewSet()
			elements.Foreach(set.Add)
			answers[string(name)] = set
		}
	})
	return answers
}

func checkDecision(t *testing.T, decision Decision) {
	t.Helper()
	if (decision.Outcome == Allow) != (decision.Reason == "") || len(decision.Reason) > maxReasonAll {
		t.Fatalf("outcome %s, reason %q", decision.Outcome, decision.Reason)
	}
	if decision.Offer != nil {
		checkOffer(t, *decision.Offer)
	}
	if decision.Pod != nil {
		pod := &corev1.Pod{}
		pod.Labels = map[string]string{v1alpha1.LabelHomeUID: "uid"}
		decision.Pod.Apply(pod)
		if pod.Labels[v1alpha1.LabelHomeUID] != "uid" || len(pod.Labels) > maxEntries+1 {
			t.Fatalf("labels %v", pod.Labels)
		}
	}
	if decision.Ranking != nil {
		for peer, score := range decision.Ranking.Scores {
			if math.IsInf(score, 0) || math.IsNaN(score) || len(peer) > maxPeerName {
				t.Fatalf("score of %s is %v", peer, score)
			}
		}
	}
}

func checkOffer(t *testing.T, patch OfferPatch) {
	t.Helper()
	spec := offer()
	corrections := patch.Apply(spec)
	if len(corrections) > maxCorrections {
		t.Fatalf("%d corrections", len(corrections))
	}
	for _, correction := range corrections {
		if len(correction) > maxCorrection {
			t.Fatalf("correction %q", correction)
		}
	}
	checkResources(t, spec.Availability)
	checkResources(t, spec.LargestPod)
	if spec.Prices != nil && len(spec.Prices.Currency) != 3 {
		t.Fatalf("prices %v", spec.Prices)
	}
	if again := patch.Apply(spec); len(again) != 0 {
		t.Fatalf("applied a second time it changes %v", again)
	}
}

func checkResources(t *testing.T, resources corev1.ResourceList) {
	t.Helper()
	if len(resources) > maxEntries {
		t.Fatalf("%d resources", len(resources))
	}
	most := resource.MustParse("9007199254740992") // 2^53
	for name, amount := range resources {
		if amount.Sign() < 0 || amount.Cmp(most) > 0 || len(name) > 320 {
			t.Fatalf("%s of %s", amount.String(), name)
		}
	}
}

func FuzzParseInput(f *testing.F) {
	f.Add([]byte(`{"peer": {"name": "turin"}, "time": "2026-11-20T12:00:00Z", "table": [{"peer": "a", "prices": 1e999999999}]}`))
	set := compile(f, Placement, `score[row.peer] := row.x * 2 if { some row in input.table; row.x > 1e3 }`)
	f.Fuzz(func(t *testing.T, text []byte) {
		in, err := ParseInput(text)
		if err != nil {
			return
		}
		ctx, cancel := contextOf(t)
		defer cancel()
		if _, err := set.Decide(ctx, in); errors.Is(err, errInternal) {
			t.Fatal(err)
		}
	})
}
