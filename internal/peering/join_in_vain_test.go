// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

func TestAnInvitationInVainDoesNotHarmTheSession(t *testing.T) {
	anotherKey := func(i *trust.Invitation) { i.PublicKey = newConsumer(t, "x").publicKey() }
	tests := map[string]struct {
		change func(*trust.Invitation)
		answer func(*provider) // to the claim
		reason string
	}{
		"it is of a cluster with another key": {change: anotherKey, reason: v1alpha1.ReasonKeyMismatch},
		"it is none":                          {change: func(i *trust.Invitation) { i.Token = "" }, reason: v1alpha1.ReasonInvitationInvalid},
		"the peer knows us by another name": {
			answer: func(p *provider) { p.refuse(v1alpha1.ReasonClusterIDTaken, "another Peer stands for you") },
			reason: v1alpha1.ReasonClusterIDTaken,
		},
		"the peer does not take it": {
			answer: func(p *provider) { p.world.remote.Refuse("get PeeringClaim", unauthorized) }, reason: v1alpha1.ReasonInvitationUsed,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newJoinWorld(t, newPeer(v1alpha1.RoleProvider))
			w.offered(w.provider.invitation("one"))
			w.join()
			w.expectEvents(v1alpha1.ReasonJoined)
			if test.change == nil {
				test.change = func(*trust.Invitation) {}
			}
			w.provider.forget()
			w.offered(w.provider.invitation("two", test.change))
			w.look()
			if test.answer != nil {
				test.answer(w.provider)
				w.look()
			}
			w.expectSession(metav1.ConditionTrue, test.reason, "changes nothing")
			w.expectEvents(test.reason)
			if w.token() != "session-one" {
				t.Errorf("the token is %q", w.token())
			}
			w.expectNoWrites()

			w.provider.fails(nil)
			w.clock.Step(48 * time.Hour)
			w.look()
			if w.token() != "renewed-1" {
				t.Errorf("the session was not renewed: %q", w.token())
			}
			if err := w.client.Delete(t.Context(), w.secret(v1alpha1.JoinSecret)); err != nil {
				t.Fatal(err)
			}
			w.look()
			w.expectSession(metav1.ConditionTrue, v1alpha1.ReasonReady)
		})
	}
}
