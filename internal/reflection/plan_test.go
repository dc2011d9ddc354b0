// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func source(uid, version string) *Source { return &Source{UID: types.UID(uid), Version: version} }

func copyOf(uid, version string) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{
		Name: "a", Labels: map[string]string{v1alpha1.LabelReflected: "true"},
		Annotations: map[string]string{v1alpha1.AnnotationOriginUID: uid, v1alpha1.AnnotationOriginVersion: version},
	}
}

func TestPlan(t *testing.T) {
	skipped, ending, foreign := source("u", "1"), copyOf("u", "1"), copyOf("u", "1")
	skipped.Stays = "it is told so"
	ending.DeletionTimestamp = &metav1.Time{}
	foreign.Labels = nil
	unsigned := copyOf("u", "1")
	unsigned.Annotations = nil
	for name, test := range map[string]struct {
		unwanted bool
		source   *Source
		found    *metav1.ObjectMeta
		want     Verb
	}{
		"a pod comes":                        {source: source("u", "1"), want: Create},
		"there is nothing to copy":           {},
		"all is well":                        {source: source("u", "1"), found: copyOf("u", "1")},
		"it changed":                         {source: source("u", "2"), found: copyOf("u", "1"), want: Update},
		"it is another one":                  {source: source("v", "1"), found: copyOf("u", "1"), want: Replace},
		"it is gone":                         {found: copyOf("u", "1"), want: Delete},
		"the last pod went":                  {unwanted: true, source: source("u", "1"), found: copyOf("u", "1"), want: Delete},
		"it must stay at home":               {source: skipped, want: Withhold},
		"it must stay at home from now on":   {source: skipped, found: copyOf("u", "1"), want: Delete},
		"the copy goes":                      {source: source("u", "1"), found: ending},
		"the copy goes for good":             {unwanted: true, found: ending},
		"the peer has its own":               {source: source("u", "1"), found: foreign, want: Yield},
		"one that only has the label":        {source: source("u", "1"), found: unsigned, want: Yield},
		"the peer has its own, not skipped":  {source: skipped, found: foreign, want: Yield},
		"the peer has its own, nobody cares": {unwanted: true, found: foreign},
		"the peer has its own and we none":   {found: foreign},
	} {
		t.Run(name, func(t *testing.T) {
			seen := Sight{Sources: map[string]*Source{}, Found: map[string]metav1.Object{}, Wanted: map[string]bool{"a": true}}
			if test.unwanted {
				seen.Wanted = nil
			}
			if test.source != nil {
				seen.Sources["a"] = test.source
			}
			if test.found != nil {
				seen.Found["a"] = test.found
			}
			var want []Step
			if test.want != "" {
				want = []Step{{Verb: test.want, Name: "a", Source: seen.Sources["a"], Found: seen.Found["a"]}}
			}
			if diff := cmp.Diff(want, Plan(seen)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlansAreSorted(t *testing.T) {
	seen := Sight{
		Wanted:  map[string]bool{"c": true, "a": true},
		Sources: map[string]*Source{"a": source("u", "1"), "c": source("v", "1")},
		Found:   map[string]metav1.Object{"b": copyOf("w", "1")},
	}
	var got []string
	for _, step := range Plan(seen) {
		got = append(got, string(step.Verb)+" "+step.Name)
	}
	if diff := cmp.Diff([]string{"create a", "delete b", "create c"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
