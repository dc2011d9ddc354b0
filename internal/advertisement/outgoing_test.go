// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

// rego makes the module answer what is offered to consumers.
func (w *world) rego(module string) {
	w.Helper()
	set, err := policy.Compile(policy.Outgoing, []policy.Module{{Name: "test/outgoing.rego", Source: module}})
	if err != nil {
		w.Fatal(err)
	}
	w.policies.answering(policy.Outgoing, func(input policy.Input) (policy.Decision, error) {
		return set.Decide(context.Background(), input)
	})
	w.publisher.onPolicies()
}

func (w *world) asked() int { return w.policies.times(policy.Outgoing) }

func TestPolicyChangesTheOffer(t *testing.T) {
	w := newWorld(t)
	peer := w.peer(v1alpha1.RoleConsumer)
	w.node("a", "4")
	w.prices(map[string]string{"currency": "EUR", "cpu": "0.02"})
	w.rego(`package hanse.outgoing
		patch.availability.cpu := 2 if input.peer.name == "hamburg"
		patch.hideImages := true if input.peer.name == "hamburg"
		patch.flags.tier := input.peer.labels.tier
		patch.prices := {"currency": "EUR", "perHour": {"cpu": input.advertisement.prices.perHour.cpu / 2}} if input.peer.labels.tier == "gold"
	`)
	w.expectWrites(1, w.publisher)
	spec := w.ours().Spec
	w.expect(resource.MustParse("2"), spec.Availability[corev1.ResourceCPU])
	w.expect(resource.MustParse("2"), spec.LargestPod[corev1.ResourceCPU])
	w.expect(resource.MustParse("8Gi"), spec.Availability[corev1.ResourceMemory])
	w.expect(0, len(spec.Images))
	w.expect(resource.MustParse("0.02"), spec.Prices.PerHour[corev1.ResourceCPU])
	w.expect(0, len(spec.Flags))

	w.second("kiel", nil)
	spec = w.publish("kiel").Spec
	w.expect(resource.MustParse("4"), spec.Availability[corev1.ResourceCPU])
	w.expect(resource.MustParse("4"), spec.LargestPod[corev1.ResourceCPU])
	w.expect(1, len(spec.Images))

	peer.Labels = map[string]string{"tier": "gold"}
	w.Home.Put(peer)
	w.expect(2*time.Second, w.expectWrites(0, w.publisher).RequeueAfter)
	w.Clock.Step(2 * time.Second)
	w.expectWrites(1, w.publisher)
	w.expect(resource.MustParse("0.01"), w.ours().Spec.Prices.PerHour[corev1.ResourceCPU])
	w.expect(v1alpha1.Text("gold"), w.ours().Spec.Flags["tier"])
	w.expect(w.ours().Spec.Sequence, w.ours().Spec.FullSequence)
	w.ExpectEvents()
}

// What was asked for before includes what policies made of it: that is not done twice.
func TestPolicyIsNotAppliedAgainToOldPrices(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	setting := w.prices(map[string]string{"currency": "EUR", "cpu": "0.02"})
	w.rego(`package hanse.outgoing
		patch.prices := {"currency": "EUR", "perHour": {"cpu": input.advertisement.prices.perHour.cpu / 2}}
	`)
	w.reconcile(w.publisher)
	setting.Data["cpu"] = "cheap"
	w.Home.Put(setting)
	for range 3 {
		w.Clock.Step(10 * time.Minute)
		w.expectWrites(1, w.publisher)
		w.expect(resource.MustParse("0.01"), w.ours().Spec.Prices.PerHour[corev1.ResourceCPU])
	}
}

func TestDeniedOfferIsWithdrawnAndComesBack(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	w.node("a", "4")
	w.reconcile(w.publisher)
	first := w.ours().Spec.Sequence

	w.rego(`package hanse.outgoing
		deny contains "it has not paid"
	`)
	w.Clock.Step(2 * time.Second)
	w.expectWrites(1, w.publisher)
	if w.ours() != nil {
		t.Error("the offer is still there")
	}
	w.ExpectEvent("Normal RefusedByPolicy Nothing is offered to this peer: it has not paid")

	w.pod("local", "", "1")
	w.Clock.Step(time.Minute)
	w.expectWrites(0, w.publisher)
	w.ExpectEvents()

	w.rego(`package hanse.outgoing
		pend contains "somebody must look at it"
	`)
	w.Clock.Step(2 * time.Second)
	w.expectWrites(0, w.publisher)
	w.ExpectEvent("Normal RefusedByPolicy Nothing is offered to this peer: somebody must look at it")

	w.rego(`package hanse.outgoing`)
	w.Clock.Step(2 * time.Second)
	w.expectWrites(1, w.publisher)
	w.ExpectEvent("Normal Offered")
	if w.ours().Spec.Sequence <= first {
		t.Error("the sequence went back")
	}
	w.Clock.Step(10 * time.Minute)
	w.reconcile(w.publisher)
	w.ExpectEvents()
}

func TestNothingNewIsSaidWhilePoliciesFail(t *testing.T) {
	w := newWorld(t)
	peer := w.peer(v1alpha1.RoleConsumer)
	w.node("a", "4")
	w.reconcile(w.publisher)
	before := w.ours()

	w.policies.say(policy.Outgoing, policy.Decision{}, errors.New("too slow"))
	w.publisher.onPolicies()
	w.pod("local", "", "1")
	var pauses []time.Duration
	for range 4 {
		w.Clock.Step(w.expectWrites(0, w.publisher).RequeueAfter)
		pauses = append(pauses, w.expectWrites(0, w.publisher).RequeueAfter)
	}
	w.expect([]time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second}, pauses)
	w.expect(5, w.asked()) // churn makes it no more
	w.expect(before.Spec, w.ours().Spec)
	w.ExpectEvent("Warning PolicyFailed")
	w.ExpectEvents()
	w.Clock.Step(24 * time.Hour)
	for range 20 {
		w.Clock.Step(w.reconcile(w.publisher).RequeueAfter)
	}
	w.expect(10*time.Minute, w.reconcile(w.publisher).RequeueAfter)
	w.expect(before.Spec, w.ours().Spec)

	peer.Spec.Access = v1alpha1.AccessCordoned
	w.Home.Put(peer)
	w.expectWrites(1, w.publisher) // but the administrator's word counts
	w.expect(v1alpha1.OfferCordoned, w.ours().Spec.Phase)
	w.expectWrites(0, w.publisher)

	w.policies.say(policy.Outgoing, policy.Decision{Outcome: policy.Allow}, nil)
	w.publisher.onPolicies()
	w.Clock.Step(2 * time.Second)
	w.expectWrites(1, w.publisher)
	w.expect(resource.MustParse("3"), w.ours().Spec.Availability[corev1.ResourceCPU])
	w.ExpectEvent("Normal Offered")
}

// Also if the policies would not have it: what is said is that we part.
func TestPoliciesAreNotAskedAboutParting(t *testing.T) {
	w := newWorld(t)
	peer := w.peer(v1alpha1.RoleConsumer)
	w.hold(peer)
	w.reconcile(w.publisher)
	w.policies.say(policy.Outgoing, policy.Decision{Outcome: policy.Deny}, nil)
	w.publisher.onPolicies()
	w.Home.Remove(peer)
	w.Clock.Step(time.Minute)
	w.expectWrites(1, w.publisher)
	w.expect(v1alpha1.OfferLeaving, w.ours().Spec.Phase)
	w.expect(1, w.asked())
}

func TestPoliciesThatLookAtTheClock(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	w.rego(`package hanse.outgoing
		deny contains "it is noon" if time.clock(time.parse_rfc3339_ns(input.time))[0] < 13
	`)
	w.Clock.Step(4 * time.Minute)
	w.expectWrites(0, w.publisher) // it is four minutes past twelve
	w.ExpectEvent("Normal RefusedByPolicy")
	open := func() time.Duration {
		began := w.Clock.Now()
		for w.ours() == nil {
			pause := w.reconcile(w.publisher).RequeueAfter
			if pause <= 0 || pause > 10*time.Minute {
				t.Fatalf("looks again in %s", pause)
			}
			if w.ours() == nil {
				w.Clock.Step(pause)
			}
		}
		return w.Clock.Since(began)
	}()
	if open < 55*time.Minute || open > 66*time.Minute {
		t.Errorf("the offer came after %s", open)
	}
}

// One that has nothing to say to a change is asked only about what would be said.
func TestPoliciesAreAskedAboutMessagesOnly(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	w.node("a", "100")
	w.policies.say(policy.Outgoing, policy.Decision{Outcome: policy.Allow}, nil)
	w.reconcile(w.publisher)
	w.expect(1, w.asked())
	w.wrote()
	for second := range 60 { // every tenth of a second a pod that is a small change, every ten seconds a large one
		for tenth := range 10 {
			w.pod("churn", "", []string{"10m", "20m"}[tenth%2])
			if second%10 == 5 && tenth == 0 {
				w.pod("large", "", []string{"10", "20"}[second/10%2])
			}
			w.reconcile(w.publisher)
			w.Clock.Step(100 * time.Millisecond)
		}
	}
	sent := len(w.wrote())
	if sent < 6 || sent > 9 {
		t.Errorf("%d messages", sent)
	}
	w.expect(sent+1, w.asked())
}

func TestManagerThatStartsAsksOnceAndRepeatsNothing(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	w.node("a", "4")
	w.reconcile(w.publisher)
	w.Clock.Step(time.Minute)

	again := NewPublisher(w.publisher.config, w.Home.Client, nil, w.policies, w.Clock, w.Events)
	again.capacity = w.publisher.capacity
	renewal := w.expectWrites(0, again).RequeueAfter
	if renewal < 8*time.Minute || renewal > 9*time.Minute {
		t.Errorf("the next renewal is due in %s", renewal)
	}
	w.expectWrites(0, again)
	w.expect(2, w.asked())
}

func TestChangedPoliciesAreASignal(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	<-signalOnce(w)
	w.publisher.onPolicies()
	select {
	case <-w.publisher.capacity.changed:
	default:
		t.Error("nobody is told")
	}
}

// signalOnce leaves nothing in the channel but what it returns.
func signalOnce(w *world) signal {
	w.publisher.capacity.changed.send()
	return w.publisher.capacity.changed
}

func TestForgottenPeerIsForgotten(t *testing.T) {
	w := newWorld(t)
	peer := w.peer(v1alpha1.RoleConsumer)
	w.reconcile(w.publisher)
	w.expect([]string{"hamburg"}, w.publisher.answers.peers())
	w.Home.Remove(peer)
	w.reconcile(w.publisher)
	w.expect(0, len(w.publisher.answers.peers()))
}
