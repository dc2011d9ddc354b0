// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

func joinedWorld(t *testing.T) *world {
	t.Helper()
	w := newJoinWorld(t, newPeer(v1alpha1.RoleProvider))
	w.offered(w.provider.invitation("one"))
	w.join()
	w.expectEvents(v1alpha1.ReasonJoined)
	return w
}

// until looks again and again until the time has come.
func (w *world) until(end time.Time) {
	w.t.Helper()
	for range 10000 {
		if !w.clock.Now().Before(end) {
			return
		}
		w.look()
	}
	w.t.Fatal("far too many looks")
}

func TestASessionIsRenewedDaily(t *testing.T) {
	w := joinedWorld(t)
	w.until(start.Add(5 * 24 * time.Hour))
	if w.provider.renews() < 4 || w.provider.renews() > 5 {
		t.Errorf("%d renewals in 5 days", w.provider.renews())
	}
	if want := fmt.Sprintf("renewed-%d", w.provider.renews()); w.token() != want {
		t.Errorf("the token is %q, want %q", w.token(), want)
	}
	w.expectSession(metav1.ConditionTrue, v1alpha1.ReasonReady)
	if left := w.peer().Status.Session.Expires.Sub(w.clock.Now()); left < life-27*time.Hour {
		t.Errorf("the session shown lives for %s", left)
	}
	w.expectEvents()
}

func TestARestartDoesNotRenewWhatIsNotDue(t *testing.T) {
	w := joinedWorld(t)
	for range 20 {
		w.clock.Step(time.Hour)
		w.restart()
		w.look()
	}
	if w.provider.renews() != 0 {
		t.Errorf("%d renewals in 20 hours", w.provider.renews())
	}
}

func TestASessionThatThePeerShortens(t *testing.T) {
	w := joinedWorld(t)
	w.provider.grants = time.Hour
	w.until(start.Add(48 * time.Hour))
	w.expectSession(metav1.ConditionFalse, v1alpha1.ReasonSessionShortened)
	w.expectEvents(v1alpha1.ReasonSessionShortened)
	before := w.provider.renews()
	w.until(w.clock.Now().Add(10 * time.Hour))
	if got := w.provider.renews() - before; got < 19 || got > 21 {
		t.Errorf("%d renewals of one hour's sessions in 10 hours", got)
	}
	w.provider.grants = life
	w.until(w.clock.Now().Add(time.Hour))
	w.expectSession(metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestARenewalThatFails(t *testing.T) {
	w := joinedWorld(t)
	w.provider.fails(noAnswer)
	w.until(start.Add(48 * time.Hour))
	w.expectSession(metav1.ConditionFalse, v1alpha1.ReasonRenewalFailed, "does not answer", "still lives")
	w.expectEvents(v1alpha1.ReasonRenewalFailed)
	if w.provider.renews() < 48 || w.provider.renews() > 180 {
		t.Errorf("%d attempts in a day", w.provider.renews())
	}
	w.expectNoWrites()

	w.restart() // says nothing that it has not found out itself
	w.pause()
	w.expectSession(metav1.ConditionFalse, v1alpha1.ReasonRenewalFailed)

	since := w.session().LastTransitionTime
	w.clock.Step(40 * 24 * time.Hour)
	w.look()
	w.expectSession(metav1.ConditionFalse, v1alpha1.ReasonRenewalFailed, "has ended")
	if got := w.session().LastTransitionTime; !got.Equal(&since) {
		t.Errorf("False since %s, want %s", got, since)
	}

	w.provider.fails(unauthorized)
	w.until(w.clock.Now().Add(time.Hour))
	w.expectSession(metav1.ConditionFalse, v1alpha1.ReasonUnauthorized)
	w.expectEvents(v1alpha1.ReasonUnauthorized)

	w.provider.fails(nil) // it was a mistake at the peer
	w.until(w.clock.Now().Add(time.Hour))
	w.expectSession(metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestASuspendedSession(t *testing.T) {
	w := joinedWorld(t)
	w.provider.fails(forbidden)
	w.until(start.Add(48 * time.Hour))
	w.expectSession(metav1.ConditionFalse, v1alpha1.ReasonRenewalFailed, "suspended")
}

func TestASessionThatThePeerDoesNotKnowIsTriedAtOnce(t *testing.T) {
	w := joinedWorld(t)
	w.clock.Step(time.Hour)
	w.provider.fails(unauthorized)
	w.states["hamburg"].contact.probe.unknownAt = w.clock.Now()
	w.look()
	w.expectSession(metav1.ConditionFalse, v1alpha1.ReasonUnauthorized)
	w.pause()
	if w.provider.renews() != 1 {
		t.Errorf("%d attempts at one moment", w.provider.renews())
	}
}

// What peering found out before the session was made says nothing about it.
func TestANewSessionIsNotRenewedBecauseAnOldOneEnded(t *testing.T) {
	w := newJoinWorld(t, newPeer(v1alpha1.RoleProvider))
	w.reconcile()
	w.states["hamburg"].contact.probe.unknownAt = w.clock.Now()
	w.clock.Step(time.Minute)
	w.offered(w.provider.invitation("one"))
	w.join()
	w.until(w.clock.Now().Add(time.Hour))
	if w.provider.renews() > 0 {
		t.Errorf("%d renewals of a new session", w.provider.renews())
	}
}

func TestALinkMadeByHandIsLeftAlone(t *testing.T) {
	w := newJoinWorld(t, newPeer(v1alpha1.RoleProvider))
	data, err := peers.Credentials{
		Servers: []string{w.remote.URL()}, Namespace: tenantThere, Token: "by-hand",
	}.SecretData()
	if err != nil {
		t.Fatal(err)
	}
	w.put(v1alpha1.LinkSecret, data)
	before := w.secret(v1alpha1.LinkSecret).ResourceVersion
	for range 10 {
		w.look()
		w.clock.Step(7 * 24 * time.Hour)
	}
	w.expectSession(metav1.ConditionUnknown, v1alpha1.ReasonNotInvited, "by hand")
	if w.provider.renews() > 0 || w.secret(v1alpha1.LinkSecret).ResourceVersion != before {
		t.Error("the link was renewed")
	}
	if w.peer().Status.Session != nil {
		t.Error("the Peer tells of a session")
	}
	w.expectEvents()

	w.offered(w.provider.invitation("one")) // whoever joins wants to
	w.join()
	w.expectSession(metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestALinkThatCannotBeRead(t *testing.T) {
	w := newJoinWorld(t, newPeer(v1alpha1.RoleProvider))
	w.put(v1alpha1.LinkSecret, map[string][]byte{
		v1alpha1.LinkSecretInvitation: []byte("one"), v1alpha1.LinkSecretKey: []byte("garbage"),
	})
	w.look()
	w.expectSession(metav1.ConditionFalse, v1alpha1.ReasonCredentialsInvalid)
	w.expectNoWrites()
}

func TestASessionWhoseNotesWereLostIsRenewed(t *testing.T) {
	w := joinedWorld(t)
	secret := w.secret(v1alpha1.LinkSecret)
	secret.Annotations = nil
	if err := w.client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.until(w.clock.Now().Add(3 * time.Hour))
	if w.token() != "renewed-1" {
		t.Errorf("the token is %q", w.token())
	}
	w.expectSession(metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestAnUpgradeTellsTheProviderOurVersion(t *testing.T) {
	w := joinedWorld(t)
	w.upgrade("v0.2.0")
	w.until(w.clock.Now().Add(2 * time.Minute))
	if got := w.provider.claim().Spec.Version; got != "v0.2.0" {
		t.Errorf("the claim says %q", got)
	}
	if w.provider.renews() > 0 {
		t.Error("renewed")
	}
}

func TestTheProviderIsToldOurVersionAgainWithEachRenewal(t *testing.T) {
	w := joinedWorld(t)
	claim := w.provider.claim()
	claim.Spec.Version = "v0.0.9" // from a backup, for example
	w.away.Put(claim)
	w.until(start.Add(28 * time.Hour))
	if got := w.provider.claim().Spec.Version; got != "v0.1.0" {
		t.Errorf("the claim says %q", got)
	}
}

func TestASessionIsKeptUntilTheTwoHaveParted(t *testing.T) {
	peer := newPeer(v1alpha1.RoleProvider)
	peer.Finalizers = []string{v1alpha1.FinalizerPeer}
	w := newJoinWorld(t, peer)
	w.offered(w.provider.invitation("one"))
	w.join()
	if err := w.client.Delete(t.Context(), w.peer()); err != nil {
		t.Fatal(err)
	}
	w.offered(w.provider.invitation("two"))
	w.provider.forget()
	w.until(start.Add(48 * time.Hour))
	if w.provider.renews() == 0 {
		t.Error("the session was not renewed")
	}
	if w.secret(v1alpha1.JoinSecret) == nil || w.provider.claims() != 1 {
		t.Error("joined again")
	}
	if err := w.client.Delete(t.Context(), w.secret(v1alpha1.LinkSecret)); err != nil {
		t.Fatal(err)
	}
	w.expectNoWrites()
}

func TestAPeerThatIsNoProviderAnyMore(t *testing.T) {
	w := joinedWorld(t)
	w.change(func(peer *v1alpha1.Peer) { peer.Spec.Roles = []v1alpha1.PeerRole{v1alpha1.RoleConsumer} })
	w.look()
	if w.session() != nil || w.peer().Status.Session != nil {
		t.Errorf("status is %+v", w.peer().Status)
	}
	w.expectNoWrites()
}

func TestOneDirectionOnlyBecauseWeHaveNotJoined(t *testing.T) {
	w := newJoinWorld(t, mutualPeer())
	w.says(v1alpha1.ConditionJoined, metav1.ConditionTrue, v1alpha1.ReasonJoined)
	w.look()
	w.expectSession(metav1.ConditionFalse, v1alpha1.ReasonNotInvited, "Only the other direction")
}

func TestHowSoonItIsLookedAgain(t *testing.T) {
	w := newJoinWorld(t, newPeer(v1alpha1.RoleProvider))
	if pause := w.pause(); pause < 5*time.Second || pause > 6*time.Second {
		t.Errorf("without a session: %s", pause)
	}
	w.change(func(peer *v1alpha1.Peer) { peer.Annotations = map[string]string{v1alpha1.AnnotationJoin: "one"} })
	if pause := w.pause(); pause != lookSettling {
		t.Errorf("with an announced invitation: %s", pause)
	}
	w.clock.Step(2 * time.Minute)
	if pause := w.pause(); pause < 5*time.Second {
		t.Errorf("with one that does not come: %s", pause)
	}
	w.offered(w.provider.invitation("one"))
	w.join()
	if pause := w.pause(); pause < 5*time.Minute || pause > 6*time.Minute {
		t.Errorf("with a good session: %s", pause)
	}
}

func TestManyPeersWithoutSessionAreLookedAtLessOften(t *testing.T) {
	const many, hour = 1000, time.Hour
	w := newJoinWorld(t, newPeer(v1alpha1.RoleProvider))
	w.pick = func(c *Controller) {
		c.steps = []step{c.calls}
		c.calls.steps = c.calls.steps[:2] // the probe too, which needs the same Secret
	}
	w.restart()
	for i := range many - 1 {
		w.states[fmt.Sprint("other-", i)] = &state{}
	}
	w.lookOnce("hamburg")
	w.reads = 0
	for end := w.clock.Now().Add(hour); w.clock.Now().Before(end); {
		pause := w.lookOnce("hamburg").RequeueAfter
		if pause <= 0 {
			t.Fatal("it is not looked at again")
		}
		w.clock.Step(pause)
	}
	// The Secrets with credentials and with an invitation.
	if most := 2 * int(hour/time.Second) * probesPerSecond / many; w.reads == 0 || w.reads > most {
		t.Errorf("%d Secrets were read in an hour, want at most %d", w.reads, most)
	}
	w.offered(w.provider.invitation("one"))
	w.clock.Step(2 * many * time.Second / probesPerSecond)
	w.lookOnce("hamburg")
	if w.provider.answer(); w.contact().session.offer == nil {
		t.Error("the invitation was not found")
	}
}

func TestSchedule(t *testing.T) {
	s := schedule{period: 24 * time.Hour, life: life}
	of := func(issued time.Time, lives time.Duration) *holding {
		return &holding{issued: issued, expires: issued.Add(lives)}
	}
	tests := map[string]struct {
		h          *holding
		since      time.Time
		after, not time.Time // the bounds of due
	}{
		"a day later, more or less": {
			of(start, life), start, start.Add(21*time.Hour + 36*time.Minute), start.Add(26*time.Hour + 24*time.Minute),
		},
		"at half of a short life": {
			of(start, time.Hour), start, start.Add(30 * time.Minute), start.Add(30 * time.Minute),
		},
		"not in a rush": {of(start, 0), start, start.Add(time.Second), start.Add(time.Second)},
		"what was missed is spread": {
			of(start, life), start.Add(72 * time.Hour), start.Add(72 * time.Hour), start.Add(72*time.Hour + 144*time.Minute),
		},
		"what was missed and ends soon comes before that": {
			of(start, 72*time.Hour), start.Add(71 * time.Hour), start.Add(71 * time.Hour), start.Add(71*time.Hour + 30*time.Minute),
		},
		"what has ended is tried soon": {
			of(start, life), start.Add(2 * life), start.Add(2 * life), start.Add(2*life + missedWindow),
		},
		"a clock that was set back does not stop it": {
			of(start.Add(1000*time.Hour), life), start, start, start.Add(144 * time.Minute),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if due := s.due("uid", test.h, test.since, test.since); due.Before(test.after) || due.After(test.not) {
				t.Errorf("due at %s, want %s to %s", due, test.after, test.not)
			}
		})
	}
}

func TestAThousandSessionsAreNotRenewedAtOnce(t *testing.T) {
	s := schedule{period: 24 * time.Hour, life: life}
	for name, since := range map[string]time.Time{"in time": start, "after an outage": start.Add(72 * time.Hour)} {
		t.Run(name, func(t *testing.T) {
			perMinute := map[time.Time]int{}
			for i := range 1000 {
				h := &holding{issued: start, expires: start.Add(life)}
				perMinute[s.due(types.UID(fmt.Sprintf("uid-%d", i)), h, since, since).Truncate(time.Minute)]++
			}
			counts := []int{}
			for _, count := range perMinute {
				counts = append(counts, count)
			}
			if most := slices.Max(counts); most > 30 {
				t.Errorf("%d renewals within one minute", most)
			}
		})
	}
}

func TestWhatMakesUsLook(t *testing.T) {
	condition := func(kind, reason string) func(*v1alpha1.Peer) {
		return func(p *v1alpha1.Peer) {
			p.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionFalse, Reason: reason}}
		}
	}
	tests := map[string]struct {
		change func(*v1alpha1.Peer)
		want   bool
	}{
		"nothing":                {func(*v1alpha1.Peer) {}, false},
		"the spec":               {func(p *v1alpha1.Peer) { p.Generation++ }, true},
		"the client announces":   {func(p *v1alpha1.Peer) { p.Annotations = map[string]string{v1alpha1.AnnotationJoin: "x"} }, true},
		"another annotation":     {func(p *v1alpha1.Peer) { p.Annotations = map[string]string{"x": "y"} }, false},
		"deletion":               {func(p *v1alpha1.Peer) { p.DeletionTimestamp = &metav1.Time{Time: start} }, true},
		"our invitation is made": {condition(v1alpha1.ConditionJoined, v1alpha1.ReasonInvited), true},
		"a probe went well":      {condition(v1alpha1.ConditionAuthenticated, v1alpha1.ReasonReady), false},
		"a round trip":           {func(p *v1alpha1.Peer) { p.Status.RoundTripTime = &metav1.Duration{} }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			after := newPeer(v1alpha1.RoleProvider)
			test.change(after)
			if got := peerChanges.Update(event.UpdateEvent{ObjectOld: newPeer(v1alpha1.RoleProvider), ObjectNew: after}); got != test.want {
				t.Errorf("looks: %t", got)
			}
		})
	}
}

func TestAnotherKindOfTroubleHasABackoffOfItsOwn(t *testing.T) {
	tries := attempts{}
	if !tries.due("x", start) {
		t.Fatal("the first attempt is not due")
	}
	for range 20 {
		tries.record(verdict{stage: unrenewed}, start)
	}
	if pause := tries.next.Sub(start); pause < 10*time.Minute || pause > 11*time.Minute {
		t.Errorf("after many failures: %s", pause)
	}
	tries.record(waits("for the peer"), start)
	if pause := tries.next.Sub(start); pause < time.Second || pause > 2*time.Second {
		t.Errorf("after an answer: %s", pause)
	}
	if tries.due("x", start) || !tries.due("y", start) {
		t.Error("something else does not begin anew")
	}
}
