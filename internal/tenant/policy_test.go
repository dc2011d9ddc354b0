// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// fakePolicies answer as the set of modules says, which is the built-in default alone if there is none.
type fakePolicies struct {
	question policy.Question // by default that about pods
	set      *policy.Set
	err      error
	asked    int
	change   func()
}

func (p *fakePolicies) HasPolicies(question policy.Question) bool {
	asked := policy.ShadowPod
	if p.question != "" {
		asked = p.question
	}
	return question == asked && (p.set != nil || p.err != nil)
}

func (p *fakePolicies) Decide(ctx context.Context, _ policy.Question, input policy.Input) (policy.Decision, error) {
	p.asked++
	if p.err != nil {
		return policy.Decision{}, p.err
	}
	return p.set.Decide(ctx, input)
}

func (p *fakePolicies) OnChange(_ policy.Question, changed func()) { p.change = changed }

// rules makes these rules the policies that there are.
func (s *stage) rules(rules ...string) {
	s.Helper()
	set, err := policy.Compile(policy.ShadowPod, []policy.Module{{
		Name: "test/test.rego", Source: "package hanse.shadowpod\n" + strings.Join(rules, "\n"),
	}})
	if err != nil {
		s.Fatal(err)
	}
	s.policies.set, s.policies.err = set, nil
	s.pods.policiesChanged()
}

func (s *stage) expectAsked(want int) {
	s.Helper()
	if s.policies.asked != want {
		s.Errorf("the policies were asked %d times, want %d", s.policies.asked, want)
	}
	s.policies.asked = 0
}

const never = `deny contains "closed for stocktaking"`

// The controller does not ask the default: it must be what it takes it for.
func TestBuiltInDefaultLetsEveryPodRunAsItIs(t *testing.T) {
	set, err := policy.Compile(policy.ShadowPod, nil)
	if err != nil {
		t.Fatal(err)
	}
	input, err := policy.NewInput(policy.Facts{Time: testkit.Noon, Peer: peer(), Pod: &corev1.Pod{}})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := set.Decide(t.Context(), input)
	if err != nil || answer.Outcome != policy.Allow || answer.Pod != nil {
		t.Errorf("got %+v, %v", answer, err)
	}
}

func TestWithoutPoliciesNothingIsAsked(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	s.expectAsked(0)
	s.Home.ExpectWrites("create Pod web")
}

func TestPoliciesAreAskedOnceAboutAPodThatTheyLetIn(t *testing.T) {
	s := newStage(t, shadowPod())
	s.rules(`deny contains "unknown" if not known`, fmt.Sprintf(`known if {
		input.peer.name == "lubeck"
		input.namespace.name == %q
		input.pod.spec.containers[0].image == "i:1"
		input.pod.metadata.labels["hanse.dev/home-uid"] == "home-uid"
		input.time == "2031-05-07T12:00:00Z"
	}`, lubeck.name()))
	s.run()
	s.becomes(s.running)
	s.run()
	s.run()
	s.expectAsked(1)
	s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web")
	if len(s.pods.ledger.waiting) > 0 {
		t.Error("it is remembered as turned away")
	}

	s.rules(never)
	s.run()
	s.expectAsked(0)
	if s.Home.ExpectWrites(); s.pod() == nil {
		t.Error("a new policy has ended what ran")
	}
}

func TestPolicyChangesThePodAndNothingOfHanses(t *testing.T) {
	s := newStage(t, shadowPod())
	s.rules(`patch.labels := {"tier": "guest"}`, `patch.nodeSelector := {"pool": "guests"}`,
		`patch.runtimeClassName := "kata"`, `patch.priorityClassName := "low"`)
	s.run()
	pod := s.pod()
	if pod.Labels["tier"] != "guest" || pod.Labels[v1alpha1.LabelPeer] != "lubeck" || !madeFor(s.shadow(), pod) {
		t.Errorf("got metadata %+v", pod.ObjectMeta)
	}
	spec := pod.Spec
	if spec.NodeSelector["pool"] != "guests" || *spec.RuntimeClassName != "kata" || spec.PriorityClassName != "low" {
		t.Errorf("got spec %+v", spec)
	}
	if spec.Affinity == nil || *spec.AutomountServiceAccountToken {
		t.Error("what Hanse itself sets is gone")
	}
}

func TestPodThatPoliciesRefuseIsLookedAtWhenTheyChange(t *testing.T) {
	for outcome, rule := range map[string]string{"denied": never, "pending": `pend contains "closed for stocktaking"`} {
		t.Run(outcome, func(t *testing.T) {
			s := newStage(t, shadowPod())
			s.rules(rule)
			if again := s.run(); again != refusedFor {
				t.Errorf("looks again in %s", again)
			}
			s.expectHeld("web", v1alpha1.ReasonRefusedByPolicy, "closed for stocktaking")
			s.run()
			s.Home.ExpectWrites("update/status ShadowPod web")
			if l := s.pods.ledger; len(l.accounts)+len(l.used) != 0 {
				t.Errorf("it takes the place of others: %+v", l)
			}

			s.Clock.Step(refusedFor / 2)
			s.rules(`deny contains "too late"`)
			if again := s.run(); again != refusedFor/2 {
				t.Errorf("looks again in %s", again)
			}
			s.expectHeld("web", v1alpha1.ReasonRefusedByPolicy, "too late")
			s.rules(`allow := true`)
			if diff := cmp.Diff(woken{"web", "web"}, *s.woken); diff != "" {
				t.Errorf("woken: -want +got:\n%s", diff)
			}
			s.run()
			s.Home.ExpectWrites("update/status ShadowPod web", "create Pod web")
			s.rules(never)
			if len(*s.woken) != 2 {
				t.Error("what runs is looked at again")
			}
		})
	}
}

func TestPodThatPoliciesRefuseForLongIsGivenUp(t *testing.T) {
	s := newStage(t, shadowPod())
	s.rules(never)
	s.run()
	s.Clock.Step(refusedFor)
	s.run()
	shadow := s.shadow()
	testkit.ExpectCondition(s, shadow.Status.Conditions, v1alpha1.ConditionUnrecoverable, metav1.ConditionTrue, v1alpha1.ReasonRefusedByPolicy)
	c := meta.FindStatusCondition(shadow.Status.Conditions, v1alpha1.ConditionUnrecoverable)
	if !strings.Contains(c.Message, "closed for stocktaking") {
		t.Errorf("home is told %q", c.Message)
	}
	s.rules(`allow := true`)
	if s.run(); len(*s.woken) > 0 || s.pod() != nil {
		t.Error("home has given it up, and it was looked at again")
	}
}

func TestPodOfWhichPoliciesGiveNoAnswerIsAskedForAgain(t *testing.T) {
	s := newStage(t, shadowPod())
	s.policies.err = policy.ErrTooSlow
	if again := s.run(); again != refusedAtLeast {
		t.Errorf("looks again in %s", again)
	}
	s.expectHeld("web", v1alpha1.ReasonPolicyFailed)
	s.Clock.Step(time.Hour)
	if again := s.run(); again != policyRetryAtMost {
		t.Errorf("looks again in %s", again)
	}
	s.expectHeld("web", v1alpha1.ReasonPolicyFailed)
	s.Home.ExpectWrites("update/status ShadowPod web")
	s.rules(`allow := true`)
	if s.run(); len(*s.woken) != 1 || s.pod() == nil {
		t.Error("it was not made when there was an answer")
	}
}

func TestChangeOfThePeerHasPoliciesAskedAgain(t *testing.T) {
	s := newStage(t, shadowPod())
	s.rules(never)
	s.run()
	if diff := cmp.Diff(requestFor(s.twin, "web"), s.pods.waitingOf(t.Context(), peer())); diff != "" {
		t.Errorf("looked at again: -want +got:\n%s", diff)
	}
	s.homeDeletes(nil)
	s.run()
	s.run()
	if got := s.pods.waitingOf(t.Context(), peer()); got != nil {
		t.Errorf("one that is gone is looked at again: %v", got)
	}
}

// homeWants changes the image at home.
func (s *stage) homeWants(image string) {
	s.Helper()
	shadow := s.shadow()
	shadow.Generation++
	shadow.Spec.Pod = fmt.Sprintf(`{"spec":{"containers":[{"name":"c","image":%q}]}}`, image)
	s.Home.Put(shadow)
}

func TestPoliciesJudgeWhatHomeChanges(t *testing.T) {
	for name, test := range map[string]struct {
		image string // that home wants
		err   error
		want  string // image that runs
		kept  bool   // for good
	}{
		"they let it":         {image: "good:2", want: "good:2", kept: true},
		"they do not let it":  {image: "bad:2", want: "good:1", kept: true},
		"they give no answer": {image: "good:2", err: errors.New("not now"), want: "good:1"},
	} {
		t.Run(name, func(t *testing.T) {
			shadow := shadowPod()
			shadow.Spec.Pod = `{"metadata":{"labels":{"tier":"gold"}},"spec":{"containers":[{"name":"c","image":"good:1"}]}}`
			s := newStage(t, shadow)
			s.rules(`deny contains "bad image" if startswith(input.pod.spec.containers[0].image, "bad")`, `patch.labels := {"tier": "guest"}`)
			s.run()
			s.becomes(s.running)
			s.run()
			s.homeWants(test.image)
			s.policies.err = test.err
			again := s.run()
			pod, generation := s.pod(), s.shadow().Status.ObservedGeneration
			if pod.Spec.Containers[0].Image != test.want || pod.Labels["tier"] != "guest" {
				t.Errorf("it runs %s with labels %v", pod.Spec.Containers[0].Image, pod.Labels)
			}
			if (generation == 2) != test.kept || (again == 0) != test.kept {
				t.Errorf("generation %d was seen, and it is looked at again in %s", generation, again)
			}
		})
	}
}
