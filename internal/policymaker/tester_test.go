package policymaker

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

func TestTestsAreAnswered(t *testing.T) {
	for name, test := range map[string]struct {
		question string
		data     map[string]string
		want     answer
	}{
		"a module with an input": {
			"incoming",
			map[string]string{keyModule: denyFar, keyInput: `{"distance": 300}`},
			answer{Decision: policy.Deny, Reason: "too far", Steps: []step{{"deny", "module.rego:2", `deny contains "too far" if input.distance > 100`}}},
		},
		"the policies in force": {
			"incoming",
			map[string]string{keyInput: `{"price": 3}`},
			answer{Decision: policy.Deny, Reason: "too dear", Steps: []step{{"deny", "limits/price.rego:2", `deny contains "too dear" if input.price > 2`}}},
		},
		"a correction": {
			"incoming",
			map[string]string{keyModule: head + `patch.labels.region := "north"`, keyInput: "{}"},
			answer{
				Decision: policy.Allow, Patch: &patch{Labels: map[string]string{"region": "north"}},
				Steps: []step{{"patch.labels.region", "module.rego:2", `patch.labels.region := "north"`}},
			},
		},
		"an order": {
			"placement",
			map[string]string{keyModule: "package hanse.placement\nscore.hamburg := 3\nstrict := true", keyInput: "{}"},
			answer{
				Decision: policy.Allow, Patch: &patch{Score: map[string]float64{"hamburg": 3}, Strict: true},
				Steps: []step{{"score.hamburg", "module.rego:2", "score.hamburg := 3"}, {"strict", "module.rego:3", "strict := true"}},
			},
		},
		"a change of a pod": {
			"shadowpod",
			map[string]string{keyModule: "package hanse.shadowpod\npatch.nodeSelector.disk := \"slow\"", keyInput: "{}"},
			answer{
				Decision: policy.Allow, Patch: &patch{NodeSelector: map[string]string{"disk": "slow"}},
				Steps: []step{{"patch.nodeSelector.disk", "module.rego:2", `patch.nodeSelector.disk := "slow"`}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policies("limits", map[string]string{"price.rego": denyDear})
			w.look()
			got := w.answer(configMap("try", v1alpha1.LabelPolicyTest, test.question, test.data))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTestsThatCannotBeAnsweredSayWhy(t *testing.T) {
	for name, test := range map[string]struct {
		question string
		data     map[string]string
		want     string
	}{
		"no such question":     {"weather", nil, "weather"},
		"nothing to ask about": {"incoming", map[string]string{keyModule: denyFar}, "needs either"},
		"two things":           {"incoming", map[string]string{keyInput: "{}", keyAdvertisement: "hamburg"}, "needs either"},
		"a broken module":      {"incoming", map[string]string{keyModule: noRego, keyInput: "{}"}, "module.rego:2"},
		"no JSON":              {"incoming", map[string]string{keyInput: "{"}, "JSON"},
		"nobody":               {"incoming", map[string]string{keyAdvertisement: "nobody"}, "there is no peer nobody"},
		"no name":              {"incoming", map[string]string{keyAdvertisement: ""}, "empty"},
		"no pod":               {"shadowpod", map[string]string{keyAdvertisement: "hamburg"}, "needs input.json (--input)"},
		"nothing at all":       {"shadowpod", nil, "needs input.json (--input)"},
		"no namespace":         {"placement", map[string]string{keyNamespace: "nowhere"}, "there is no namespace nowhere"},
		"too much":             {"incoming", map[string]string{keyInput: `{"a": "` + strings.Repeat("x", maxAsked) + `"}`}, "at most"},
		"an answer of a wrong type": {
			"incoming",
			map[string]string{keyModule: head + "patch.prices := 3", keyInput: "{}"},
			"prices",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).knowing()
			w.look()
			got := w.answer(configMap("try", v1alpha1.LabelPolicyTest, test.question, test.data))
			if !strings.Contains(got.Error, test.want) || got.Decision != "" {
				t.Errorf("got %+v, want an error with %q", got, test.want)
			}
		})
	}
}

func TestATestIsAnsweredOnceAndDeletedAfterAWhile(t *testing.T) {
	w := newWorld(t)
	w.look()
	before := w.writes
	asked := configMap("try", v1alpha1.LabelPolicyTest, "incoming", map[string]string{keyInput: "{}"})
	w.answer(asked)
	w.clock.Step(testLife - time.Minute)
	if got := w.test("try"); got.RequeueAfter != time.Minute {
		t.Errorf("looked at again after %v", got.RequeueAfter)
	}
	if w.writes != before+1 {
		t.Errorf("%d writes", w.writes-before)
	}
	w.clock.Step(time.Minute)
	w.test("try")
	if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(asked), asked); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
	w.test("try") // when it is gone
}

func TestWhatIsNoTestIsLeftAlone(t *testing.T) {
	plain := configMap("plain", "app", "shop", map[string]string{"a": "b"})
	plain.CreationTimestamp = metav1.NewTime(start.Add(-time.Hour))
	w := newWorld(t, plain)
	w.test("plain")
	w.get("plain", plain)
	if len(plain.Data) != 1 {
		t.Errorf("it has become %v", plain.Data)
	}
}
