// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A labelCase asks an example about an input with a label in it that is missing, empty, wrong and right.
type labelCase struct {
	question Question
	// input has the labels in place of %s.
	input                       string
	label                       string
	wrong, right                string
	ifMissing, ifWrong, ifRight string
}

// What users copy must be safe where nobody has said anything. Each example that reads a label has an entry for it.
var labelCases = map[string][]labelCase{
	"docs/how-to/write-a-policy.md 1": {
		{
			Incoming, `{"peer": {"labels": {"trusted": "true"}}, "advertisement": {"labels": %s}}`, "topology.kubernetes.io/region",
			"us-east", "eu-south", "Deny", "Deny", "Allow",
		},
		{
			Incoming, `{"peer": {"labels": %s}, "advertisement": {"labels": {"topology.kubernetes.io/region": "eu-south"}}}`, "trusted",
			"false", "true", "Pend", "Pend", "Allow",
		},
	},
	"docs/how-to/write-a-policy.md 2": {
		{
			Placement, `{"class": "gold", "namespace": {"labels": %s}, "table": [{"peer": "hamburg"}]}`, "example.com/plan",
			"silver", "gold", "without hamburg", "without hamburg", "with all",
		},
	},
	"library/approve-new-peers.rego": {
		{Incoming, `{"peer": {"name": "turin", "labels": %s}, "advertisement": {}}`, "example.com/trusted", "yes", "true", "Pend", "Pend", "Allow"},
	},
	"library/data-residency.rego": {
		{
			Placement, `{"namespace": {"labels": {"example.com/data-residency": "eu"}}, "table": [{"peer": "turin", "labels": %s}]}`,
			"topology.kubernetes.io/region", "us-east", "eu-south", "without turin", "without turin", "with all",
		},
		{
			Placement, `{"namespace": {"labels": %s}, "table": [{"peer": "turin", "labels": {"topology.kubernetes.io/region": "eu-south"}}]}`,
			"example.com/data-residency", "mars", "italy", "with all", "without turin", "with all",
		},
	},
	"library/hide-gpus.rego": {
		{
			Outgoing, `{"peer": {"labels": %s}, "advertisement": {"availability": {"cpu": 8, "nvidia.com/gpu": 2}}}`, "example.com/gpus",
			"false", "true", `Allow {"availability":{"nvidia.com/gpu":"0"}}`, `Allow {"availability":{"nvidia.com/gpu":"0"}}`, "Allow",
		},
	},
	"library/spread.rego": {
		{
			Placement, `{"namespace": {"labels": %s}, "wish": {"prefer": "Latency"}, "table": [{"peer": "near", "roundTripSeconds": 0.01}]}`,
			"example.com/own-placement", "false", "true", "with all", "with all", "with all, near -0.01",
		},
	},
	"library/trusted-labels.rego": {
		{
			Incoming, `{"advertisement": {"labels": %s}}`, "kubernetes.io/arch", "quantum", "arm64",
			"Allow", `Allow {"labels":{"kubernetes.io/arch":""}}`, "Allow",
		},
	},
}

func TestExamplesAreSafeWithoutALabel(t *testing.T) {
	for name, source := range examples(t) {
		if strings.Contains(source, "labels") != (len(labelCases[name]) > 0) {
			t.Errorf("%s reads labels: %v; it has %d cases", name, strings.Contains(source, "labels"), len(labelCases[name]))
		}
		for _, test := range labelCases[name] {
			t.Run(name+" "+test.label, func(t *testing.T) { test.check(t, name, source) })
		}
	}
}

func (c labelCase) check(t *testing.T, name, source string) {
	t.Helper()
	set, err := Compile(c.question, []Module{{Name: name, Source: source}})
	if err != nil {
		t.Fatal(err)
	}
	for labels, want := range map[string]string{
		`{}`:                             c.ifMissing,
		fmt.Sprintf(`{%q: ""}`, c.label): c.ifWrong,
		fmt.Sprintf(`{%q: %q}`, c.label, c.wrong): c.ifWrong,
		fmt.Sprintf(`{%q: %q}`, c.label, c.right): c.ifRight,
	} {
		decision, err := set.Decide(t.Context(), input(t, fmt.Sprintf(c.input, labels)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, summary(t, decision)); diff != "" {
			t.Errorf("with the labels %s (-want +got):\n%s", labels, diff)
		}
	}
	withoutLabels := strings.ReplaceAll(c.input, `"labels": %s`, `"none": {}`)
	decision, err := set.Decide(t.Context(), input(t, withoutLabels))
	if err != nil || summary(t, decision) != c.ifMissing {
		t.Errorf("without labels: %v, %v", summary(t, decision), err)
	}
}

// summary is the decision in a line.
func summary(t *testing.T, d Decision) string {
	t.Helper()
	if d.Ranking == nil {
		if d.Offer == nil {
			return string(d.Outcome)
		}
		text, err := json.Marshal(d.Offer)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(string(d.Outcome)+" "+string(text), " {}")
	}
	text := "with all"
	if len(d.Ranking.Exclude) > 0 {
		text = "without " + strings.Join(slices.Sorted(maps.Keys(d.Ranking.Exclude)), ", ")
	}
	for _, peer := range slices.Sorted(maps.Keys(d.Ranking.Scores)) {
		if score := d.Ranking.Scores[peer]; score != 0 {
			text += ", " + peer + " " + strconv.FormatFloat(score, 'g', -1, 64)
		}
	}
	return text
}

// examples are the modules that the documentation shows, by page and place there, and those of the library.
func examples(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, shown := range regoOfTheDocumentation(t) {
		found[shown.Name] = shown.Source
	}
	for _, name := range regoFiles(t) {
		if path.Dir(name) == "library" {
			found[name] = regoSource(t, name)
		}
	}
	return found
}
