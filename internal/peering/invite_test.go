// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

func TestInvitationIsMadeAsAskedFor(t *testing.T) {
	peer := invited(v1alpha1.RoleConsumer)
	peer.Spec.Invitation = &v1alpha1.PeerInvitation{
		Serial: 3, TimeToLive: &metav1.Duration{Duration: 90 * time.Second}, Servers: []string{"https://lubeck.example:6443"},
	}
	w := newInviteWorld(t, peer, ownNamespace())
	result := w.reconcile()
	if result.RequeueAfter != 90*time.Second {
		t.Errorf("looked at again after %s, want when the invitation ends", result.RequeueAfter)
	}

	c := newConsumer(t, "c-hamburg")
	c.receive(w)
	want := &trust.Invitation{
		ID: c.invitation.ID, ClusterID: "c-lubeck", PublicKey: c.invitation.PublicKey, Namespace: tenant,
		Servers: []string{"https://lubeck.example:6443"}, Token: "token-1", Expires: w.clock.Now().Add(90 * time.Second),
	}
	if diff := cmp.Diff(want, c.invitation); diff != "" {
		t.Error(diff)
	}
	if len(c.invitation.ID)*5 < 128 { // in base 32
		t.Errorf("id %q has not 128 bits", c.invitation.ID)
	}
	token := w.tokens["token-1"]
	if token.account != v1alpha1.InvitationServiceAccount || token.secret != v1alpha1.InvitationSecret {
		t.Errorf("token of %+v", token)
	}
	w.expectSubjects(v1alpha1.ClusterRolePeerInvitation, 1)
	w.expectNo(v1alpha1.PeerServiceAccount, &corev1.ServiceAccount{})
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonInvited)
	if status := w.peer().Status.Invitation; status == nil || status.Serial != 3 || !status.Expires.Time.Equal(want.Expires) {
		t.Errorf("status.invitation is %+v", status)
	}
	w.expectEvents(v1alpha1.ReasonInvited)
	w.expectNoWrites()
}

func TestUnusedInvitationEnds(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	w.reconcile()
	w.expectEvents(v1alpha1.ReasonInvited)
	w.clock.Step(time.Hour - time.Second)
	w.reconcile()
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonInvited)

	w.clock.Step(time.Second)
	w.reconcile()
	w.expectNo(v1alpha1.InvitationSecret, &corev1.Secret{})
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonInvitationExpired)
	w.expectEvents(v1alpha1.ReasonInvitationExpired)
	if w.lives("token-1") {
		t.Error("the token of an invitation that has ended lives")
	}
	w.expectNoWrites()

	w.edit(func(spec *v1alpha1.PeerSpec) { spec.Invitation.Serial++ })
	w.reconcile()
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonInvited)
	if !w.lives("token-2") {
		t.Error("no new invitation")
	}
}

func TestInvitationOfAHigherSerialReplacesAnOpenOne(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	w.reconcile()
	w.edit(func(spec *v1alpha1.PeerSpec) { spec.Invitation.Serial = 7 })
	w.reconcile()
	w.expectEvents(v1alpha1.ReasonInvited, v1alpha1.ReasonInvited)
	if w.lives("token-1") || !w.lives("token-2") {
		t.Error("the new invitation did not take the place of the old one")
	}
}

func TestWithdrawnInvitationEnds(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	w.reconcile()
	w.edit(func(spec *v1alpha1.PeerSpec) { spec.Invitation = nil })
	w.reconcile()
	w.expectNo(v1alpha1.InvitationSecret, &corev1.Secret{})
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonNotInvited)
}

func TestServerAddressesAreFoundOut(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	w.config.Servers = nil
	w.restart()
	result := w.reconcile()
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonNoServerAddress)
	w.expectNo(v1alpha1.InvitationSecret, &corev1.Secret{})
	if result.RequeueAfter > addressPause {
		t.Errorf("looked for again after %s only", result.RequeueAfter)
	}

	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.2"}}, {Addresses: []string{"192.0.2.1"}}},
		Ports:       []discoveryv1.EndpointPort{{Port: ptr.To[int32](6443)}},
	}
	if err := w.client.Create(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(addressPause)
	w.reconcile()
	c := newConsumer(t, "c-hamburg")
	c.receive(w)
	if diff := cmp.Diff([]string{"https://192.0.2.1:6443", "https://192.0.2.2:6443"}, c.invitation.Servers); diff != "" {
		t.Error(diff)
	}
}

func TestServersThatNobodyCanUseAreToldInACondition(t *testing.T) {
	peer := invited(v1alpha1.RoleConsumer)
	peer.Spec.Invitation.Servers = []string{"https://:6443"}
	w := newInviteWorld(t, peer, ownNamespace())
	w.reconcile()
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonInvitationInvalid)
	w.expectNo(v1alpha1.InvitationSecret, &corev1.Secret{})
	w.expectNoWrites()
}

func TestServersOf(t *testing.T) {
	port := []discoveryv1.EndpointPort{{Port: ptr.To[int32](443)}}
	cases := map[string]struct {
		slices []discoveryv1.EndpointSlice
		want   []string
	}{
		"none": {want: []string{}},
		"IPv6 is put in brackets": {
			slices: []discoveryv1.EndpointSlice{{
				AddressType: discoveryv1.AddressTypeIPv6, Ports: port,
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"2001:db8::1"}}},
			}},
			want: []string{"https://[2001:db8::1]:443"},
		},
		"what is not ready, has no port or is named twice is left out": {
			slices: []discoveryv1.EndpointSlice{
				{
					Ports: port,
					Endpoints: []discoveryv1.Endpoint{
						{Addresses: []string{"192.0.2.9"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}},
						{Addresses: []string{"192.0.2.1"}},
						{Addresses: []string{"192.0.2.1"}},
					},
				},
				{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.3"}}}},
				{
					AddressType: discoveryv1.AddressTypeFQDN, Ports: port,
					Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"api.example"}}},
				},
			},
			want: []string{"https://192.0.2.1:443"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, serversOf(tc.slices)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTenantNamespaceIsWaitedFor(t *testing.T) {
	foreign := ownNamespace()
	foreign.Labels[v1alpha1.LabelClusterID] = "c-bremen"
	former := ownNamespace()
	former.Annotations[v1alpha1.AnnotationPeerUID] = "former-uid"
	cases := map[string]*corev1.Namespace{
		"it is that of another cluster": foreign,
		"it is that of a former Peer":   former,
		"it is no tenant namespace":     {ObjectMeta: metav1.ObjectMeta{Name: tenant}},
		"it is another namespace":       {ObjectMeta: metav1.ObjectMeta{Name: "other"}},
	}
	for name, ns := range cases {
		t.Run(name, func(t *testing.T) {
			w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ns)
			w.reconcile()
			w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonPending)
			w.expectNo(v1alpha1.InvitationSecret, &corev1.Secret{})
			w.expectEvents()
			w.expectNoWrites()
		})
	}
}

func TestRightsThatHaveNotSettledAreTriedAgainSoon(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	w.verb = func(verb string) error {
		if verb == "apply status" {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	}
	if result := w.reconcile(); result.RequeueAfter != settlePause {
		t.Errorf("tried again after %s", result.RequeueAfter)
	}
	w.clock.Step(settleTime)
	if _, err := w.tryReconcile(); !apierrors.IsForbidden(err) {
		t.Errorf("error %v, want that rights are missing", err)
	}
	w.verb = nil
	w.reconcile()
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonInvited)
}

func TestPeersWithoutInvitationsAreLeftAlone(t *testing.T) {
	agentless := newPeer(v1alpha1.RoleProvider)
	agentless.Spec.Mode = v1alpha1.ModeAgentless
	leaving := invited(v1alpha1.RoleConsumer)
	leaving.Finalizers, leaving.DeletionTimestamp = []string{v1alpha1.FinalizerPeer}, &metav1.Time{Time: time.Unix(1, 0)}
	cases := map[string]*v1alpha1.Peer{
		"an agentless one": agentless, "one that is being deleted": leaving, "a provider": newPeer(v1alpha1.RoleProvider),
	}
	for name, peer := range cases {
		t.Run(name, func(t *testing.T) {
			w := newInviteWorld(t, peer, ownNamespace())
			if w.reconcile(); w.writes > w.statuses {
				t.Errorf("%d writes", w.writes)
			}
		})
	}
}

func TestSecretThatIsNoInvitationIsReplaced(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: v1alpha1.InvitationSecret}}
	if err := w.client.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	newConsumer(t, "c-hamburg").receive(w)
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonInvited)
}

func TestInvitationThatEndsBeforeItIsMade(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	w.verb = func(verb string) error {
		if verb == "create token" {
			return errKilled
		}
		return nil
	}
	if _, err := w.tryReconcile(); err == nil {
		t.Fatal("no error")
	}
	w.verb = nil
	w.clock.Step(time.Hour)
	w.reconcile()
	w.expectNo(v1alpha1.InvitationSecret, &corev1.Secret{})
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonInvitationExpired)
	w.expectEvents(v1alpha1.ReasonInvitationExpired)
	w.expectNoWrites()
}

func TestInvitationIsNotMadeWithoutAnAddress(t *testing.T) {
	w := newInviteWorld(t, invited(v1alpha1.RoleConsumer), ownNamespace())
	w.limit = 1 // the Secret is there
	if _, err := w.tryReconcile(); err == nil {
		t.Fatal("no error")
	}
	w.config.Servers = nil
	w.restart()
	w.reconcile()
	w.expectJoined(metav1.ConditionFalse, v1alpha1.ReasonNoServerAddress)
	w.expectNoWrites()
}
