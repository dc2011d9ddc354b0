// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"context"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// incomingRego has real policies decide.
func (w *world) incomingRego(source string) {
	w.Helper()
	set, err := policy.Compile(policy.Incoming, []policy.Module{{Name: "test/test.rego", Source: "package hanse.incoming\n" + source}})
	if err != nil {
		w.Fatal(err)
	}
	w.policies.answering(policy.Incoming, func(in policy.Input) (policy.Decision, error) { return set.Decide(w.Context(), in) })
	w.policies.changed[policy.Incoming]()
}

// other puts our copy of another provider's offer, or our own offer, into this cluster.
func (w *world) other(peer, clusterID string) {
	w.Helper()
	ad := &v1alpha1.Advertisement{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.TenantNamespace(peer), Name: clusterID, Labels: map[string]string{v1alpha1.LabelPeer: peer},
			Annotations: map[string]string{exchange.AnnotationReceived: w.Clock.Now().Format(time.RFC3339)},
		},
		Spec: w.offer(1, func(s *spec) { s.ClusterID = clusterID }),
	}
	testkit.SetCondition(&ad.Status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	w.Home.Put(ad)
}

func TestPoliciesKnowPeerOfferAndPrevious(t *testing.T) {
	w := newWorld(t)
	peer := w.peer(v1alpha1.RoleProvider)
	w.incomingRego(`
deny contains "a price" if input.advertisement.prices.currency
deny contains "another peer" if input.peer.name != "hamburg"
deny contains "not trusted" if not input.peer.labels.trusted
deny contains "the version changed" if input.previous.kubernetesVersion != input.advertisement.kubernetesVersion
patch.availability.cpu := 2 if input.advertisement.availability.cpu > 2
`)
	w.offered(func(s *spec) { s.KubernetesVersion = "v1.36.3" })
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonRefusedByPolicy)

	w.Home.Get(peer, "", peer.Name)
	peer.Labels = map[string]string{"trusted": "yes"}
	w.Home.Put(peer)
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonCorrected)

	w.says(w.offer(2, func(s *spec) { s.KubernetesVersion = "v1.37.1" }))
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonRefusedByPolicy)
	w.expect("v1.36.3", w.held().Spec.KubernetesVersion)
}

func TestPoliciesKnowTheTableOfAMomentAgo(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.incomingRego(`deny contains sprintf("%d others", [count(others)]) if { others := {row.peer | some row in input.table; row.clusterID != input.advertisement.clusterID}; count(others) > 0 }`)
	w.other("hamburg", here) // our own offer to hamburg is no row
	w.offered()
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)

	w.other("kiel", "kiel")
	w.says(w.offer(2))
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)

	w.Clock.Step(tableAge)
	w.says(w.offer(3))
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonRefusedByPolicy)
}

// fakePolicies answer what a test wants, and allow everything unless it wants something.
type fakePolicies struct {
	mu      sync.Mutex
	asked   map[policy.Question][]policy.Input
	answer  map[policy.Question]func(policy.Input) (policy.Decision, error)
	changed map[policy.Question]func()
}

func (f *fakePolicies) Decide(_ context.Context, question policy.Question, input policy.Input) (policy.Decision, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked == nil {
		f.asked = map[policy.Question][]policy.Input{}
	}
	f.asked[question] = append(f.asked[question], input)
	if answer := f.answer[question]; answer != nil {
		return answer(input)
	}
	return policy.Decision{Outcome: policy.Allow}, nil
}

// HasPolicies implements policy.Decider.
func (*fakePolicies) HasPolicies(policy.Question) bool { return true }

func (f *fakePolicies) OnChange(question policy.Question, changed func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = map[policy.Question]func(){}
	}
	f.changed[question] = changed
}

// say makes the answer to the question that of all consumers or providers from now on.
func (f *fakePolicies) say(question policy.Question, decision policy.Decision, err error) {
	f.answering(question, func(policy.Input) (policy.Decision, error) { return decision, err })
}

func (f *fakePolicies) answering(question policy.Question, answer func(policy.Input) (policy.Decision, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answer == nil {
		f.answer = map[policy.Question]func(policy.Input) (policy.Decision, error){}
	}
	f.answer[question] = answer
}

// times is how often the question was asked.
func (f *fakePolicies) times(question policy.Question) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked[question])
}
