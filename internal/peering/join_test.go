// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

func TestJoinFromInvitationToSession(t *testing.T) {
	w := newJoinWorld(t, newPeer(v1alpha1.RoleProvider))
	w.look()
	w.expectSession(metav1.ConditionFalse, v1alpha1.ReasonNotInvited)
	w.expectEvents()

	w.offered(w.provider.invitation("one"))
	w.look()
	w.expectSession(metav1.ConditionUnknown, v1alpha1.ReasonJoining)
	if spec := w.peer().Spec; spec.ClusterID != "hamburg" || spec.PublicKey != w.provider.invitation("").PublicKey {
		t.Errorf("pinned %+v", spec)
	}
	w.provider.answer()
	w.look()
	w.expectSession(metav1.ConditionTrue, v1alpha1.ReasonReady)
	w.expectEvents(v1alpha1.ReasonJoined)
	if w.secret(v1alpha1.JoinSecret) != nil || w.token() != "session-one" {
		t.Errorf("the invitation is still there, or the token is %q", w.token())
	}
	claim := w.provider.claim()
	if claim.Spec.Phase != v1alpha1.ClaimJoined || claim.Spec.Version != "v0.1.0" || claim.Spec.ClusterID != "lubeck" {
		t.Errorf("claim is %+v", claim.Spec)
	}
	if got := w.peer().Status.Session; got == nil || got.Expires.Sub(w.clock.Now()).Round(time.Hour) != life {
		t.Errorf("status.session is %v", got)
	}
	w.expectNoWrites()
}

func TestJoinGoesOnAfterAKillAtEachWrite(t *testing.T) {
	for _, done := range []bool{false, true} {
		for at, died := 1, true; died; at++ {
			t.Run(fmt.Sprintf("write %d, done %t", at, done), func(t *testing.T) {
				died = false // unless what follows comes to its end
				died = joinKilledAt(t, at, done)
			})
			if !died && at < 8 {
				t.Errorf("only %d writes were killed", at-1)
			}
		}
	}
}

// joinKilledAt kills our manager at a write, before it is done or after, and reports whether there was such a write.
func joinKilledAt(t *testing.T, at int, done bool) bool {
	t.Helper()
	w := newJoinWorld(t, newPeer(v1alpha1.RoleProvider))
	w.offered(w.provider.invitation("one"))
	seen := 0
	w.fail = func(after bool) error {
		if after != done {
			return nil
		}
		if seen++; seen == at {
			return errKilled
		}
		return nil
	}
	for range 8 {
		w.provider.answer()
		before := seen < at
		result, _ := w.tryReconcile()
		if before && seen >= at {
			w.restart()
		}
		w.clock.Step(result.RequeueAfter + time.Second)
	}
	w.expectSession(metav1.ConditionTrue, v1alpha1.ReasonReady)
	if w.secret(v1alpha1.JoinSecret) != nil || w.token() != "session-one" {
		t.Errorf("the invitation is still there, or the token is %q", w.token())
	}
	if claim := w.provider.claim(); claim.Spec.Phase != v1alpha1.ClaimJoined {
		t.Errorf("claim is %+v", claim.Spec)
	}
	return seen >= at
}

func TestAnInvitationThatAnotherUsedIsNotUsed(t *testing.T) {
	w := newJoinWorld(t, newPeer(v1alpha1.RoleProvider))
	thief := &v1alpha1.PeeringClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenantThere, Name: v1alpha1.PeeringClaimName},
		Spec:       v1alpha1.PeeringClaimSpec{Invitation: "one", ClusterID: "lubeck", SealingKey: "another"},
	}
	w.away.Put(thief)
	w.offered(w.provider.invitation("one"))
	w.look()
	w.expectSession(metav1.ConditionFalse, v1alpha1.ReasonInvitationUsed)
	w.expectEvents(v1alpha1.ReasonInvitationUsed)

	// The reason stays after the provider has forgotten the invitation.
	w.provider.fails(unauthorized)
	w.clock.Step(time.Hour)
	w.restart()
	w.expectNoWrites()
	w.expectSession(metav1.ConditionFalse, v1alpha1.ReasonInvitationUsed)

	w.provider.fails(nil)
	w.provider.forget()
	w.offered(w.provider.invitation("two"))
	w.join()
	w.expectSession(metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestTwoClaimersAtTheSameMoment(t *testing.T) {
	w := newJoinWorld(t, newPeer(v1alpha1.RoleProvider))
	w.offered(w.provider.invitation("one"))
	raced := false
	w.fail = func(after bool) error {
		if after || raced || w.provider.claims() == 0 {
			return nil
		}
		raced = true
		thief := &v1alpha1.PeeringClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenantThere, Name: v1alpha1.PeeringClaimName},
			Spec:       v1alpha1.PeeringClaimSpec{Invitation: "one", ClusterID: "visby", SealingKey: "another"},
		}
		w.away.Put(thief)
		return nil
	}
	w.look()
	w.expectSession(metav1.ConditionUnknown, v1alpha1.ReasonJoining)
	w.look()
	w.expectSession(metav1.ConditionFalse, v1alpha1.ReasonInvitationUsed)
}

func TestARefusalIsShownAndKept(t *testing.T) {
	tests := map[string]struct{ reason, want string }{
		"with a reason that we know":   {v1alpha1.ReasonKeyMismatch, v1alpha1.ReasonKeyMismatch},
		"with one that is made up":     {"RunThisCommand", v1alpha1.ReasonInvitationInvalid},
		"because it came too late":     {v1alpha1.ReasonInvitationExpired, v1alpha1.ReasonInvitationExpired},
		"because we are known already": {v1alpha1.ReasonClusterIDTaken, v1alpha1.ReasonClusterIDTaken},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newJoinWorld(t, newPeer(v1alpha1.RoleProvider))
			w.offered(w.provider.invitation("one"))
			w.look()
			w.provider.refuse(test.reason, "because\x1b[31m of "+strings.Repeat("this", 1000))
			w.look()
			w.expectSession(metav1.ConditionFalse, test.want, "because[31m of this")
			if size := len(w.session().Message); size > 400 {
				t.Errorf("the message has %d bytes", size)
			}
			w.expectEvents(test.want)

			w.provider.fails(unauthorized)
			w.restart()
			w.clock.Step(time.Hour)
			w.expectNoWrites()
			w.expectEvents()
		})
	}
}

func TestAnInvitationThatThePeerDoesNotTake(t *testing.T) {
	resource := schema.GroupResource{Resource: "peeringclaims"}
	tests := map[string]struct {
		err    error
		after  time.Duration
		reason string
	}{
		"it has expired":              {unauthorized, 2 * time.Hour, v1alpha1.ReasonInvitationExpired},
		"it was used before":          {unauthorized, 0, v1alpha1.ReasonInvitationUsed},
		"the peer does not answer":    {noAnswer, 0, v1alpha1.ReasonUnreachable},
		"nothing leads to the peer":   {&net.OpError{Op: "dial", Err: syscall.EADDRNOTAVAIL}, 0, v1alpha1.ReasonUnreachable},
		"something else answers":      {peers.ErrMalformed, 0, v1alpha1.ReasonMalformed},
		"the certificate is another":  {untrusted, 0, v1alpha1.ReasonCredentialsInvalid},
		"the peer gives us no rights": {forbidden, 0, v1alpha1.ReasonForbidden},
		"the peer cannot store it":    {apierrors.NewConflict(resource, "claim", nil), 0, v1alpha1.ReasonInvitationInvalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newJoinWorld(t, newPeer(v1alpha1.RoleProvider))
			w.offered(w.provider.invitation("one"))
			w.clock.Step(test.after)
			w.provider.fails(test.err)
			w.look()
			w.expectSession(metav1.ConditionFalse, test.reason)
			w.expectEvents(test.reason)
			w.expectNoWrites()

			w.provider.fails(nil)
			w.clock.Step(time.Minute)
			w.join()
			w.expectSession(metav1.ConditionTrue, v1alpha1.ReasonReady)
		})
	}
}

func TestAnInvitationThatIsNotForThisPeer(t *testing.T) {
	other := func(id string) *v1alpha1.Peer {
		return &v1alpha1.Peer{
			ObjectMeta: metav1.ObjectMeta{Name: "other"},
			Spec:       v1alpha1.PeerSpec{ClusterID: id, Roles: []v1alpha1.PeerRole{v1alpha1.RoleConsumer}},
		}
	}
	tests := map[string]struct {
		pinned v1alpha1.PeerSpec
		change func(*trust.Invitation)
		other  *v1alpha1.Peer
		reason string
	}{
		"another key than the pinned one": {
			pinned: v1alpha1.PeerSpec{ClusterID: "hamburg", PublicKey: strings.Repeat("A", 43) + "="},
			reason: v1alpha1.ReasonKeyMismatch,
		},
		"another cluster than the pinned one": {
			pinned: v1alpha1.PeerSpec{ClusterID: "bremen"}, reason: v1alpha1.ReasonClusterIDMismatch,
		},
		"a cluster that another Peer stands for": {other: other("hamburg"), reason: v1alpha1.ReasonClusterIDTaken},
		"our own cluster": {
			change: func(i *trust.Invitation) { i.ClusterID = "lubeck" }, reason: v1alpha1.ReasonClusterIDMismatch,
		},
		"no invitation at all": {
			change: func(i *trust.Invitation) { i.Token = "" }, reason: v1alpha1.ReasonInvitationInvalid,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			peer := newPeer(v1alpha1.RoleProvider)
			peer.Spec.ClusterID, peer.Spec.PublicKey = test.pinned.ClusterID, test.pinned.PublicKey
			if test.other == nil {
				test.other = other("visby")
			}
			w := newJoinWorld(t, peer, test.other)
			if test.change == nil {
				test.change = func(*trust.Invitation) {}
			}
			w.offered(w.provider.invitation("one", test.change))
			before := w.secret(v1alpha1.JoinSecret).ResourceVersion
			w.look()
			w.expectSession(metav1.ConditionFalse, test.reason)
			w.expectEvents(test.reason)
			w.expectNoWrites()
			if spec := w.peer().Spec; spec.ClusterID != test.pinned.ClusterID || spec.PublicKey != test.pinned.PublicKey {
				t.Errorf("pinned %+v", spec)
			}
			if w.provider.claims() > 0 || w.secret(v1alpha1.JoinSecret).ResourceVersion != before {
				t.Error("the invitation was used")
			}
		})
	}
}

func TestAnAnswerThatTheProviderDidNotGive(t *testing.T) {
	tests := map[string]struct {
		change func(*world, *v1alpha1.PeeringClaim)
		reason string
	}{
		"signed by another": {func(w *world, claim *v1alpha1.PeeringClaim) {
			claim.Status.Session, _ = trust.SealSession(newKey(w.t), &claim.Spec, trust.Session{Token: "x", Expires: start})
		}, v1alpha1.ReasonKeyMismatch},
		"without a token": {func(w *world, claim *v1alpha1.PeeringClaim) {
			claim.Status.Session, _ = trust.SealSession(w.provider.key, &claim.Spec, trust.Session{Expires: start})
		}, v1alpha1.ReasonMalformed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newJoinWorld(t, newPeer(v1alpha1.RoleProvider))
			w.offered(w.provider.invitation("one"))
			w.look()
			claim := w.provider.claim()
			test.change(w, claim)
			w.away.Put(claim)
			w.look()
			w.expectSession(metav1.ConditionFalse, test.reason)
			if w.secret(v1alpha1.LinkSecret) != nil {
				t.Error("there is a session")
			}
		})
	}
}

func TestARenewedJoinGoesOnWithTheSamePeer(t *testing.T) {
	w := newJoinWorld(t, newPeer(v1alpha1.RoleProvider))
	w.offered(w.provider.invitation("one"))
	w.join()
	w.expectEvents(v1alpha1.ReasonJoined)

	w.clock.Step(40 * 24 * time.Hour)
	w.provider.fails(unauthorized)
	w.look()
	w.expectSession(metav1.ConditionFalse, v1alpha1.ReasonUnauthorized, "--renew")
	w.expectEvents(v1alpha1.ReasonUnauthorized)
	if pause := w.pause(); pause > 6*time.Second {
		t.Errorf("looks for an invitation only in %s", pause)
	}

	w.provider.fails(nil)
	w.offered(w.provider.invitation("two"))
	w.look() // the provider still has the claim of before
	w.expectSession(metav1.ConditionUnknown, v1alpha1.ReasonJoining, "earlier")
	w.provider.forget()
	w.join()
	w.expectSession(metav1.ConditionTrue, v1alpha1.ReasonReady)
	w.expectEvents(v1alpha1.ReasonJoined)
	if w.token() != "session-two" || string(w.secret(v1alpha1.LinkSecret).Data[v1alpha1.LinkSecretInvitation]) != "two" {
		t.Errorf("the token is %q", w.token())
	}
}

// newHalfJoinedWorld is one in which the session is there, but the link is still that of before.
func newHalfJoinedWorld(t *testing.T) *world {
	t.Helper()
	w := newJoinWorld(t, newPeer(v1alpha1.RoleProvider))
	w.offered(w.provider.invitation("one"))
	w.look()
	w.provider.answer()
	w.provider.stale = true
	w.look()
	return w
}

func TestAJoinWaitsForItsRightsAndItsLink(t *testing.T) {
	w := newHalfJoinedWorld(t)
	w.expectSession(metav1.ConditionUnknown, v1alpha1.ReasonJoining)
	w.provider.stale = false
	w.provider.fails(forbidden)
	w.look()
	w.expectSession(metav1.ConditionUnknown, v1alpha1.ReasonJoining)
	w.provider.fails(nil)
	w.look()
	w.expectSession(metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestAClaimOfAnotherIsNotTouched(t *testing.T) {
	w := newHalfJoinedWorld(t)
	w.provider.stale = false
	w.provider.forget()
	other := &v1alpha1.PeeringClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenantThere, Name: v1alpha1.PeeringClaimName},
		Spec:       v1alpha1.PeeringClaimSpec{Invitation: "two", ClusterID: "visby"},
	}
	w.away.Put(other)
	w.look()
	w.expectSession(metav1.ConditionFalse, v1alpha1.ReasonInvitationUsed, "newer")
	if phase := w.provider.claim().Spec.Phase; phase != "" {
		t.Errorf("the phase is %q", phase)
	}
}

func TestANewerInvitationIsNotThrownAwayWithTheUsedOne(t *testing.T) {
	w := newHalfJoinedWorld(t)
	w.provider.stale = false
	put := false
	w.fail = func(bool) error { // between our last look and the deletion
		if !put {
			put = true
			w.offered(w.provider.invitation("two"))
		}
		return nil
	}
	w.look()
	if got := w.secret(v1alpha1.JoinSecret); got == nil {
		t.Error("the newer invitation was deleted")
	}
}

func TestNothingIsReadInANamespaceThatIsNotOurs(t *testing.T) {
	w := newJoinWorld(t, newPeer(v1alpha1.RoleProvider))
	w.offered(w.provider.invitation("one"))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}}
	if err := w.client.Update(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	w.look()
	w.expectSession(metav1.ConditionUnknown, v1alpha1.ReasonPending)
	if w.provider.claims() > 0 || w.peer().Spec.ClusterID != "" {
		t.Error("used the invitation")
	}
}
