// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/testkit"
)

var (
	denied  = policy.Decision{Outcome: policy.Deny, Reason: "too expensive"}
	pending = policy.Decision{Outcome: policy.Pend, Reason: "a stranger"}
	capped  = policy.Decision{Outcome: policy.Allow, Offer: &policy.OfferPatch{Availability: testkit.Quantities("cpu", "1")}}
)

// policiesSay changes the policies, and tells of that.
func (w *world) policiesSay(decision policy.Decision, err error) {
	w.policies.say(policy.Incoming, decision, err)
	w.policies.changed[policy.Incoming]()
}

// decides is the word of an administrator.
func (w *world) decides(decision string) {
	w.Helper()
	ad := w.held()
	ad.Annotations[v1alpha1.AnnotationDecision] = decision
	w.Home.Put(ad)
}

// heard returns the events since it was called last, each as its type and reason.
func (w *world) heard() []string {
	var heard []string
	for len(w.Events.Events) > 0 {
		words := strings.SplitN(<-w.Events.Events, " ", 3)
		heard = append(heard, words[0]+" "+words[1])
	}
	return heard
}

func TestPolicyIsAskedOncePerMessageAndWhenItChanges(t *testing.T) {
	w := newWorld(t)
	peer := w.peer(v1alpha1.RoleProvider)
	w.offered()
	ask := func(want int) {
		t.Helper()
		w.reconcile(w.receiver)
		w.reconcile(w.receiver)
		w.expect(want, w.policies.times(policy.Incoming))
	}
	ask(1)
	w.says(w.offer(2))
	ask(2)
	w.policies.changed[policy.Incoming]()
	w.expect(1, len(w.receiver.changed))
	ask(3)
	w.Home.Get(peer, "", peer.Name)
	peer.Labels = map[string]string{"trusted": "true"}
	w.Home.Put(peer)
	ask(4)
	w.says(w.offer(2, func(s *spec) { s.KubernetesVersion = "v1.30.0" })) // under the sequence of another
	ask(5)
	w.says(w.offer(3, func(s *spec) { s.Phase = "Gone" })) // not worth a question
	ask(5)
}

func TestPolicyChangeJudgesAgainWithoutAMessage(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.reconcile(w.receiver)
	w.expect([]string{"Normal Accepted"}, w.heard())

	w.policiesSay(denied, nil)
	w.reconcile(w.receiver)
	for _, ad := range []*v1alpha1.Advertisement{w.held(), w.theirs()} {
		w.expectAccepted(ad, metav1.ConditionFalse, v1alpha1.ReasonRefusedByPolicy)
		if message := ad.Status.Acknowledgement.Message; !strings.Contains(message, "too expensive") {
			t.Errorf("message %q", message)
		}
	}
	w.expectAdvertised(metav1.ConditionFalse, v1alpha1.ReasonRefusedByPolicy)
	w.expect([]string{"Warning RefusedByPolicy"}, w.heard())
	w.expectWrites(0, w.receiver)

	w.policiesSay(policy.Decision{Outcome: policy.Allow}, nil)
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	w.expect(&v1alpha1.Acknowledgement{State: v1alpha1.AcknowledgementAccepted, Reason: v1alpha1.ReasonAccepted, Sequence: 1},
		w.theirs().Status.Acknowledgement)
	w.expectAdvertised(metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	w.expectWrites(0, w.receiver)
	w.expect([]string{"Normal Accepted"}, w.heard())
}

func TestCorrectionsAreUsedAndTold(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.policies.say(policy.Incoming, capped, nil)
	w.offered()
	w.reconcile(w.receiver)

	w.expect(resource.MustParse("1"), w.held().Spec.Availability[corev1.ResourceCPU])
	w.expect(resource.MustParse("4"), w.theirs().Spec.Availability[corev1.ResourceCPU])
	for _, ad := range []*v1alpha1.Advertisement{w.held(), w.theirs()} {
		w.expectAccepted(ad, metav1.ConditionTrue, v1alpha1.ReasonCorrected)
		w.expect(v1alpha1.AcknowledgementAccepted, ad.Status.Acknowledgement.State)
		w.expect([]string{"spec.availability[cpu]: 4 → 1"}, ad.Status.Acknowledgement.Corrections)
	}
	w.expect([]string{"Normal Corrected"}, w.heard())
	w.expectWrites(0, w.receiver)

	// A renewal costs one write, although what it is corrected from has changed.
	w.says(w.offer(2, func(s *spec) { s.Availability["cpu"] = resource.MustParse("3") }))
	w.expectWrites(1, w.receiver)
	w.expectWrites(0, w.receiver)

	w.policiesSay(policy.Decision{Outcome: policy.Allow, Offer: &policy.OfferPatch{Availability: testkit.Quantities("cpu", "2")}}, nil)
	w.reconcile(w.receiver)
	w.expect([]string{"spec.availability[cpu]: 3 → 2"}, w.theirs().Status.Acknowledgement.Corrections)
	w.expect(0, len(w.heard()))

	w.policiesSay(policy.Decision{Outcome: policy.Allow}, nil)
	w.reconcile(w.receiver)
	w.expect(resource.MustParse("3"), w.held().Spec.Availability[corev1.ResourceCPU])
	w.expect(0, len(w.theirs().Status.Acknowledgement.Corrections))
	w.expectWrites(0, w.receiver)
}

func TestPendingWaitsForAnAdministrator(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.policies.say(policy.Incoming, pending, nil)
	w.offered()
	w.reconcile(w.receiver)
	w.expect(v1alpha1.AcknowledgementPending, w.theirs().Status.Acknowledgement.State)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonPendingApproval)
	w.expectAdvertised(metav1.ConditionFalse, v1alpha1.ReasonPendingApproval)
	w.expect([]string{"Normal PendingApproval"}, w.heard())
	w.expectWrites(0, w.receiver)

	w.says(w.offer(2))
	w.expectWrites(1, w.receiver) // the copy shows the newest
	w.decides(v1alpha1.DecisionAccept)
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonApproved)
	w.expect(v1alpha1.ReasonApproved, w.theirs().Status.Acknowledgement.Reason)
	w.expectAdvertised(metav1.ConditionTrue, v1alpha1.ReasonApproved)
	w.expectWrites(0, w.receiver)

	w.says(w.offer(3, func(s *spec) { s.FullSequence = 3 })) // in full, and the same terms
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonApproved)

	w.says(w.offer(4, func(s *spec) { // a pulled image and an upgrade are no other terms
		s.FullSequence, s.KubernetesVersion, s.Images = 4, "v1.37.1", []v1alpha1.Image{{Names: []string{"docker.io/library/nginx:1"}}}
	}))
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonApproved)
	w.expect(v1alpha1.DecisionAccept, w.held().Annotations[v1alpha1.AnnotationDecision])

	w.says(w.offer(5, func(s *spec) { s.FullSequence, s.Prices = 5, &v1alpha1.Prices{Currency: "EUR"} }))
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonPendingApproval)
	w.expect("", w.held().Annotations[v1alpha1.AnnotationDecision])
	w.expect("EUR", w.held().Spec.Prices.Currency) // what the next word will be about
	w.expectWrites(0, w.receiver)

	w.decides(v1alpha1.DecisionAccept)
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonApproved)
	w.expect("EUR", w.held().Spec.Prices.Currency)
	w.expectWrites(0, w.receiver)
}

// A policy that compares with what was accepted before does so for as long as nobody has accepted anything else.
func TestPendingChangeDoesNotPassWithTheNextRenewal(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.incomingRego(`pend contains "another currency" if input.previous.prices.currency != input.advertisement.prices.currency`)
	priced := func(currency string) func(*spec) {
		return func(s *spec) { s.Prices = &v1alpha1.Prices{Currency: currency} }
	}
	w.offered(priced("EUR"))
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	for sequence := range int64(3) {
		w.says(w.offer(sequence+2, priced("SEK")))
		w.reconcile(w.receiver)
		w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonPendingApproval)
		w.expect(sequence+2, w.held().Spec.Sequence)
		w.receiver.known.forget("hamburg") // as a restart does
		w.expectWrites(0, w.receiver)
	}
	w.decides(v1alpha1.DecisionAccept)
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonApproved)
	w.expect("", w.held().Annotations[v1alpha1.AnnotationPrevious])

	w.says(w.offer(9, priced("SEK")))
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)
}

// Terms are what the provider says, not what it says of how new they are.
func TestDecisionLapsesWhateverTheSequenceSays(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.policies.say(policy.Incoming, pending, nil)
	w.offered()
	w.reconcile(w.receiver)
	w.decides(v1alpha1.DecisionAccept)
	w.says(w.offer(2, func(s *spec) { s.Prices = &v1alpha1.Prices{Currency: "EUR"} })) // as if nothing else had changed
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonPendingApproval)

	w.decides(v1alpha1.DecisionAccept)
	w.says(w.offer(3, func(s *spec) { s.Phase = "Gone" })) // what is not sound says nothing of terms
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonInvalidField)
	w.says(w.offer(4))
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonPendingApproval)
}

func TestAdministratorRefusesWhatPoliciesAllow(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.reconcile(w.receiver)
	w.decides(v1alpha1.DecisionRefuse)
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonRefusedByAdministrator)
	w.expect(v1alpha1.ReasonRefusedByAdministrator, w.theirs().Status.Acknowledgement.Reason)

	w.decides(v1alpha1.DecisionAccept)
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)

	w.policiesSay(denied, nil) // which an administrator changes by changing the policies
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonRefusedByPolicy)
}

func TestPolicyThatCannotBeAsked(t *testing.T) {
	broken := errors.New("hamburg.rego:7: a secret of ours")
	t.Run("refuses what is new", func(t *testing.T) {
		w := newWorld(t)
		w.peer(v1alpha1.RoleProvider)
		w.policies.say(policy.Incoming, policy.Decision{}, broken)
		w.offered()
		result := w.reconcile(w.receiver)
		w.expect(lookSoon, result.RequeueAfter)
		w.expectAccepted(w.theirs(), metav1.ConditionFalse, v1alpha1.ReasonPolicyFailed)
		if message := w.theirs().Status.Acknowledgement.Message; strings.Contains(message, "rego") {
			t.Errorf("the provider reads %q", message)
		}
		w.policies.say(policy.Incoming, policy.Decision{Outcome: policy.Allow}, nil) // without a signal
		w.reconcile(w.receiver)
		w.expectAccepted(w.theirs(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	})
	t.Run("leaves what is in use", func(t *testing.T) {
		w := newWorld(t)
		w.peer(v1alpha1.RoleProvider)
		w.offered()
		w.reconcile(w.receiver)
		w.policiesSay(policy.Decision{}, broken)
		w.expectWrites(0, w.receiver)
		w.says(w.offer(2))
		w.expectWrites(0, w.receiver)
		w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)

		w.policies.say(policy.Incoming, policy.Decision{Outcome: policy.Allow}, nil)
		w.expectWrites(1, w.receiver)
		w.expect(int64(2), w.held().Spec.Sequence)
	})
}

// What was accepted is kept, closed, for as long as it lasts; then the copy shows what came after, so that an
// administrator can decide about it, and ends with the renewals.
func TestRefusedOfferStaysInSight(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.reconcile(w.receiver)
	good := w.held()
	w.policies.say(policy.Incoming, denied, nil)
	for i := range 3 {
		w.says(w.offer(int64(i + 2)))
		w.reconcile(w.receiver)
		w.expect(good.Spec, w.held().Spec)
		w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonRefusedByPolicy)
		w.Clock.Step(9 * time.Minute)
	}
	w.says(w.offer(5))
	w.Clock.Step(3 * time.Minute)
	w.reconcile(w.receiver)
	w.expect(int64(5), w.held().Spec.Sequence)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonRefusedByPolicy)
	w.expectWrites(0, w.receiver)

	w.Clock.Step(27 * time.Minute)
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonRefusedByPolicy)
	w.Clock.Step(3 * time.Minute)
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonExpired)
	w.expectWrites(0, w.receiver)

	w.policies.say(policy.Incoming, pending, nil)
	w.decides(v1alpha1.DecisionAccept)
	w.says(w.offer(6))
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonApproved)
}

// A clock is judged when the message comes in: it does not get better by waiting.
func TestClockSkewIsSaidUntilTheClocksAgree(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.reconcile(w.receiver)
	skewed := func() (there, copied bool) {
		return meta.IsStatusConditionTrue(w.theirs().Status.Conditions, v1alpha1.ConditionClockSkew),
			meta.IsStatusConditionTrue(w.held().Status.Conditions, v1alpha1.ConditionClockSkew)
	}
	expectSkewed := func(want bool) {
		t.Helper()
		if there, copied := skewed(); there != want || copied != want {
			t.Errorf("ClockSkew is %t at the provider and %t here, want %t", there, copied, want)
		}
	}
	expectSkewed(false)
	w.says(w.offer(2, madeAt(20*time.Minute)))
	w.reconcile(w.receiver)
	expectSkewed(true)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonClockSkew)
	w.Clock.Step(10 * time.Minute)
	w.expectWrites(0, w.receiver)
	expectSkewed(true)
	w.Clock.Step(20*time.Minute - 500*time.Millisecond) // what was accepted has ended
	w.reconcile(w.receiver)
	expectSkewed(true)
	w.receiver.known.forget("hamburg") // as a restart does
	w.expectWrites(0, w.receiver)
	expectSkewed(true)

	w.says(w.offer(3))
	w.reconcile(w.receiver)
	expectSkewed(false)
	w.expectAccepted(w.held(), metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	w.expectWrites(0, w.receiver)
}

// After a restart nothing is remembered but what the copy says.
func TestRestartChangesNothing(t *testing.T) {
	for name, decision := range map[string]policy.Decision{
		"accepted": {Outcome: policy.Allow}, "corrected": capped, "pending": pending, "refused": denied,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.peer(v1alpha1.RoleProvider)
			w.policies.say(policy.Incoming, decision, nil)
			w.offered()
			w.reconcile(w.receiver)
			w.Clock.Step(20 * time.Minute)
			w.receiver.known.forget("hamburg") // as a restart does
			w.expectWrites(0, w.receiver)

			w.Clock.Step(10 * time.Minute)
			w.reconcile(w.receiver)
			w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonExpired)
		})
	}
}

// A peer that is our consumer too may write into the status of advertisements in its tenant namespace. Nothing that
// counts is read from there.
func TestForgedStatusOpensNothing(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleProvider)
	w.policies.say(policy.Incoming, pending, nil)
	w.offered()
	w.reconcile(w.receiver)
	forged := w.held()
	forged.Status.Acknowledgement.State = v1alpha1.AcknowledgementAccepted
	testkit.SetCondition(&forged.Status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	w.Home.Put(forged)
	w.peers.Links.Close("hamburg") // and there is nothing to judge again
	w.reconcile(w.receiver)
	w.expectAccepted(w.held(), metav1.ConditionFalse, v1alpha1.ReasonPending)
}
