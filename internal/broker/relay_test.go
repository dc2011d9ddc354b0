// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

var (
	ofMessages = schema.GroupResource{Group: "hanse.dev", Resource: "messages"}
	noQuota    = apierrors.NewForbidden(ofMessages, "x", nil)
	notThere   = apierrors.NewNotFound(ofMessages, "x")
)

// ask is a statement of the member to the other.
func ask(from, to *cluster, sequence int64) trust.Statement {
	return trust.Statement{Type: trust.HandOver, From: from.ClusterID, To: to.ClusterID, Sequence: sequence}
}

func (w *world) expectRelayed(message *v1alpha1.Message, status metav1.ConditionStatus, reason string) {
	w.Helper()
	now := testkit.Get[v1alpha1.Message](w.broker, message.Namespace, message.Name)
	testkit.ExpectCondition(w, now.Status.Conditions, v1alpha1.ConditionRelayed, status, reason)
	testkit.ExpectCondition(w, now.Status.Conditions, v1alpha1.ConditionReady, status, reason)
}

// copies are the names of the Messages that hamburg has made: for all, and for wismar.
func (w *world) copies() []string {
	w.Helper()
	return append(w.broker.Names(&v1alpha1.MessageList{}, v1alpha1.MembersNamespace), w.broker.Names(&v1alpha1.MessageList{}, tenantOf(w.wismar))...)
}

func TestAStatementIsRelayedWordForWord(t *testing.T) {
	w := newWorld(t)
	message := w.says(w.lubeck.key, tenantOf(w.lubeck), "x", ask(w.lubeck, w.wismar, 1), "hello")
	look := func() time.Duration { return w.Reconcile(w.relay, message.Namespace, "x").RequeueAfter }
	if got := look(); got != introductionLife {
		t.Errorf("it is looked at again after %s, want when it ends", got)
	}
	w.expectRelayed(message, metav1.ConditionTrue, v1alpha1.ReasonRelayed)
	copied := w.said(tenantOf(w.wismar), "lubeck-id.x")
	if copied == nil || !copied.Relayed() {
		t.Fatalf("wismar gets %+v", copied)
	}
	if diff := cmp.Diff(message.Spec, copied.Spec); diff != "" {
		t.Errorf("what is relayed (-said +relayed):\n%s", diff)
	}
	w.broker.Writes()
	look()
	w.broker.ExpectWrites() // nothing has changed

	message = w.says(w.lubeck.key, message.Namespace, "x", ask(w.lubeck, w.wismar, 2), "hello again")
	look()
	if diff := cmp.Diff(message.Spec, w.said(tenantOf(w.wismar), "lubeck-id.x").Spec); diff != "" {
		t.Errorf("what is relayed of another (-said +relayed):\n%s", diff)
	}

	spoilt := w.said(tenantOf(w.wismar), "lubeck-id.x") // by wismar, whom its copies belong to
	spoilt.Spec.Signature = copied.Spec.Signature
	w.broker.Put(spoilt)
	if got := originOf(t.Context(), spoilt); len(got) != 1 || got[0] != testkit.Request(message.Namespace, "x") {
		t.Errorf("a copy has %v looked at", got)
	}
	look()
	if diff := cmp.Diff(message.Spec, w.said(tenantOf(w.wismar), "lubeck-id.x").Spec); diff != "" {
		t.Errorf("a copy that was spoilt (-said +relayed):\n%s", diff)
	}

	w.broker.Remove(message)
	look()
	if got := w.copies(); len(got) > 0 {
		t.Errorf("of a statement that was taken back there is %v", got)
	}
}

func TestWhatIsRelayedToWhom(t *testing.T) {
	var enough []string // Messages of lubeck that lie with wismar
	for i := range mostFromOne {
		enough = append(enough, fmt.Sprintf("lubeck-id.%02d", i))
	}
	for name, test := range map[string]struct {
		statement func(w *world) trust.Statement
		by        string // whose key, lubeck's by default
		change    func(w *world)
		reason    string
		want      []string
		again     time.Duration
	}{
		"to one": {reason: v1alpha1.ReasonRelayed, want: []string{"lubeck-id.x"}, again: introductionLife},
		"to all": {
			statement: func(*world) trust.Statement {
				return trust.Statement{Type: trust.Introduction, From: "lubeck-id", Sequence: 1}
			},
			reason: v1alpha1.ReasonRelayed, want: []string{"lubeck-id"}, again: introductionLife,
		},
		"to all, and is no introduction": {
			statement: func(*world) trust.Statement {
				return trust.Statement{Type: trust.Marks, From: "lubeck-id", Sequence: 1}
			},
			reason: v1alpha1.ReasonMalformed,
		},
		"of one that is no member": {
			change: func(w *world) {
				testkit.Change(w.broker, "", "lubeck", func(p *v1alpha1.Peer) { p.Spec.Roles = []v1alpha1.PeerRole{v1alpha1.RoleConsumer} })
			},
			reason: v1alpha1.ReasonNotAMember,
		},
		"of one that is suspended": {
			change: func(w *world) {
				testkit.Change(w.broker, "", "lubeck", func(p *v1alpha1.Peer) { p.Spec.Access = v1alpha1.AccessSuspended })
			},
			reason: v1alpha1.ReasonNotAMember,
		},
		"of one whose Peer is deleted": {
			change: func(w *world) { w.broker.Remove(testkit.Peer("lubeck")) }, reason: v1alpha1.ReasonNotAMember,
		},
		"in another's name": {
			statement: func(w *world) trust.Statement { return ask(w.wismar, w.lubeck, 1) }, by: "wismar", reason: v1alpha1.ReasonForged,
		},
		"in its name by another": {by: "wismar", reason: v1alpha1.ReasonForged},
		"of one whose key is not known": {
			change: func(w *world) {
				testkit.Change(w.broker, "", "lubeck", func(p *v1alpha1.Peer) { p.Spec.PublicKey = "" })
			},
			reason: v1alpha1.ReasonForged,
		},
		"to one that is unknown": {
			statement: func(*world) trust.Statement {
				return trust.Statement{Type: trust.HandOver, From: "lubeck-id", To: "visby-id", Sequence: 1}
			},
			reason: v1alpha1.ReasonUnknownMember,
		},
		"to one that is no member any more": {
			change: func(w *world) {
				testkit.Change(w.broker, "", "wismar", func(p *v1alpha1.Peer) { p.Spec.Roles = nil })
			},
			reason: v1alpha1.ReasonUnknownMember,
		},
		"that has expired": {
			statement: func(w *world) trust.Statement {
				s := ask(w.lubeck, w.wismar, 1)
				s.Expires = w.Clock.Now()
				return s
			},
			reason: v1alpha1.ReasonExpired,
		},
		"to one that has no room": {
			change: func(w *world) { w.broker.Refuse("create Message", noQuota) },
			reason: v1alpha1.ReasonRecipientFull, again: lookAgain,
		},
		"to one that has enough of its Messages": {
			change: func(w *world) {
				for _, name := range enough {
					w.broker.Put(&v1alpha1.Message{ObjectMeta: metav1.ObjectMeta{
						Namespace: tenantOf(w.wismar), Name: name, Labels: map[string]string{v1alpha1.LabelFrom: "lubeck"},
					}})
				}
			},
			reason: v1alpha1.ReasonRecipientFull, again: lookAgain, want: enough,
		},
		"to one that has no namespace yet": {
			change: func(w *world) { w.broker.Refuse("create Message", notThere) },
			reason: v1alpha1.ReasonUnknownMember, again: lookAgain,
		},
		"by a name that is too long for a copy": {
			change: func(w *world) {
				w.broker.Refuse("create Message", apierrors.NewInvalid(schema.GroupKind{Kind: "Message"}, "x", field.ErrorList{}))
			},
			reason: v1alpha1.ReasonMalformed, again: lookAgain,
		},
		"to all where there is no broker": {
			statement: func(*world) trust.Statement {
				return trust.Statement{Type: trust.Introduction, From: "lubeck-id", Sequence: 1}
			},
			change: func(w *world) { w.broker.Refuse("create Message", notThere) },
			reason: v1alpha1.ReasonBrokerDisabled, again: lookAgain,
		},
		"to all where there are no rights, as there is no broker": {
			statement: func(*world) trust.Statement {
				return trust.Statement{Type: trust.Introduction, From: "lubeck-id", Sequence: 1}
			},
			change: func(w *world) { w.broker.Refuse("create Message", noQuota) },
			reason: v1alpha1.ReasonBrokerDisabled, again: lookAgain,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			statement, key := ask(w.lubeck, w.wismar, 1), w.lubeck.key
			if test.statement != nil {
				statement = test.statement(w)
			}
			if test.by != "" {
				key = keyOf(test.by)
			}
			if test.change != nil {
				test.change(w)
			}
			message := w.says(key, tenantOf(w.lubeck), "x", statement, "hello")
			if got := w.Reconcile(w.relay, message.Namespace, "x").RequeueAfter; got != test.again {
				t.Errorf("it is looked at again after %s, want %s", got, test.again)
			}
			status := metav1.ConditionFalse
			if test.reason == v1alpha1.ReasonRelayed {
				status = metav1.ConditionTrue
			}
			w.expectRelayed(message, status, test.reason)
			if diff := cmp.Diff(test.want, w.copies()); diff != "" {
				t.Errorf("copies (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCopiesAreTakenBack(t *testing.T) {
	for name, end := range map[string]func(w *world, message *v1alpha1.Message){
		"when it has expired":        func(w *world, _ *v1alpha1.Message) { w.Clock.Step(introductionLife) },
		"when the sender is gone":    func(w *world, _ *v1alpha1.Message) { w.broker.Remove(testkit.Peer("lubeck")) },
		"when the recipient is gone": func(w *world, _ *v1alpha1.Message) { w.broker.Remove(testkit.Peer("wismar")) },
		"when it is for another instead": func(w *world, message *v1alpha1.Message) {
			s := ask(w.lubeck, w.wismar, 2)
			s.To = "visby-id"
			w.says(w.lubeck.key, message.Namespace, message.Name, s, "hello")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			message := w.says(w.lubeck.key, tenantOf(w.lubeck), "x", ask(w.lubeck, w.wismar, 1), "hello")
			other := w.says(w.lubeck.key, tenantOf(w.lubeck), "y", ask(w.lubeck, w.lubeck, 1), "hello")
			w.relays()
			end(w, message)
			w.Reconcile(w.relay, message.Namespace, message.Name)
			if got := w.copies(); len(got) > 0 {
				t.Errorf("there is still %v", got)
			}
			if w.said(other.Namespace, "lubeck-id.y") == nil {
				t.Error("the copy of another is gone too")
			}
		})
	}
}

func TestAPeerHasItsMessagesLookedAt(t *testing.T) {
	w := newWorld(t)
	to := w.says(w.lubeck.key, tenantOf(w.lubeck), "x", ask(w.lubeck, w.wismar, 1), "hello")
	w.relays()
	for peer, want := range map[string]int{"lubeck": 1, "wismar": 2, "visby": 0} { // wismar's are the Message and its copy
		found := w.relay.concerning(t.Context(), testkit.Peer(peer))
		for _, request := range found {
			if request.NamespacedName != client.ObjectKeyFromObject(to) {
				t.Errorf("%s has %s looked at", peer, request)
			}
		}
		if len(found) != want {
			t.Errorf("%s has %d looked at, want %d", peer, len(found), want)
		}
	}
}

func TestMembersReadWhatIsSaidToAll(t *testing.T) {
	w := newWorld(t)
	look := func() time.Duration { return w.Reconcile(w.readers, "", "lubeck").RequeueAfter }
	admitted := func() *metav1.Condition {
		return meta.FindStatusCondition(testkit.Get[v1alpha1.Peer](w.broker, "", "lubeck").Status.Conditions, v1alpha1.ConditionAdmitted)
	}
	bindings := func() []string { return w.broker.Names(&rbacv1.RoleBindingList{}, v1alpha1.MembersNamespace) }

	for _, err := range []error{notThere, noQuota} { // where there is no namespace there are no rights in it
		allow := w.broker.Refuse("create RoleBinding", err)
		if got := look(); got != lookAgain {
			t.Errorf("it is looked at again after %s, want %s", got, lookAgain)
		}
		testkit.ExpectCondition(t, []metav1.Condition{*admitted()}, v1alpha1.ConditionAdmitted, metav1.ConditionFalse, v1alpha1.ReasonBrokerDisabled, "broker.enabled")
		allow()
	}

	look()
	testkit.ExpectCondition(t, []metav1.Condition{*admitted()}, v1alpha1.ConditionAdmitted, metav1.ConditionTrue, v1alpha1.ReasonAdmitted)
	binding := testkit.Get[rbacv1.RoleBinding](w.broker, v1alpha1.MembersNamespace, tenantOf(w.lubeck))
	want := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: tenantOf(w.lubeck), Name: v1alpha1.PeerServiceAccount}}
	if diff := cmp.Diff(want, binding.Subjects); diff != "" || binding.RoleRef.Name != v1alpha1.ClusterRolePeerMembers {
		t.Errorf("%s is bound for (-want +got):\n%s", binding.RoleRef.Name, diff)
	}
	w.broker.Writes()
	look()
	w.broker.ExpectWrites("create RoleBinding hanse-peer-lubeck") // it is there, which is no error

	testkit.Change(w.broker, "", "lubeck", func(p *v1alpha1.Peer) { p.Spec.Access = v1alpha1.AccessSuspended })
	look()
	if got := bindings(); len(got) > 0 {
		t.Errorf("one that is suspended may read by %v", got)
	}
	testkit.Change(w.broker, "", "lubeck", func(p *v1alpha1.Peer) { p.Spec.Access = "" })
	look()
	testkit.Change(w.broker, "", "lubeck", func(p *v1alpha1.Peer) { p.Spec.Roles = []v1alpha1.PeerRole{v1alpha1.RoleConsumer} })
	look()
	if got := bindings(); len(got) > 0 || admitted() != nil {
		t.Errorf("one that is no member may read by %v, and is said to be %+v", got, admitted())
	}
	w.broker.Remove(testkit.Peer("lubeck"))
	w.broker.Refuse("delete RoleBinding", noQuota) // it is no broker any more
	look()
}

// What is said of a peer that is both must not depend on who has looked last.
func TestAPeerMayBeBrokerAndMember(t *testing.T) {
	w := newWorld(t)
	testkit.Change(w.lubeck.Cluster, "", "hamburg", func(p *v1alpha1.Peer) {
		p.Spec.Roles = append(p.Spec.Roles, v1alpha1.RoleConsumer, v1alpha1.RoleMember)
	})
	config := w.lubeck.Config
	readers := &readers{config, local.Uncached(config.Client, config.Live)}
	forbid := w.lubeck.Refuse("create RoleBinding", notThere)
	expect := func(introduced, admitted string) {
		t.Helper()
		for range 2 {
			w.looks(w.lubeck)
			w.Reconcile(readers, "", "hamburg")
		}
		said := testkit.Get[v1alpha1.Peer](w.lubeck.Cluster, "", "hamburg").Status.Conditions
		for kind, want := range map[string]string{v1alpha1.ConditionIntroduced: introduced, v1alpha1.ConditionAdmitted: admitted} {
			got := ""
			if found := meta.FindStatusCondition(said, kind); found != nil {
				got = found.Reason
			}
			if got != want {
				t.Errorf("the reason of condition %s is %q, want %q", kind, got, want)
			}
		}
	}
	w.rounds(2)
	expect(v1alpha1.ReasonIntroduced, v1alpha1.ReasonBrokerDisabled)
	forbid()
	expect(v1alpha1.ReasonIntroduced, v1alpha1.ReasonAdmitted)
	roles := func(roles ...v1alpha1.PeerRole) {
		testkit.Change(w.lubeck.Cluster, "", "hamburg", func(p *v1alpha1.Peer) { p.Spec.Roles = roles })
	}
	roles(v1alpha1.RoleProvider, v1alpha1.RoleConsumer, v1alpha1.RoleMember)
	expect("", v1alpha1.ReasonAdmitted)
	roles(v1alpha1.RoleProvider, v1alpha1.RoleBroker)
	w.rounds(2)
	expect(v1alpha1.ReasonIntroduced, "")
	roles(v1alpha1.RoleProvider)
	expect("", "")
}
