package exchange

import (
	"cmp"
	"math"
	"math/bits"

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
	perPlacement       bool // it asks for something else than by the hour, too
}

func (f *figures) read(offer *v1alpha1.AdvertisementSpec) (held bool) {
	if offer.Prices != nil {
		f.currency, f.perPlacement = offer.Prices.Currency, len(offer.Prices.PerPlacement) > 0
	}
	offered := Offered(offer)
	for i, name := range columns {
		var known bool
		if f.available[i], known = scaled(offered[name], resource.Milli); !known {
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
	amount   int64  // in thousandths, if there is a column
	shares   uint64 // the same in 2^-30 of a thousandth of what has a price: a core, a Gi

	tooLittle    string // what to say where there is not enough of it
	tooScattered string // what to say where no single node has enough of it
}

// An expense is what a demand costs for an hour, as an exact number of units that are the same for all offers.
type expense struct{ high, low uint64 }

func (e expense) compare(other expense) int {
	return cmp.Or(cmp.Compare(e.high, other.high), cmp.Compare(e.low, other.low))
}

// expense cannot overflow: neither prices nor shares have more than 63 bits, and there are two columns.
func (d *demand) expense(f *figures) expense {
	var sum expense
	for i := range d.needs {
		need := &d.needs[i]
		high, low := bits.Mul64(uint64(f.prices[need.column]), need.shares) //nolint:gosec // no price is negative
		var carry uint64
		sum.low, carry = bits.Add64(sum.low, low, 0)
		sum.high += high + carry
	}
	return sum
}

// sharesOf returns how many shares the amount of thousandths is. Of bytes, which have their price by 2^30, it is the same
// number.
func sharesOf(name corev1.ResourceName, amount int64) (shares uint64, held bool) {
	if isBytes(name) {
		return uint64(amount), true //nolint:gosec // no amount is negative
	}
	return uint64(amount) << 30, amount <= math.MaxInt64>>30 //nolint:gosec // no amount is negative
}
