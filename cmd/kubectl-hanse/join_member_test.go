// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// introduce is a manager that joins a broker, and is told by it how it is to be known.
func introduce(said metav1.Condition) func(context.Context, client.Client, client.Object) error {
	return func(ctx context.Context, c client.Client, written client.Object) error {
		if err := accept(ctx, c, written); err != nil {
			return err
		}
		peer, isPeer := written.(*v1alpha1.Peer)
		if !isPeer || !peer.HasRole(v1alpha1.RoleBroker) {
			return nil
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(peer), peer); err != nil {
			return err
		}
		setCondition(peer, v1alpha1.ConditionIntroduced, said.Status, said.Reason, said.Message)
		return c.Update(ctx, peer)
	}
}

func TestJoinMakesAMember(t *testing.T) {
	for name, test := range map[string]struct {
		said metav1.Condition
		says []string // in an error, or else on stdout
	}{
		"that the others know": {
			said: metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonIntroduced},
			says: []string{"lubeck can run pods in hamburg.\n", "lubeck is a member of hamburg: see `kubectl hanse members`.\n"},
		},
		"that the broker does not let": {
			said: metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPending, Message: "The broker does not let this cluster read"},
			says: []string{"The broker does not let this cluster read", "kubectl hanse invite the-queen --member", "--set broker.enabled=true"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.WithTimeout(t, func(ctx context.Context, t *testing.T) {
				w := newWorld(t, system()...)
				w.manager = introduce(test.said)
				j := newTestJoining(t, false, false)
				j.broker, j.acceptMembers, j.askMembers = true, []string{"bremen", "team-*"}, []string{"*"}
				command, out, _ := listener()
				err := doJoin(ctx, command, w.client, j)
				heard := out.String()
				if err != nil {
					heard = err.Error()
				}
				for _, want := range test.says {
					if (err == nil) != (test.said.Status == metav1.ConditionTrue) || !strings.Contains(heard, want) {
						t.Errorf("%q does not say %q", heard, want)
					}
				}
				want := v1alpha1.PeerSpec{
					ClusterID: "hamburg", PublicKey: j.invitation.PublicKey, AcceptMembers: []string{"bremen", "team-*"}, AskMembers: []string{"*"},
					Roles: []v1alpha1.PeerRole{v1alpha1.RoleProvider, v1alpha1.RoleBroker},
				}
				if diff := cmp.Diff(want, w.peer(t, "hamburg").Spec); diff != "" {
					t.Errorf("the Peer (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Whoever has used the invitation before becomes a member with the same one.
func TestAPeerThatHasJoinedBecomesAMember(t *testing.T) {
	w := newWorld(t, system()...)
	w.manager = introduce(metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonIntroduced})
	j := newTestJoining(t, false, false)
	command, _, _ := listener()
	for _, j.broker = range []bool{false, true} {
		// The manager has used the invitation already, and answers no second time.
		if err := doJoin(soon(t), command, w.client, j); err != nil {
			t.Fatal(err)
		}
		w.manager = introduceAlone
	}
	if !w.peer(t, "hamburg").HasRole(v1alpha1.RoleBroker) {
		t.Error("it is no broker")
	}
}

// introduceAlone is a manager whose members are told of this cluster at once.
func introduceAlone(ctx context.Context, c client.Client, written client.Object) error {
	peer := written.(*v1alpha1.Peer)
	setCondition(peer, v1alpha1.ConditionIntroduced, metav1.ConditionTrue, v1alpha1.ReasonIntroduced, "")
	return c.Update(ctx, peer)
}

func TestARefusedJoinMakesNoMember(t *testing.T) {
	peer := newPeer("hamburg", v1alpha1.RoleConsumer)
	w := newWorld(t, append(system(), peer)...)
	w.manager = refuse(metav1.ConditionFalse)
	j := newTestJoining(t, false, false)
	j.broker, j.acceptMembers = true, []string{"*"}
	command, _, _ := listener()
	if err := doJoin(soon(t), command, w.client, j); !errors.Is(err, errNotAccepted) {
		t.Errorf("error %v", err)
	}
	after := w.peer(t, "hamburg").Spec
	if after.PublicKey = ""; !cmp.Equal(peer.Spec, after) {
		t.Errorf("the Peer was changed (-want +got):\n%s", cmp.Diff(peer.Spec, after))
	}
}

// hand is a manager that asks for the invitation of a member, with that result.
func hand(said metav1.Condition) func(context.Context, client.Client, client.Object) error {
	return func(ctx context.Context, c client.Client, written client.Object) error {
		peer, isPeer := written.(*v1alpha1.Peer)
		if !isPeer || peer.Spec.Introducer == "" {
			return nil
		}
		setCondition(peer, v1alpha1.ConditionIntroduced, said.Status, said.Reason, said.Message)
		if said.Status == metav1.ConditionTrue {
			setCondition(peer, v1alpha1.ConditionSession, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
			setCondition(peer, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
		}
		return c.Update(ctx, peer)
	}
}

func TestJoinOfAMember(t *testing.T) {
	introduced := metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonIntroduced}
	broker := newBroker("hamburg", metav1.ConditionTrue, "")
	silent := newMember("bremen", "hamburg")
	setCurrent(silent, metav1.ConditionFalse, "Nothing new came")
	key := newMember("bremen").Spec.PublicKey
	of := func(name, cluster, key string, roles ...v1alpha1.PeerRole) *v1alpha1.Peer {
		peer := newPeer(name, roles...)
		peer.Spec.ClusterID, peer.Spec.PublicKey = cluster, key
		return peer
	}
	tried := of("bremen", "bremen", key, v1alpha1.RoleProvider)
	tried.Spec.Introducer = "stade"
	refused := tried.DeepCopy()
	refused.Spec.Introducer = "hamburg"
	setCondition(refused, v1alpha1.ConditionIntroduced, metav1.ConditionFalse, v1alpha1.ReasonNotAccepted, "not yet")
	for name, test := range map[string]struct {
		objects     []client.Object
		as, through string
		said        metav1.Condition // introduced if nothing is said
		peer        string           // that stands for the member then, "" if nothing may be written
		says        string           // in an error, "" if there is none
		final       bool             // it is not waited for
	}{
		"one":                    {objects: []client.Object{broker, newMember("bremen", "hamburg")}, peer: "bremen"},
		"one by another name":    {objects: []client.Object{broker, newMember("bremen", "hamburg")}, as: "friend", peer: "friend"},
		"one of several brokers": {objects: []client.Object{broker, newMember("bremen", "hamburg", "stade")}, through: "hamburg", peer: "bremen"},
		"a consumer of ours":     {objects: []client.Object{broker, newMember("bremen", "hamburg"), of("friend", "bremen", key, v1alpha1.RoleConsumer)}, peer: "friend"},
		"one that was asked before through another": {objects: []client.Object{broker, newMember("bremen", "hamburg"), tried}, peer: "bremen"},

		"one that nobody knows":           {objects: []client.Object{broker}, says: "`kubectl hanse members`", final: true},
		"one that is silent":              {objects: []client.Object{broker, silent}, says: "not Current: Heard: Nothing new came", final: true},
		"one of too many brokers":         {objects: []client.Object{broker, newMember("bremen", "hamburg", "stade")}, says: "(hamburg, stade): say with --through", final: true},
		"one of no broker":                {objects: []client.Object{broker, newMember("bremen")}, says: "through no broker", final: true},
		"one that another broker knows":   {objects: []client.Object{broker, newMember("bremen", "hamburg")}, through: "stade", says: "not known through stade, but through hamburg", final: true},
		"one whose broker is none":        {objects: []client.Object{newPeer("hamburg", v1alpha1.RoleProvider), newMember("bremen", "hamburg")}, says: "no Peer hamburg of role Broker", final: true},
		"one whose broker is cut off":     {objects: []client.Object{newBroker("hamburg", metav1.ConditionFalse, "cut off"), newMember("bremen", "hamburg")}, says: "cut off", final: true},
		"a provider of ours":              {objects: []client.Object{broker, newMember("bremen", "hamburg"), of("friend", "bremen", key, v1alpha1.RoleProvider)}, says: "kubectl hanse status friend", final: true},
		"a peer by another name":          {objects: []client.Object{broker, newMember("bremen", "hamburg"), of("friend", "bremen", key, v1alpha1.RoleConsumer)}, as: "bremen", says: "--as friend", final: true},
		"a peer with another key":         {objects: []client.Object{broker, newMember("bremen", "hamburg"), of("bremen", "bremen", strings.Repeat("A", 43)+"=", v1alpha1.RoleConsumer)}, says: "the key", final: true},
		"another peer of the name":        {objects: []client.Object{broker, newMember("bremen", "hamburg"), of("bremen", "riga", "")}, says: "--as", final: true},
		"one that has refused before":     {objects: []client.Object{broker, newMember("bremen", "hamburg"), refused}, says: "not yet", final: true, peer: "bremen"},
		"one that does not accept us":     {objects: []client.Object{broker, newMember("bremen", "hamburg")}, said: metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotAccepted, Message: "acceptMembers must name it"}, says: "acceptMembers must name it. That is for the administrator of bremen", final: true, peer: "bremen"},
		"one that takes long to answer":   {objects: []client.Object{broker, newMember("bremen", "hamburg")}, said: metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPending, Message: "not answered"}, says: "Pending: not answered", peer: "bremen"},
		"one that nobody is asked of yet": {objects: []client.Object{broker, newMember("bremen", "hamburg")}, said: metav1.Condition{Status: metav1.ConditionUnknown}, says: "kubectl hanse status hamburg", peer: "bremen"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.WithTimeout(t, func(ctx context.Context, t *testing.T) {
				w := newWorld(t, append(system(), test.objects...)...)
				if test.said.Status == "" {
					test.said = introduced
				}
				w.manager = hand(test.said)
				flags := &joinFlags{as: test.as, memberFlags: memberFlags{member: "bremen", through: test.through}}
				flags.wait = true
				command, out, _ := listener()
				err := doJoinMember(ctx, command, w.client, flags, v1alpha1.SystemNamespace)
				if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says) || errors.Is(err, context.DeadlineExceeded) == test.final) {
					t.Errorf("error %v, want one that says %q", err, test.says)
				}
				if test.says == "" && out.String() != "lubeck can run pods in "+test.peer+". Both are peers, and need broker hamburg no longer.\n" {
					t.Errorf("stdout is %q", out)
				}
				expectAsked(t, w, test.peer, test.objects)
			})
		})
	}
}

// expectAsked expects that the Peer asks for an invitation of bremen, or that no Peer was written if none is named.
func expectAsked(t *testing.T, w *world, name string, before []client.Object) {
	t.Helper()
	if name == "" {
		all := take(t.Context(), w.client, scope{}, now, partPeers).peers.Items
		for _, object := range before {
			if peer, isPeer := object.(*v1alpha1.Peer); isPeer && !cmp.Equal(peer.Spec, w.peer(t, peer.Name).Spec) {
				t.Errorf("Peer %s was changed", peer.Name)
			}
		}
		if len(all) > len(before) {
			t.Errorf("there are %d Peers", len(all))
		}
		return
	}
	spec := w.peer(t, name).Spec
	if spec.ClusterID != "bremen" || spec.Introducer != "hamburg" || spec.PublicKey != newMember("").Spec.PublicKey ||
		!w.peer(t, name).HasRole(v1alpha1.RoleProvider) {
		t.Errorf("the Peer is %+v", spec)
	}
}

func TestJoinOfAMemberDryRunWritesNothing(t *testing.T) {
	objects := []client.Object{newBroker("hamburg", metav1.ConditionTrue, ""), newMember("bremen", "hamburg")}
	w := newWorld(t, append(system(), objects...)...)
	flags := &joinFlags{memberFlags: memberFlags{member: "bremen"}}
	flags.dryRun = "client"
	command, out, _ := listener()
	if err := doJoinMember(soon(t), command, w.client, flags, v1alpha1.SystemNamespace); err != nil {
		t.Fatal(err)
	}
	golden(t, "join-member.yaml", out.String())
	expectAsked(t, w, "", objects)
}
