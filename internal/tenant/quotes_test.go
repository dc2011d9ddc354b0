// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

// quotes is the controller of Quotes, beside that of Requests.
func (c *counter) quotes() *quoteReconciler {
	cfg := c.config()
	cfg.ClusterID = ourID
	return newQuoteReconciler(cfg, c.Home.Client, c.pods.ledger)
}

// quote has lubeck ask what so much cpu would cost, as a web of one replica and a db of another one.
func (c *counter) quote(r *quoteReconciler, web, db string, changes ...func(*v1alpha1.Quote)) *v1alpha1.Quote {
	c.Helper()
	quote := &v1alpha1.Quote{}
	c.Home.Find(quote, v1alpha1.TenantNamespace("lubeck"), "shop")
	quote.Namespace, quote.Name, quote.UID = v1alpha1.TenantNamespace("lubeck"), "shop", "quote"
	quote.CreationTimestamp = metav1.NewTime(c.Clock.Now())
	quote.Generation++
	quote.Spec = v1alpha1.QuoteSpec{
		Application: v1alpha1.RequestedApplication{UID: "app-1", Name: "shop"},
		Components: []v1alpha1.RequestedComponent{
			{Name: "web", Replicas: 1, Resources: testkit.Quantities("cpu", web)}, {Name: "db", Replicas: 1, Resources: testkit.Quantities("cpu", db)},
		},
		Deadline: metav1.NewTime(c.Clock.Now().Add(30 * time.Second)), ExpirationTime: metav1.NewTime(c.Clock.Now().Add(2 * time.Minute)),
	}
	for _, change := range changes {
		change(quote)
	}
	if quote.Spec.Signed == nil {
		quote.Spec.Signed = c.signsFor(quote, trust.Quote, exchange.QuoteToSign(quote))
	}
	c.Home.Put(quote)
	return c.lookAt(r)
}

// lookAt returns nil if the Quote is gone.
func (c *counter) lookAt(r *quoteReconciler) *v1alpha1.Quote {
	c.Helper()
	c.Reconcile(r, v1alpha1.TenantNamespace("lubeck"), "shop")
	quote := &v1alpha1.Quote{}
	if !c.Home.Find(quote, v1alpha1.TenantNamespace("lubeck"), "shop") {
		return nil
	}
	return quote
}

// inWords is the offer, such as "50 for 20m: web 75 for 10m, db 75 for 10m".
func offerInWords(quote *v1alpha1.Quote) string {
	word := func(o v1alpha1.Offer) string {
		switch {
		case o.Interest == 0:
			return o.Reason
		case o.Price == nil:
			return resource.NewQuantity(int64(o.Interest), resource.DecimalSI).String() + " for nothing"
		default:
			return resource.NewQuantity(int64(o.Interest), resource.DecimalSI).String() + " for " + o.Price.Amount.String()
		}
	}
	var parts []string
	for _, o := range quote.Status.Components {
		parts = append(parts, o.Name+" "+word(o.Offer))
	}
	return word(*quote.Status.Whole) + ": " + strings.Join(parts, ", ")
}

func (c *counter) ruled(question policy.Question, rules ...string) {
	c.Helper()
	set, err := policy.Compile(question, []policy.Module{{Name: "test/test.rego", Source: "package hanse." + string(question) + "\n" + strings.Join(rules, "\n")}})
	if err != nil {
		c.Fatal(err)
	}
	c.policies.question, c.policies.set = question, set
}

func TestOffersForAQuote(t *testing.T) {
	for name, test := range map[string]struct {
		web, db string
		setUp   func(*counter)
		change  func(*v1alpha1.Quote)
		want    string
		reason  string
	}{
		"what is free": {web: "1", db: "1", want: "50 for 20m: web 75 for 10m, db 75 for 10m"},
		"a part":       {web: "1", db: "4", want: "NoRoom: web 75 for 10m, db 1 for 40m"},
		"nothing":      {web: "5", db: "9", want: "NoRoom: web NoRoom, db NoRoom", reason: v1alpha1.ReasonNoRoom},
		"what is reserved": {
			web: "1", db: "1", setUp: func(c *counter) { c.ask("other", "3") }, want: "NoRoom: web 1 for 10m, db 1 for 10m",
		},
		"what is reserved for the same": {
			web: "1", db: "1", setUp: func(c *counter) { c.ask("shop", "3") }, want: "50 for 20m: web 75 for 10m, db 75 for 10m",
		},
		"within limits": {
			web: "1", db: "1", want: "NoRoom: web 1 for 10m, db 1 for 10m",
			setUp: func(c *counter) {
				limited := peer()
				limited.Spec.Limits = &v1alpha1.PeerLimits{Resources: testkit.Quantities("cpu", "1")}
				c.Home.Put(limited)
			},
		},
		"nothing, since none is offered anything": {
			web: "1", db: "1", want: "NotOffered: web NotOffered, db NotOffered", reason: v1alpha1.ReasonNotOffered,
			setUp: func(c *counter) {
				ad := &v1alpha1.Advertisement{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("lubeck"), Name: ourID}}
				if err := c.Home.Client.Delete(c.Context(), ad, client.Preconditions{UID: &testkit.Get[v1alpha1.Advertisement](c.Home, ad.Namespace, ourID).UID}); err != nil {
					c.Fatal(err)
				}
			},
		},
		"nothing, since no more pods are taken": {
			web: "1", db: "1", want: "PeerCordoned: web PeerCordoned, db PeerCordoned", reason: v1alpha1.ReasonPeerCordoned,
			setUp: func(c *counter) {
				cordoned := peer()
				cordoned.Spec.Access = v1alpha1.AccessCordoned
				c.Home.Put(cordoned)
			},
		},
		"by policy": {
			web: "1", db: "1", want: "7 for 10m: web 7 for 5m, db 7 for 5m",
			setUp: func(c *counter) {
				c.ruled(policy.Quote, "interest := 7", `prices := {"currency": "EUR", "perHour": {"cpu": input.prices.perHour.cpu / 2}}`)
			},
		},
		"a gift": {
			web: "1", db: "1", want: "50 for nothing: web 75 for nothing, db 75 for nothing",
			setUp: func(c *counter) { c.ruled(policy.Quote, "prices := {}") },
		},
		"nothing, by policy": {
			web: "1", db: "1", want: "RefusedByPolicy: web RefusedByPolicy, db RefusedByPolicy", reason: v1alpha1.ReasonRefusedByPolicy,
			setUp: func(c *counter) {
				c.ruled(policy.Quote, `deny contains "not today" if input.quote.application.name == "shop"`)
			},
		},
		"of a member, through one that is no consumer": {
			web: "1", db: "1", want: "9 for 20m: web 9 for 10m, db 9 for 10m",
			setUp: func(c *counter) {
				c.Home.Put(broker(), wismar())
				c.ruled(policy.Quote, `interest := 9 if input.member == "wismar"`)
			},
			change: func(q *v1alpha1.Quote) { ofWismar(q) },
		},
		"of a member that the broker marks": {
			web: "1", db: "1", want: "4 for 20m: web 4 for 10m, db 4 for 10m",
			setUp: func(c *counter) {
				known := wismar()
				known.Status.Brokers = []v1alpha1.MemberBroker{
					{Name: "elsewhere", Marks: &v1alpha1.MemberMarks{Quotes: 7}}, {Name: peer().Name, Marks: &v1alpha1.MemberMarks{Quotes: 4}},
				}
				c.Home.Put(broker(), known)
				c.ruled(policy.Quote, `interest := input.marks.quotes`)
			},
			change: func(q *v1alpha1.Quote) { ofWismar(q) },
		},
		"of a member of which nothing is known": {
			web: "1", db: "1", want: "Forged: web Forged, db Forged", reason: v1alpha1.ReasonForged,
			setUp:  func(c *counter) { c.Home.Put(broker()) },
			change: func(q *v1alpha1.Quote) { ofWismar(q) },
		},
		"of one that is no consumer": {
			web: "1", db: "1", want: v1alpha1.ReasonParting + ": web " + v1alpha1.ReasonParting + ", db " + v1alpha1.ReasonParting, reason: v1alpha1.ReasonParting,
			setUp: func(c *counter) { c.Home.Put(broker()) },
		},
		"nothing after the deadline": {
			web: "1", db: "1", want: "InvalidDeadline: web InvalidDeadline, db InvalidDeadline", reason: v1alpha1.ReasonInvalidDeadline,
			change: func(q *v1alpha1.Quote) { q.Spec.Deadline = metav1.NewTime(q.Spec.Deadline.Add(-time.Hour)) },
		},
		"nothing for a hundred years": {
			web: "1", db: "1", want: "InvalidExpirationTime: web InvalidExpirationTime, db InvalidExpirationTime", reason: v1alpha1.ReasonInvalidExpirationTime,
			change: func(q *v1alpha1.Quote) { q.Spec.ExpirationTime = metav1.NewTime(q.Spec.Deadline.AddDate(100, 0, 0)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCounter(t, peer())
			if test.setUp != nil {
				test.setUp(c)
			}
			if test.change == nil {
				test.change = func(*v1alpha1.Quote) {}
			}
			got := c.quote(c.quotes(), test.web, test.db, test.change)
			if diff := cmp.Diff(test.want, offerInWords(got)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			said := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionOffered)
			if want := test.reason == ""; said == nil || (said.Status == metav1.ConditionTrue) != want || !want && (said.Reason != test.reason || said.Message == "") {
				t.Errorf("it says %+v", said)
			}
		})
	}
}

func TestAnOfferReservesNothing(t *testing.T) {
	c := newCounter(t, peer())
	quotes := c.quotes()
	c.quote(quotes, "2", "2")
	if got := c.ask("other", "4"); got.Status.Phase != v1alpha1.RequestAcknowledged {
		t.Errorf("it says %+v", got.Status)
	}
	if got := c.lookAt(quotes); got == nil || offerInWords(got) != "1 for 40m: web 50 for 20m, db 50 for 20m" {
		t.Errorf("it was offered again: %+v", got)
	}
	if got := c.quote(quotes, "2", "2"); offerInWords(got) != "NoRoom: web NoRoom, db NoRoom" {
		t.Errorf("the next version has %+v", got.Status)
	}
}

func TestQuotesAreForgottenInTime(t *testing.T) {
	c := newCounter(t, peer())
	quotes := c.quotes()
	c.quote(quotes, "1", "1")
	c.Clock.Step(2*time.Minute - time.Second)
	if c.lookAt(quotes) == nil {
		t.Fatal("it was forgotten too early")
	}
	c.Clock.Step(time.Second)
	if c.lookAt(quotes) != nil {
		t.Fatal("it is still there")
	}
	c.quote(quotes, "1", "1", func(q *v1alpha1.Quote) { q.Spec.ExpirationTime = metav1.NewTime(c.Clock.Now().AddDate(100, 0, 0)) })
	c.Clock.Step(v1alpha1.MaxQuoteTime)
	if c.lookAt(quotes) != nil {
		t.Error("one for a hundred years is still there")
	}
}

func TestAConsumerIsMadeOnlySoManyOffers(t *testing.T) {
	c := newCounter(t, peer())
	quotes := c.quotes()
	quotes.budgets = newEventBudgets(1, 1)
	c.quote(quotes, "1", "1")
	if got := c.quote(quotes, "2", "2"); got.Status.ObservedGeneration == got.Generation {
		t.Errorf("it has an offer: %+v", got.Status)
	}
	c.Clock.Step(time.Second)
	if got := c.lookAt(quotes); got.Status.ObservedGeneration != got.Generation {
		t.Errorf("it has no offer: %+v", got.Status)
	}
}

// A Request costs no more than was quoted for it, and what its ceiling says is compared with that.
func TestARequestCostsWhatWasQuoted(t *testing.T) {
	c := newCounter(t, peer())
	c.ruled(policy.Quote, `prices := {"currency": "EUR", "perHour": {"cpu": 0.001}}`)
	c.quote(c.quotes(), "1", "1")
	like := func(request *v1alpha1.Request) {
		request.Spec.Components = testkit.Get[v1alpha1.Quote](c.Home, request.Namespace, "shop").Spec.Components
		request.Spec.MaxPrice = &v1alpha1.Price{Amount: resource.MustParse("0.002"), Currency: "EUR"}
	}
	got := c.ask("shop", "1", like)
	if got.Status.Phase != v1alpha1.RequestAcknowledged || got.Status.Price.Amount.String() != "2m" {
		t.Errorf("it says %+v", got.Status)
	}
	if got := c.ask("other", "1", like); got.Status.Phase != v1alpha1.RequestRefused {
		t.Errorf("one of another name costs what was quoted: %+v", got.Status)
	}
	c.Clock.Step(2 * time.Minute)
	if got := c.ask("shop", "1", like); !meta.IsStatusConditionFalse(got.Status.Conditions, v1alpha1.ConditionAcknowledged) {
		t.Errorf("it costs what was quoted until then: %+v", got.Status)
	}
}

// What was offered to a member through a broker holds when it has become a peer, and for nobody else.
func TestARequestCostsWhatWasQuotedThroughABroker(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.Quote)
		price  string
	}{
		"what it was offered":              {func(*v1alpha1.Quote) {}, "2m"},
		"what another member was offered":  {func(q *v1alpha1.Quote) { q.Labels[v1alpha1.LabelFrom] = "wismar" }, "20m"},
		"what the broker itself has asked": {func(q *v1alpha1.Quote) { q.Labels = nil }, "20m"},
	} {
		t.Run(name, func(t *testing.T) {
			introduced := peer()
			introduced.Annotations = map[string]string{v1alpha1.AnnotationIntroducedBy: "hamburg"}
			c := newCounter(t, introduced)
			whole := v1alpha1.Offer{Interest: 1, Price: &v1alpha1.Price{Amount: resource.MustParse("2m"), Currency: "EUR"}}
			got := c.ask("shop", "2", func(request *v1alpha1.Request) {
				quote := &v1alpha1.Quote{ObjectMeta: metav1.ObjectMeta{
					Namespace: v1alpha1.TenantNamespace("hamburg"), Name: v1alpha1.RelayedName(introduced.Spec.ClusterID, "shop"),
					Labels: map[string]string{v1alpha1.LabelFrom: introduced.Spec.ClusterID},
				}}
				quote.Spec = v1alpha1.QuoteSpec{Application: request.Spec.Application, Components: request.Spec.Components, ExpirationTime: request.Spec.ExpirationTime}
				quote.Status.Whole = &whole
				test.change(quote)
				c.Home.Put(quote)
			})
			if got.Status.Price == nil || got.Status.Price.Amount.String() != test.price {
				t.Errorf("it costs %v, want %s", got.Status.Price, test.price)
			}
		})
	}
}
