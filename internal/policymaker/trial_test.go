// SPDX-License-Identifier: Apache-2.0

package policymaker

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// knowing has the world know of one peer and of one namespace.
func (w *world) knowing() *world {
	w.Gather(policy.Incoming, func(_ context.Context, question policy.Question, name string) (policy.Facts, error) {
		if question != policy.Incoming || name != "hamburg" {
			return policy.Facts{}, errors.New("there is no peer " + name)
		}
		return policy.Facts{Time: testkit.Noon, Previous: &v1alpha1.AdvertisementSpec{ClusterID: "c-before"}}, nil
	})
	w.Gather(policy.Placement, func(_ context.Context, question policy.Question, name string) (policy.Facts, error) {
		if question != policy.Placement || name != "shop" {
			return policy.Facts{}, errors.New("there is no namespace " + name)
		}
		return policy.Facts{Time: testkit.Noon, Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}}, nil
	})
	return w
}

func TestTrialsAreAnswered(t *testing.T) {
	for name, test := range map[string]struct {
		trial Trial
		want  Answer
	}{
		"a module with an input": {
			Trial{Question: "incoming", Module: ptr.To(denyFar), Input: ptr.To(`{"distance": 300}`)},
			Answer{Decision: policy.Deny, Reason: "too far", Steps: []policy.Step{{Rule: "deny", Location: "module.rego:2", Text: `deny contains "too far" if input.distance > 100`}}},
		},
		"the policies in force": {
			Trial{Question: "incoming", Input: ptr.To(`{"price": 3}`)},
			Answer{Decision: policy.Deny, Reason: "too dear", Steps: []policy.Step{{Rule: "deny", Location: "limits/price.rego:2", Text: `deny contains "too dear" if input.price > 2`}}},
		},
		"a correction": {
			Trial{Question: "incoming", Module: ptr.To(head + `patch.labels.region := "north"`), Input: ptr.To("{}")},
			Answer{
				Decision: policy.Allow, Patch: &policy.OfferPatch{Labels: map[string]v1alpha1.Text{"region": "north"}},
				Steps: []policy.Step{{Rule: "patch.labels.region", Location: "module.rego:2", Text: `patch.labels.region := "north"`}},
			},
		},
		"an order": {
			Trial{Question: "placement", Module: ptr.To("package hanse.placement\nscore.hamburg := 3\nstrict := true"), Input: ptr.To("{}")},
			Answer{
				Decision: policy.Allow, Patch: &policy.Ranking{Scores: map[string]float64{"hamburg": 3}, Strict: true},
				Steps: []policy.Step{{Rule: "score.hamburg", Location: "module.rego:2", Text: "score.hamburg := 3"}, {Rule: "strict", Location: "module.rego:3", Text: "strict := true"}},
			},
		},
		"a change of a pod": {
			Trial{Question: "shadowpod", Module: ptr.To("package hanse.shadowpod\npatch.nodeSelector.disk := \"slow\""), Input: ptr.To("{}")},
			Answer{
				Decision: policy.Allow, Patch: &policy.PodPatch{NodeSelector: map[string]string{"disk": "slow"}},
				Steps: []policy.Step{{Rule: "patch.nodeSelector.disk", Location: "module.rego:2", Text: `patch.nodeSelector.disk := "slow"`}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policies("limits", map[string]string{"price.rego": denyDear})
			w.look()
			if diff := cmp.Diff(test.want, w.Try(t.Context(), test.trial)); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTrialsThatCannotBeAnsweredSayWhy(t *testing.T) {
	for name, test := range map[string]struct {
		trial Trial
		want  string
	}{
		"no such question":     {Trial{Question: "weather"}, "weather"},
		"nothing to ask about": {Trial{Question: "incoming", Module: ptr.To(denyFar)}, "needs an input"},
		"two things":           {Trial{Question: "incoming", Input: ptr.To("{}"), About: "hamburg"}, "not both"},
		"a broken module":      {Trial{Question: "incoming", Module: ptr.To(noRego), Input: ptr.To("{}")}, "module.rego:2"},
		"no JSON":              {Trial{Question: "incoming", Input: ptr.To("{")}, "JSON"},
		"nobody":               {Trial{Question: "incoming", About: "nobody"}, "there is no peer nobody"},
		"no pod":               {Trial{Question: "shadowpod", About: "hamburg"}, "needs an input (--input)"},
		"nothing at all":       {Trial{Question: "shadowpod"}, "needs an input (--input)"},
		"no namespace":         {Trial{Question: "placement", About: "nowhere"}, "there is no namespace nowhere"},
		"too much":             {Trial{Question: "incoming", Module: ptr.To(strings.Repeat("#", maxSources)), Input: ptr.To("{}")}, "at most"},
		"an answer of a wrong type": {
			Trial{Question: "incoming", Module: ptr.To(head + "patch.prices := 3"), Input: ptr.To("{}")}, "prices",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).knowing()
			w.look()
			got := w.Try(t.Context(), test.trial)
			if !strings.Contains(got.Error, test.want) || got.Decision != "" {
				t.Errorf("got %+v, want an error with %q", got, test.want)
			}
		})
	}
}

func TestTrialsAreAskedWithWhatIsKnown(t *testing.T) {
	for name, test := range map[string]struct{ question, about, condition string }{
		"of a peer":      {"incoming", "hamburg", `input.previous.clusterID == "c-before"`},
		"of a namespace": {"placement", "shop", `input.namespace.name == "shop"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).knowing()
			w.look()
			module := "package hanse." + test.question + "\ndeny contains \"found\" if " + test.condition
			got := w.Try(t.Context(), Trial{Question: policy.Question(test.question), Module: &module, About: test.about})
			if got.Reason != "found" {
				t.Errorf("got %+v", got)
			}
		})
	}
}
