// SPDX-License-Identifier: Apache-2.0

package policymaker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

func TestWithoutPoliciesTheDefaultAnswers(t *testing.T) {
	w := newWorld(t)
	w.look()
	w.expect(`{"price": 3}`, policy.Allow, "")
	for _, question := range policy.Questions() {
		if diff := cmp.Diff(questionStatus{Modules: []string{}, Default: true}, w.status(string(question))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", question, diff)
		}
	}
}

func TestNobodyIsAnsweredBeforeThePoliciesWereRead(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Decide(ctx, policy.Incoming, parsed(t, "{}")); !errors.Is(err, ErrNotReady) {
		t.Errorf("got %v", err)
	}
}

func TestAQuestionWaitsForThePoliciesToBeRead(t *testing.T) {
	w := newWorld(t)
	w.policies("limits", map[string]string{"price.rego": denyDear})
	got := make(chan policy.Decision)
	var started sync.WaitGroup
	started.Add(1)
	go func() {
		defer close(got)
		started.Done()
		if decision, err := w.Decide(t.Context(), policy.Incoming, parsed(t, `{"price": 3}`)); err == nil {
			got <- decision
		}
	}()
	started.Wait()
	w.look()
	if decision := <-got; decision.Outcome != policy.Deny {
		t.Errorf("got %+v, want a denial", decision)
	}
}

func TestPoliciesAreReplacedWhileTheyAreAsked(t *testing.T) {
	w := newWorld(t)
	w.policies("limits", map[string]string{"price.rego": denyDear})
	w.look()
	w.expect(`{"price": 3}`, policy.Deny, "too dear")

	w.policies("limits", map[string]string{"price.rego": denyDearer})
	w.policies("more", map[string]string{"distance.rego": denyFar, "README": "not a module"})
	w.look()
	w.expect(`{"price": 3}`, policy.Allow, "")
	w.expect(`{"price": 30}`, policy.Deny, "far too dear")
	w.expect(`{"distance": 300}`, policy.Deny, "too far")
	if diff := cmp.Diff([]string{"limits/price.rego", "more/distance.rego"}, w.status("incoming").Modules); diff != "" {
		t.Error(diff)
	}

	w.remove("limits")
	w.remove("more")
	w.look()
	w.expect(`{"price": 30}`, policy.Allow, "")
	w.kit.ExpectEvents()
}

func TestConfigMapsElsewhereOrWithoutTheLabelAreNoPolicies(t *testing.T) {
	elsewhere := configMap("limits", v1alpha1.LabelPolicy, "incoming", map[string]string{"price.rego": denyDear})
	elsewhere.Namespace = "shop"
	w := newWorld(t, elsewhere, configMap("plain", "app", "incoming", map[string]string{"price.rego": denyDear}))
	w.look()
	w.expect(`{"price": 3}`, policy.Allow, "")
	if got := w.questionsOf(t.Context(), elsewhere); got != nil {
		t.Errorf("%v are looked at", got)
	}
}

func TestABrokenModuleKeepsTheLastGoodOne(t *testing.T) {
	w := newWorld(t)
	w.policies("limits", map[string]string{"price.rego": denyDear, "distance.rego": denyFar})
	w.look()

	w.policies("limits", map[string]string{"price.rego": noRego, "distance.rego": strings.ReplaceAll(denyFar, "100", "200")})
	w.look()
	w.expect(`{"price": 3, "distance": 150}`, policy.Deny, "too dear") // the other one did change
	w.expectBroken("incoming", "limits/price.rego")
	if why := w.status("incoming").Broken["limits/price.rego"]; !strings.Contains(why, "limits/price.rego:2") {
		t.Errorf("%q does not say where", why)
	}
	w.kit.ExpectEvents(v1alpha1.ReasonPolicyInvalid)

	w.look()
	w.kit.ExpectEvents() // it was told

	w.policies("limits", map[string]string{"price.rego": denyDearer})
	w.look()
	w.expect(`{"price": 3, "distance": 300}`, policy.Allow, "")
	w.expectBroken("incoming")
}

func TestTheLastGoodModuleOutlivesARestart(t *testing.T) {
	w := newWorld(t)
	w.policies("limits", map[string]string{"price.rego": denyDear})
	w.look()
	w.policies("limits", map[string]string{"price.rego": noRego}) // while the manager is down
	w.restart()
	w.look()
	w.expect(`{"price": 3}`, policy.Deny, "too dear")
	w.kit.ExpectEvents(v1alpha1.ReasonPolicyInvalid)

	w.restart()
	w.look()
	w.expect(`{"price": 3}`, policy.Deny, "too dear")
	w.kit.ExpectEvents()
}

func TestTheLastGoodModuleIsKeptWhereTheStatusCannotBeWritten(t *testing.T) {
	w := newWorld(t)
	w.kit.Home.Refuse("apply ConfigMap", errors.New("no right"))
	w.policies("limits", map[string]string{"price.rego": denyDear})
	w.lookFails()
	w.policies("limits", map[string]string{"price.rego": noRego})
	w.lookFails()
	w.expect(`{"price": 3}`, policy.Deny, "too dear")
	w.kit.ExpectEvents() // events follow the write
}

func TestAModuleThatWasNeverGoodIsNotInForce(t *testing.T) {
	w := newWorld(t)
	w.policies("a", map[string]string{"price.rego": noRego})
	w.policies("b", map[string]string{"distance.rego": denyFar})
	w.look()
	w.expect(`{"distance": 300}`, policy.Deny, "too far")
	w.expectBroken("incoming", "a/price.rego")
}

func TestADeletedModuleThatOthersNeedStays(t *testing.T) {
	w := newWorld(t)
	w.policies("limit", map[string]string{"limit.rego": limit})
	w.policies("use", map[string]string{"use.rego": useLimit})
	w.look()
	w.expect(`{"price": 6}`, policy.Deny, "above the limit")

	w.remove("limit")
	w.look()
	w.expect(`{"price": 6}`, policy.Deny, "above the limit")
	w.expectBroken("incoming", "limit/limit.rego")

	w.remove("use")
	w.look()
	w.expect(`{"price": 6}`, policy.Allow, "")
	w.expectBroken("incoming")
}

func TestModulesThatNeedEachOtherComeInAnyOrder(t *testing.T) {
	w := newWorld(t)
	w.policies("a", map[string]string{"use.rego": useLimit})
	w.policies("b", map[string]string{"limit.rego": limit})
	w.policies("c", map[string]string{"broken.rego": noRego})
	w.look()
	w.expect(`{"price": 6}`, policy.Deny, "above the limit")
	w.expectBroken("incoming", "c/broken.rego")
}

func TestModulesAreBounded(t *testing.T) {
	w := newWorld(t)
	large := denyFar + "# " + strings.Repeat("x", maxSources/5) + "\n"
	w.policies("b", map[string]string{"1.rego": denyDear, "2.rego": large, "3.rego": large, "4.rego": large, "5.rego": large})
	w.look()
	w.policies("a", map[string]string{"6.rego": large})
	w.look()
	w.expect(`{"price": 3, "distance": 300}`, policy.Deny, "too dear; too far")
	w.expectBroken("incoming", "a/6.rego") // not those that were there before

	many := map[string]string{}
	for i := range 200 {
		many[fmt.Sprintf("%03d.rego", i)] = denyFar
	}
	w.policies("a", many)
	w.look()
	if got := w.status("incoming"); len(got.Modules) != 64 || len(got.Broken) != maxBroken {
		t.Errorf("%d modules are in force and %d broken", len(got.Modules), len(got.Broken))
	}
	w.expect(`{"price": 3}`, policy.Deny, "too dear")
}

func TestMistakesInLabelsAndKeysAreTold(t *testing.T) {
	w := newWorld(t, configMap("typo", v1alpha1.LabelPolicy, "incomming", map[string]string{"price.rego": denyDear}))
	w.policies("empty", map[string]string{"price.txt": denyDear})
	w.look()
	w.expect(`{"price": 3}`, policy.Allow, "")
	w.expectBroken("unknown", "typo")
	w.expectBroken("incoming", "empty")
	w.kit.ExpectEvents(v1alpha1.ReasonPolicyInvalid, v1alpha1.ReasonPolicyInvalid)

	w.remove("typo")
	w.look()
	if text, told := w.stored()[unknown]; told {
		t.Errorf("the status still says %s", text)
	}
}

func TestTheStatusIsWrittenOnlyWhenItChanges(t *testing.T) {
	w := newWorld(t)
	w.policies("limits", map[string]string{"price.rego": denyDear, "broken.rego": noRego})
	w.look()
	w.kit.Home.ExpectWrites(slices.Repeat([]string{"apply ConfigMap hanse-policy-status"}, len(policy.Questions()))...)
	w.look()
	w.restart()
	w.look()
	w.kit.Home.ExpectWrites()
}

func TestASpoiltStatusIsWrittenAnew(t *testing.T) {
	w := newWorld(t, configMap(v1alpha1.PolicyStatus, "a", "b", map[string]string{"incoming": "{", "outgoing": `{"sources": {"x/y.rego": "{{{"}}`}))
	w.policies("limits", map[string]string{"price.rego": denyDear})
	w.look()
	w.expect(`{"price": 3}`, policy.Deny, "too dear")
	if got := w.status("outgoing"); !got.Default || len(got.Sources) > 0 {
		t.Errorf("outgoing stands at %+v", got)
	}
}

func TestChangesRing(t *testing.T) {
	w := newWorld(t)
	rang := map[policy.Question]int{}
	for _, question := range policy.Questions() {
		w.OnChange(question, func() { rang[question]++ })
	}
	w.look()
	w.policies("limits", map[string]string{"price.rego": denyDear})
	w.look()
	w.policies("limits", map[string]string{"price.rego": noRego}) // nothing else is in force by that
	w.look()
	want := map[policy.Question]int{}
	for _, question := range policy.Questions() {
		want[question] = 1
	}
	want[policy.Incoming] = 2
	if diff := cmp.Diff(want, rang); diff != "" {
		t.Errorf("listeners (-want +got):\n%s", diff)
	}
}

func TestAChangedLabelConcernsBothQuestions(t *testing.T) {
	w := newWorld(t)
	for value, want := range map[string]string{"incoming": "incoming", "nonsense": unknown} {
		got := w.questionsOf(t.Context(), configMap("limits", v1alpha1.LabelPolicy, value, nil))
		if diff := cmp.Diff([]reconcile.Request{requestFor(want)}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", value, diff)
		}
	}
	if got := w.questionsOf(t.Context(), configMap(v1alpha1.PolicyStatus, "a", "b", nil)); len(got) != len(policy.Questions())+1 {
		t.Errorf("%d questions are looked at when the status is gone", len(got))
	}
}

func TestAnEndlessPolicyIsStopped(t *testing.T) {
	w := newWorld(t)
	w.config.Deadline = 20 * time.Millisecond
	w.policies("slow", map[string]string{"slow.rego": head + `deny contains "late" if {
	some a in numbers.range(1, 100000)
	some b in numbers.range(1, 100000)
	a * b < 0
}`})
	w.look()
	if _, err := w.Decide(t.Context(), policy.Incoming, parsed(t, "{}")); !errors.Is(err, policy.ErrTooSlow) {
		t.Errorf("got %v", err)
	}
}

func TestAQuestionThatThereIsNot(t *testing.T) {
	if _, err := newWorld(t).Decide(t.Context(), "weather", policy.Input{}); err == nil {
		t.Error("no error")
	}
}

func TestDecisionsAreRightWhilePoliciesChange(t *testing.T) {
	w := newWorld(t)
	w.policies("limits", map[string]string{"price.rego": denyDear})
	w.look()
	input := parsed(t, `{"price": 30}`)
	done := make(chan struct{})
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				got, err := w.Decide(t.Context(), policy.Incoming, input)
				if err != nil || got.Outcome != policy.Deny || got.Reason != "too dear" && got.Reason != "far too dear" {
					t.Errorf("got %+v, %v", got, err)
					return
				}
				w.OnChange(policy.Incoming, func() {})
			}
		})
	}
	for i := range 9 {
		w.policies("limits", map[string]string{"price.rego": []string{denyDear, denyDearer, noRego}[i%3]})
		w.look()
	}
	close(done)
	asking.Wait()
}

func TestDecisionsAndBrokenModulesAreCounted(t *testing.T) {
	w := newWorld(t)
	w.policies("limits", map[string]string{"price.rego": denyDear, "broken.rego": noRego})
	w.look()
	before, measured := metric(t, "hanse_policy_decisions_total", "Deny"), metric(t, "hanse_policy_decision_duration_seconds", "")
	w.expect(`{"price": 3}`, policy.Deny, "too dear")
	if got := metric(t, "hanse_policy_decisions_total", "Deny"); got != before+1 {
		t.Errorf("%v denials, want %v", got, before+1)
	}
	if got := metric(t, "hanse_policy_decision_duration_seconds", ""); got != measured+1 {
		t.Errorf("%v durations, want %v", got, measured+1)
	}
	if got := metric(t, "hanse_policy_modules_broken", ""); got != 1 {
		t.Errorf("%v broken modules, want 1", got)
	}
}

// metric is a value of question incoming, and of the outcome if there is one.
func metric(t *testing.T, name, outcome string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range m.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["question"] == "incoming" && labels["outcome"] == outcome {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

// BenchmarkDecide compares asking the Maker with asking the policies themselves.
func BenchmarkDecide(b *testing.B) {
	modules := []policy.Module{{Name: "limits/price.rego", Source: denyDear}}
	set, err := policy.Compile(policy.Incoming, modules)
	if err != nil {
		b.Fatal(err)
	}
	input, err := policy.ParseInput([]byte(`{"price": 3}`))
	if err != nil {
		b.Fatal(err)
	}
	maker := New(Config{Deadline: time.Minute}, nil, nil, clock.RealClock{}, nil)
	maker.points[policy.Incoming].replace(&revision{sources: sources{"limits/price.rego": denyDear}, set: set})
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			if _, err := set.Decide(b.Context(), input); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("maker", func(b *testing.B) {
		for b.Loop() {
			if _, err := maker.Decide(b.Context(), policy.Incoming, input); err != nil {
				b.Fatal(err)
			}
		}
	})
}
