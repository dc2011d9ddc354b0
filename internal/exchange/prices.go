package exchange

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// PriceCurrencyKey is the key of the currency in the setting of prices.
const PriceCurrencyKey = "currency"

// ParsePrices reads the setting of prices: the currency, and for a resource's name the amount for one unit of it and
// hour. In a name with a domain an underscore stands for the slash, which the keys of a ConfigMap cannot have. An empty
// setting is no prices: all is free.
func ParsePrices(setting map[string]string) (*v1alpha1.Prices, error) {
	if len(setting) == 0 {
		return nil, nil
	}
	prices := &v1alpha1.Prices{
		Currency: setting[PriceCurrencyKey],
		PerHour:  map[corev1.ResourceName]resource.Quantity{},
	}
	for _, key := range slices.Sorted(maps.Keys(setting)) {
		if key == PriceCurrencyKey {
			continue
		}
		name := corev1.ResourceName(strings.Replace(key, "_", "/", 1))
		if !tame(setting[key]) {
			return nil, fmt.Errorf("price of %s: %w", name, errUntamedQuantity)
		}
		price, err := resource.ParseQuantity(setting[key])
		if err != nil {
			return nil, fmt.Errorf("price of %s: %w", name, err)
		}
		prices.PerHour[name] = price
	}
	if verdict := judgePrices(prices); !verdict.Accepted {
		return nil, errors.New(strings.ReplaceAll(verdict.Message, "spec.prices.", ""))
	}
	return prices, nil
}

// A Cost is an exact amount of money for an hour.
type Cost struct {
	Currency string // empty if nothing has a price
	PerHour  *inf.Dec
}

// PricePerHour returns what the request costs for an hour at the prices. What has no price is free.
func PricePerHour(prices *v1alpha1.Prices, request corev1.ResourceList) Cost {
	cost := Cost{PerHour: new(inf.Dec)}
	if prices == nil {
		return cost
	}
	cost.Currency = prices.Currency
	for name, quantity := range request {
		price, found := prices.PerHour[name]
		if !found {
			continue
		}
		// AsDec changes what it is called on, which shares memory with the caller's lists unless copied.
		price, quantity = price.DeepCopy(), quantity.DeepCopy()
		cost.PerHour.Add(cost.PerHour, new(inf.Dec).Mul(price.AsDec(), quantity.AsDec()))
	}
	return cost
}
