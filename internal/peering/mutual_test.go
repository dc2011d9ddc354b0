// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

// mutualPeer is one that is to be our provider and our consumer.
func mutualPeer() *v1alpha1.Peer {
	peer := newPeer(v1alpha1.RoleProvider, v1alpha1.RoleConsumer)
	peer.Spec.Invitation = &v1alpha1.PeerInvitation{Serial: 2}
	return peer
}

// mutual makes an invitation ask for one back.
func mutual(key trust.SealingKey) func(*trust.Invitation) {
	return func(i *trust.Invitation) { i.SealingKey = key.Public() }
}

// inviting puts our own invitation for the peer where package invitation does.
func (w *world) inviting(id, serial string) string {
	text := format(w.t, w.provider.invitation(id, func(i *trust.Invitation) { i.ClusterID = "lubeck" }))
	w.put(v1alpha1.InvitationSecret, map[string][]byte{v1alpha1.InvitationToken: []byte(text)},
		v1alpha1.AnnotationSerial, serial)
	return text
}

func newSealingKey(t *testing.T) trust.SealingKey {
	t.Helper()
	key, err := trust.NewSealingKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestAMutualJoinWaitsForOurOwnInvitation(t *testing.T) {
	w := newJoinWorld(t, mutualPeer())
	key := newSealingKey(t)
	w.offered(w.provider.invitation("one", mutual(key)))
	w.inviting("old", "1")
	w.look()
	w.expectSession(metav1.ConditionUnknown, v1alpha1.ReasonJoining, "Our own invitation", "condition Joined")
	if w.provider.claims() > 0 {
		t.Error("claimed without an invitation back")
	}
	text := w.inviting("back", "2")
	w.look()
	opened, err := key.Open(w.provider.claim().Spec.InvitationBack)
	if err != nil || string(opened) != text {
		t.Errorf("invited back with %q, %v", opened, err)
	}
	w.join()
	w.expectSession(metav1.ConditionTrue, v1alpha1.ReasonReady, "Only this direction is agreed")
	w.says(v1alpha1.ConditionJoined, metav1.ConditionTrue, v1alpha1.ReasonJoined)
	w.look()
	w.expectSession(metav1.ConditionTrue, v1alpha1.ReasonReady)
	if strings.Contains(w.session().Message, "direction") {
		t.Errorf("message is %q", w.session().Message)
	}
}

func TestAJoinThatThePeerDoesNotWantBothWays(t *testing.T) {
	w := newJoinWorld(t, mutualPeer())
	w.inviting("back", "2")
	w.offered(w.provider.invitation("one"))
	w.join()
	w.expectSession(metav1.ConditionTrue, v1alpha1.ReasonReady, "Only this direction is agreed")
	if back := w.provider.claim().Spec.InvitationBack; back != "" {
		t.Errorf("invited back with %q", back)
	}
	if event := w.firstEvent(v1alpha1.ReasonJoined); !strings.Contains(event, "did not ask to be invited back") {
		t.Errorf("event is %q", event)
	}
}

func TestAJoinThatOnlyThePeerWantsBothWays(t *testing.T) {
	w := newJoinWorld(t, newPeer(v1alpha1.RoleProvider))
	w.offered(w.provider.invitation("one", mutual(newSealingKey(t))))
	w.join()
	w.expectSession(metav1.ConditionTrue, v1alpha1.ReasonReady)
	if event := w.firstEvent(v1alpha1.ReasonJoined); !strings.Contains(event, "would like to be invited back") {
		t.Errorf("event is %q", event)
	}
}

// The provider of a mutual peering gets our invitation inside of a claim of its own, and must not send its own back again.
func TestAnInvitationThatThePeerHasUsedIsNotSentBack(t *testing.T) {
	for name, gone := range map[string]bool{"while it is still there": false, "when it is gone": true} {
		t.Run(name, func(t *testing.T) {
			w := newJoinWorld(t, mutualPeer())
			w.inviting("ours", "2")
			claim := &v1alpha1.PeeringClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: v1alpha1.PeeringClaimName},
				Spec:       v1alpha1.PeeringClaimSpec{Invitation: "ours"},
			}
			if err := w.client.Create(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
			if gone {
				if err := w.client.Delete(t.Context(), w.secret(v1alpha1.InvitationSecret)); err != nil {
					t.Fatal(err)
				}
				w.says(v1alpha1.ConditionJoined, metav1.ConditionTrue, v1alpha1.ReasonJoined)
			}
			w.offered(w.provider.invitation("theirs", mutual(newSealingKey(t))))
			w.join()
			if back := w.provider.claim().Spec.InvitationBack; back != "" {
				t.Errorf("invited back with %q", back)
			}
		})
	}
}
