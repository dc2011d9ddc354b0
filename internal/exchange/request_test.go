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

func component(name string, replicas int32, pairs ...string) v1alpha1.RequestedComponent {
	c := v1alpha1.RequestedComponent{Name: name, Replicas: replicas, Resources: corev1.ResourceList{}}
	for i := 0; i < len(pairs); i += 2 {
		c.Resources[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return c
}

func TestDemandIsOfAllReplicas(t *testing.T) {
	for name, test := range map[string]struct {
		components []v1alpha1.RequestedComponent
		want       map[string]string
	}{
		"one":     {[]v1alpha1.RequestedComponent{component("web", 3, "cpu", "500m")}, map[string]string{"cpu": "1500m", "pods": "3"}},
		"nothing": {[]v1alpha1.RequestedComponent{component("web", 3)}, map[string]string{"pods": "3"}},
		"two": {
			[]v1alpha1.RequestedComponent{component("web", 2, "cpu", "1", "memory", "1Gi"), component("db", 1, "cpu", "2", "example.com/gpu", "1")},
			map[string]string{"cpu": "4", "memory": "2Gi", "example.com/gpu": "1", "pods": "3"},
		},
		"more than 64 bits": {
			[]v1alpha1.RequestedComponent{component("web", 10000, "cpu", "9e18"), component("db", 10000, "cpu", "9e18")},
			map[string]string{"cpu": "180e21", "pods": "20k"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for name, amount := range DemandOf(test.components) {
				got[string(name)] = amount.String()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestWhatStandsAgainstARequest(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	prices := &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse("0.01")}}
	for name, test := range map[string]struct {
		until    time.Duration
		amount   string
		currency string
		free     bool
		reason   string
		words    string
	}{
		"nothing":                    {until: time.Hour},
		"until the last moment":      {until: 24 * time.Hour},
		"now":                        {until: 0, reason: v1alpha1.ReasonInvalidExpirationTime, words: "spec.expirationTime is in the past"},
		"long ago":                   {until: -1e6 * time.Hour, reason: v1alpha1.ReasonInvalidExpirationTime, words: "spec.expirationTime is in the past"},
		"a little too far ahead":     {until: 24*time.Hour + time.Second, reason: v1alpha1.ReasonInvalidExpirationTime, words: "more than 24 hours"},
		"in a hundred years":         {until: 876000 * time.Hour, reason: v1alpha1.ReasonInvalidExpirationTime, words: "more than 24 hours"},
		"at exactly the price":       {until: time.Hour, amount: "0.03", currency: "EUR"},
		"below the price":            {until: time.Hour, amount: "0.029", currency: "EUR", reason: v1alpha1.ReasonTooExpensive, words: "spec.maxPrice is 29m EUR"},
		"in another currency":        {until: time.Hour, amount: "1", currency: "USD", reason: v1alpha1.ReasonTooExpensive, words: "spec.maxPrice is in USD"},
		"what is free in a currency": {until: time.Hour, amount: "0", currency: "USD", free: true},
	} {
		t.Run(name, func(t *testing.T) {
			asked := &v1alpha1.RequestSpec{ExpirationTime: metav1.NewTime(now.Add(test.until))}
			if test.amount != "" {
				asked.MaxPrice = &v1alpha1.Price{Amount: resource.MustParse(test.amount), Currency: test.currency}
			}
			price := PriceOf(prices, cores(3000))
			if test.free {
				price = PriceOf(nil, cores(3000))
			}
			reason, message := ObjectionTo(asked, price, now)
			if reason != test.reason || !strings.Contains(message, test.words) {
				t.Errorf("%q: %s", reason, message)
			}
		})
	}
}

func TestPriceIsNotLessThanWhatItCosts(t *testing.T) {
	prices := &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{
		"cpu": resource.MustParse("0.01"), "memory": resource.MustParse("0.000000001"),
	}}
	got := PriceOf(prices, corev1.ResourceList{"cpu": resource.MustParse("2500m"), "memory": resource.MustParse("1Mi")})
	if got == nil || got.Currency != "EUR" || got.Amount.Cmp(resource.MustParse("0.025000001")) != 0 {
		t.Errorf("it costs %+v", got)
	}
}
