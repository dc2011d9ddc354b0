// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// mint makes the invitations that Peers ask for.
func mint(ctx context.Context, c client.Client, written client.Object) error {
	if err := prepare(ctx, c, written); err != nil {
		return err
	}
	peer, isPeer := written.(*v1alpha1.Peer)
	if !isPeer || peer.Spec.Invitation == nil {
		return nil
	}
	secret := invitationSecret(peer.Name, peer.Spec.Invitation.Serial, time.Now().Add(time.Hour))
	if err := c.Create(ctx, secret); err != nil {
		return c.Update(ctx, secret)
	}
	return nil
}

func invitationSecret(peer string, serial int64, expires time.Time) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.TenantNamespace(peer), Name: v1alpha1.InvitationSecret,
			Annotations: map[string]string{
				v1alpha1.AnnotationSerial: strconv.FormatInt(serial, 10), v1alpha1.AnnotationExpires: expires.UTC().Format(time.RFC3339),
			},
		},
		Data: map[string][]byte{
			v1alpha1.InvitationToken: []byte("hanse1.number-" + strconv.FormatInt(serial, 10)), "sealing-key": []byte("private"),
		},
	}
}

func TestInviteSaysHowToBecomeAMember(t *testing.T) {
	w := newWorld(t)
	w.manager = func(ctx context.Context, c client.Client, written client.Object) error {
		if err := mint(ctx, c, written); err != nil {
			return err
		}
		peer := written.(*v1alpha1.Peer)
		setCondition(peer, v1alpha1.ConditionAdmitted, metav1.ConditionTrue, v1alpha1.ReasonAdmitted, "")
		return c.Update(ctx, peer)
	}
	command, out, told := listener()
	flags := &inviteFlags{invitationRequest: invitationRequest{Member: true}, writeFlags: writeFlags{waitFlags: waitFlags{wait: true}}}
	if err := doInvite(soon(t), command, w.client, flags, "lubeck"); err != nil || out.String() != "hanse1.number-1\n" {
		t.Errorf("stdout is %q: %v", out, err)
	}
	if !strings.Contains(told.String(), "kubectl hanse join TOKEN --broker") {
		t.Errorf("the user is told %q", told)
	}
}

func TestInvitePrintsTheTokenAlone(t *testing.T) {
	w := newWorld(t)
	w.manager = mint
	command, out, told := listener()
	flags := &inviteFlags{writeFlags: writeFlags{waitFlags: waitFlags{wait: true}}}
	if err := doInvite(soon(t), command, w.client, flags, "lubeck"); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "hanse1.number-1\n" {
		t.Errorf("stdout is %q", got)
	}
	if !strings.Contains(told.String(), "kubectl hanse join") {
		t.Errorf("the user is told %q", told)
	}
	want := v1alpha1.PeerSpec{
		Roles: []v1alpha1.PeerRole{v1alpha1.RoleConsumer}, Invitation: &v1alpha1.PeerInvitation{Serial: 1},
	}
	if diff := cmp.Diff(want, w.peer(t, "lubeck").Spec); diff != "" {
		t.Errorf("the Peer (-want +got):\n%s", diff)
	}

	// Asked again, it is the same invitation.
	out.Reset()
	if err := doInvite(soon(t), command, w.client, flags, "lubeck"); err != nil || out.String() != "hanse1.number-1\n" {
		t.Errorf("the second time: %q, %v", out, err)
	}
	// As YAML, it is the Secret.
	out.Reset()
	flags.output = "yaml"
	if err := doInvite(soon(t), command, w.client, flags, "lubeck"); err != nil ||
		strings.Contains(out.String(), "sealing-key") || !strings.Contains(out.String(), "kind: Secret") || !strings.Contains(out.String(), "name: hanse-invitation") {
		t.Errorf("as YAML: %q, %v", out, err)
	}
}

func TestInvitationRequestsBecomePeers(t *testing.T) {
	known := func(serial int64) *v1alpha1.Peer {
		peer := newPeer("lubeck", v1alpha1.RoleConsumer)
		peer.Spec.PublicKey, peer.Spec.Invitation = "key", &v1alpha1.PeerInvitation{Serial: serial}
		return peer
	}
	made := func(peer *v1alpha1.Peer) *v1alpha1.Peer {
		peer.Status.Invitation = &v1alpha1.InvitationStatus{Serial: peer.Spec.Invitation.Serial}
		return peer
	}
	refused := func(peer *v1alpha1.Peer) *v1alpha1.Peer {
		setCondition(peer, v1alpha1.ConditionJoined, metav1.ConditionFalse, v1alpha1.ReasonClusterIDTaken, "")
		return peer
	}
	valid, expired := invitationSecret("lubeck", 3, now.Add(time.Minute)), invitationSecret("lubeck", 3, now.Add(-time.Minute))
	for name, test := range map[string]struct {
		request invitationRequest
		peer    *v1alpha1.Peer
		secret  *corev1.Secret
		serial  int64
		roles   int
		key     string
	}{
		"a new peer":                         {peer: &v1alpha1.Peer{}, serial: 1, roles: 1},
		"a new peer, both ways":              {peer: &v1alpha1.Peer{}, request: invitationRequest{Mutual: true}, serial: 1, roles: 2},
		"a member":                           {peer: &v1alpha1.Peer{}, request: invitationRequest{Member: true}, serial: 1, roles: 2},
		"one that can be used, by a member":  {peer: made(known(3)), secret: valid, request: invitationRequest{Member: true}, serial: 3, roles: 2, key: "key"},
		"a provider of ours":                 {peer: newPeer("lubeck", v1alpha1.RoleProvider), serial: 1, roles: 2},
		"one that is being made":             {peer: known(3), serial: 3, roles: 1, key: "key"},
		"one that can be used":               {peer: made(known(3)), secret: valid, serial: 3, roles: 1, key: "key"},
		"one that can be used, but another":  {peer: made(known(3)), secret: valid, request: invitationRequest{Renew: true}, serial: 4, roles: 1, key: "key"},
		"one that somebody used in vain":     {peer: refused(made(known(3))), secret: valid, serial: 4, roles: 1, key: "key"},
		"one that was for one way only":      {peer: made(known(3)), secret: valid, request: invitationRequest{Mutual: true}, serial: 4, roles: 2, key: "key"},
		"one that named another address":     {peer: made(known(3)), secret: valid, request: invitationRequest{Servers: []string{"https://x"}}, serial: 4, roles: 1, key: "key"},
		"one that has expired":               {peer: made(known(3)), secret: expired, serial: 4, roles: 1, key: "key"},
		"one that was used":                  {peer: made(known(3)), serial: 4, roles: 1, key: "key"},
		"one that an administrator removed":  {peer: made(known(3)), secret: invitationSecret("lubeck", 2, now), serial: 3, roles: 1, key: "key"},
		"a Peer that was made anew":          {peer: newPeer("lubeck", v1alpha1.RoleConsumer), secret: valid, serial: 4, roles: 1},
		"the cluster has another key":        {peer: made(known(3)), secret: valid, request: invitationRequest{NewKey: true}, serial: 4, roles: 1},
		"an older Secret, not yet replaced":  {peer: known(4), secret: valid, serial: 4, roles: 1, key: "key"},
		"a life, after one of the same life": {peer: made(known(3)), secret: valid, request: invitationRequest{TimeToLive: &metav1.Duration{Duration: time.Minute}}, serial: 4, roles: 1, key: "key"},
	} {
		t.Run(name, func(t *testing.T) {
			peer := test.peer.DeepCopy()
			test.request.put(peer, test.secret, now)
			if got := peer.Spec.Invitation.Serial; got != test.serial {
				t.Errorf("serial %d, want %d", got, test.serial)
			}
			if len(peer.Spec.Roles) != test.roles || !peer.HasRole(v1alpha1.RoleConsumer) {
				t.Errorf("roles %v", peer.Spec.Roles)
			}
			if peer.Spec.PublicKey != test.key {
				t.Errorf("public key %q, want %q", peer.Spec.PublicKey, test.key)
			}
		})
	}
}

func TestPeersThatHaveJoinedAreInvitedOnlyOnRequest(t *testing.T) {
	peer := newPeer("lubeck", v1alpha1.RoleConsumer)
	setCondition(peer, v1alpha1.ConditionJoined, metav1.ConditionTrue, v1alpha1.ReasonJoined, "")
	w := newWorld(t, peer)
	w.manager = mint
	command, _, told := listener()
	flags := &inviteFlags{writeFlags: writeFlags{waitFlags: waitFlags{wait: true}}}
	err := doInvite(soon(t), command, w.client, flags, "lubeck")
	if !errors.Is(err, errJoined) || !strings.Contains(err.Error(), "--renew") {
		t.Errorf("error %v", err)
	}
	flags.NewKey = true
	if err := doInvite(soon(t), command, w.client, flags, "lubeck"); err != nil {
		t.Error(err)
	}
	if !strings.Contains(told.String(), "WARNING") {
		t.Errorf("a forgotten key is not said loudly: %q", told)
	}
}

func TestAPeerThatHasJoinedBecomesAMemberWithoutAnInvitation(t *testing.T) {
	enabled := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.MembersNamespace}}}
	for name, test := range map[string]struct {
		admitted metav1.ConditionStatus
		reason   string
		there    []client.Object
		says     string // in an error, "" if there is none
		final    bool   // it is not waited for
	}{
		"here":                  {admitted: metav1.ConditionTrue, reason: v1alpha1.ReasonAdmitted},
		"where is no broker":    {admitted: metav1.ConditionFalse, reason: v1alpha1.ReasonBrokerDisabled, says: "set broker.enabled", final: true},
		"where is a broker now": {admitted: metav1.ConditionFalse, reason: v1alpha1.ReasonBrokerDisabled, there: enabled, says: "set broker.enabled"},
		"where nobody notices":  {admitted: metav1.ConditionUnknown, says: "kubectl hanse check"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.WithTimeout(t, func(ctx context.Context, t *testing.T) {
				peer := newPeer("lubeck", v1alpha1.RoleConsumer)
				peer.Spec.Invitation = &v1alpha1.PeerInvitation{Serial: 3}
				setCondition(peer, v1alpha1.ConditionJoined, metav1.ConditionTrue, v1alpha1.ReasonJoined, "")
				w := newWorld(t, append(test.there, peer)...)
				w.manager = func(ctx context.Context, c client.Client, written client.Object) error {
					member := written.(*v1alpha1.Peer)
					setCondition(member, v1alpha1.ConditionAdmitted, test.admitted, test.reason, "set broker.enabled")
					return c.Update(ctx, member)
				}
				command, out, told := listener()
				flags := &inviteFlags{invitationRequest: invitationRequest{Member: true}, writeFlags: writeFlags{waitFlags: waitFlags{wait: true}}}
				err := doInvite(ctx, command, w.client, flags, "lubeck")
				if test.says == "" && (err != nil || !strings.Contains(told.String(), "role Member")) || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says) || errors.Is(err, context.DeadlineExceeded) == test.final) {
					t.Errorf("error %v, want one that says %q; told %q", err, test.says, told)
				}
				want := v1alpha1.PeerSpec{
					ClusterID: "lubeck", Roles: []v1alpha1.PeerRole{v1alpha1.RoleConsumer, v1alpha1.RoleMember}, Invitation: &v1alpha1.PeerInvitation{Serial: 3},
				}
				if diff := cmp.Diff(want, w.peer(t, "lubeck").Spec); diff != "" || out.Len() > 0 {
					t.Errorf("stdout %q, the Peer (-want +got):\n%s", out, diff)
				}
				flags.Servers = []string{"https://203.0.113.7:6443"}
				if err := doInvite(ctx, command, w.client, flags, "lubeck"); !errors.Is(err, errJoined) {
					t.Errorf("an address is asked for, and not said to be of no use: %v", err)
				}
			})
		})
	}
}

func TestAnInvitationThatCannotBeMadeSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.manager = func(ctx context.Context, c client.Client, written client.Object) error {
		peer, isPeer := written.(*v1alpha1.Peer)
		if !isPeer {
			return nil
		}
		setCondition(peer, v1alpha1.ConditionJoined, metav1.ConditionFalse, v1alpha1.ReasonNoServerAddress, "no address is known")
		return c.Update(ctx, peer)
	}
	command, out, _ := listener()
	err := doInvite(soon(t), command, w.client, &inviteFlags{writeFlags: writeFlags{waitFlags: waitFlags{wait: true}}}, "lubeck")
	if err == nil || !strings.Contains(err.Error(), "no address is known") || !strings.Contains(err.Error(), "--server") ||
		errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if out.Len() > 0 {
		t.Errorf("stdout is %q", out)
	}
}

func TestInviteDryRunPrintsThePeer(t *testing.T) {
	out, err := run(t, "invite", "lubeck", "--mutual", "--ttl", "2h", "--server", "https://203.0.113.7:6443", "--dry-run=client", "-o", "yaml")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "invite.yaml", out)
	if out, err = run(t, "invite", "lubeck", "--member", "--dry-run=client"); err != nil || !strings.Contains(out, "- Consumer\n  - Member\n") {
		t.Errorf("a member: %v\n%s", err, out)
	}
}
