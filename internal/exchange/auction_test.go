// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// bid is an offer for the whole, and for parts, as "name interest price"; a price of 0 is none.
func bid(peer string, interest int32, price string, parts ...string) v1alpha1.AuctionOffer {
	cost := func(amount string) *v1alpha1.OfferedPrice {
		if amount == "0" {
			return nil
		}
		return &v1alpha1.OfferedPrice{Amount: amount, Currency: "EUR"}
	}
	offer := v1alpha1.AuctionOffer{Peer: peer, Interest: interest, Price: cost(price)}
	for _, part := range parts {
		c, amount := v1alpha1.AuctionComponent{}, ""
		if _, err := fmt.Sscan(part, &c.Name, &c.Interest, &amount); err != nil {
			panic(err)
		}
		c.Price = cost(amount)
		offer.Components = append(offer.Components, c)
	}
	return offer
}

func TestAward(t *testing.T) {
	both := []Component{part("web", 2, 1), part("db", 1, 4)}
	far := func(r *Row) { r.RoundTrip = time.Second }
	closed := func(r *Row) { r.Open, r.Accepted = false, false }
	for name, test := range map[string]struct {
		job    Job
		offers []v1alpha1.AuctionOffer
		want   string
	}{
		"the cheaper": {
			Job{},
			[]v1alpha1.AuctionOffer{bid("a", 50, "0.06", "web 50 0.02", "db 50 0.04"), bid("b", 50, "0.03", "web 50 0.01", "db 50 0.02")},
			"web@b 10m, db@b 20m",
		},
		"parts at several": {
			Job{},
			[]v1alpha1.AuctionOffer{bid("a", 50, "0.06", "web 50 0.01", "db 50 0.05"), bid("b", 50, "0.06", "web 50 0.04", "db 50 0.02")},
			"web@a 10m, db@b 20m",
		},
		"the whole for less than the parts": {
			Job{},
			[]v1alpha1.AuctionOffer{bid("a", 50, "0.02", "web 50 0.01", "db 50 0.03"), bid("b", 50, "0.06", "web 50 0.04", "db 50 0.02")},
			"web@a 5m, db@a 15m",
		},
		"the whole for nothing": {
			Job{},
			[]v1alpha1.AuctionOffer{bid("a", 50, "0", "web 50 0.01", "db 50 0.03"), bid("b", 50, "0.06", "web 50 0.04", "db 50 0.02")},
			"web@a 0, db@a 0",
		},
		"no whole of two parts": {
			Job{},
			[]v1alpha1.AuctionOffer{bid("a", 0, "0", "web 50 0.01", "db 50 0.02"), bid("b", 0, "0", "web 50 0.02", "db 50 0.04")},
			"web@b 20m, db@a 20m",
		},
		"not one part twice": {
			Job{},
			[]v1alpha1.AuctionOffer{bid("a", 0, "0", "web 50 0.01"), bid("b", 0, "0", "web 50 0.02")},
			"",
		},
		"ties by interest": {
			Job{},
			[]v1alpha1.AuctionOffer{bid("a", 50, "0.03", "web 50 0.01", "db 50 0.02"), bid("b", 60, "0.03", "web 60 0.01", "db 60 0.02")},
			"web@b 10m, db@b 20m",
		},
		"ties of parts by interest": {
			Job{Apart: [][]int{{0, 1}}},
			[]v1alpha1.AuctionOffer{bid("a", 50, "0.03", "web 10 0.01", "db 50 0.02"), bid("b", 60, "0.03", "web 60 0.01", "db 60 0.02"), bid("c", 1, "1", "web 99 0.01", "db 1 1")},
			"web@c 10m, db@b 20m",
		},
		"price before interest": {
			Job{},
			[]v1alpha1.AuctionOffer{bid("a", 1, "0.03", "web 1 0.01", "db 1 0.02"), bid("b", 100, "0.031", "web 100 0.011", "db 100 0.02")},
			"web@a 10m, db@a 20m",
		},
		"ties of both by distance": {
			Job{Rows: []Row{site("a", 0, 0, far), site("b", 0, 0), site("c", 0, 0)}},
			[]v1alpha1.AuctionOffer{bid("a", 5, "0", "web 5 0", "db 5 0"), bid("b", 5, "0", "web 5 0", "db 5 0")},
			"web@b 0, db@b 0",
		},
		"the nearest first": {
			Job{Nearest: true, Rows: []Row{site("a", 0, 0, far), site("b", 0, 0), site("c", 0, 0)}},
			[]v1alpha1.AuctionOffer{bid("a", 5, "0", "web 5 0", "db 5 0"), bid("b", 5, "0.05", "web 5 0.02", "db 5 0.04")},
			"web@b 16666667n, db@b 33333333n",
		},
		"apart": {
			Job{Apart: [][]int{{0, 1}}},
			[]v1alpha1.AuctionOffer{bid("a", 50, "0.01", "web 50 0.01", "db 50 0.01"), bid("b", 50, "0.06", "web 50 0.04", "db 50 0.02")},
			"web@a 10m, db@b 20m",
		},
		"together": {
			Job{Together: [][]int{{0, 1}}},
			[]v1alpha1.AuctionOffer{bid("a", 0, "0", "web 50 0.01", "db 50 0.01"), bid("b", 50, "0.06", "web 50 0.04", "db 50 0.02")},
			"web@b 40m, db@b 20m",
		},
		"not above the ceiling": {
			Job{MaxPrice: euros("0.03")},
			[]v1alpha1.AuctionOffer{bid("a", 50, "0.031", "web 50 0.01", "db 50 0.03"), bid("b", 50, "0.06", "web 50 0.04", "db 50 0.02")},
			"web@a 10m, db@b 20m",
		},
		"nothing below it": {
			Job{MaxPrice: euros("0.029")},
			[]v1alpha1.AuctionOffer{bid("a", 50, "0.031", "web 50 0.01", "db 50 0.03"), bid("b", 50, "0.06", "web 50 0.04", "db 50 0.02")},
			"",
		},
		"nor in another currency": {
			Job{MaxPrice: &v1alpha1.Price{Amount: resource.MustParse("1"), Currency: "USD"}},
			[]v1alpha1.AuctionOffer{bid("a", 50, "0.031", "web 50 0.01", "db 50 0.03")},
			"",
		},
		"not where it may not run": {
			Job{Allowed: func(r *Row) string { return map[string]string{"a": "excluded"}[r.Peer] }},
			[]v1alpha1.AuctionOffer{bid("a", 50, "0", "web 50 0", "db 50 0"), bid("b", 50, "0.06", "web 50 0.04", "db 50 0.02")},
			"web@b 40m, db@b 20m",
		},
		"whatever it advertises": {
			Job{Rows: []Row{site("a", 0, 500, closed)}},
			[]v1alpha1.AuctionOffer{bid("a", 50, "0.03", "web 50 0.01", "db 50 0.02")},
			"web@a 10m, db@a 20m",
		},
		"not at who left the table": {
			Job{}, []v1alpha1.AuctionOffer{bid("gone", 50, "0.03", "web 50 0.01", "db 50 0.02")}, "",
		},
		"not what was not asked for": {
			Job{}, []v1alpha1.AuctionOffer{bid("a", 50, "0.03", "web 50 0.01", "cache 50 0.02")}, "",
		},
		"nobody": {Job{}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.job.Components = both
			if test.job.Rows == nil {
				test.job.Rows = []Row{site("c", 1, 1), site("b", 1, 1), site("a", 1, 1)}
			}
			found := Award(test.job, test.offers)
			var words []string
			for i, row := range found.Rows {
				price := "0"
				if p := found.PerHour[i]; p != nil {
					price = p.Amount.String()
				}
				words = append(words, both[i].Name+"@"+test.job.Rows[row].Peer+" "+price)
			}
			if diff := cmp.Diff(test.want, strings.Join(words, ", ")); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestWhatOfAnOfferCounts(t *testing.T) {
	asked := &v1alpha1.QuoteSpec{
		Application: v1alpha1.RequestedApplication{UID: "app"},
		Components:  []v1alpha1.RequestedComponent{component("web", 2, "cpu", "1"), component("db", 1, "cpu", "4")},
	}
	good := func(price *v1alpha1.Price) v1alpha1.Offer { return v1alpha1.Offer{Interest: 50, Price: price} }
	dollars := &v1alpha1.Price{Amount: resource.MustParse("1"), Currency: "USD"}
	fine := bid("", 50, "50m", "web 50 20m", "db 50 30m")
	for name, test := range map[string]struct {
		change  func(*v1alpha1.Quote)
		want    v1alpha1.AuctionOffer
		message string
	}{
		"all of it": {func(*v1alpha1.Quote) {}, fine, ""},
		"no": {
			func(q *v1alpha1.Quote) {
				whole, each := NoOffers(asked.Components, "NoRoom", "There is no room")
				q.Status.Whole, q.Status.Components = &whole, each
			}, v1alpha1.AuctionOffer{}, "There is no room",
		},
		"for another application": {func(q *v1alpha1.Quote) { q.Spec.Application.UID = "other" }, v1alpha1.AuctionOffer{}, "not what was asked for"},
		"for less than was asked": {func(q *v1alpha1.Quote) { q.Spec.Components[0].Replicas = 1 }, v1alpha1.AuctionOffer{}, "not what was asked for"},
		"for another deadline":    {func(q *v1alpha1.Quote) { q.Spec.Deadline.Time = now }, v1alpha1.AuctionOffer{}, "not what was asked for"},
		"for what was not asked": {func(q *v1alpha1.Quote) {
			q.Status.Components = append(q.Status.Components, v1alpha1.ComponentOffer{Name: "cache\n", Offer: good(euros("0"))})
		}, fine, `"cache\n"`},
		"twice for one": {func(q *v1alpha1.Quote) {
			q.Status.Components = append(q.Status.Components, v1alpha1.ComponentOffer{Name: "web", Offer: good(euros("0"))})
		}, fine, `"web"`},
		"at a negative price":       {func(q *v1alpha1.Quote) { q.Status.Components[0].Price = euros("-1") }, v1alpha1.AuctionOffer{}, "status.components[web].price.amount"},
		"at a negative whole price": {func(q *v1alpha1.Quote) { q.Status.Whole.Price = euros("-1") }, v1alpha1.AuctionOffer{}, "status.whole.price.amount"},
		"at a huge price":           {func(q *v1alpha1.Quote) { q.Status.Whole.Price = euros("1" + strings.Repeat("1", 40)) }, v1alpha1.AuctionOffer{}, "status.whole.price.amount"},
		"in two currencies":         {func(q *v1alpha1.Quote) { q.Status.Whole.Price = dollars }, v1alpha1.AuctionOffer{}, "status.whole.price.currency"},
		"in no currency":            {func(q *v1alpha1.Quote) { q.Status.Components[0].Price.Currency = "gold" }, v1alpha1.AuctionOffer{}, "status.components[web].price.currency"},
		"with negative interest":    {func(q *v1alpha1.Quote) { q.Status.Components[1].Interest = -1 }, v1alpha1.AuctionOffer{}, "status.components[db].interest"},
		"with too much interest":    {func(q *v1alpha1.Quote) { q.Status.Whole.Interest = 101 }, v1alpha1.AuctionOffer{}, "status.whole.interest"},
		"a part alone": {
			func(q *v1alpha1.Quote) {
				q.Status.Whole = &v1alpha1.Offer{Reason: "NoRoom", Message: "It is too much"}
				q.Status.Components[1].Offer = v1alpha1.Offer{Reason: "NoRoom"}
			}, bid("", 0, "0", "web 50 20m"), "It is too much",
		},
	} {
		t.Run(name, func(t *testing.T) {
			whole := good(euros("0.05"))
			quote := &v1alpha1.Quote{Spec: *asked.DeepCopy(), Status: v1alpha1.QuoteStatus{Whole: &whole, Components: []v1alpha1.ComponentOffer{
				{Name: "web", Offer: good(euros("0.02"))}, {Name: "db", Offer: good(euros("0.03"))},
			}}}
			test.change(quote)
			got := CheckOffer(asked, quote)
			if !strings.Contains(got.Message, test.message) || (got.Message == "") != (test.message == "") {
				t.Errorf("it says %q", got.Message)
			}
			got.Message = ""
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
