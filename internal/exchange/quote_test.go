// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func perCore(amount string) *v1alpha1.Prices {
	return &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse(amount)}}
}

func TestWhatStandsAgainstAQuote(t *testing.T) {
	for name, test := range map[string]struct {
		deadline, expires time.Duration
		reason, field     string
	}{
		"nothing":                 {time.Minute, time.Hour, "", ""},
		"a deadline that is over": {0, time.Minute, v1alpha1.ReasonInvalidDeadline, "spec.deadline"},
		"a deadline in a hundred years": {
			100 * 365 * 24 * time.Hour, 100 * 365 * 24 * time.Hour, v1alpha1.ReasonInvalidExpirationTime, "spec.expirationTime",
		},
		"an offer that lives too long": {time.Minute, time.Hour + time.Second, v1alpha1.ReasonInvalidExpirationTime, "spec.expirationTime"},
	} {
		t.Run(name, func(t *testing.T) {
			reason, message := QuoteObjection(&v1alpha1.QuoteSpec{
				Deadline: metav1.NewTime(now.Add(test.deadline)), ExpirationTime: metav1.NewTime(now.Add(test.expires)),
			}, now)
			if reason != test.reason || !strings.HasPrefix(message, test.field) {
				t.Errorf("%s: %s", reason, message)
			}
		})
	}
}

func TestOffers(t *testing.T) {
	components := []v1alpha1.RequestedComponent{component("web", 2, "cpu", "1"), component("db", 1, "cpu", "3")}
	for name, test := range map[string]struct {
		bidder Bidder
		want   []v1alpha1.Offer // for the whole, web and db
	}{
		"by what is left": {
			Bidder{Free: resources("cpu", "10", "pods", "100"), Prices: perCore("0.01")},
			[]v1alpha1.Offer{{Interest: 50, Price: euros("0.05")}, {Interest: 80, Price: euros("0.02")}, {Interest: 70, Price: euros("0.03")}},
		},
		"the last room": {
			Bidder{Free: resources("cpu", "5", "pods", "100")},
			[]v1alpha1.Offer{{Interest: 1}, {Interest: 60}, {Interest: 40}},
		},
		"a part": {
			Bidder{Free: resources("cpu", "4", "pods", "100")},
			[]v1alpha1.Offer{{Reason: v1alpha1.ReasonNoRoom}, {Interest: 50}, {Interest: 25}},
		},
		"by policy": {
			Bidder{Free: resources("cpu", "4", "pods", "100"), Interest: new(int32(99))},
			[]v1alpha1.Offer{{Reason: v1alpha1.ReasonNoRoom}, {Interest: 99}, {Interest: 99}},
		},
		"none by policy": {
			Bidder{Free: resources("cpu", "10", "pods", "100"), Interest: new(int32(0))},
			[]v1alpha1.Offer{{Reason: v1alpha1.ReasonRefusedByPolicy}, {Reason: v1alpha1.ReasonRefusedByPolicy}, {Reason: v1alpha1.ReasonRefusedByPolicy}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			whole, each := test.bidder.Offers(components)
			got := []v1alpha1.Offer{whole}
			for _, o := range each {
				got = append(got, o.Offer)
			}
			for i := range got {
				if (got[i].Message == "") != (got[i].Interest > 0) {
					t.Errorf("it says %q", got[i].Message)
				}
				got[i].Message = ""
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestWhatWasQuotedHoldsForARequest(t *testing.T) {
	web, db := component("web", 2, "cpu", "1"), component("db", 1, "cpu", "3")
	quoted := func(changes ...func(*v1alpha1.Quote)) *v1alpha1.Quote {
		quote := &v1alpha1.Quote{
			Spec: v1alpha1.QuoteSpec{
				Application: v1alpha1.RequestedApplication{UID: "app"}, Components: []v1alpha1.RequestedComponent{web, db},
				ExpirationTime: metav1.NewTime(now.Add(time.Minute)),
			},
			Status: v1alpha1.QuoteStatus{
				Whole: &v1alpha1.Offer{Interest: 50, Price: euros("0.04")},
				Components: []v1alpha1.ComponentOffer{
					{Name: "web", Offer: v1alpha1.Offer{Interest: 50, Price: euros("0.01")}}, {Name: "db", Offer: v1alpha1.Offer{Interest: 50}},
				},
			},
		}
		for _, change := range changes {
			change(quote)
		}
		return quote
	}
	both := []v1alpha1.RequestedComponent{web, db}
	for name, test := range map[string]struct {
		quote      *v1alpha1.Quote
		components []v1alpha1.RequestedComponent
		want       *v1alpha1.Price
	}{
		"no quote":               {nil, both, euros("0.05")},
		"all of it":              {quoted(), both, euros("0.04")},
		"a part":                 {quoted(), both[:1], euros("0.01")},
		"a part for nothing":     {quoted(), both[1:], nil},
		"more than was asked":    {quoted(), []v1alpha1.RequestedComponent{component("web", 3, "cpu", "1")}, euros("0.05")},
		"what was not asked":     {quoted(), []v1alpha1.RequestedComponent{component("cache", 1)}, euros("0.05")},
		"of another application": {quoted(func(q *v1alpha1.Quote) { q.Spec.Application.UID = "other" }), both, euros("0.05")},
		"of another version":     {quoted(func(q *v1alpha1.Quote) { q.Generation = 2 }), both, euros("0.05")},
		"of the past":            {quoted(func(q *v1alpha1.Quote) { q.Spec.ExpirationTime = metav1.NewTime(now) }), both, euros("0.05")},
		"without interest":       {quoted(func(q *v1alpha1.Quote) { q.Status.Components[0].Interest = 0 }), both[:1], euros("0.05")},
		"dearer":                 {quoted(func(q *v1alpha1.Quote) { q.Status.Whole.Price = euros("0.06") }), both, euros("0.05")},
		"in another currency": {quoted(func(q *v1alpha1.Quote) {
			q.Status.Whole.Price = &v1alpha1.Price{Amount: resource.MustParse("0.01"), Currency: "USD"}
		}), both, euros("0.05")},
	} {
		t.Run(name, func(t *testing.T) {
			asked := &v1alpha1.RequestSpec{Application: v1alpha1.RequestedApplication{UID: "app"}, Components: test.components}
			if diff := cmp.Diff(test.want, QuotedPrice(euros("0.05"), test.quote, asked, now)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
	if got := QuotedPrice(nil, quoted(), &v1alpha1.RequestSpec{Application: v1alpha1.RequestedApplication{UID: "app"}, Components: both}, now); got != nil {
		t.Errorf("what is free costs %v", got)
	}
}
