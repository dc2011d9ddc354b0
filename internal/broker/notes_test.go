// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

// A passage is what passes through a broker that counts, from noon on.
type passage struct {
	*testing.T
	*notes

	now time.Time
}

var (
	itsQuote   = client.ObjectKey{Namespace: "hanse-peer-lubeck", Name: "quote.wismar.a"}
	itsRequest = client.ObjectKey{Namespace: "hanse-peer-lubeck", Name: "hand-over.wismar"}
	anAnswer   = client.ObjectKey{Namespace: "hanse-peer-wismar", Name: "answer"}
)

// after lets time pass.
func (p *passage) after(d time.Duration) *passage {
	p.now = p.now.Add(d)
	return p
}

func (p *passage) says(message client.ObjectKey, s trust.Statement, body any) {
	p.Helper()
	var err error
	if s.Body, err = json.Marshal(body); err != nil {
		p.Fatal(err)
	}
	p.relayed(message, &s, p.now)
}

// introduces has wismar introduce itself.
func (p *passage) introduces() {
	p.says(client.ObjectKey{}, trust.Statement{Type: trust.Introduction, From: "wismar", Sequence: p.now.UnixNano()}, nothing)
}

// asks has lubeck ask wismar for an offer within a minute, or so many seconds, and returns the number of that.
func (p *passage) asks(patience ...time.Duration) int64 {
	deadline := p.now.Add(time.Minute)
	if len(patience) > 0 {
		deadline = p.now.Add(patience[0])
	}
	s := trust.Statement{Type: trust.Quote, From: "lubeck", To: "wismar", Sequence: p.now.UnixNano(), Expires: p.now.Add(time.Hour)}
	p.says(itsQuote, s, exchange.SignedQuote{Name: "a", Quote: v1alpha1.QuoteSpec{Deadline: metav1.NewTime(deadline)}})
	return s.Sequence
}

func (p *passage) offers(quote int64, interest int32) {
	p.says(anAnswer, trust.Statement{Type: trust.Offer, From: "wismar", To: "lubeck", Sequence: p.now.UnixNano()},
		exchange.SignedOffer{Quote: quote, Whole: &v1alpha1.Offer{}, Components: []v1alpha1.ComponentOffer{{Offer: v1alpha1.Offer{Interest: interest}}}})
}

// wants has lubeck ask wismar for an invitation.
func (p *passage) wants() int64 {
	s := trust.Statement{Type: trust.HandOver, From: "lubeck", To: "wismar", Sequence: p.now.UnixNano(), Expires: p.now.Add(handOverLife)}
	p.says(itsRequest, s, trust.HandOverRequest{})
	return s.Sequence
}

func (p *passage) answers(request int64, invitation string) {
	p.says(anAnswer, trust.Statement{Type: trust.HandOverAnswer, From: "wismar", To: "lubeck", Sequence: p.now.UnixNano()},
		trust.HandOverResponse{Request: request, Invitation: invitation})
}

func TestWhatABrokerCounts(t *testing.T) {
	span := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	for name, test := range map[string]struct {
		passes func(p *passage)
		want   v1alpha1.MemberMarks
	}{
		"nothing":         {func(*passage) {}, v1alpha1.MemberMarks{}},
		"an introduction": {func(p *passage) { p.introduces() }, v1alpha1.MemberMarks{}},
		"the longest gap": {func(p *passage) {
			p.introduces()
			p.after(15*time.Minute + time.Second).introduces()
			p.after(3 * time.Minute).introduces()
		}, v1alpha1.MemberMarks{LongestGap: span(16 * time.Minute)}},
		"a gap since before it counted": {func(p *passage) {
			p.says(client.ObjectKey{}, trust.Statement{Type: trust.Introduction, From: "wismar", Sequence: testkit.Noon.Add(-time.Minute).UnixNano()}, nothing)
			p.after(time.Hour).introduces()
		}, v1alpha1.MemberMarks{}},
		"a Quote and its offer": {func(p *passage) {
			quote := p.asks()
			p.after(1500*time.Millisecond).offers(quote, 70)
			p.asks()
			p.offers(quote, 70) // which was answered
		}, v1alpha1.MemberMarks{Quotes: 1, Offers: 1, OfferTime: span(1500 * time.Millisecond)}},
		"a no": {func(p *passage) {
			p.offers(p.asks(), 0)
			p.offers(p.after(time.Second).asks(), 1)
		}, v1alpha1.MemberMarks{Quotes: 2, Offers: 2, Declined: 1, OfferTime: span(0)}},
		"an offer that is too late": {func(p *passage) {
			quote := p.asks()
			p.after(time.Minute).offers(quote, 70)
		}, v1alpha1.MemberMarks{Quotes: 1}},
		"an offer to nobody":       {func(p *passage) { p.offers(7, 70) }, v1alpha1.MemberMarks{}},
		"a Quote that waits":       {func(p *passage) { p.asks(); p.after(59 * time.Second) }, v1alpha1.MemberMarks{}},
		"a Quote without patience": {func(p *passage) { p.asks(4 * time.Second); p.after(time.Hour) }, v1alpha1.MemberMarks{}},
		"a Quote that is over":     {func(p *passage) { p.asks(0) }, v1alpha1.MemberMarks{}},
		"a Quote of before": {func(p *passage) {
			p.introduces()
			p.now = p.now.Add(-time.Second)
			p.asks()
			p.after(time.Hour)
		}, v1alpha1.MemberMarks{}},
		"a Quote that is taken back at once": {func(p *passage) {
			p.asks()
			p.takenBack(itsQuote, p.after(29*time.Second).now)
		}, v1alpha1.MemberMarks{}},
		"a Quote that is taken back at the end": {func(p *passage) {
			p.asks()
			p.takenBack(itsQuote, p.after(58*time.Second).now)
		}, v1alpha1.MemberMarks{Quotes: 1}},
		"a Quote after the other": {func(p *passage) {
			for range 10 {
				p.asks()
				p.after(time.Second)
			}
			p.after(time.Minute)
		}, v1alpha1.MemberMarks{Quotes: 1}},
		"the same Quote again": {func(p *passage) {
			quote := p.asks()
			p.offers(quote, 1)
			p.now = p.now.Add(0)
			p.asks()
			p.after(time.Hour)
		}, v1alpha1.MemberMarks{Quotes: 1, Offers: 1, OfferTime: span(0)}},
		"a Quote to itself": {func(p *passage) {
			s := trust.Statement{Type: trust.Quote, From: "wismar", To: "wismar", Sequence: p.now.UnixNano()}
			p.says(itsQuote, s, exchange.SignedQuote{Name: "a", Quote: v1alpha1.QuoteSpec{Deadline: metav1.NewTime(p.now.Add(time.Minute))}})
			s.Type = trust.Offer
			p.says(anAnswer, s, exchange.SignedOffer{Quote: s.Sequence, Whole: &v1alpha1.Offer{Interest: 1}})
		}, v1alpha1.MemberMarks{}},
		"the same Quote in two Messages": {func(p *passage) {
			s := trust.Statement{Type: trust.Quote, From: "lubeck", To: "wismar", Sequence: p.now.UnixNano()}
			body := exchange.SignedQuote{Name: "a", Quote: v1alpha1.QuoteSpec{Deadline: metav1.NewTime(p.now.Add(time.Minute))}}
			other := client.ObjectKey{Namespace: itsQuote.Namespace, Name: "other"}
			p.says(itsQuote, s, body)
			p.says(other, s, body)
			p.takenBack(itsQuote, p.after(40*time.Second).now)
			p.takenBack(other, p.now)
		}, v1alpha1.MemberMarks{Quotes: 1}},
		"an invitation": {func(p *passage) { p.answers(p.wants(), "sealed") }, v1alpha1.MemberMarks{HandOvers: 1, Invitations: 1}},
		"a refusal, each minute": {func(p *passage) {
			for range 10 {
				p.answers(p.wants(), "")
				p.after(time.Minute)
			}
		}, v1alpha1.MemberMarks{HandOvers: 1, Refusals: 1}},
		"a refusal, and then an invitation": {func(p *passage) {
			p.answers(p.wants(), "")
			p.answers(p.after(time.Minute).wants(), "sealed")
		}, v1alpha1.MemberMarks{HandOvers: 2, Invitations: 1, Refusals: 1}},
		"a request that is not answered": {func(p *passage) { p.wants(); p.after(handOverLife) }, v1alpha1.MemberMarks{HandOvers: 1}},
		"as much as it can count": {func(p *passage) {
			p.introduces()
			p.members["wismar"].marks = v1alpha1.MemberMarks{Quotes: v1alpha1.MaxMark, Offers: 7, HandOvers: v1alpha1.MaxMark}
			p.offers(p.asks(), 0)
			p.answers(p.wants(), "")
			p.after(time.Second).asks()
			p.wants()
			p.after(time.Hour)
		}, v1alpha1.MemberMarks{Quotes: v1alpha1.MaxMark, Offers: 7, HandOvers: v1alpha1.MaxMark}},
		"nonsense": {func(p *passage) {
			p.says(itsQuote, trust.Statement{Type: trust.Quote, From: "lubeck", To: "wismar", Sequence: p.now.UnixNano()}, "hello")
			p.says(anAnswer, trust.Statement{Type: trust.Offer, From: "wismar", To: "lubeck", Sequence: 1}, "hello")
			p.says(anAnswer, trust.Statement{Type: trust.HandOverAnswer, From: "wismar", To: "lubeck", Sequence: 1}, "hello")
			p.says(anAnswer, trust.Statement{Type: trust.Marks, From: "wismar", Sequence: 1}, "hello")
		}, v1alpha1.MemberMarks{}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &passage{T: t, notes: &notes{}, now: testkit.Noon}
			members := map[string]bool{"lubeck": true, "wismar": true}
			p.marks(members, p.now)
			test.passes(p)
			marks := p.marks(members, p.now)
			if diff := cmp.Diff(test.want, marks["wismar"], cmpopts.IgnoreFields(v1alpha1.MemberMarks{}, "Since")); diff != "" {
				t.Errorf("marks (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(v1alpha1.MemberMarks{Since: metav1.NewTime(testkit.Noon.UTC())}, marks["lubeck"]); diff != "" {
				t.Errorf("who asks is marked (-want +got):\n%s", diff)
			}
			later := p.now.Add(24 * time.Hour)
			if left := p.marks(map[string]bool{"visby": true}, later); len(left) != 1 || !left["visby"].Since.Time.Equal(later.Truncate(time.Second)) {
				t.Errorf("of one that comes later there are %+v", left)
			}
			if len(p.members) > 1 || len(p.asked)+len(p.asking) > 0 {
				t.Errorf("it remembers %d members and %d questions that are over", len(p.members), len(p.asking))
			}
		})
	}
}

func TestMarksFitIntoStatements(t *testing.T) {
	most := v1alpha1.MemberMarks{
		Since: metav1.NewTime(testkit.Noon.UTC()), LongestGap: &metav1.Duration{Duration: 8784*time.Hour - time.Minute},
		Quotes: v1alpha1.MaxMark, Offers: v1alpha1.MaxMark, Declined: v1alpha1.MaxMark, OfferTime: &metav1.Duration{Duration: 24*time.Hour - time.Millisecond},
		HandOvers: v1alpha1.MaxMark, Invitations: v1alpha1.MaxMark / 2, Refusals: v1alpha1.MaxMark / 2,
	}
	all, marked := map[string]v1alpha1.MemberMarks{}, 0
	for i := range 10_000 {
		all[fmt.Sprintf("member-of-the-longest-id-%05d", i)] = most
	}
	shared := inMessages(all)
	if len(shared) != marksMessages {
		t.Errorf("there are %d Messages, want %d", len(shared), marksMessages)
	}
	for name, marks := range shared {
		marked += len(marks.Members)
		said := trust.Statement{Type: trust.Marks, From: "broker-of-the-longest-id-00000", Sequence: testkit.Noon.UnixNano(), Expires: testkit.Noon}
		spec, err := trust.SignStatement(keyOf("x"), said, marks)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		read, err := trust.VerifyStatement(spec, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := exchange.ReadMarks(read.Body, read.From, read.Expires); err != nil {
			t.Errorf("%s is refused: %v", name, err)
		}
	}
	if marked != marksMessages*exchange.MaxMarked {
		t.Errorf("%d members are marked", marked)
	}
	for id := range all {
		if len(all) > maxMembers {
			delete(all, id)
		}
	}
	marked = 0
	for _, marks := range inMessages(all) {
		marked += len(marks.Members)
	}
	t.Logf("of %d members %d are marked", len(all), marked)
	if marked < maxMembers*9/10 {
		t.Errorf("of %d members only %d are marked", len(all), marked)
	}
}
