// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

// story is all that can happen between two peers, each part of which ends with the controller having done its own.
func story(t *testing.T, w *world, settle func()) {
	t.Helper()
	c := newConsumer(t, "c-hamburg")
	sessions := []trust.Session{}
	for range 2 {
		settle()
		c.receive(w)
		c.claims(w, c.invitesBack(func(i *trust.Invitation) { i.ID = c.invitation.ID }), nil)
		settle()
		sessions = append(sessions, c.opens(w))
		joinsOver(t, w, c.invitation.ID)
		c.says(w, v1alpha1.ClaimJoined)
		settle()
		w.expectJoined(metav1.ConditionTrue, v1alpha1.ReasonJoined)
		w.expectNo(v1alpha1.InvitationSecret, &corev1.Secret{})
		w.expectNo(v1alpha1.JoinSecret, &corev1.Secret{}) // it was used, and did not come again
		w.edit(func(spec *v1alpha1.PeerSpec) { spec.Invitation.Serial++ })
	}
	if w.lives(sessions[0].Token) || !w.lives(sessions[1].Token) {
		t.Error("exactly the newer session must live")
	}
	settle()
	w.clock.Step(2 * time.Hour)
	settle()
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonInvitationExpired)
	w.expectSubjects(v1alpha1.ClusterRolePeerTenant, 1)
	w.expectNo(v1alpha1.InvitationSecret, &corev1.Secret{})
}

// joinsOver does what package session does with the invitation back.
func joinsOver(t *testing.T, w *world, id string) {
	t.Helper()
	join := &corev1.Secret{}
	w.get(tenant, v1alpha1.JoinSecret, join)
	link := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: v1alpha1.LinkSecret}}
	if err := client.IgnoreNotFound(w.client.Delete(t.Context(), link)); err != nil {
		t.Fatal(err)
	}
	link = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: v1alpha1.LinkSecret},
		Data:       map[string][]byte{v1alpha1.LinkSecretInvitation: []byte(id)},
	}
	if err := w.client.Create(t.Context(), link); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Delete(t.Context(), join); err != nil {
		t.Fatal(err)
	}
}

func mutualWorld(t *testing.T) *world {
	t.Helper()
	return newInviteWorld(t, invited(v1alpha1.RoleConsumer, v1alpha1.RoleProvider), ownNamespace())
}

// TestStoryGoesOnAfterAKillAnywhere kills the process after each number of writes that it can have made.
func TestStoryGoesOnAfterAKillAnywhere(t *testing.T) {
	ours := 0
	w := mutualWorld(t)
	story(t, w, func() {
		before := w.writes
		w.reconcile()
		ours += w.writes - before
	})
	if ours < 20 {
		t.Fatalf("the story has %d writes only", ours)
	}
	for limit := range ours {
		w := mutualWorld(t)
		left := limit
		story(t, w, func() {
			w.limit = left
			before := w.writes
			_, err := w.tryReconcile()
			left -= w.writes - before
			w.limit = -1
			if err != nil { // killed
				left = -1
				w.restart()
				w.reconcile()
			}
		})
		if t.Failed() {
			t.Fatalf("killed after %d writes", limit)
		}
	}
}

func TestUsedInvitationBackIsNotBroughtAgain(t *testing.T) {
	w := mutualWorld(t)
	w.reconcile()
	c := newConsumer(t, "c-hamburg")
	c.receive(w)
	c.claims(w, c.invitesBack(func(*trust.Invitation) {}), nil)
	w.verb = func(verb string) error {
		if verb == "apply status" {
			return errKilled
		}
		return nil
	}
	if _, err := w.tryReconcile(); err == nil {
		t.Fatal("no error")
	}
	joinsOver(t, w, "back")
	w.verb = nil
	w.restart()
	w.reconcile()
	w.expectNo(v1alpha1.JoinSecret, &corev1.Secret{})
	c.opens(w)
}

func TestPeersWithNothingToDoCostNothing(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	newConsumer(t, "c-hamburg").joins(w)
	w.reconcile() // pinning was a change of the Peer

	w.reads, w.writes = 0, 0
	const looks = 10
	for range looks {
		if result := w.reconcile(); result.RequeueAfter <= 0 || result.RequeueAfter > repairPeriod*12/10 {
			t.Errorf("looked at again after %s", result.RequeueAfter)
		}
		w.clock.Step(time.Second)
	}
	if w.reads != 0 || w.writes != 0 { // Peer, Namespace and PeeringClaim come from the cache
		t.Errorf("%d reads and %d writes", w.reads, w.writes)
	}
}

func TestWhatWasTakenAwayIsMadeAgain(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	newConsumer(t, "c-hamburg").joins(w)
	if err := w.bind(t.Context(), tenant, v1alpha1.ClusterRolePeerTenant); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(repairPeriod * 12 / 10)
	w.reconcile()
	w.expectSubjects(v1alpha1.ClusterRolePeerTenant, 1)
}

func TestOldCacheDoesNotInviteAgain(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	w.reconcile()
	old := w.peer()
	old.Status = v1alpha1.PeerStatus{}
	newConsumer(t, "c-hamburg").joins(w)
	if _, _, err := (&inviteStep{deps: w.deps}).settle(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	w.expectJoined(metav1.ConditionTrue, v1alpha1.ReasonJoined)
	w.expectNo(v1alpha1.InvitationSecret, &corev1.Secret{})
}

func TestInvitationThatEndedWhileNobodyLookedIsNotMadeAgain(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	w.verb = func(verb string) error {
		if verb == "apply status" {
			return errKilled
		}
		return nil
	}
	if _, err := w.tryReconcile(); err == nil {
		t.Fatal("no error")
	}
	w.clock.Step(2 * time.Hour)
	w.verb = nil
	w.restart()
	w.reconcile()
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonInvitationExpired)
	w.expectNo(v1alpha1.InvitationSecret, &corev1.Secret{})
}
