// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Keys of the setting of prices that are not the name of a resource.
const (
	// PriceCurrencyKey is the key of the currency.
	PriceCurrencyKey = "currency"
	// PriceImagesKey is the key of the prices of images: YAML that maps the name of an image to the amount for each
	// container of it that is placed.
	PriceImagesKey = "images"
)

// ParsePrices reads the setting of prices: the currency, for a resource's name the amount for one unit of it (one Gi of what
// is counted in bytes) and hour,
// and the prices of images. In a name with a domain an underscore stands for the slash, which the keys of a ConfigMap
// cannot have. An empty setting is no prices: all is free.
func ParsePrices(setting map[string]string) (*v1alpha1.Prices, error) {
	if len(setting) == 0 {
		return nil, nil
	}
	prices := &v1alpha1.Prices{
		Currency: setting[PriceCurrencyKey],
		PerHour:  map[corev1.ResourceName]resource.Quantity{},
	}
	for _, key := range slices.Sorted(maps.Keys(setting)) {
		if key == PriceCurrencyKey || key == PriceImagesKey {
			continue
		}
		name := corev1.ResourceName(strings.Replace(key, "_", "/", 1))
		price, err := parsePrice(setting[key])
		if err != nil {
			return nil, fmt.Errorf("price of %s: %w", name, err)
		}
		prices.PerHour[name] = price
	}
	images, err := parseImagePrices(setting[PriceImagesKey])
	if err != nil {
		return nil, err
	}
	prices.PerPlacement = images
	if err := judgePrices("prices", prices); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "prices."))
	}
	return prices, nil
}

func parseImagePrices(text string) (map[string]resource.Quantity, error) {
	var amounts map[string]string // as they are written: as floats they would become others
	if err := yaml.Unmarshal([]byte(text), &amounts); err != nil {
		return nil, fmt.Errorf("read the prices of images: %w", err)
	}
	if len(amounts) == 0 {
		return nil, nil
	}
	prices := make(map[string]resource.Quantity, len(amounts))
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		price, err := parsePrice(amounts[name])
		if err != nil {
			return nil, fmt.Errorf("price of image %s: %w", quoted(name), err)
		}
		prices[name] = price
	}
	return prices, nil
}

// errTooFine is the answer to an amount that a quantity does not hold: it would be rounded up.
var errTooFine = errors.New("an amount must be a multiple of 0.000000001")

func parsePrice(text string) (resource.Quantity, error) {
	price, err := parseQuantity(text)
	if err != nil {
		return resource.Quantity{}, err
	}
	written, isPlain := new(big.Rat).SetString(text)
	if !isPlain { // it has a suffix
		return price, nil
	}
	if held, _ := new(big.Rat).SetString(exact(price).String()); held.Cmp(written) != 0 {
		return resource.Quantity{}, errTooFine
	}
	return price, nil
}

// A Cost is an exact amount of money for a pod, to be shown. A nil amount is nothing.
type Cost struct {
	Currency     string   // empty if nothing has a price
	PerHour      *inf.Dec // for as long as the pod runs
	PerPlacement *inf.Dec // once, for its images
}

// PricePerHour returns what the request costs for an hour at the prices. What has no price is free.
func PricePerHour(prices *v1alpha1.Prices, request corev1.ResourceList) Cost {
	cost := Cost{PerHour: new(inf.Dec)}
	if prices == nil {
		return cost
	}
	cost.Currency = prices.Currency
	for name, quantity := range request {
		if price, found := prices.PerHour[name]; found {
			cost.PerHour.Add(cost.PerHour, new(inf.Dec).Mul(exact(price), unitsOf(name, quantity)))
		}
	}
	return cost
}

// perByte is one Gi divided by its bytes, which a decimal holds exactly. Nobody could ask for a byte: the finest amount that
// a quantity holds would make a Gi cost more than a core.
var perByte, _ = new(inf.Dec).SetString("0.000000000931322574615478515625")

// unitsOf is how many of the units that have a price the quantity is: Gi of what is counted in bytes.
func unitsOf(name corev1.ResourceName, quantity resource.Quantity) *inf.Dec {
	units := exact(quantity)
	if isBytes(name) {
		units.Mul(units, perByte)
	}
	return units
}

// Digits are those of an amount, without noughts that say nothing.
func Digits(amount *inf.Dec) string {
	text := amount.String()
	if strings.Contains(text, ".") {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// exact returns the number in a decimal of its own: AsDec changes what it is called on, which shares memory with the
// lists of callers.
func exact(quantity resource.Quantity) *inf.Dec {
	own := quantity.DeepCopy()
	return own.AsDec()
}
