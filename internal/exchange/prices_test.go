// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestPriceIsExact(t *testing.T) {
	prices := &v1alpha1.Prices{Currency: "EUR", PerHour: resources("cpu", "0.1", "memory", "0.003", "example.com/gpu", "3")}
	request := resources("cpu", "300m", "memory", "512Mi", "pods", "1")
	for name, test := range map[string]struct {
		prices *v1alpha1.Prices
		want   Cost
	}{
		"what has no price is free":    {nil, Cost{PerHour: inf.NewDec(0, 0)}},
		"a tenth thrice and half a Gi": {prices, Cost{Currency: "EUR", PerHour: inf.NewDec(315, 4)}},
	} {
		t.Run(name, func(t *testing.T) {
			got := PricePerHour(test.prices, request)
			if got.Currency != test.want.Currency || got.PerHour.Cmp(test.want.PerHour) != 0 {
				t.Errorf("got %s %s, want %s %s", got.PerHour, got.Currency, test.want.PerHour, test.want.Currency)
			}
		})
	}
	expectEqual(t, resources("cpu", "300m", "memory", "512Mi", "pods", "1"), request)
}

func TestParsePrices(t *testing.T) {
	euros := func(key, value string) map[string]string { return map[string]string{"currency": "EUR", key: value} }
	priced := func(name, price string) *v1alpha1.Prices {
		return &v1alpha1.Prices{Currency: "EUR", PerHour: resources(name, price)}
	}
	for name, test := range map[string]struct {
		setting map[string]string
		want    *v1alpha1.Prices
		bad     bool
	}{
		"no setting is no prices":                    {},
		"a currency and prices":                      {euros("cpu", "0.01"), priced("cpu", "0.01"), false},
		"the first underscore is the slash":          {euros("example.com_big_gpu", "1"), priced("example.com/big_gpu", "1"), false},
		"prices without a currency":                  {map[string]string{"cpu": "1"}, nil, true},
		"a negative price":                           {euros("cpu", "-1"), nil, true},
		"no number":                                  {euros("cpu", "cheap"), nil, true},
		"a number that would take for ever":          {euros("cpu", "1e-999999999"), nil, true},
		"an overflowing number":                      {euros("cpu", "1e400"), nil, true},
		"something that is no resource has no price": {euros("friendship", "1"), nil, true},
		"what would be rounded up to a billionth":    {euros("memory", "3e-12"), nil, true},
		"the finest amount":                          {euros("memory", "1e-9"), priced("memory", "1n"), false},
		"images, each amount as it is written": {
			euros("images", "nginx: 0.1\nregistry.example/big:2: \"0.123456789\"\nfree: 0"),
			&v1alpha1.Prices{
				Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{},
				PerPlacement: amountsByImage("nginx", "0.1", "registry.example/big:2", "0.123456789", "free", "0"),
			}, false,
		},
		"images that are no mapping":   {euros("images", "- nginx"), nil, true},
		"images that are no YAML":      {euros("images", "a: b: c"), nil, true},
		"an image of a list":           {euros("images", "nginx: [1]"), nil, true},
		"an image without an amount":   {euros("images", "nginx:"), nil, true},
		"an image twice":               {euros("images", "nginx: 1\nnginx: 2"), nil, true},
		"an image of a negative price": {euros("images", "nginx: -1"), nil, true},
		"an amount with more digits than a float can say": {
			euros("images", "nginx: 12345678901.123456789"),
			&v1alpha1.Prices{
				Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{}, PerPlacement: amountsByImage("nginx", "12345678901.123456789"),
			}, false,
		},
		"more images than can be told": {euros("images", manyImages(101)), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParsePrices(test.setting)
			if (err != nil) != test.bad {
				t.Fatalf("error %v", err)
			}
			expectEqual(t, test.want, got)
		})
	}
}

func manyImages(count int) string {
	var text strings.Builder
	for i := range count {
		fmt.Fprintf(&text, "image-%d: 1\n", i)
	}
	return text.String()
}

func amountsByImage(pairs ...string) map[string]resource.Quantity {
	amounts := map[string]resource.Quantity{}
	for name, quantity := range resources(pairs...) {
		amounts[string(name)] = quantity
	}
	return amounts
}

func TestChargesCompare(t *testing.T) {
	for name, test := range map[string]struct {
		a, b charge
		want int
	}{
		"nothing at all costs the same everywhere": {charge{}, charge{currency: "EUR"}, 0},
		"what is free comes before all else":       {charge{}, charge{"EUR", 1, 0}, -1},
		"less for an hour":                         {charge{"EUR", 1, 9}, charge{"EUR", 2, 0}, -1},
		"the same for an hour, less for the image": {charge{"EUR", 1, 1}, charge{"EUR", 1, 2}, -1},
		"an image alone costs, too":                {charge{"EUR", 0, 1}, charge{currency: "EUR"}, 1},
		"other currencies come by their name":      {charge{"EUR", 9, 0}, charge{"USD", 1, 0}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			expectEqual(t, test.want, test.a.compare(&test.b))
			expectEqual(t, -test.want, test.b.compare(&test.a))
		})
	}
}

// The settings of prices that the documentation shows are ones.
func TestPricesOfTheDocumentationAreTaken(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-to/set-prices.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`kubectl create configmap hanse-prices(.*\\\n)*.*\n`).FindAllString(string(page), -1)
	if len(commands) == 0 {
		t.Fatal("no command that sets prices is shown")
	}
	for _, command := range commands {
		setting := map[string]string{}
		for _, literal := range regexp.MustCompile(`--from-literal=([^= ]+)=(\S+)`).FindAllStringSubmatch(command, -1) {
			setting[literal[1]] = literal[2]
		}
		prices, err := ParsePrices(setting)
		if err != nil {
			t.Errorf("%s: %v", command, err)
		}
		if len(setting) < 2 || prices == nil || len(prices.PerHour) != len(setting)-1 {
			t.Errorf("%s: prices are %v", command, prices)
		}
	}
}
