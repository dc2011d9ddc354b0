// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

func TestConsumerJoins(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	w.reconcile()
	c := newConsumer(t, "c-hamburg")
	c.receive(w)
	c.claims(w, nil, nil)
	w.reconcile()
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonJoining)

	session := c.opens(w)
	if !w.lives(session.Token) || !w.lives(c.invitation.Token) {
		t.Error("a token that is needed has ended")
	}
	if life := session.Expires.Sub(w.clock.Now()); life != 30*24*time.Hour {
		t.Errorf("the session lives for %s", life)
	}
	spec := w.peer().Spec
	if spec.ClusterID != "c-hamburg" || spec.PublicKey != c.publicKey() {
		t.Errorf("pinned %q and %q", spec.ClusterID, spec.PublicKey)
	}
	w.expectSubjects(v1alpha1.ClusterRolePeerTenant, 1)

	c.says(w, v1alpha1.ClaimJoined)
	w.reconcile()
	w.expectJoined(metav1.ConditionTrue, v1alpha1.ReasonJoined)
	w.expectEvents(v1alpha1.ReasonInvited, v1alpha1.ReasonJoined)
	w.expectNo(v1alpha1.InvitationSecret, &corev1.Secret{})
	if w.claim().Status.Session != nil {
		t.Error("the session still lies in the claim")
	}
	if !w.lives(session.Token) || w.lives(c.invitation.Token) {
		t.Error("the session must live and the invitation end")
	}
	if !meta.IsStatusConditionTrue(w.claim().Status.Conditions, v1alpha1.ConditionAccepted) {
		t.Error("the claim is not accepted any more")
	}
	w.expectNo(v1alpha1.JoinSecret, &corev1.Secret{})
	w.expectNoWrites()
}

func TestClaimsAreRefused(t *testing.T) {
	type spec = v1alpha1.PeeringClaimSpec
	cases := map[string]struct {
		arrange       func(*world)
		change, spoil func(*spec)
		want          string
	}{
		"the claimer has not the key": {
			spoil: func(s *spec) { s.PublicKey = newConsumer(t, "x").publicKey() }, want: v1alpha1.ReasonProofInvalid,
		},
		"the sealing key was changed on the way": {
			spoil: func(s *spec) { s.SealingKey = newConsumer(t, "x").publicKey() }, want: v1alpha1.ReasonProofInvalid,
		},
		"the sealing key is none": {
			change: func(s *spec) { s.SealingKey = strings.Repeat("/", 43) + "=" }, want: v1alpha1.ReasonProofInvalid,
		},
		"everybody can sign for the key": {
			spoil: func(s *spec) {
				weak := append([]byte{1}, make([]byte, 31)...) // the point of order 1
				s.PublicKey = base64.StdEncoding.EncodeToString(weak)
				s.Proof = base64.StdEncoding.EncodeToString(append(weak, make([]byte, 32)...))
			},
			want: v1alpha1.ReasonProofInvalid,
		},
		"another key is pinned": {
			arrange: func(w *world) {
				w.edit(func(s *v1alpha1.PeerSpec) { s.PublicKey = newConsumer(t, "x").publicKey() })
			},
			want: v1alpha1.ReasonKeyMismatch,
		},
		"another cluster is meant": {
			arrange: func(w *world) { w.edit(func(s *v1alpha1.PeerSpec) { s.ClusterID = "c-bremen" }) },
			want:    v1alpha1.ReasonClusterIDMismatch,
		},
		"the claimer calls itself as we do": {
			change: func(s *spec) { s.ClusterID = "c-lubeck" }, want: v1alpha1.ReasonClusterIDMismatch,
		},
		"another Peer stands for the cluster": {
			arrange: func(w *world) {
				other := newPeer(v1alpha1.RoleConsumer)
				other.Name, other.Spec.ClusterID = "hamburg-too", "c-hamburg"
				if err := w.client.Create(t.Context(), other); err != nil {
					t.Fatal(err)
				}
			},
			want: v1alpha1.ReasonClusterIDTaken,
		},
		"another invitation is claimed": {
			change: func(s *spec) { s.Invitation = "another" }, want: v1alpha1.ReasonInvitationInvalid,
		},
		"the invitation has ended": {
			arrange: func(w *world) { w.clock.Step(time.Hour) }, want: v1alpha1.ReasonInvitationExpired,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
			w.reconcile()
			if tc.arrange != nil {
				tc.arrange(w)
			}
			c := newConsumer(t, "c-hamburg")
			c.receive(w)
			pinned := w.peer().Spec
			c.claims(w, tc.change, tc.spoil)
			result := w.reconcile()
			if result.RequeueAfter != readTime || !w.lives(c.invitation.Token) {
				t.Errorf("the claimer cannot read why it was refused; looked at again after %s", result.RequeueAfter)
			}
			w.expectRefused(tc.want)
			if got := w.peer().Spec; got.ClusterID != pinned.ClusterID || got.PublicKey != pinned.PublicKey {
				t.Errorf("pinned %q and %q", got.ClusterID, got.PublicKey)
			}
			w.expectEvents(v1alpha1.ReasonInvited, tc.want)

			w.clock.Step(readTime)
			w.reconcile()
			w.expectNo(v1alpha1.InvitationSecret, &corev1.Secret{})
			w.expectRefused(tc.want)
			w.expectEvents()
			w.expectNoWrites()
		})
	}
}

// expectRefused sees that both sides are told why the claim was refused, and that the claimer has nothing here.
func (w *world) expectRefused(reason string) {
	w.t.Helper()
	answer := meta.FindStatusCondition(w.claim().Status.Conditions, v1alpha1.ConditionAccepted)
	if answer == nil || answer.Status != metav1.ConditionFalse || answer.Reason != reason || answer.Message == "" {
		w.t.Errorf("Accepted is %+v, want %s", answer, reason)
	}
	if w.claim().Status.Session != nil {
		w.t.Error("there is a session")
	}
	w.expectJoined(metav1.ConditionFalse, reason)
	w.expectNo(v1alpha1.PeerServiceAccount, &corev1.ServiceAccount{})
	w.expectNo(v1alpha1.SessionSecret, &corev1.Secret{})
}

func TestRefusalDoesNotTellTheClaimerOfOthers(t *testing.T) {
	other := newPeer(v1alpha1.RoleConsumer)
	other.Name, other.Spec.ClusterID = "secret-customer", "c-hamburg"
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace(), other)
	w.reconcile()
	c := newConsumer(t, "c-hamburg")
	c.receive(w)
	c.claims(w, nil, nil)
	w.reconcile()
	answer := meta.FindStatusCondition(w.claim().Status.Conditions, v1alpha1.ConditionAccepted)
	if answer.Reason != v1alpha1.ReasonClusterIDTaken || strings.Contains(answer.Message, "secret-customer") {
		t.Errorf("answer %+v", answer)
	}
}

func TestClaimWithoutAnInvitationIsRefused(t *testing.T) {
	w := newInviteWorld(t, newPeer(v1alpha1.RoleConsumer), ownNamespace())
	c := newConsumer(t, "c-hamburg")
	claim := &v1alpha1.PeeringClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: v1alpha1.PeeringClaimName},
		Spec:       v1alpha1.PeeringClaimSpec{Invitation: "none", ClusterID: c.clusterID},
	}
	trust.SignClaim(c.key, c.publicKey(), &claim.Spec)
	if err := w.client.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonInvitationExpired)
	w.expectNoWrites()
}

func TestRenewalEndsOldTokensAndKeepsTheRest(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	twin := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hamburg-shop", Labels: map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeTwin, v1alpha1.LabelPeer: "hamburg",
	}}}
	mapping := &v1alpha1.NamespaceMapping{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "shop"}}
	for _, object := range []client.Object{twin, mapping} {
		if err := w.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	c := newConsumer(t, "c-hamburg")
	first := c.joins(w)
	w.expectEvents(v1alpha1.ReasonInvited, v1alpha1.ReasonJoined)
	oldInvitation, oldClaim := c.invitation.ID, w.claim().UID

	w.edit(func(spec *v1alpha1.PeerSpec) { spec.Invitation.Serial++ })
	w.reconcile()
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonInvited)
	w.expectNo(v1alpha1.PeeringClaimName, &v1alpha1.PeeringClaim{})
	if !w.lives(first.Token) {
		t.Error("the old session ended before the new invitation was used")
	}
	second := c.joins(w)
	w.expectJoined(metav1.ConditionTrue, v1alpha1.ReasonJoined)
	w.expectEvents(v1alpha1.ReasonInvited, v1alpha1.ReasonJoined)
	if w.lives(first.Token) || !w.lives(second.Token) {
		t.Error("the new session must take the place of the old one")
	}
	if c.invitation.ID == oldInvitation || w.claim().UID == oldClaim {
		t.Error("invitation and claim must be new ones")
	}
	w.expectSubjects(v1alpha1.ClusterRolePeerTenant, 1)
	for _, object := range []client.Object{twin, mapping} {
		uid := object.GetUID()
		w.get(object.GetNamespace(), object.GetName(), object)
		if object.GetUID() != uid || !object.GetDeletionTimestamp().IsZero() {
			t.Errorf("%T was touched", object)
		}
	}
}

func TestRefusedRenewalDoesNotDisturbThePeer(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	session := newConsumer(t, "c-hamburg").joins(w)
	w.edit(func(spec *v1alpha1.PeerSpec) { spec.Invitation.Serial++ })
	w.reconcile()
	thief := newConsumer(t, "c-hamburg")
	thief.receive(w)
	thief.claims(w, nil, nil)
	w.reconcile()
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonKeyMismatch)
	if !w.lives(session.Token) {
		t.Error("the peer's session ended")
	}
	w.expectSubjects(v1alpha1.ClusterRolePeerTenant, 1)
}

func TestClaimIsNotHeldByAFinalizer(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	newConsumer(t, "c-hamburg").joins(w)
	claim := w.claim()
	claim.Finalizers = []string{"hostile.example/for-ever"}
	if err := w.client.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	w.edit(func(spec *v1alpha1.PeerSpec) { spec.Invitation.Serial++ })
	w.reconcile()
	w.expectNo(v1alpha1.PeeringClaimName, claim)
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonInvited)
}

func TestSessionThatIsNotPickedUp(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	w.reconcile()
	c := newConsumer(t, "c-hamburg")
	c.receive(w)
	w.clock.Step(time.Hour - time.Second)
	c.claims(w, nil, nil)
	w.reconcile()
	w.clock.Step(time.Minute)
	w.reconcile()
	if !w.lives(c.invitation.Token) {
		t.Error("a consumer that claimed in time cannot pick up its session")
	}
	w.clock.Step(pickUpTime)
	w.reconcile()
	w.expectNo(v1alpha1.InvitationSecret, &corev1.Secret{})
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonInvitationExpired)

	session := c.opens(w)
	c.says(w, v1alpha1.ClaimJoined) // over the link, for which the invitation is not needed
	w.reconcile()
	w.expectJoined(metav1.ConditionTrue, v1alpha1.ReasonJoined)
	if !w.lives(session.Token) {
		t.Error("the session ended")
	}
}

func TestConsumerThatLeaves(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	c := newConsumer(t, "c-hamburg")
	c.joins(w)
	c.says(w, v1alpha1.ClaimLeaving)
	w.reconcile()
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonPeerLeft)
}

func TestSuspendedPeerHasNoRights(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	session := newConsumer(t, "c-hamburg").joins(w)
	for _, step := range []struct {
		access v1alpha1.PeerAccess
		want   int
	}{
		{v1alpha1.AccessSuspended, 0},
		{v1alpha1.AccessDraining, 1},
		{v1alpha1.AccessSuspended, 0},
		{"", 1},
	} {
		w.edit(func(spec *v1alpha1.PeerSpec) { spec.Access = step.access })
		w.reconcile()
		w.expectSubjects(v1alpha1.ClusterRolePeerTenant, step.want)
		w.expectJoined(metav1.ConditionTrue, v1alpha1.ReasonJoined)
		w.expectNoWrites()
	}
	if !w.lives(session.Token) {
		t.Error("the session ended")
	}
}

func TestPeerIsSuspendedBeforeItJoins(t *testing.T) {
	peer := invited(v1alpha1.RoleConsumer)
	peer.Spec.Access = v1alpha1.AccessSuspended
	w := newInviteWorld(t, peer, ownNamespace())
	newConsumer(t, "c-hamburg").joins(w)
	w.expectSubjects(v1alpha1.ClusterRolePeerTenant, 0)
	w.expectJoined(metav1.ConditionTrue, v1alpha1.ReasonJoined)
}

func TestPeerThatIsNoConsumerAnyMoreHasNoStatusOfOne(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer, v1alpha1.RoleProvider), ownNamespace())
	newConsumer(t, "c-hamburg").joins(w)
	w.edit(func(spec *v1alpha1.PeerSpec) {
		spec.Roles, spec.Invitation = []v1alpha1.PeerRole{v1alpha1.RoleProvider}, nil
	})
	w.reconcile()
	if status := w.peer().Status; meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionJoined) != nil || status.Invitation != nil {
		t.Errorf("status %+v", status)
	}
	w.expectNoWrites()
}

func TestInvitationBack(t *testing.T) {
	mutual := []v1alpha1.PeerRole{v1alpha1.RoleConsumer, v1alpha1.RoleProvider}
	cases := map[string]struct {
		roles  []v1alpha1.PeerRole
		change func(*trust.Invitation)
		want   string
		kept   bool
	}{
		"that of the claimer is kept": {roles: mutual, change: func(*trust.Invitation) {}, want: "", kept: true},
		"that of another cluster is refused": {
			roles: mutual, change: func(i *trust.Invitation) { i.ClusterID = "c-bremen" }, want: v1alpha1.ReasonInvitationInvalid,
		},
		"that of another key is refused": {
			roles: mutual, change: func(i *trust.Invitation) { i.PublicKey = newConsumer(t, "x").publicKey() },
			want: v1alpha1.ReasonInvitationInvalid,
		},
		"that which is none is refused": {
			roles: mutual, change: func(i *trust.Invitation) { i.Servers = nil }, want: v1alpha1.ReasonInvitationInvalid,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newInviteWorld(t, invited(tc.roles...), ownNamespace())
			w.reconcile()
			c := newConsumer(t, "c-hamburg")
			c.receive(w)
			if !c.invitation.Mutual() {
				t.Fatal("the invitation does not ask for one back")
			}
			c.claims(w, c.invitesBack(tc.change), nil)
			w.reconcile()
			answer := meta.FindStatusCondition(w.claim().Status.Conditions, v1alpha1.ConditionAccepted)
			if (tc.want == "") != (answer.Status == metav1.ConditionTrue) || tc.want != "" && answer.Reason != tc.want {
				t.Errorf("answer %+v, want %q", answer, tc.want)
			}
			join := &corev1.Secret{}
			if w.exists(tenant, v1alpha1.JoinSecret, join) != tc.kept {
				t.Fatalf("kept: %t", !tc.kept)
			}
			if tc.kept {
				back, err := trust.ParseInvitation(string(join.Data[v1alpha1.InvitationToken]))
				if err != nil || back.ID != "back" || w.peer().Annotations[v1alpha1.AnnotationJoin] != "back" {
					t.Errorf("kept %+v, %v; annotations of the Peer: %v", back, err, w.peer().Annotations)
				}
			}
			w.expectNoWrites()
		})
	}
}

func TestInvitationBackThatNobodyAskedForIsIgnored(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	w.reconcile()
	c := newConsumer(t, "c-hamburg")
	c.receive(w)
	key, err := trust.NewSealingKey()
	if err != nil {
		t.Fatal(err)
	}
	c.invitation.SealingKey = key.Public()
	c.claims(w, c.invitesBack(func(*trust.Invitation) {}), nil)
	w.reconcile()
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonJoining)
	w.expectNo(v1alpha1.JoinSecret, &corev1.Secret{})
}
