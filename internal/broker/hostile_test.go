// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

func TestLiesOfABrokerAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		lie    func(w *world, said *v1alpha1.Message)
		reason string
	}{
		"it changes what was said": {func(w *world, said *v1alpha1.Message) {
			said.Spec.Statement = strings.Replace(said.Spec.Statement, `"cpu":"3"`, `"cpu":"9"`, 1)
		}, v1alpha1.ReasonForged},
		"it signs in another's name": {func(w *world, said *v1alpha1.Message) {
			*said = *w.says(keyOf("hamburg"), said.Namespace, said.Name, trust.Statement{Type: trust.Introduction, From: "wismar-id", Sequence: w.Clock.Now().UnixNano()}, v1alpha1.MemberOffer{})
		}, v1alpha1.ReasonForged},
		"it says what somebody else has said": {func(w *world, said *v1alpha1.Message) {
			said.Spec.Signature = w.introduction(w.lubeck).Spec.Signature
		}, v1alpha1.ReasonForged},
		"it says nonsense": {func(_ *world, said *v1alpha1.Message) { said.Spec.Statement = "{}{" }, v1alpha1.ReasonMalformed},
		"it says what was said to one": {func(w *world, said *v1alpha1.Message) {
			*said = *w.says(w.wismar.key, said.Namespace, said.Name, ask(w.wismar, w.lubeck, 1), trust.HandOverRequest{})
		}, v1alpha1.ReasonMalformed},
		"the member says nonsense": {func(w *world, said *v1alpha1.Message) {
			*said = *w.says(w.wismar.key, said.Namespace, said.Name, trust.Statement{Type: trust.Introduction, From: "wismar-id", Sequence: w.Clock.Now().UnixNano()}, map[string]any{"availability": map[string]string{"cpu": "-1"}})
		}, v1alpha1.ReasonMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.wismar.hasToSpare("3")
			w.rounds(2)
			before := w.expectKnown(w.lubeck, w.wismar, "3")
			w.Clock.Step(introductionPause)
			said := w.introduction(w.wismar)
			test.lie(w, said)
			w.broker.Put(said)
			w.expectRefused(func() { w.looks(w.lubeck); w.looks(w.lubeck) }, test.reason)
			if diff := cmp.Diff(before, w.lubeck.knows("wismar-id")); diff != "" {
				t.Errorf("what is known has changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestOldStatementsAreRefusedOnce(t *testing.T) {
	w := newWorld(t)
	w.wismar.hasToSpare("3")
	w.rounds(2)
	old := w.introduction(w.wismar)
	w.Clock.Step(introductionPause)
	w.wismar.hasToSpare("1")
	w.rounds(2)
	w.expectKnown(w.lubeck, w.wismar, "1")
	newest := w.introduction(w.wismar)

	again := func(spec v1alpha1.MessageSpec) {
		said := w.introduction(w.wismar)
		said.Spec = spec
		w.broker.Put(said)
	}
	again(old.Spec)
	w.expectRefused(func() { w.looks(w.lubeck); w.looks(w.lubeck) }, v1alpha1.ReasonStale)
	w.expectKnown(w.lubeck, w.wismar, "1")
	again(newest.Spec)
	w.expectRefused(func() { w.looks(w.lubeck) }) // it has been said before, and holds
	again(old.Spec)
	w.expectRefused(func() { w.looks(w.lubeck) }, v1alpha1.ReasonStale)
}

var nothing = v1alpha1.MemberOffer{}

func TestWhoIsNotTakenIn(t *testing.T) {
	introduction := func(from string, sequence int64) trust.Statement {
		return trust.Statement{Type: trust.Introduction, From: from, Sequence: sequence}
	}
	w := newWorld(t)
	peer := testkit.Peer("visby", v1alpha1.RoleProvider)
	peer.Spec.PublicKey = trust.PublicKeyOf(keyOf("visby"))
	w.lubeck.Put(peer)
	says := func(key, name string, s trust.Statement, body any) func() {
		return func() {
			message := w.says(keyOf(key), v1alpha1.MembersNamespace, name, s, body)
			w.looks(w.lubeck)
			w.looks(w.lubeck)
			if known := w.lubeck.knows(s.From); known != nil {
				t.Errorf("%q is known: %+v", s.From, known)
			}
			w.broker.Remove(message)
		}
	}
	w.expectRefused(says("x", "a", introduction("Lübeck", 1), nothing), v1alpha1.ReasonMalformed)
	w.expectRefused(says("x", "a", introduction(strings.Repeat("a", 31), 1), nothing), v1alpha1.ReasonMalformed)
	w.expectRefused(says("x", "a", introduction("x-id", 1), "hello"), v1alpha1.ReasonMalformed)
	w.expectRefused(says("x", "visby-id", introduction("visby-id", 1), nothing), v1alpha1.ReasonForged) // a peer has its key
	w.expectRefused(says("x", "lubeck-id", introduction("lubeck-id", 1), nothing))                      // it is us, who know better
}

func TestRequestsThatAreNotBelieved(t *testing.T) {
	body := trust.HandOverRequest{SealingKey: trust.SealingKey{1}.Public()}
	for name, test := range map[string]struct {
		key       string
		statement func(w *world) trust.Statement
		body      any
		reason    string
	}{
		"by another key": {"x", func(w *world) trust.Statement { return ask(w.lubeck, w.wismar, 1) }, body, v1alpha1.ReasonForged},
		"by one that has not introduced itself": {"x", func(w *world) trust.Statement {
			return trust.Statement{Type: trust.HandOver, From: "x-id", To: "wismar-id", Sequence: 1}
		}, body, v1alpha1.ReasonUnknownMember},
		"by one that no broker names any more": {"lubeck", func(w *world) trust.Statement {
			w.broker.Remove(w.introduction(w.lubeck))
			return ask(w.lubeck, w.wismar, 1)
		}, body, v1alpha1.ReasonUnknownMember},
		"for another": {"lubeck", func(w *world) trust.Statement {
			return trust.Statement{Type: trust.HandOver, From: "lubeck-id", To: "visby-id", Sequence: 1}
		}, body, v1alpha1.ReasonMisaddressed},
		"of no sense": {"lubeck", func(w *world) trust.Statement { return ask(w.lubeck, w.wismar, 1) }, "hello", v1alpha1.ReasonMalformed},
		"too late": {"lubeck", func(w *world) trust.Statement {
			s := ask(w.lubeck, w.wismar, 1)
			s.Expires = w.Clock.Now()
			return s
		}, body, v1alpha1.ReasonExpired},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHandOver(t)
			message := w.says(keyOf(test.key), tenantOf(w.wismar), "x", test.statement(w), test.body)
			message.Labels = map[string]string{v1alpha1.LabelFrom: "lubeck"}
			w.broker.Put(message)
			w.expectRefused(func() { w.looks(w.wismar); w.looks(w.wismar) }, test.reason)
			if w.consumer() != nil {
				t.Error("it has made a Peer")
			}
		})
	}
}

func TestAnswersThatAreNotBelieved(t *testing.T) {
	for name, test := range map[string]struct {
		key, from string
		request   int64 // that it answers, above that of lubeck
		body      any
		reasons   []string
		told      string
	}{
		"of somebody else":           {key: "visby", from: "visby-id", told: v1alpha1.ReasonPending},
		"in the name of the member":  {key: "visby", from: "wismar-id", reasons: []string{v1alpha1.ReasonForged}, told: v1alpha1.ReasonPending},
		"to a later request":         {key: "wismar", from: "wismar-id", request: 1, told: v1alpha1.ReasonPending},
		"to an earlier request":      {key: "wismar", from: "wismar-id", request: -1, told: v1alpha1.ReasonPending},
		"of no sense":                {key: "wismar", from: "wismar-id", body: "hello", reasons: []string{v1alpha1.ReasonMalformed}, told: v1alpha1.ReasonPending},
		"that is sealed to somebody": {key: "wismar", from: "wismar-id", told: v1alpha1.ReasonMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHandOver(t)
			w.looks(w.lubeck)
			w.lubeck.way.Heal()
			asked := trust.Statement{}
			if err := json.Unmarshal([]byte(w.said(tenantOf(w.lubeck), request).Spec.Statement), &asked); err != nil {
				t.Fatal(err)
			}
			sealed, err := trust.Seal(trust.SealingKey{1}.Public(), []byte("invitation"))
			if err != nil {
				t.Fatal(err)
			}
			body := test.body
			if body == nil {
				body = trust.HandOverResponse{Request: asked.Sequence + test.request, Invitation: sealed}
			}
			message := w.says(keyOf(test.key), tenantOf(w.lubeck), "x", trust.Statement{Type: trust.HandOverAnswer, From: test.from, To: "lubeck-id", Sequence: 1}, body)
			message.Labels = map[string]string{v1alpha1.LabelFrom: "wismar"}
			w.broker.Put(message)
			w.expectRefused(func() { w.looks(w.lubeck); w.looks(w.lubeck) }, test.reasons...)
			w.expectAsked(metav1.ConditionFalse, test.told)
			if got := w.usesInvitation(); got != "" {
				t.Errorf("lubeck uses %q", got)
			}
		})
	}
}

// What we have said is signed by us wherever the broker puts it.
func TestWhatWeHaveSaidElsewhereIsNoRequest(t *testing.T) {
	for name, said := range map[string]trust.Statement{
		"to another":        {Type: trust.HandOver, From: "lubeck-id", To: "visby-id", Sequence: 1},
		"to all":            {Type: trust.Introduction, From: "lubeck-id", Sequence: 1},
		"to it, in another": {Type: trust.HandOverAnswer, From: "lubeck-id", To: "wismar-id", Sequence: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHandOver(t)
			text := w.invites()
			w.says(w.lubeck.key, tenantOf(w.lubeck), request, said, trust.HandOverRequest{})
			w.rounds(3)
			if got := w.usesInvitation(); got != text {
				t.Errorf("lubeck uses %q", got)
			}
		})
	}
}
