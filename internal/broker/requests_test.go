// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

const (
	requestSent = "request.wismar-id.app-1"         // the Message of lubeck
	answerSent  = "acknowledgement.lubeck-id.app-1" // that of wismar
)

// newPurchase is a world in which wismar has won an auction of lubeck, which asks it for room.
func newPurchase(t *testing.T) (*world, *Questions) {
	t.Helper()
	w, questions := newAuction(t)
	w.waits(true)
	w.buys(questions, "1")
	return w, questions
}

// waits says whether the Application of lubeck waits for the room.
func (w *world) waits(so bool) {
	w.Helper()
	app := &v1alpha1.Application{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}}
	app.Status.Components = []v1alpha1.PlacedComponent{{Name: "front", Peer: "wismar-id", Acknowledged: !so}}
	w.lubeck.Put(app)
}

func (w *world) buys(questions *Questions, cpu string) {
	w.Helper()
	request := &v1alpha1.RequestSpec{
		Application: v1alpha1.RequestedApplication{UID: "1", Name: "shop/web"},
		Components:  []v1alpha1.RequestedComponent{{Name: "front", Replicas: 2, Resources: testkit.Quantities("cpu", cpu)}},
	}
	if err := questions.Request(w.Context(), "hamburg", "wismar-id", "app-1", request); err != nil {
		w.Fatal(err)
	}
	w.lubeck.way.Heal()
}

// requestThere is the Request that wismar has of lubeck's, nil if there is none.
func (w *world) requestThere() *v1alpha1.Request {
	w.Helper()
	request := &v1alpha1.Request{}
	if !w.wismar.Find(request, v1alpha1.TenantNamespace("hamburg"), "lubeck-id.app-1") {
		return nil
	}
	return request
}

// acknowledges plays who answers Requests at wismar.
func (w *world) acknowledges() {
	w.Helper()
	request := w.requestThere()
	if request == nil {
		w.Fatal("wismar has no Request")
	}
	request.Status.Phase = v1alpha1.RequestAcknowledged
	request.Status.Reserved = testkit.Quantities("cpu", "2")
	meta.SetStatusCondition(&request.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionAcknowledged, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReserved, Message: "It is reserved",
	})
	request.Status.Signed = w.answers(trust.Acknowledgement, exchange.AnswerToSign(request, w.sequenceOf(request.Spec.Signed)))
	if err := w.wismar.Client.Status().Update(w.Context(), request); err != nil {
		w.Fatal(err)
	}
}

// answered is what lubeck has from wismar, nil if nothing.
func (w *world) answered(questions *Questions) *v1alpha1.Request {
	w.Helper()
	w.lubeck.way.Heal()
	return questions.Answer(w.Context(), "hamburg", "wismar-id", "app-1")
}

func (w *world) expectAnswer(questions *Questions, status metav1.ConditionStatus, reason string) {
	w.Helper()
	got := w.answered(questions)
	if got == nil {
		w.Fatal("lubeck hears no answer")
	}
	testkit.ExpectCondition(w, got.Status.Conditions, v1alpha1.ConditionAcknowledged, status, reason)
}

// expectAnswered checks how many Requests the broker has brought wismar, and how many of them it has acknowledged.
func (w *world) expectAnswered(requests, acknowledged int32) {
	w.Helper()
	of := w.relay.notes.marks(map[string]bool{"wismar-id": true}, w.Clock.Now())["wismar-id"]
	if of.Requests != requests || of.Acknowledged != acknowledged {
		w.Errorf("the broker has counted %+v", of)
	}
}

func TestRoomThroughTheBroker(t *testing.T) {
	w, questions := newPurchase(t)
	w.rounds(2)
	there := w.requestThere()
	if there == nil || there.Labels[v1alpha1.LabelFrom] != "lubeck-id" || there.Spec.Components[0].Replicas != 2 || there.Spec.Signed == nil {
		t.Fatalf("wismar is asked for %+v", there)
	}
	if w.answered(questions) != nil {
		t.Error("there is an answer that nobody has given")
	}
	w.acknowledges()
	w.rounds(2)
	w.expectAnswer(questions, metav1.ConditionTrue, v1alpha1.ReasonReserved)
	w.expectAnswered(1, 1)
	before := w.said(tenantOf(w.lubeck), requestSent)
	w.Clock.Step(time.Minute)
	w.buys(questions, "1")
	if now := w.said(tenantOf(w.lubeck), requestSent); now.Spec != before.Spec {
		t.Error("the same is asked twice")
	}

	// For something else the answer does not count.
	w.buys(questions, "2")
	if w.answered(questions) != nil {
		t.Error("the answer to what was asked before counts")
	}
	w.rounds(2)
	if cpu := w.requestThere().Spec.Components[0].Resources[corev1.ResourceCPU]; cpu.String() != "2" {
		t.Errorf("wismar is asked for %s", cpu.String())
	}
	if w.answered(questions) != nil {
		t.Error("what wismar has answered before is its answer now")
	}
	w.acknowledges()
	w.rounds(2)
	w.expectAnswer(questions, metav1.ConditionTrue, v1alpha1.ReasonReserved)
}

// What nobody waits for any more is given back, and cannot be asked for again by the old text.
func TestReleaseThroughTheBroker(t *testing.T) {
	for name, ends := range map[string]func(w *world){
		"it has the room": func(w *world) { w.waits(false) },
		"there is none any more": func(w *world) {
			w.lubeck.Remove(&v1alpha1.Application{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, questions := newPurchase(t)
			w.rounds(2)
			w.acknowledges()
			w.rounds(2)
			ends(w)
			w.rounds(3)
			if w.requestThere() != nil || w.answered(questions) != nil || w.said(tenantOf(w.wismar), answerSent) != nil {
				t.Error("something is left of the Request")
			}
			w.waits(true)
			w.buys(questions, "1")
			w.rounds(2)
			if w.requestThere() == nil {
				t.Error("it cannot be asked for again")
			}
			w.Clock.Step(handOverLife)
			w.rounds(3)
			if w.said(tenantOf(w.lubeck), requestSent) != nil {
				t.Error("a Message is left")
			}
		})
	}
}

func TestNoRoomThroughTheBroker(t *testing.T) {
	w, questions := newPurchase(t)
	testkit.Change(w.wismar.Cluster, "", "hamburg", func(p *v1alpha1.Peer) { p.Spec.AcceptMembers = nil })
	w.rounds(3)
	w.expectAnswer(questions, metav1.ConditionFalse, v1alpha1.ReasonNotAccepted)
	w.expectAnswered(1, 0)
	if w.requestThere() != nil {
		t.Error("wismar has a Request of one that it does not accept")
	}
}

// Whatever the broker puts in the place of a Request or of a Release is not believed, and counted.
func TestRequestsForRoomThatAreNotBelieved(t *testing.T) {
	request := exchange.SignedRequest{Name: "app-2", Request: v1alpha1.RequestSpec{Application: v1alpha1.RequestedApplication{UID: "2", Name: "shop/other"}}}
	for name, test := range map[string]struct {
		signer func(w *world) *cluster
		kind   trust.StatementType
		body   any
		reason string
	}{
		"signed by another": {
			func(w *world) *cluster { return w.wismar }, trust.Request, request, v1alpha1.ReasonForged,
		},
		"of nothing": {nil, trust.Request, 7, v1alpha1.ReasonMalformed},
		"a release that is signed by another": {
			func(w *world) *cluster { return w.wismar }, trust.Release, exchange.SignedRelease{Name: "app-1"}, v1alpha1.ReasonForged,
		},
		"a release of nothing": {nil, trust.Release, 7, v1alpha1.ReasonMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := newPurchase(t)
			w.rounds(2)
			signer := w.lubeck
			if test.signer != nil {
				signer = test.signer(w)
			}
			statement := trust.Statement{Type: test.kind, From: "lubeck-id", To: "wismar-id", Sequence: w.Clock.Now().UnixNano() + 1}
			message := w.says(signer.key, tenantOf(w.wismar), "lubeck-id.made-up", statement, test.body)
			message.Labels = map[string]string{v1alpha1.LabelFrom: "lubeck"}
			w.broker.Put(message)
			w.expectRefused(func() { w.looks(w.wismar) }, test.reason)
			if w.requestThere() == nil || w.wismar.Find(&v1alpha1.Request{}, v1alpha1.TenantNamespace("hamburg"), "lubeck-id.app-2") {
				t.Error("it is believed")
			}
		})
	}
}

// A Release that comes after the member has asked anew does not take that back.
func TestAReleaseOfWhatWasAskedBefore(t *testing.T) {
	w, _ := newPurchase(t)
	w.rounds(2)
	statement := trust.Statement{Type: trust.Release, From: "lubeck-id", To: "wismar-id", Sequence: 1}
	message := w.says(w.lubeck.key, tenantOf(w.wismar), "lubeck-id.old", statement, exchange.SignedRelease{Name: "app-1"})
	message.Labels = map[string]string{v1alpha1.LabelFrom: "lubeck"}
	w.broker.Put(message)
	w.looks(w.wismar)
	if w.requestThere() == nil {
		t.Error("it is taken back")
	}
}

// A broker that is a consumer too may have put a Request without a statement where that of the member would lie.
func TestAReleaseOfWhatNobodyHasSigned(t *testing.T) {
	w, _ := newPurchase(t)
	w.rounds(2)
	w.waits(false)
	w.rounds(1)
	unsigned := w.requestThere()
	unsigned.Spec.Signed = nil
	w.wismar.Put(unsigned)
	w.looks(w.wismar)
	if w.requestThere() != nil {
		t.Error("it is kept")
	}
}
