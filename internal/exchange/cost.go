package exchange

import (
	"cmp"

	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A Cost is an exact amount of money for a pod. A nil amount is nothing.
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

// pricePerPlacement is what the images of a pod cost once.
func pricePerPlacement(prices *v1alpha1.Prices, images []spellings) *inf.Dec {
	if len(images) == 0 || prices == nil || len(prices.PerPlacement) == 0 {
		return nil
	}
	sum := new(inf.Dec)
	for _, image := range images {
		for name, price := range prices.PerPlacement {
			if image.contain(name) {
				sum.Add(sum, exact(price))
				break
			}
		}
	}
	return sum
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

// exact returns the number in a decimal of its own: AsDec changes what it is called on, which shares memory with the
// lists of callers.
func exact(quantity resource.Quantity) *inf.Dec {
	own := quantity.DeepCopy()
	return own.AsDec()
}

// Cheaper compares costs: it is negative if a is the lower one, by the hour and then by the placement. What costs nothing
// comes before all else. Amounts in different currencies do not compare, and come by the name of the currency.
func Cheaper(a, b Cost) int {
	switch aFree, bFree := a.free(), b.free(); {
	case aFree && bFree:
		return 0
	case aFree || bFree:
		return first(aFree, bFree)
	}
	return cmp.Or(
		cmp.Compare(a.Currency, b.Currency),
		compareAmounts(a.PerHour, b.PerHour),
		compareAmounts(a.PerPlacement, b.PerPlacement),
	)
}

func (c Cost) free() bool { return isNothing(c.PerHour) && isNothing(c.PerPlacement) }

func isNothing(amount *inf.Dec) bool { return amount == nil || amount.Sign() == 0 }

func compareAmounts(a, b *inf.Dec) int {
	switch {
	case isNothing(a) && isNothing(b):
		return 0
	case isNothing(a):
		return -b.Sign()
	case isNothing(b):
		return a.Sign()
	default:
		return a.Cmp(b)
	}
}
