// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

// invitationOf is an invitation that hamburg has made for lubeck, which it calls the-queen.
func invitationOf(t *testing.T, mutual bool, expires time.Time) string {
	t.Helper()
	seed := make([]byte, ed25519.SeedSize)
	invitation := &trust.Invitation{
		ID: "0123456789abcdef", ClusterID: "hamburg", Servers: []string{"https://203.0.113.7:6443"},
		PublicKey: trust.FormatPublicKey(ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)),
		Namespace: "hanse-peer-the-queen", Token: "token", Expires: expires.UTC().Truncate(time.Second),
	}
	if mutual {
		invitation.SealingKey = invitation.PublicKey // any 32 bytes
	}
	text, err := invitation.Format()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func newTestJoining(t *testing.T, mutual, theyToo bool) *joining {
	t.Helper()
	j, err := newJoining(invitationOf(t, theyToo, now.Add(time.Hour)), now)
	if err != nil {
		t.Fatal(err)
	}
	j.mutual, j.wait, j.system = mutual, true, v1alpha1.SystemNamespace
	return j
}

// accept is a manager that uses the invitation, and a provider that accepts it.
func accept(ctx context.Context, c client.Client, written client.Object) error {
	if err := prepare(ctx, c, written); err != nil {
		return err
	}
	peer, isPeer := written.(*v1alpha1.Peer)
	if !isPeer || peer.Annotations[v1alpha1.AnnotationJoin] == "" {
		return nil
	}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: v1alpha1.JoinSecret}
	secret := &corev1.Secret{}
	if err := c.Get(ctx, key, secret); err != nil {
		return err
	}
	link := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: v1alpha1.LinkSecret},
		Data:       map[string][]byte{v1alpha1.LinkSecretInvitation: []byte(peer.Annotations[v1alpha1.AnnotationJoin])},
	}
	setCondition(peer, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
	if peer.HasRole(v1alpha1.RoleConsumer) {
		setCondition(peer, v1alpha1.ConditionJoined, metav1.ConditionTrue, v1alpha1.ReasonJoined, "")
	}
	return errors.Join(c.Create(ctx, link), c.Delete(ctx, secret), c.Update(ctx, peer))
}

func TestJoinUsesTheInvitation(t *testing.T) {
	w := newWorld(t, system()...)
	w.manager = accept
	j := newTestJoining(t, false, false)
	for _, time := range []string{"once", "again"} {
		command, out, _ := listener()
		if err := doJoin(soon(t), command, w.client, j); err != nil {
			t.Fatal(time, err)
		}
		if got := out.String(); got != "lubeck can run pods in hamburg.\n" {
			t.Errorf("%s: stdout is %q", time, got)
		}
	}
	want := v1alpha1.PeerSpec{
		ClusterID: "hamburg", PublicKey: j.invitation.PublicKey, Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider},
	}
	if diff := cmp.Diff(want, w.peer(t, "hamburg").Spec); diff != "" {
		t.Errorf("the Peer (-want +got):\n%s", diff)
	}
	if secret, err := tenantSecret(t.Context(), w.client, "hamburg", v1alpha1.JoinSecret); secret != nil || err != nil {
		t.Errorf("an invitation that was used is there again: %v, %v", secret, err)
	}
}

func TestJoinSaysWhichDirectionsWereAgreedOn(t *testing.T) {
	for name, test := range map[string]struct {
		mutual, theyToo bool
		roles           []v1alpha1.PeerRole
		says            string
	}{
		"nobody wants both": {roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}, says: "lubeck can run pods in hamburg.\n"},
		"we want both":      {mutual: true, roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}, says: "only one direction: hamburg did not say --mutual"},
		"they want both":    {theyToo: true, roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}, says: "only one direction: hamburg would run pods here"},
		"both want both":    {mutual: true, theyToo: true, roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider, v1alpha1.RoleConsumer}, says: "lubeck and hamburg run pods in each other"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, system()...)
			w.manager = accept
			command, out, _ := listener()
			if err := doJoin(soon(t), command, w.client, newTestJoining(t, test.mutual, test.theyToo)); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), test.says) {
				t.Errorf("%q does not say %q", out, test.says)
			}
			peer := w.peer(t, "hamburg")
			if diff := cmp.Diff(test.roles, peer.Spec.Roles); diff != "" {
				t.Errorf("roles (-want +got):\n%s", diff)
			}
			if invited := peer.Spec.Invitation != nil; invited != (test.mutual && test.theyToo) {
				t.Errorf("hamburg is invited back: %v", invited)
			}
		})
	}
}

func TestJoinTakesOverNoOtherCluster(t *testing.T) {
	of := func(name, cluster, key string) *v1alpha1.Peer {
		peer := newPeer(name, v1alpha1.RoleProvider)
		peer.Spec.ClusterID, peer.Spec.PublicKey = cluster, key
		return peer
	}
	agentless := of("hamburg", "", "")
	agentless.Spec.Mode = v1alpha1.ModeAgentless
	for name, test := range map[string]struct {
		peer *v1alpha1.Peer
		as   string
		says string // "" if it is fine
	}{
		"another cluster of the name":         {peer: of("hamburg", "bremen", ""), says: "--as"},
		"the cluster with another key":        {peer: of("hamburg", "hamburg", strings.Repeat("A", 43)+"="), says: "kubectl patch peer hamburg"},
		"the cluster under another name":      {peer: of("friend", "hamburg", ""), as: "hamburg", says: "--as friend"},
		"a cluster without Hanse of the name": {peer: agentless, says: "agentless"},
		"the cluster, invited before":         {peer: of("hamburg", "", "")},
		"the cluster by its other name":       {peer: of("friend", "hamburg", ""), as: "friend"},
		"the cluster, by no name":             {peer: of("friend", "hamburg", "")},
		"another cluster":                     {peer: of("bremen", "bremen", "")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(system(), test.peer)...)
			w.manager = accept
			j := newTestJoining(t, false, false)
			j.as = test.as
			command, _, _ := listener()
			err := doJoin(soon(t), command, w.client, j)
			if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("error %v, want one that says %q", err, test.says)
			}
			if test.says != "" {
				if diff := cmp.Diff(test.peer.Spec, w.peer(t, test.peer.Name).Spec); diff != "" {
					t.Errorf("the Peer was changed (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// refuse is a manager whose invitation the provider does not accept. A session of before may stand.
func refuse(session metav1.ConditionStatus) func(context.Context, client.Client, client.Object) error {
	return func(ctx context.Context, c client.Client, written client.Object) error {
		peer, isPeer := written.(*v1alpha1.Peer)
		if isPeer && peer.Annotations[v1alpha1.AnnotationJoin] != "" {
			setCondition(peer, v1alpha1.ConditionSession, session, v1alpha1.ReasonInvitationUsed, "another cluster was faster")
			return c.Update(ctx, peer)
		}
		return prepare(ctx, c, written)
	}
}

func TestARefusedInvitationIsNotWaitedFor(t *testing.T) {
	w := newWorld(t, system()...)
	w.manager = refuse(metav1.ConditionFalse)
	command, _, _ := listener()
	err := doJoin(soon(t), command, w.client, newTestJoining(t, false, false))
	if err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "another cluster was faster") {
		t.Errorf("error %v", err)
	}
}

// A join that fails leaves a Peer as it was that does well without it.
func TestAJoinInVainChangesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		namespace string // of ours at hamburg, as we know it
		session   metav1.ConditionStatus
		roles     []v1alpha1.PeerRole
		says      string
	}{
		"hamburg knows us by another name": {
			namespace: "hanse-peer-lubeck", roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}, says: "as Peer lubeck",
		},
		"hamburg refuses it, and the session stands": {
			namespace: "hanse-peer-the-queen", session: metav1.ConditionTrue,
			roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider}, says: "another cluster was faster",
		},
		"hamburg, a mere consumer, refuses it": {
			session: metav1.ConditionFalse, roles: []v1alpha1.PeerRole{v1alpha1.RoleConsumer}, says: "another cluster was faster",
		},
	} {
		t.Run(name, func(t *testing.T) {
			j, peer := newTestJoining(t, false, false), newPeer("hamburg", test.roles...)
			peer.Spec.PublicKey = j.invitation.PublicKey
			setCondition(peer, v1alpha1.ConditionAuthenticated, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
			objects := append(system(), peer, withSecret(peer, "", nil)[1])
			if test.namespace != "" {
				objects = append(objects, linkTo(t, test.namespace))
			}
			w := newWorld(t, objects...)
			w.manager = refuse(test.session)
			command, _, _ := listener()
			err := doJoin(soon(t), command, w.client, j)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want one that says %q", err, test.says)
			}
			after := w.peer(t, "hamburg")
			if diff := cmp.Diff(peer.Spec, after.Spec); diff != "" || len(after.Annotations) > 0 {
				t.Errorf("the Peer was changed (-want +got):\n%s%v", diff, after.Annotations)
			}
			if secret, err := tenantSecret(t.Context(), w.client, "hamburg", v1alpha1.JoinSecret); secret != nil || err != nil {
				t.Errorf("the invitation was left there: %v", err)
			}
		})
	}
}

// linkTo is what lies in the tenant namespace of hamburg once we have joined it.
func linkTo(t *testing.T, namespace string) *corev1.Secret {
	t.Helper()
	data, err := peers.Credentials{
		Servers: []string{"https://203.0.113.7:6443"}, Namespace: namespace, Token: "token", Invitation: "of-before",
	}.SecretData()
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("hamburg"), Name: v1alpha1.LinkSecret}, Data: data,
	}
}

func TestAnEarlierRefusalDoesNotEndTheNextAttempt(t *testing.T) {
	testkit.WithTimeout(t, func(ctx context.Context, t *testing.T) {
		peer := newPeer("hamburg", v1alpha1.RoleProvider)
		setCondition(peer, v1alpha1.ConditionSession, metav1.ConditionFalse, v1alpha1.ReasonInvitationUsed, "another cluster was faster")
		w := newWorld(t, append(system(), peer)...)
		command, _, _ := listener()
		err := doJoin(ctx, command, w.client, newTestJoining(t, false, false))
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "another cluster was faster") {
			t.Errorf("error %v, want one that waited, and says what it saw", err)
		}
	})
}

func TestInvitationsThatCannotBeUsedSaySo(t *testing.T) {
	late := invitationOf(t, false, now.Add(-time.Second))
	if _, err := newJoining(late, now); err == nil || !strings.Contains(err.Error(), "kubectl hanse invite the-queen --renew") {
		t.Errorf("expired: %v", err)
	}
	if _, err := newJoining(late[:len(late)/2], now); !errors.Is(err, trust.ErrInvitation) || strings.Contains(err.Error(), late[:20]) {
		t.Errorf("cut off: %v", err)
	}
	objects := system()
	objects[1].(*corev1.ConfigMap).Data[v1alpha1.ClusterInfoID] = "hamburg"
	command, _, _ := listener()
	err := doJoin(soon(t), command, newWorld(t, objects...).client, newTestJoining(t, false, false))
	if err == nil || !strings.Contains(err.Error(), "its own peer") {
		t.Errorf("our own: %v", err)
	}
	if _, err := invitationText(strings.NewReader(" \n"), "-"); err == nil {
		t.Error("nothing on standard input is an invitation")
	}
	if got, err := invitationText(strings.NewReader(late+"\n"), "-"); err != nil || got != late {
		t.Errorf("standard input: %q, %v", got, err)
	}
}

func TestJoinDryRunPrintsAllObjects(t *testing.T) {
	text := invitationOf(t, true, time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC))
	out, err := run(t, "join", text, "--mutual", "--server", "https://198.51.100.1:6443", "--dry-run=client", "-o", "yaml")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "join.yaml", out)
}

func TestARenewedMutualInvitationInvitesBackOnceMore(t *testing.T) {
	peer := newPeer("hamburg", v1alpha1.RoleProvider, v1alpha1.RoleConsumer)
	peer.Spec.Invitation = &v1alpha1.PeerInvitation{Serial: 4}
	setCondition(peer, v1alpha1.ConditionJoined, metav1.ConditionTrue, v1alpha1.ReasonJoined, "")
	for name, test := range map[string]struct {
		mutual, theyToo bool
		serial          int64
	}{
		"both ask for both directions": {mutual: true, theyToo: true, serial: 5},
		"they ask for both":            {theyToo: true, serial: 4},
		"we ask for both":              {mutual: true, serial: 4},
	} {
		t.Run(name, func(t *testing.T) {
			peer := peer.DeepCopy()
			newTestJoining(t, test.mutual, test.theyToo).put(peer, nil)
			if got := peer.Spec.Invitation.Serial; got != test.serial {
				t.Errorf("serial %d, want %d", got, test.serial)
			}
		})
	}
}

// Our own invitation that nobody has used does not keep the other direction from being ready.
func TestJoinDoesNotWaitForTheOtherDirection(t *testing.T) {
	peer := newPeer("hamburg", v1alpha1.RoleConsumer)
	peer.Spec.ClusterID, peer.Spec.Invitation = "", &v1alpha1.PeerInvitation{Serial: 1}
	w := newWorld(t, append(system(), peer)...)
	w.manager = func(ctx context.Context, c client.Client, written client.Object) error {
		if err := accept(ctx, c, written); err != nil {
			return err
		}
		peer, isPeer := written.(*v1alpha1.Peer)
		if !isPeer || peer.Annotations[v1alpha1.AnnotationJoin] == "" {
			return nil
		}
		for _, kind := range []string{v1alpha1.ConditionAuthenticated, v1alpha1.ConditionCompatible, v1alpha1.ConditionAdvertised} {
			setCondition(peer, kind, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
		}
		setCondition(peer, v1alpha1.ConditionJoined, metav1.ConditionFalse, v1alpha1.ReasonInvited, "it waits")
		setCondition(peer, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInvited, "it waits")
		return c.Update(ctx, peer)
	}
	command, out, _ := listener()
	if err := doJoin(soon(t), command, w.client, newTestJoining(t, false, false)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "until hamburg uses the invitation") {
		t.Errorf("stdout is %q", out)
	}
}

func TestJoinDryRunPrintsABroker(t *testing.T) {
	text := invitationOf(t, false, time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC))
	out, err := run(t, "join", text, "--broker", "--accept-members", "bremen,team-*", "--dry-run=client")
	if err != nil || !strings.Contains(out, "  acceptMembers:\n  - bremen\n  - team-*\n") || !strings.Contains(out, "  - Provider\n  - Broker\n") {
		t.Errorf("error %v\n%s", err, out)
	}
}
