package exchange

import (
	"math"
	"math/bits"

	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// columns are the resources that nearly every request names.
var columns = [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// noColumn is the column of all other resources.
const noColumn = len(columns)

// figures are what an offer says of the columns, taken out of its maps once, so that thousands of offers can be compared
// with a request in little time. They hold the numbers exactly; an offer with numbers that they cannot hold has none.
type figures struct {
	available, largest [len(columns)]int64 // in thousandths
	prices             [len(columns)]int64 // in 10^-9
	currency           string
}

// decimals of a cost in units: those of figures, multiplied.
const costDecimals = 3 + 9

func (f *figures) read(offer *v1alpha1.AdvertisementSpec) (held bool) {
	if offer.Prices != nil {
		f.currency = offer.Prices.Currency
	}
	for i, name := range columns {
		var known bool
		if f.available[i], known = scaled(offer.Availability[name], resource.Milli); !known {
			return false
		}
		f.largest[i] = f.available[i]
		if most, named := offer.LargestPod[name]; named {
			if f.largest[i], known = scaled(most, resource.Milli); !known {
				return false
			}
		}
		if offer.Prices == nil {
			continue
		}
		if f.prices[i], known = scaled(offer.Prices.PerHour[name], resource.Nano); !known {
			return false
		}
	}
	return true
}

// scaled returns the quantity in a unit of which it is a multiple that is not too large.
func scaled(quantity resource.Quantity, unit resource.Scale) (amount int64, held bool) {
	amount = quantity.ScaledValue(unit)
	return amount, amount >= 0 && quantity.Cmp(*resource.NewScaledQuantity(amount, unit)) == 0
}

// A demand is a request made ready to be compared with many offers.
type demand struct {
	request corev1.ResourceList
	needs   []need // by name
	plain   bool   // the columns are all that it names
}

type need struct {
	name     corev1.ResourceName
	quantity resource.Quantity
	column   int
	amount   int64 // in thousandths, if there is a column

	tooLittle    string // what to say where there is not enough of it
	tooScattered string // what to say where no single node has enough of it
}

// inUnits returns what the demand costs for an hour at the prices, in 10^-costDecimals. It can if the numbers are small
// enough.
func (d *demand) inUnits(f *figures) (sum int64, can bool) {
	if !d.plain || f == nil {
		return 0, false
	}
	for i := range d.needs {
		need := &d.needs[i]
		high, low := bits.Mul64(uint64(f.prices[need.column]), uint64(need.amount)) //nolint:gosec // neither is negative
		if high > 0 || low > uint64(math.MaxInt64-sum) {
			return 0, false
		}
		sum += int64(low) //nolint:gosec // it was compared with the largest
	}
	return sum, true
}

// price is PricePerHour at the prices of the row; the room is for the result.
func (d *demand) price(r *Row, room *inf.Dec) (cost Cost, units int64, inUnits bool) {
	units, inUnits = d.inUnits(r.figures)
	if !inUnits {
		return PricePerHour(r.Offer.Prices, d.request), 0, false
	}
	cost.Currency = r.figures.currency
	cost.PerHour = room.SetUnscaled(units).SetScale(costDecimals)
	return cost, units, true
}
