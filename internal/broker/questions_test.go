// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

const (
	quoteSent = "quote.wismar-id.app-1" // the Message of lubeck
	offerSent = "offer.lubeck-id.app-1" // that of wismar
)

// newAuction is a world in which lubeck has asked wismar, which lets members become consumers whose id begins with lub, for an offer.
func newAuction(t *testing.T) (*world, *Questions) {
	t.Helper()
	w := newWorld(t)
	w.rounds(2)
	testkit.Change(w.wismar.Cluster, "", "hamburg", func(p *v1alpha1.Peer) { p.Spec.AcceptMembers = []string{"lub*"} })
	questions := &Questions{w.lubeck.member}
	w.asks(questions, w.quote(time.Minute))
	return w, questions
}

func (w *world) quote(patience time.Duration) *v1alpha1.QuoteSpec {
	deadline := w.Clock.Now().Add(patience).Truncate(time.Second)
	return &v1alpha1.QuoteSpec{
		Application: v1alpha1.RequestedApplication{UID: "1", Name: "shop/web"},
		Components:  []v1alpha1.RequestedComponent{{Name: "front", Replicas: 2, Resources: testkit.Quantities("cpu", "1")}},
		Deadline:    metav1.NewTime(deadline), ExpirationTime: metav1.NewTime(deadline.Add(time.Minute)),
	}
}

func (w *world) asks(questions *Questions, quote *v1alpha1.QuoteSpec) {
	w.Helper()
	if err := questions.Quote(w.Context(), "hamburg", "wismar-id", "app-1", quote); err != nil {
		w.Fatal(err)
	}
	w.lubeck.way.Heal()
}

// heard is what lubeck has from wismar, nil if nothing.
func (w *world) heard(questions *Questions) *v1alpha1.Quote {
	w.Helper()
	w.lubeck.way.Heal()
	return questions.Offer(w.Context(), "hamburg", "wismar-id", "app-1")
}

// quoteThere is the Quote that wismar has of lubeck's, nil if there is none.
func (w *world) quoteThere() *v1alpha1.Quote {
	w.Helper()
	quote := &v1alpha1.Quote{}
	if !w.wismar.Find(quote, v1alpha1.TenantNamespace("hamburg"), "lubeck-id.app-1") {
		return nil
	}
	return quote
}

// offers plays who makes offers at wismar.
func (w *world) offers(interest int32) {
	w.Helper()
	quote := w.quoteThere()
	if quote == nil {
		w.Fatal("wismar has no Quote")
	}
	whole := v1alpha1.Offer{Interest: interest}
	quote.Status = v1alpha1.QuoteStatus{
		ObservedGeneration: quote.Generation, Whole: &whole, Components: []v1alpha1.ComponentOffer{{Name: "front", Offer: whole}},
	}
	quote.Status.Signed = w.answers(trust.Offer, exchange.OfferToSign(quote, w.sequenceOf(quote.Spec.Signed)))
	if err := w.wismar.Client.Status().Update(w.Context(), quote); err != nil {
		w.Fatal(err)
	}
}

// answers is what wismar has signed for lubeck.
func (w *world) answers(kind trust.StatementType, body any) *v1alpha1.SignedStatement {
	w.Helper()
	signed, err := trust.SignStatement(w.wismar.key, trust.Statement{
		Type: kind, From: "wismar-id", To: "lubeck-id", Sequence: w.Clock.Now().UnixNano(), Expires: w.Clock.Now().Add(time.Minute),
	}, body)
	if err != nil {
		w.Fatal(err)
	}
	return signed
}

func (w *world) sequenceOf(signed *v1alpha1.SignedStatement) int64 {
	w.Helper()
	said, err := trust.VerifyStatement(signed, "wismar-id")
	if err != nil {
		w.Fatal(err)
	}
	return said.Sequence
}

// expectOffer checks that lubeck has heard of an offer with that interest, and returns the Quote.
func (w *world) expectOffer(questions *Questions, interest int32) *v1alpha1.Quote {
	w.Helper()
	got := w.heard(questions)
	if got == nil || !got.Answered() || got.Status.Whole.Interest != interest || got.Status.Components[0].Name != "front" {
		w.Fatalf("lubeck hears %+v", got)
	}
	return got
}

func TestAnOfferThroughTheBroker(t *testing.T) {
	w, questions := newAuction(t)
	w.rounds(2)
	there := w.quoteThere()
	if there == nil || there.Labels[v1alpha1.LabelFrom] != "lubeck-id" || there.Spec.Components[0].Replicas != 2 {
		t.Fatalf("wismar is asked for %+v", there)
	}
	if w.heard(questions) != nil {
		t.Error("there is an offer that nobody has made")
	}
	w.offers(70)
	w.rounds(2)
	got := w.expectOffer(questions, 70)
	before := w.said(tenantOf(w.lubeck), quoteSent)
	w.asks(questions, &got.Spec)
	if now := w.said(tenantOf(w.lubeck), quoteSent); now.Spec != before.Spec {
		t.Error("the same is asked twice")
	}

	// Another round: what was offered before does not count.
	w.asks(questions, w.quote(2*time.Minute))
	if w.heard(questions) != nil {
		t.Error("the offer for what was asked before counts")
	}
	w.rounds(2)
	w.offers(30)
	w.rounds(2)
	w.expectOffer(questions, 30)

	// At the deadline nobody needs any of it.
	w.Clock.Step(2 * time.Minute)
	w.rounds(3)
	if w.said(tenantOf(w.lubeck), quoteSent) != nil || w.said(tenantOf(w.wismar), offerSent) != nil {
		t.Error("Messages are left of an auction that is over")
	}
}

func TestNoOfferThroughTheBroker(t *testing.T) {
	quotesKind := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "quotes"}
	for name, test := range map[string]struct {
		change func(w *world)
		says   string
	}{
		"to one that is not accepted": {func(w *world) {
			testkit.Change(w.wismar.Cluster, "", "hamburg", func(p *v1alpha1.Peer) { p.Spec.AcceptMembers = nil })
		}, "acceptMembers"},
		"where there are too many": {func(w *world) {
			w.wismar.Before(func(write testkit.Write) error {
				if write.Kind == "Quote" {
					return apierrors.NewForbidden(quotesKind, "x", errBroken)
				}
				return nil
			})
		}, "too much"},
		"where it is not valid": {func(w *world) {
			w.wismar.Before(func(write testkit.Write) error {
				if write.Kind == "Quote" {
					return apierrors.NewInvalid(schema.GroupKind{Kind: "Quote"}, "x", nil)
				}
				return nil
			})
		}, "does not take it"},
		"where the broker has one of that name": {func(w *world) {
			quote := &v1alpha1.Quote{Spec: *w.quote(time.Minute)}
			quote.Namespace, quote.Name = v1alpha1.TenantNamespace("hamburg"), "lubeck-id.app-1"
			w.wismar.Put(quote)
		}, "another of that name"},
	} {
		t.Run(name, func(t *testing.T) {
			w, questions := newAuction(t)
			test.change(w)
			w.rounds(4)
			got := w.heard(questions)
			if got == nil || got.Status.Whole.Interest != 0 || !strings.Contains(got.Status.Whole.Message, test.says) || len(got.Status.Components) != 1 {
				t.Errorf("lubeck hears %+v", got)
			}
		})
	}
}

// Whatever the broker puts in the place of an offer is not believed, and counted.
func TestOffersThatAreNotBelieved(t *testing.T) {
	whole := &v1alpha1.Offer{Interest: 100}
	for name, test := range map[string]struct {
		signer  func(w *world) *cluster
		change  func(*trust.Statement)
		body    any
		reasons []string
	}{
		"signed by another":      {func(w *world) *cluster { return w.lubeck }, nil, exchange.SignedOffer{Whole: whole}, []string{v1alpha1.ReasonForged}},
		"of one that is unknown": {nil, func(s *trust.Statement) { s.From = "visby-id" }, exchange.SignedOffer{Whole: whole}, []string{v1alpha1.ReasonUnknownMember}},
		"for another":            {nil, func(s *trust.Statement) { s.To = "visby-id" }, exchange.SignedOffer{Whole: whole}, []string{v1alpha1.ReasonMisaddressed}},
		"of nothing":             {nil, nil, exchange.SignedOffer{}, []string{v1alpha1.ReasonMalformed}},
		"that is something else": {nil, func(s *trust.Statement) { s.Type = trust.HandOverAnswer }, exchange.SignedOffer{Whole: whole}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w, questions := newAuction(t)
			signer := w.wismar
			if test.signer != nil {
				signer = test.signer(w)
			}
			statement := trust.Statement{Type: trust.Offer, From: "wismar-id", To: "lubeck-id", Sequence: w.Clock.Now().UnixNano()}
			if test.change != nil {
				test.change(&statement)
			}
			message := w.says(signer.key, tenantOf(w.lubeck), "wismar-id."+offerSent, statement, test.body)
			message.Labels = map[string]string{v1alpha1.LabelFrom: "wismar"}
			w.broker.Put(message)
			w.expectRefused(func() {
				w.looks(w.lubeck)
				w.looks(w.lubeck)
			}, test.reasons...)
			if got := w.heard(questions); got != nil {
				t.Errorf("lubeck believes %+v", got)
			}
		})
	}
}

func TestNobodyIsAskedWithoutABroker(t *testing.T) {
	w := newWorld(t)
	questions := &Questions{w.lubeck.member}
	if err := questions.Quote(t.Context(), "visby", "wismar-id", "app-1", w.quote(time.Minute)); err == nil {
		t.Error("it is asked through a broker that is not connected")
	}
	if questions.Offer(t.Context(), "visby", "wismar-id", "app-1") != nil {
		t.Error("it is heard through a broker that is not connected")
	}
}
