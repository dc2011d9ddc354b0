// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

// resigned has the Request signed with a statement that was changed.
func (c *counter) resigned(change func(*trust.Statement)) func(*v1alpha1.Request) {
	return func(r *v1alpha1.Request) { r.Spec.Signed = c.signs(trust.Request, exchange.RequestToSign(r), change) }
}

func TestWhatIsNotSignedAsItShouldBe(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*counter, *v1alpha1.Request)
		reason string
	}{
		"signed": {func(*counter, *v1alpha1.Request) {}, ""},
		"changed after that": {func(c *counter, r *v1alpha1.Request) {
			r.Spec.Signed = c.signs(trust.Request, exchange.RequestToSign(r))
			r.Spec.Components[0].Replicas = 2
		}, v1alpha1.ReasonForged},
		"for another name": {func(c *counter, r *v1alpha1.Request) {
			other := *r
			other.Name = "another"
			r.Spec.Signed = c.signs(trust.Request, exchange.RequestToSign(&other))
		}, v1alpha1.ReasonForged},
		"by another key": {func(c *counter, r *v1alpha1.Request) {
			r.Spec.Signed = c.signsWith(kielKey, trust.Request, exchange.RequestToSign(r))
		}, v1alpha1.ReasonForged},
		"by another cluster": {func(c *counter, r *v1alpha1.Request) { c.resigned(func(s *trust.Statement) { s.From = "kiel-id" })(r) }, v1alpha1.ReasonForged},
		"for another cluster": {
			func(c *counter, r *v1alpha1.Request) { c.resigned(func(s *trust.Statement) { s.To = "kiel-id" })(r) },
			v1alpha1.ReasonMisaddressed,
		},
		"for nobody": {func(c *counter, r *v1alpha1.Request) { c.resigned(func(s *trust.Statement) { s.To = "" })(r) }, v1alpha1.ReasonMisaddressed},
		"for something else": {func(c *counter, r *v1alpha1.Request) {
			r.Spec.Signed = c.signs(trust.Quote, exchange.RequestToSign(r))
		}, v1alpha1.ReasonMalformed},
		"too late": {func(c *counter, r *v1alpha1.Request) {
			c.resigned(func(s *trust.Statement) { s.Expires = c.Clock.Now() })(r)
		}, v1alpha1.ReasonExpired},
		"for ever": {func(c *counter, r *v1alpha1.Request) {
			c.resigned(func(s *trust.Statement) { s.Expires = c.Clock.Now().AddDate(1, 0, 0) })(r)
		}, v1alpha1.ReasonMalformed},
		"with another body": {func(c *counter, r *v1alpha1.Request) { r.Spec.Signed = c.signs(trust.Request, 7) }, v1alpha1.ReasonMalformed},
		"with a quantity that takes hours": {func(c *counter, r *v1alpha1.Request) {
			r.Spec.Signed = c.signs(trust.Request, map[string]any{"request": map[string]any{"maxPrice": map[string]any{"amount": "1e999999999"}}})
		}, v1alpha1.ReasonMalformed},
		"as nonsense": {func(_ *counter, r *v1alpha1.Request) {
			r.Spec.Signed = &v1alpha1.SignedStatement{Statement: "{}{", Signature: "x"}
		}, v1alpha1.ReasonMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCounter(t, peer())
			counted := refusedSo(t, test.reason)
			got := c.ask("shop", "1", func(r *v1alpha1.Request) { test.change(c, r) })
			if test.reason == "" {
				c.expect(got, v1alpha1.RequestAcknowledged, "1", v1alpha1.ReasonReserved, "")
				return
			}
			c.expect(got, v1alpha1.RequestRefused, "0", test.reason, "spec.signed: ")
			c.look("shop")
			if more := refusedSo(t, test.reason) - counted; more != 1 {
				t.Errorf("it is counted %v times", more)
			}
			if !c.fits("kiel", "", "4") || got.Status.Sequence != 0 {
				t.Errorf("something was taken in: %+v", got.Status)
			}
			// What was refused stands in nobody's way.
			c.expect(c.ask("shop", "4"), v1alpha1.RequestAcknowledged, "4", v1alpha1.ReasonReserved, "")
		})
	}
}

// refusedSo is how many statements of lubeck were refused for the reason so far.
func refusedSo(t *testing.T, reason string) int {
	t.Helper()
	return testkit.Counted(t, peers.StatementsRefused.WithLabelValues("lubeck", reason))
}

func TestWhatIsNotSigned(t *testing.T) {
	c := newCounter(t, peer())
	c.put("shop", "1")
	unsigned := c.ask("shop", "2")
	unsigned.Spec.Signed = nil
	unsigned.Generation++
	c.Home.Put(unsigned)
	c.expect(c.look("shop"), v1alpha1.RequestAcknowledged, "2", v1alpha1.ReasonUnsigned, "What was acknowledged before stays reserved")
}

func TestAnOlderVersionIsStale(t *testing.T) {
	c := newCounter(t, peer())
	older := c.ask("shop", "1")
	newer := c.ask("shop", "2")
	put := func(next *v1alpha1.Request) *v1alpha1.Request {
		now := testkit.Get[v1alpha1.Request](c.Home, next.Namespace, "shop")
		now.Spec = next.Spec
		now.Generation++
		c.Home.Put(now)
		return c.look("shop")
	}
	c.expect(put(older), v1alpha1.RequestAcknowledged, "2", v1alpha1.ReasonStale, "higher sequence")
	c.requests = c.start() // the status tells what was taken in
	c.expect(put(older), v1alpha1.RequestAcknowledged, "2", v1alpha1.ReasonStale, "higher sequence")
	c.expect(put(newer), v1alpha1.RequestAcknowledged, "2", v1alpha1.ReasonReserved, "") // it is what was said last
}

func TestWhatWasReleasedIsNotAskedForAgainByTheOldText(t *testing.T) {
	c := newCounter(t, peer())
	old := c.ask("shop", "1")
	again := func(uid types.UID, spec v1alpha1.RequestSpec) *v1alpha1.Request {
		c.Home.Remove(&v1alpha1.Request{ObjectMeta: metav1.ObjectMeta{Namespace: old.Namespace, Name: "shop"}})
		c.look("shop")
		c.Home.Put(&v1alpha1.Request{ObjectMeta: metav1.ObjectMeta{Namespace: old.Namespace, Name: "shop", UID: uid, Generation: 1}, Spec: spec})
		return c.look("shop")
	}
	c.expect(again("second", old.Spec), v1alpha1.RequestRefused, "0", v1alpha1.ReasonStale, "")
	next := *old.DeepCopy()
	next.Spec.Signed = c.signs(trust.Request, exchange.RequestToSign(&next))
	c.expect(again("third", next.Spec), v1alpha1.RequestAcknowledged, "1", v1alpha1.ReasonReserved, "")
	c.expect(again("fourth", old.Spec), v1alpha1.RequestRefused, "0", v1alpha1.ReasonStale, "")
	// A restart forgets what no object tells: then the end of the statement is what is left.
	c.requests = c.start()
	c.Clock.Step(time.Hour)
	c.expect(again("fifth", next.Spec), v1alpha1.RequestRefused, "0", v1alpha1.ReasonExpired, "")
}

func TestThePastIsBounded(t *testing.T) {
	p := &past{}
	ask := func(name string, uid types.UID) *question { return &question{of: requestKey{"lubeck", name}, uid: uid} }
	for i := range 2 * maxRemembered {
		p.note(ask(fmt.Sprint(i), "old"), int64(i+1), testkit.Noon)
	}
	if held := len(p.byPeer["lubeck"].last); held != maxRemembered {
		t.Errorf("%d are remembered", held)
	}
	for _, i := range []int{0, maxRemembered - 1, maxRemembered, 2*maxRemembered - 1} {
		if least := p.least(ask(fmt.Sprint(i), "new")); least <= int64(i+1) {
			t.Errorf("what was said as %d may be said again: from %d on", i+1, least)
		}
	}
	if least := p.least(ask("never heard of", "new")); least != maxRemembered+1 {
		t.Errorf("under a new name all is taken from %d on", least)
	}
	p.note(&question{of: requestKey{"kiel", "a"}, uid: "a"}, 1, testkit.Noon.Add(remembered))
	if p.byPeer["lubeck"] != nil {
		t.Error("what holds no more is remembered")
	}
}

// The answer is signed when it is given, and not when something else of the status changes.
func TestAnswersAreSigned(t *testing.T) {
	web := asking("web", "1")
	web.Spec.Request = "shop"
	c := newCounter(t, peer(), web)
	says := func(got *v1alpha1.Request) *trust.Statement {
		t.Helper()
		said, err := trust.Expected{
			Type: trust.Acknowledgement, From: ourID, Pinned: trust.PublicKeyOf(ourKey), To: "lubeck-id",
			Same: func(body []byte) (string, string) {
				return exchange.AnswerSigned(body, got, c.requests.statements.sequenceOf(got.Spec.Signed))
			},
		}.Verify(got.Status.Signed)
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	got := c.ask("shop", "3")
	first := says(got)
	if !first.Expires.Equal(got.Status.ValidUntil.Time) || got.Status.Sequence == 0 {
		t.Errorf("it holds until %s, and took in %d", first.Expires, got.Status.Sequence)
	}
	c.runOf("web")
	got = c.look("shop")
	if used := got.Status.Used[corev1.ResourceCPU]; used.String() != "1" || says(got).Sequence != first.Sequence {
		t.Errorf("%s are used, and the answer was signed again", used.String())
	}
	refused := says(c.ask("shop", "9"))
	if refused.Sequence <= first.Sequence {
		t.Errorf("the sequences are %d and %d", first.Sequence, refused.Sequence)
	}
	got = c.look("shop")
	got.Status.Price.Amount.Add(got.Status.Price.Amount) // somebody else writes it
	c.Home.Put(got)
	c.requests.statements.past = past{}
	if got = c.look("shop"); got.Status.Signed.Statement == "" {
		t.Fatal("it is not signed")
	}
	if reason, _ := exchange.AnswerSigned(bodyOf(t, got), got, c.requests.statements.sequenceOf(got.Spec.Signed)); reason != v1alpha1.ReasonForged {
		t.Errorf("what somebody else wrote was signed: %s", reason)
	}
	c.Clock.Step(2 * time.Hour)
	if got = c.look("shop"); got.Status.Phase != v1alpha1.RequestExpired {
		t.Errorf("it is %s", got.Status.Phase)
	}
	says(got)
}

// bodyOf is that of the answer, whatever the status says.
func bodyOf(t *testing.T, got *v1alpha1.Request) []byte {
	t.Helper()
	said, err := trust.VerifyStatement(got.Status.Signed, "lubeck-id")
	if err != nil {
		t.Fatal(err)
	}
	return said.Body
}

func TestQuotesAreSigned(t *testing.T) {
	c := newCounter(t, peer())
	quotes := c.quotes()
	got := c.quote(quotes, "1", "1")
	said, err := trust.Expected{
		Type: trust.Offer, From: ourID, Pinned: trust.PublicKeyOf(ourKey), To: "lubeck-id",
		Same: func(body []byte) (string, string) {
			return exchange.OfferSigned(body, got, quotes.statements.sequenceOf(got.Spec.Signed))
		},
	}.Verify(got.Status.Signed)
	if err != nil || got.Status.Sequence == 0 {
		t.Errorf("the offer says %+v, %v; it took in %d", said, err, got.Status.Sequence)
	}
	unsigned := func(q *v1alpha1.Quote) { q.Spec.Signed = c.signsWith(kielKey, trust.Quote, exchange.QuoteToSign(q)) }
	if got := c.quote(quotes, "1", "1", unsigned); got.Status.Whole.Interest != 0 || got.Status.Whole.Reason != v1alpha1.ReasonForged {
		t.Errorf("it offers %+v", got.Status.Whole)
	}
	older := func(q *v1alpha1.Quote) {
		q.Spec.Signed = c.signs(trust.Quote, exchange.QuoteToSign(q), func(s *trust.Statement) { s.Sequence = 1 })
	}
	if got := c.quote(quotes, "1", "1", older); got.Status.Whole.Reason != v1alpha1.ReasonStale {
		t.Errorf("it offers %+v", got.Status.Whole)
	}
	// A member signs what it asks through a broker, and its offer is signed for it.
	c.Home.Put(broker(), wismar())
	got = c.quote(quotes, "1", "1", func(q *v1alpha1.Quote) { ofWismar(q) })
	if said, err := trust.VerifyStatement(got.Status.Signed, "wismar"); err != nil || got.Status.Whole.Interest == 0 {
		t.Errorf("it offers %+v, and says %+v, %v", got.Status, said, err)
	}
}
