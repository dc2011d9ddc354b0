// SPDX-License-Identifier: Apache-2.0

package market

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

// cents is a bidder that asks for so many thousandths of a euro for a core.
func cents(price int64, interest int32) exchange.Bidder {
	prices := &v1alpha1.Prices{Currency: "EUR", PerHour: testkit.Quantities("cpu", fmt.Sprintf("%dm", price))}
	return exchange.Bidder{Free: testkit.Quantities("cpu", "8", "pods", "100"), Prices: prices, Interest: &interest}
}

// quoteAt returns the Quote at the peer, nil if there is none.
func (w *world) quoteAt(peer string) *v1alpha1.Quote {
	w.Helper()
	all := &v1alpha1.QuoteList{}
	if err := w.there[peer].Client.List(context.Background(), all, client.InNamespace(tenantThere)); err != nil {
		w.Fatal(err)
	}
	if len(all.Items) == 0 {
		return nil
	}
	return &all.Items[0]
}

// offers plays the provider's manager.
func (w *world) offers(peer string, bidder exchange.Bidder, changes ...func(*v1alpha1.Quote)) {
	w.Helper()
	quote := w.quoteAt(peer)
	whole, each := bidder.Offers(quote.Spec.Components)
	quote.Status = v1alpha1.QuoteStatus{ObservedGeneration: quote.Generation, Whole: &whole, Components: each}
	for _, change := range changes {
		change(quote)
	}
	quote.Status.Signed = w.signs(peer, trust.Offer, exchange.OfferToSign(quote, w.sequenceOf(peer, quote.Spec.Signed)))
	if err := w.there[peer].Client.Status().Update(context.Background(), quote); err != nil {
		w.Fatal(err)
	}
}

// auctionInWords says what each cluster has offered, in the order of their names, and who has won.
func auctionInWords(app *v1alpha1.Application) string {
	auction := app.Status.Auction
	if auction == nil {
		return "none"
	}
	state := "open"
	if auction.Phase == v1alpha1.AuctionClosed {
		state = "closed"
	}
	words := []string{fmt.Sprintf("%d %s", auction.Round, state)}
	for _, o := range auction.Offers {
		word := fmt.Sprintf("%s %d", o.Peer, o.Interest)
		if o.Price != nil {
			word += " " + o.Price.Amount
		}
		if len(o.Won) > 0 {
			word += " won " + strings.Join(o.Won, "+")
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

func (w *world) expectAuction(app *v1alpha1.Application, want string) {
	w.Helper()
	if diff := cmp.Diff(want, auctionInWords(app)); diff != "" {
		w.Fatalf("-want +got:\n%s%+v", diff, app.Status.Auction)
	}
}

// tooDear has the application cost at most 50m, where those that are known cost at least 60m.
func tooDear(app *v1alpha1.Application) {
	app.Spec.Placement = &v1alpha1.ApplicationPlacement{MaxPrice: &v1alpha1.Price{Amount: resource.MustParse("50m"), Currency: "EUR"}}
}

func always(app *v1alpha1.Application) {
	app.Spec.Auction = &v1alpha1.ApplicationAuctionSpec{When: v1alpha1.AuctionAlways, Deadline: &metav1.Duration{Duration: 5 * time.Second}}
}

func TestAnAuctionWhereTheLookupFails(t *testing.T) {
	w := newWorld(t, map[string]int64{"a": 10, "b": 20}, tooDear)
	app := w.looks()
	w.expect(app, "Unplaced")
	w.expectAuction(app, "1 open, a 0, b 0")
	if got := app.Status.Conditions[0]; got.Reason != v1alpha1.ReasonAuction || len(app.Status.Unsuitable) == 0 {
		t.Errorf("it says %+v, %+v", got, app.Status.Unsuitable)
	}
	if quote := w.quoteAt("a"); quote.Spec.Application.UID != app.UID || len(quote.Spec.Components) != 2 ||
		quote.Spec.Deadline.Sub(w.Clock.Now()) < v1alpha1.DefaultAuctionTime || quote.Spec.Deadline.Sub(w.Clock.Now()) > v1alpha1.DefaultAuctionTime+time.Second {
		t.Errorf("it asks for %+v", quote.Spec)
	}
	w.offers("a", cents(9, 50))
	w.expectAuction(w.looks(), "1 open, a 0, b 0") // b may still offer
	w.offers("b", cents(8, 50))
	app = w.looks()
	w.expect(app, "Requested front@b back@b")
	w.expectAuction(app, "1 closed, a 50 54m, b 50 48m won front+back,  0") // home has one core
	if most := w.requestAt("b").Spec.MaxPrice; most == nil || most.Amount.String() != "48m" {
		t.Errorf("it may cost %v", most)
	}
	w.answer("b", v1alpha1.RequestAcknowledged, "")
	app = w.looks()
	w.expect(app, "Placed front@b! back@b!")
	if app.Status.Price.Amount.String() != "48m" {
		t.Errorf("it costs %v", app.Status.Price)
	}
	w.ExpectEvents(v1alpha1.ReasonAuction, v1alpha1.ReasonAuctionEnded, v1alpha1.ReasonRequested, v1alpha1.ReasonPlaced)
}

func TestAWinnerThatRefusesGoesToTheNext(t *testing.T) {
	w := newWorld(t, map[string]int64{"a": 10, "b": 20}, tooDear)
	w.looks()
	w.offers("a", cents(8, 50))
	w.offers("b", cents(7, 50))
	w.expect(w.looks(), "Requested front@b back@b")
	w.answer("b", v1alpha1.RequestRefused, "It was sold")
	app := w.looks()
	w.expect(app, "Requested front@a back@a")
	if o := app.Status.Auction.Offers[1]; !strings.Contains(o.Message, "It had won. It refuses: It was sold") {
		t.Errorf("it says %q", o.Message)
	}
	w.answer("a", v1alpha1.RequestRefused, "So was this")
	app = w.looks()
	w.expect(app, "Unplaced")
	w.expectAuction(app, "1 closed, a 0, b 0,  0")
	w.Clock.Step(v1alpha1.DefaultAuctionTime + offerTime + time.Second) // when the offers are forgotten
	for peer := range w.there {
		if err := w.there[peer].Client.Delete(t.Context(), w.quoteAt(peer)); err != nil {
			t.Fatal(err)
		}
	}
	w.expectAuction(w.looks(), "2 open, a 0, b 0")
	if got := w.quoteAt("a").Spec.Deadline; got.Before(new(metav1.NewTime(w.Clock.Now()))) {
		t.Errorf("it asks for offers until %s", got)
	}
}

// After all that were chosen by their advertisements have refused, they are asked for offers.
func TestAnAuctionAfterAllHaveRefused(t *testing.T) {
	w := newWorld(t, map[string]int64{"a": 10})
	w.looks()
	w.answer("a", v1alpha1.RequestRefused, "no")
	w.expectAuction(w.looks(), "1 open, a 0")
	w.offers("a", cents(20, 3))
	w.expect(w.looks(), "Requested front@a back@a")
}

func TestLateOffersDoNotCountAndSilenceIsHarmless(t *testing.T) {
	w := newWorld(t, map[string]int64{"a": 10, "b": 20}, always)
	w.looks()
	w.offers("a", cents(8, 50))
	w.Clock.Step(4 * time.Second)
	w.expectAuction(w.looks(), "1 open, a 0, b 0")
	w.Clock.Step(2 * time.Second)
	app := w.looks()
	w.expect(app, "Requested front@a back@a")
	w.offers("b", cents(1, 100))
	w.answer("a", v1alpha1.RequestAcknowledged, "")
	app = w.looks()
	w.expect(app, "Placed front@a! back@a!")
	if o := app.Status.Auction.Offers[1]; o.Interest != 0 || !strings.Contains(o.Message, "no offer by the deadline") {
		t.Errorf("it says %+v", o)
	}
}

func TestTiesByInterestAndInterestZero(t *testing.T) {
	for name, test := range map[string]struct {
		a, b int32
		want string
	}{
		"a":      {60, 40, "Requested front@a back@a"},
		"b":      {40, 60, "Requested front@b back@b"},
		"no b":   {1, 0, "Requested front@a back@a"},
		"nobody": {0, 0, "Unplaced"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, map[string]int64{"a": 10, "b": 20}, always)
			w.looks()
			w.offers("a", cents(8, test.a))
			w.offers("b", cents(8, test.b))
			w.expect(w.looks(), test.want)
		})
	}
}

func TestWhoIsAskedForOffers(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.Application)
		want   string
	}{
		"all": {always, "1 open, a 0, b 0"},
		"not who may": {func(app *v1alpha1.Application) {
			always(app)
			app.Spec.Placement = &v1alpha1.ApplicationPlacement{Exclude: []string{"a"}}
		}, "1 open, b 0"},
		"nobody": {func(app *v1alpha1.Application) {
			tooDear(app)
			app.Spec.Auction = &v1alpha1.ApplicationAuctionSpec{When: v1alpha1.AuctionNever}
		}, "none"},
		"nobody, if it is not needed": {func(*v1alpha1.Application) {}, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, map[string]int64{"a": 10, "b": 20}, test.change)
			w.expectAuction(w.looks(), test.want)
		})
	}
}

// What a hostile provider offers hurts nobody else.
func TestHostileOffers(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.Quote){
		"at a negative price":     func(q *v1alpha1.Quote) { q.Status.Whole.Price.Amount = resource.MustParse("-1") },
		"without end of interest": func(q *v1alpha1.Quote) { q.Status.Whole.Interest = 1 << 30 },
		"in another currency":     func(q *v1alpha1.Quote) { q.Status.Whole.Price.Currency = "USD" },
		"for another spec":        func(q *v1alpha1.Quote) { q.Status.ObservedGeneration = 17 },
		"of no part of the whole": func(q *v1alpha1.Quote) { q.Status.Components = nil },
		"of what was not asked": func(q *v1alpha1.Quote) {
			q.Status.Components = []v1alpha1.ComponentOffer{{Name: "other", Offer: *q.Status.Whole}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, map[string]int64{"evil": 10, "good": 20}, always)
			w.own.Availability = nil
			w.looks()
			w.offers("evil", cents(1, 100), change)
			w.offers("good", cents(8, 5))
			w.Clock.Step(6 * time.Second)
			w.expect(w.looks(), "Requested front@good back@good")
		})
	}
}

// A manager that is killed finds in the status what it has asked, and what was offered.
func TestAnAuctionOutlivesAManager(t *testing.T) {
	w := newWorld(t, map[string]int64{"a": 10, "b": 20}, always)
	restart := func() { w.market = &applications{Config: w.market.Config} }
	w.looks()
	restart()
	w.offers("a", cents(8, 5))
	w.offers("b", cents(9, 5))
	w.expect(w.looks(), "Requested front@a back@a")
	restart()
	w.answer("a", v1alpha1.RequestRefused, "no")
	w.expect(w.looks(), "Requested front@b back@b")
}

// A round is for the spec as it is, also if that changes within a second.
func TestAnotherSpecIsAnotherRound(t *testing.T) {
	w := newWorld(t, map[string]int64{"a": 10}, always)
	app := w.looks()
	before := w.quoteAt("a").Spec
	app.Spec.Components[0].Replicas, app.Generation = 3, 1
	if err := w.Home.Client.Update(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	w.expectAuction(w.looks(), "2 open, a 0")
	if after := w.quoteAt("a").Spec; after.Deadline.Equal(&before.Deadline) || after.Components[0].Replicas != 3 {
		t.Errorf("it asks for %+v", after)
	}
}

// What was quoted bounds the price until the Request is renewed.
func TestAnOfferHoldsUntilTheRequestIsRenewed(t *testing.T) {
	w := newWorld(t, map[string]int64{"a": 10}, always)
	w.own.Availability = nil
	w.looks()
	w.offers("a", cents(0, 5))
	w.looks()
	if most := w.requestAt("a").Spec.MaxPrice; most == nil || !most.Amount.IsZero() || most.Currency != noCurrency {
		t.Errorf("it may cost %v", most)
	}
	w.answer("a", v1alpha1.RequestAcknowledged, "")
	w.looks()
	w.Clock.Step(offerTime + time.Minute)
	w.looks()
	if w.requestAt("a").Spec.MaxPrice == nil {
		t.Error("it was changed before it had to be renewed")
	}
	w.Clock.Step(v1alpha1.ReservationTime / 2)
	w.looks()
	if most := w.requestAt("a").Spec.MaxPrice; most != nil {
		t.Errorf("it may cost %v", most)
	}
}

func TestPausesBetweenAuctions(t *testing.T) {
	asks := func(peers ...string) (offers []v1alpha1.AuctionOffer) {
		for _, peer := range peers {
			offers = append(offers, v1alpha1.AuctionOffer{Peer: peer})
		}
		return offers
	}
	deadline := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	after := func(pause time.Duration, changes ...func(*v1alpha1.ApplicationAuction)) *v1alpha1.ApplicationAuction {
		last := &v1alpha1.ApplicationAuction{
			Generation: 3, Phase: v1alpha1.AuctionClosed, Deadline: metav1.NewTime(deadline), NextTime: new(metav1.NewTime(deadline.Add(pause))),
			Offers: asks("a", "b", ""),
		}
		for _, change := range changes {
			change(last)
		}
		return last
	}
	for name, test := range map[string]struct {
		last   *v1alpha1.ApplicationAuction
		offers []v1alpha1.AuctionOffer
		want   time.Duration
	}{
		"the first":                         {want: offerTime},
		"the same again":                    {last: after(offerTime), offers: asks("b", "a"), want: 2 * offerTime},
		"one cannot be asked any more":      {last: after(2 * offerTime), offers: asks("b"), want: 4 * offerTime},
		"the longest":                       {last: after(4 * offerTime), offers: asks("a"), want: longestPause},
		"no longer than the longest":        {last: after(longestPause), offers: asks("a"), want: longestPause},
		"another one can be asked":          {last: after(longestPause), offers: asks("a", "c"), want: offerTime},
		"another spec":                      {last: after(longestPause, func(a *v1alpha1.ApplicationAuction) { a.Generation = 2 }), offers: asks("a"), want: offerTime},
		"it has winners":                    {last: after(longestPause, func(a *v1alpha1.ApplicationAuction) { a.Offers[0].Won = []string{"front"} }), offers: asks("a"), want: offerTime},
		"nobody can be asked":               {last: after(longestPause), want: offerTime},
		"it was placed since":               {last: after(longestPause, func(a *v1alpha1.ApplicationAuction) { a.NextTime = nil }), offers: asks("a"), want: offerTime},
		"nobody has compared the last ones": {last: after(longestPause, func(a *v1alpha1.ApplicationAuction) { a.Phase = v1alpha1.AuctionOpen }), offers: asks("a"), want: offerTime},
	} {
		t.Run(name, func(t *testing.T) {
			seen := &scene{app: &v1alpha1.Application{ObjectMeta: metav1.ObjectMeta{Generation: 3}}}
			if got := seen.pause(test.last, test.offers); got != test.want {
				t.Errorf("the pause is %s, not %s", got, test.want)
			}
		})
	}
}

// Where nothing changes auctions are held less and less often, and the user is told when the next one is.
func TestAuctionsThatLeadNowhereAreHeldLessOften(t *testing.T) {
	w := newWorld(t, map[string]int64{"a": 10}, tooDear)
	for i, pause := range []time.Duration{offerTime, 2 * offerTime, 4 * offerTime, longestPause, longestPause} {
		w.expectAuction(w.looks(), fmt.Sprintf("%d open, a 0", i+1))
		w.Clock.Step(v1alpha1.DefaultAuctionTime + time.Second)
		app := w.looks()
		w.expectAuction(app, fmt.Sprintf("%d closed, a 0,  0", i+1))
		next := app.Status.Auction.NextTime
		if got := next.Sub(app.Status.Auction.Deadline.Time); got != pause {
			t.Fatalf("the pause after round %d is %s, not %s", i+1, got, pause)
		}
		if said := app.Status.Conditions[0].Message; !strings.Contains(said, "The next auction is at "+next.UTC().Format(time.RFC3339)) {
			t.Fatalf("it says %q", said)
		}
		w.Clock.Step(next.Sub(w.Clock.Now()) - time.Second)
		if again := w.Reconcile(w.market, ns, "web").RequeueAfter; again != time.Second {
			t.Fatalf("it is looked at again after %s", again)
		}
		w.expectAuction(w.looks(), fmt.Sprintf("%d closed, a 0,  0", i+1))
		w.Clock.Step(time.Second)
	}
}

func TestAnAuctionThatHasLedToAPlaceDoesNotPutOffTheNext(t *testing.T) {
	w := newWorld(t, map[string]int64{"a": 10}, tooDear)
	w.looks()
	w.offers("a", cents(8, 50))
	w.looks()
	w.answer("a", v1alpha1.RequestAcknowledged, "")
	if app := w.looks(); app.Status.Phase != v1alpha1.ApplicationPlaced || app.Status.Auction.NextTime != nil {
		t.Errorf("the next auction is put off: %+v", app.Status.Auction)
	}
}
