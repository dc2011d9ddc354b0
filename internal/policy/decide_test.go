// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit/cputime"
)

func contextOf(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), 50*time.Millisecond)
}

func TestOutcome(t *testing.T) {
	for name, test := range map[string]struct {
		sources []string
		want    Decision
	}{
		"helpers alone allow":          {[]string{"x := 1"}, Decision{Outcome: Allow}},
		"a rule that is not true":      {[]string{`deny contains "a" if input.nothing`}, Decision{Outcome: Allow}},
		"reasons are sorted":           {[]string{`deny contains "b"`, `deny contains "a"`}, Decision{Outcome: Deny, Reason: "a; b"}},
		"the same reason twice":        {[]string{`deny contains "a"`, `deny contains "a"`}, Decision{Outcome: Deny, Reason: "a"}},
		"pending":                      {[]string{`pend contains "ask"`}, Decision{Outcome: Pend, Reason: "ask"}},
		"deny is stronger than pend":   {[]string{`pend contains "ask"`, `deny contains "no"`}, Decision{Outcome: Deny, Reason: "no"}},
		"allow is true":                {[]string{`allow := true`}, Decision{Outcome: Allow}},
		"allow is false":               {[]string{`allow := false`}, Decision{Outcome: Deny, Reason: reasonNotAllowed}},
		"allow is there and undefined": {[]string{`allow if input.nothing`}, Decision{Outcome: Deny, Reason: reasonNotAllowed}},
		"allow does not beat deny":     {[]string{`allow := true`, `deny contains "no"`}, Decision{Outcome: Deny, Reason: "no"}},
		"allow does not beat pend":     {[]string{`allow := true`, `pend contains "ask"`}, Decision{Outcome: Pend, Reason: "ask"}},
		"reasons are for one line":     {[]string{`deny contains "a\n\u001b[31mb"`}, Decision{Outcome: Deny, Reason: "a  [31mb"}},
		"the default can be asked":     {[]string{`deny contains "no" if data.hanse.defaults.incoming.allow`}, Decision{Outcome: Deny, Reason: "no"}},
	} {
		t.Run(name, func(t *testing.T) {
			decision, err := compile(t, Incoming, test.sources...).Decide(t.Context(), input(t, `{}`))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, decision); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTermsOfAQuote(t *testing.T) {
	half := &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse("0.005")}}
	for name, test := range map[string]struct {
		sources []string
		want    *Terms
		problem string
	}{
		"nothing said":          {[]string{"x := 1"}, &Terms{}, ""},
		"interest":              {[]string{"interest := 80"}, &Terms{Interest: new(int32(80))}, ""},
		"a little interest":     {[]string{"interest := 0.2"}, &Terms{Interest: new(int32(1))}, ""},
		"none":                  {[]string{"interest := 0"}, &Terms{Interest: new(int32(0))}, ""},
		"half the price":        {[]string{`prices := object.union(input.prices, {"perHour": {"cpu": input.prices.perHour.cpu / 2}})`}, &Terms{Prices: half}, ""},
		"for nothing":           {[]string{`prices := {}`}, &Terms{Prices: &v1alpha1.Prices{}}, ""},
		"negative interest":     {[]string{"interest := -1"}, nil, "from 0 to 100"},
		"too much interest":     {[]string{"interest := 101"}, nil, "from 0 to 100"},
		"interest in words":     {[]string{`interest := "very"`}, nil, "interest"},
		"prices of no currency": {[]string{`prices := {"perHour": {"cpu": 1}}`}, nil, "no currency"},
		"a negative price":      {[]string{`prices := {"currency": "EUR", "perHour": {"cpu": -1}}`}, nil, "prices"},
	} {
		t.Run(name, func(t *testing.T) {
			decision, err := compile(t, Quote, test.sources...).Decide(t.Context(), input(t, `{"prices": {"currency": "EUR", "perHour": {"cpu": 0.01}}}`))
			if test.problem != "" {
				if err == nil || !strings.Contains(err.Error(), test.problem) {
					t.Fatalf("%+v, %v", decision, err)
				}
				return
			}
			if diff := cmp.Diff(Decision{Outcome: Allow, Terms: test.want}, decision); err != nil || diff != "" {
				t.Error(err, diff)
			}
		})
	}
}

func TestReasonsAreBounded(t *testing.T) {
	set := compile(t, Incoming, `deny contains sprintf("%d %s", [i, concat("", [x | some _ in numbers.range(1, 500); x := "ü"])]) if some i in numbers.range(1, 100)`)
	decision, err := set.Decide(t.Context(), input(t, `{}`))
	if err != nil || len(decision.Reason) > maxReasonAll || len(decision.Reason) < maxReasonAll/2 {
		t.Errorf("%d bytes, %v", len(decision.Reason), err)
	}
	set = compile(t, Incoming, `deny contains sprintf("%d", [i]) if some i in numbers.range(1, 100)`)
	decision, err = set.Decide(t.Context(), input(t, `{}`))
	if err != nil || !strings.HasSuffix(decision.Reason, "; and 84 more") {
		t.Errorf("%s, %v", decision.Reason, err)
	}
}

func TestWrongAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		question Question
		source   string
		want     string
	}{
		"reason is a number":       {Incoming, `deny contains 1`, "deny contains number"},
		"reason is empty":          {Incoming, `pend contains ""`, "pend contains string"},
		"allow is a text":          {Incoming, `allow := "yes"`, "allow is string"},
		"patch is a text":          {Incoming, `patch := "x"`, "patch is string: it must be an object"},
		"patch is a set":           {Incoming, `patch contains "x"`, "patch is set"},
		"unknown field":            {Incoming, `patch.sequence := 7`, "patch[sequence] is no field"},
		"field of another patch":   {Incoming, `patch.nodeSelector := {}`, "patch[nodeSelector] is no field"},
		"unknown field of prices":  {Incoming, `patch.prices := {"perYear": {"cpu": 1}}`, "patch[prices][perYear] is no field"},
		"key is a number":          {Incoming, `patch[1] := 1`, "patch has a key that is number"},
		"negative amount":          {Incoming, `patch.availability.cpu := -1`, "patch[availability][cpu] is not a quantity"},
		"negative text":            {Incoming, `patch.availability.cpu := "-1"`, "patch[availability][cpu] is not a quantity"},
		"negative price":           {Incoming, `patch.prices := {"currency": "EUR", "perHour": {"cpu": -0.1}}`, "patch[prices][perHour][cpu] is not a quantity"},
		"1e400":                    {Incoming, `patch.availability.cpu := 1e400`, "patch[availability][cpu] is not a quantity"},
		"huge exponent as text":    {Incoming, `patch.availability.cpu := "1e-999999999"`, "patch[availability][cpu] is not a quantity"},
		"more than any cluster":    {Incoming, `patch.availability.memory := "16Ei"`, "patch[availability][memory] is not a quantity"},
		"overflow by calculation":  {Incoming, `patch.availability.cpu := product([1e300, 1e300])`, "patch[availability][cpu] is not a quantity"},
		"amount is true":           {Incoming, `patch.largestPod.cpu := true`, "patch[largestPod][cpu] is not a quantity"},
		"amount is no quantity":    {Incoming, `patch.largestPod.cpu := "much"`, "patch[largestPod][cpu] is not a quantity"},
		"no such resource":         {Incoming, `patch.availability.gold := 1`, "patch[availability][gold] is not the name of a node's resource"},
		"amounts without currency": {Incoming, `patch.prices := {"perHour": {"cpu": 1}}`, "patch[prices] has amounts and no currency"},
		"currency":                 {Incoming, `patch.prices := {"currency": "eur"}`, "patch[prices][currency] must be three capital letters"},
		"too many amounts": {
			Incoming, `patch.availability[sprintf("example.com/r%d", [i])] := 1 if some i in numbers.range(1, 65)`,
			"patch[availability] has 65 entries, more than 64",
		},
		"label":              {Incoming, `patch.labels["a b"] := "c"`, "patch[labels][a b] is not a label"},
		"value of a label":   {Incoming, `patch.labels.a := "b c"`, "patch[labels][a] is not a label"},
		"flag":               {Outgoing, `patch.flags.a := concat("", [x | some _ in numbers.range(1, 254); x := "b"])`, "patch[flags][a] is not a flag"},
		"hideImages":         {Outgoing, `patch.hideImages := 1`, "patch[hideImages] is number: it must be true or false"},
		"Hanse's own label":  {ShadowPod, `patch.labels["hanse.dev/home-uid"] := "x"`, "patch[labels][hanse.dev/home-uid] is Hanse's own"},
		"Hanse's annotation": {ShadowPod, `patch.annotations["x.hanse.dev/y"] := "x"`, "patch[annotations][x.hanse.dev/y] is Hanse's own"},
		"class":              {ShadowPod, `patch.runtimeClassName := "a/b"`, "patch[runtimeClassName] is not the name of a class"},
		"field of a pod":     {ShadowPod, `patch.hostNetwork := true`, "patch[hostNetwork] is no field"},
		"no peer":            {Placement, `exclude["a b"] := "x"`, "exclude[a b] is not the name of a peer"},
		"exclude is a set":   {Placement, `exclude contains "turin"`, "exclude is set: it must be an object"},
		"reason to exclude":  {Placement, `exclude.turin := 1`, "exclude[turin] is number: it must be a reason"},
		"score is a text":    {Placement, `score.turin := "best"`, "score[turin] is string: it must be a number"},
		"score is 1e400":     {Placement, `score.turin := 1e400`, "score[turin] is too large a number"},
		"strict is a number": {Placement, `strict := 1`, "strict is number: it must be true or false"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := compile(t, test.question, test.source).Decide(t.Context(), input(t, `{}`))
			if !errors.Is(err, ErrAnswer) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

func TestContradictionsNameTheRule(t *testing.T) {
	for name, sources := range map[string][]string{
		"values":  {`allow := input.x`, `allow := input.y`},
		"fields":  {`patch.labels.a := input.s`, `patch.labels.a := input.t`},
		"objects": {`patch.labels[k] := "1" if some k in input.keys`, `patch.labels[k] := "2" if some k in input.keys`},
	} {
		t.Run(name, func(t *testing.T) {
			set := compile(t, Incoming, sources...)
			_, err := set.Decide(t.Context(), input(t, `{"x": true, "y": false, "s": "1", "t": "2", "keys": ["a"]}`))
			if !errors.Is(err, ErrAnswer) || !strings.Contains(err.Error(), ".rego:2: ") {
				t.Errorf("%v", err)
			}
		})
	}
}

// quantities that are written differently may be equal.
var byValue = cmp.Options{
	cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 }), cmpopts.EquateEmpty(),
}

func TestOfferPatch(t *testing.T) {
	set := compile(t, Incoming, `
patch.availability.cpu := input.cpu / 8
patch.availability.memory := "4Gi"
patch.availability["nvidia.com/gpu"] := 1.9
patch.largestPod.cpu := 0.1 * 3`, `
patch.prices := {"currency": "EUR", "perHour": {"cpu": 0.1 * 0.1, "memory": 1e-9, "pods": "1m"}, "perPlacement": {"nginx": 2.5e+1}}
patch.labels["topology.kubernetes.io/region"] := "eu"
patch.labels.old := ""
patch.flags.aggregatable := "false"
patch.hideImages := true`)
	decision, err := set.Decide(t.Context(), input(t, `{"cpu": 100.0001}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Decision{Outcome: Allow, Offer: &OfferPatch{
		Availability: list("cpu", "12.5", "memory", "4Gi", "nvidia.com/gpu", "1"),
		LargestPod:   list("cpu", "300m"),
		Prices: &v1alpha1.Prices{
			Currency: "EUR",
			PerHour: map[corev1.ResourceName]resource.Quantity{
				"cpu": resource.MustParse("0.01"), "memory": resource.MustParse("1n"), "pods": resource.MustParse("1m"),
			},
			PerPlacement: map[string]resource.Quantity{"nginx": resource.MustParse("25")},
		},
		Labels:     map[string]v1alpha1.Text{"topology.kubernetes.io/region": "eu", "old": ""},
		Flags:      map[string]v1alpha1.Text{"aggregatable": "false"},
		HideImages: true,
	}}
	if diff := cmp.Diff(want, decision, byValue); diff != "" {
		t.Error(diff)
	}
}

func TestPodPatch(t *testing.T) {
	set := compile(t, ShadowPod, `
patch.labels.team := "guests"
patch.annotations["example.com/Note"] := "any text\nat all"
patch.nodeSelector["example.com/pool"] := "guests"
patch.priorityClassName := "low"
patch.runtimeClassName := "gvisor"`)
	decision, err := set.Decide(t.Context(), input(t, `{}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Decision{Outcome: Allow, Pod: &PodPatch{
		Labels:            map[string]string{"team": "guests"},
		Annotations:       map[string]string{"example.com/Note": "any text\nat all"},
		NodeSelector:      map[string]string{"example.com/pool": "guests"},
		PriorityClassName: "low", RuntimeClassName: "gvisor",
	}}
	if diff := cmp.Diff(want, decision); diff != "" {
		t.Error(diff)
	}
}

func TestRanking(t *testing.T) {
	in, err := NewInput(Facts{Table: NewTable(rows(2)), Wish: wish(v1alpha1.PreferLatency), Request: request()})
	if err != nil {
		t.Fatal(err)
	}
	byDefault := map[string]float64{"p0": -0.001, "p1": -0.002}
	for name, test := range map[string]struct {
		sources []string
		want    Ranking
	}{
		"default":               {nil, Ranking{Scores: byDefault}},
		"no score: the default": {[]string{`exclude.p0 := "no"`}, Ranking{Exclude: map[string]string{"p0": "no"}, Scores: byDefault}},
		"own score":             {[]string{`score[row.peer] := 1 if some row in input.table`}, Ranking{Scores: map[string]float64{"p0": 1, "p1": 1}}},
		"no score for anybody":  {[]string{`score[x] := 1 if some x in input.nobody`}, Ranking{}},
		"strict":                {[]string{`score.p1 := 5`, `strict := true`}, Ranking{Scores: map[string]float64{"p1": 5}, Strict: true}},
	} {
		t.Run(name, func(t *testing.T) {
			decision, err := compile(t, Placement, test.sources...).Decide(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Decision{Outcome: Allow, Ranking: &test.want}, decision); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDeadline(t *testing.T) {
	for name, source := range map[string]string{
		"endless comprehension": `many := numbers.range(1, 1000)
deny contains "x" if count([1 | some a in many; some b in many; some c in many; some d in many; a + b + c + d < 0]) > 0`,
		"endless range": `deny contains "x" if count(numbers.range(1, 1000000000000)) == 0`,
		"growing text":  strings.Join([]string{`t0 := "0123456789"`, chain(40), `deny contains "x" if count(t40) == 0`}, "\n"),
	} {
		t.Run(name, func(t *testing.T) {
			set := compile(t, Incoming, source)
			ctx, cancel := contextOf(t)
			defer cancel()
			var err error
			took := cputime.Of(func() { _, err = set.Decide(ctx, input(t, `{}`)) })
			if !errors.Is(err, ErrTooSlow) {
				t.Errorf("%v is not ErrTooSlow", err)
			}
			if took > 2*time.Second {
				t.Errorf("took %s of CPU time", took)
			}
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := compile(t, Incoming).Decide(ended, input(t, `{}`)); !errors.Is(err, ErrTooSlow) {
		t.Errorf("a deadline that has passed: %v", err)
	}
}

// chain doubles a text n times.
func chain(n int) string {
	rules := []string{}
	for i := range n {
		rules = append(rules, fmt.Sprintf("t%d := concat(\"\", [t%d, t%d])", i+1, i, i))
	}
	return strings.Join(rules, "\n")
}

func TestErrorsOfFunctionsMakeRulesUntrue(t *testing.T) {
	set := compile(t, Incoming, `deny contains "x" if to_number(input.label) > 3`)
	for label, want := range map[string]Outcome{"4": Deny, "3": Allow, "many": Allow, "1e999999999": Allow} {
		decision, err := set.Decide(t.Context(), input(t, fmt.Sprintf(`{"label": %q}`, label)))
		if err != nil || decision.Outcome != want {
			t.Errorf("%s: %+v %v", label, decision, err)
		}
	}
}

// A set and a table serve any number of goroutines. The race detector looks on.
func TestSetsAndTablesAreShared(t *testing.T) {
	set := compile(t, Placement, `exclude[row.peer] := row.labels["topology.kubernetes.io/region"] if { some row in input.table; object.keys(row.availability); "cpu" in object.keys(row.prices.perHour) }`)
	table := NewTable(rows(50))
	group := sync.WaitGroup{}
	for range 8 {
		group.Go(func() {
			for range 20 {
				in, err := NewInput(Facts{Table: table, Wish: wish(v1alpha1.PreferPrice), Request: request()})
				if err != nil {
					t.Error(err)
					return
				}
				decision, err := set.Decide(t.Context(), in)
				if err != nil || len(decision.Ranking.Exclude) != 50 || len(decision.Ranking.Scores) != 50 {
					t.Errorf("%v %v", decision, err)
					return
				}
			}
		})
	}
	group.Wait()
}

func TestNoInput(t *testing.T) {
	if _, err := compile(t, Incoming).Decide(t.Context(), Input{}); err == nil {
		t.Error("there is an answer without an input")
	}
}
