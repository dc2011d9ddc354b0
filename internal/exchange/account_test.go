// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func countOf(until time.Duration, cpu, cost v1alpha1.Decimal) *v1alpha1.AccountCount {
	return &v1alpha1.AccountCount{
		CountedUntil: &metav1.Time{Time: after(until)},
		Entries: []v1alpha1.AccountEntry{{
			Application: "shop/web", Currency: "EUR", Used: map[corev1.ResourceName]v1alpha1.Decimal{"cpu": cpu}, Cost: cost,
		}},
	}
}

func TestCompareCounts(t *testing.T) {
	const period = 5 * time.Minute
	own := func() *v1alpha1.AccountCount { return countOf(0, "10", "1") }
	change := func(by func(*v1alpha1.AccountCount)) *v1alpha1.AccountCount {
		count := own()
		by(count)
		return count
	}
	for name, test := range map[string]struct {
		claim  *v1alpha1.AccountCount
		reason string // "" if nothing can be said
		text   string
	}{
		"the same":                {own(), v1alpha1.ReasonCountsAgree, ""},
		"nearly the same":         {countOf(0, "10.2", "1.005"), v1alpha1.ReasonCountsAgree, ""},
		"less":                    {countOf(0, "9", "1"), v1alpha1.ReasonCountsDiffer, "cpu used is 9 by the consumer and 10 by the provider"},
		"more":                    {countOf(0, "11", "1"), v1alpha1.ReasonCountsDiffer, "cpu used is 11"},
		"cheaper":                 {countOf(0, "10", "0.5"), v1alpha1.ReasonCountsDiffer, "the cost in EUR is 0.5 by the consumer and 1 by"},
		"nothing":                 {&v1alpha1.AccountCount{CountedUntil: own().CountedUntil}, v1alpha1.ReasonCountsDiffer, "cpu used is 0 by"},
		"a part counted twice":    {change(func(c *v1alpha1.AccountCount) { c.Entries = append(c.Entries, c.Entries[0]) }), v1alpha1.ReasonCountsDiffer, "is 20 by"},
		"of another application":  {change(func(c *v1alpha1.AccountCount) { c.Entries[0].Application = "" }), v1alpha1.ReasonCountsAgree, ""},
		"in another currency":     {change(func(c *v1alpha1.AccountCount) { c.Entries[0].Currency = "USD" }), v1alpha1.ReasonCountsDiffer, "in USD is 1 by the consumer and 0"},
		"reserved as well":        {change(func(c *v1alpha1.AccountCount) { c.Entries[0].Reserved = c.Entries[0].Used }), v1alpha1.ReasonCountsDiffer, "cpu reserved"},
		"a little of what is not": {change(func(c *v1alpha1.AccountCount) { c.Entries[0].Used["pods"] = "0.02" }), v1alpha1.ReasonCountsAgree, ""},
		"not yet":                 {&v1alpha1.AccountCount{}, v1alpha1.ReasonNotCounted, "The consumer has not counted yet"},
		"not as far":              {countOf(-period, "9", "1"), "", ""},
		"further":                 {countOf(period, "11", "1"), "", ""},
		"no longer":               {countOf(-4*period, "9", "1"), v1alpha1.ReasonNotCounted, "The consumer has not counted for some time"},
		"of another day":          {countOf(2*time.Hour, "10", "1"), v1alpha1.ReasonInvalidCount, "countedUntil"},
		"a negative number":       {countOf(0, "-10", "1"), v1alpha1.ReasonInvalidCount, "entries[0].used"},
		"a huge exponent":         {countOf(0, "1e999999999", "1"), v1alpha1.ReasonInvalidCount, "entries[0].used"},
		"a huge number":           {countOf(0, "9999999999999", "1"), v1alpha1.ReasonInvalidCount, "entries[0].used"},
		"a cost that is no number": {
			countOf(0, "10", "NaN"), v1alpha1.ReasonInvalidCount, "entries[0].cost",
		},
		"an application of no name": {
			change(func(c *v1alpha1.AccountCount) { c.Entries[0].Application = "\x1b[2J" }), v1alpha1.ReasonInvalidCount, "entries[0].application",
		},
		"no currency": {change(func(c *v1alpha1.AccountCount) { c.Entries[0].Currency = "€" }), v1alpha1.ReasonInvalidCount, "entries[0].currency"},
		"too many entries": {
			change(func(c *v1alpha1.AccountCount) { c.Entries = make([]v1alpha1.AccountEntry, 33) }), v1alpha1.ReasonInvalidCount, "entries: more than 32",
		},
		"too many resources": {change(func(c *v1alpha1.AccountCount) {
			for i := range 8 {
				c.Entries[0].Used[corev1.ResourceName(fmt.Sprint("r", i))] = "1"
			}
		}), v1alpha1.ReasonInvalidCount, "more than 8 resources"},
	} {
		t.Run(name, func(t *testing.T) {
			got := CompareCounts(test.claim, own(), evening.Truncate(24*time.Hour), period)
			switch {
			case got == nil && test.reason == "":
			case got == nil || got.Reason != test.reason || !strings.Contains(got.Message, test.text):
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestTalliesAreAddedUp(t *testing.T) {
	count := countOf(0, "10", "1")
	for i := range 40 {
		m := metering()
		m.Reserve(lubeckR, &MeteredReservation{Application: fmt.Sprint("app-", i)}, evening, evening)
		m.starts("web", "r", "1", evening)
		for _, tally := range m.Tally("lubeck", after(30*time.Minute), nil) {
			if err := tally.AddTo(count); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := totals(count)["cpu used"]; plain(got) != "30" {
		t.Errorf("in all %s", plain(got))
	}
	if others := count.Entries[0]; len(count.Entries) != 29 || others.Application != v1alpha1.OtherApplications || others.Used["cpu"] != "6.5" {
		t.Errorf("%d entries, the first is %+v", len(count.Entries), others)
	}
	addManyCurrencies(t, count)
	if err := CheckCount(count, evening.Truncate(24*time.Hour)); err != nil {
		t.Error(err)
	}
	count.Entries[0].Used["cpu"] = "much"
	if err := metered1(t).AddTo(count); err == nil {
		t.Error("what is no count was added to")
	}
}

// addManyCurrencies adds what others have used in more currencies than there are entries for.
func addManyCurrencies(t *testing.T, count *v1alpha1.AccountCount) {
	t.Helper()
	for i := range 10 {
		m := metering()
		price := &v1alpha1.Price{Amount: resource.MustParse("2"), Currency: "EU" + string(rune('A'+i))}
		m.Reserve(lubeckR, &MeteredReservation{Application: "late", Reserved: corev1.ResourceList{"cpu": resource.MustParse("1")}, Price: price}, evening, evening)
		if err := m.Tally("lubeck", after(30*time.Minute), nil)[0].AddTo(count); err != nil {
			t.Fatal(err)
		}
	}
	if others := count.Entries[1]; len(count.Entries) != v1alpha1.MaxAccountEntries-1 || others.Application != "*" || others.Cost != "1" {
		t.Errorf("%d entries, the second is %+v", len(count.Entries), others)
	}
}

func metered1(t *testing.T) Tally {
	t.Helper()
	m := metering()
	m.starts("web", "", "1", evening)
	return m.Tally("lubeck", after(time.Minute), nil)[0]
}

func FuzzCheckCount(f *testing.F) {
	f.Add("shop/web", "EUR", "cpu", "1.5", "0.1")
	f.Add("*", "", "memory", "999999999999.999999999", "")
	f.Fuzz(func(t *testing.T, application, currency, name, hours, cost string) {
		count := &v1alpha1.AccountCount{CountedUntil: &metav1.Time{Time: evening}, Entries: []v1alpha1.AccountEntry{{
			Application: application, Currency: currency, Cost: v1alpha1.Decimal(cost),
			Used: map[corev1.ResourceName]v1alpha1.Decimal{corev1.ResourceName(name): v1alpha1.Decimal(hours)},
		}}}
		if CheckCount(count, evening.Truncate(24*time.Hour)) != nil {
			return
		}
		if got := CompareCounts(count, count, evening.Truncate(24*time.Hour), time.Minute); got == nil || got.Status != metav1.ConditionTrue {
			t.Errorf("it does not agree with itself: %+v", got)
		}
		if err := metered1(t).AddTo(count); err != nil {
			t.Error(err)
		}
	})
}
