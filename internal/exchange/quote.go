// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// QuoteObjection returns what stands against a Quote whatever it is for, as a reason and a message. Both are empty if nothing does.
func QuoteObjection(asked *v1alpha1.QuoteSpec, now time.Time) (reason, message string) {
	switch {
	case !asked.Deadline.After(now):
		return v1alpha1.ReasonInvalidDeadline, "spec.deadline is in the past by the clock of the provider: name a later one"
	case asked.ExpirationTime.Sub(now) > v1alpha1.MaxQuoteTime:
		return v1alpha1.ReasonInvalidExpirationTime, fmt.Sprintf(
			"spec.expirationTime is more than %.0f minutes ahead by the clock of the provider: name an earlier one", v1alpha1.MaxQuoteTime.Minutes())
	default:
		return "", ""
	}
}

// A Bidder is a cluster that may make offers.
type Bidder struct {
	// Free is what can be reserved, of each resource that is asked for.
	Free corev1.ResourceList
	// Prices are what the cluster asks for; nil is nothing.
	Prices *v1alpha1.Prices
	// Interest is how gladly it takes what fits; nil is by what would be left: see interest.
	Interest *int32
}

// Offers returns what the cluster offers for all components together, and for each of them as if there were no others.
func (b Bidder) Offers(components []v1alpha1.RequestedComponent) (whole v1alpha1.Offer, each []v1alpha1.ComponentOffer) {
	for _, c := range components {
		each = append(each, v1alpha1.ComponentOffer{Name: c.Name, Offer: b.offer(DemandOf([]v1alpha1.RequestedComponent{c}))})
	}
	return b.offer(DemandOf(components)), each
}

func (b Bidder) offer(demand corev1.ResourceList) v1alpha1.Offer {
	for _, name := range slices.Sorted(maps.Keys(demand)) {
		asked := demand[name]
		if asked.Cmp(b.Free[name]) > 0 {
			return v1alpha1.Offer{Reason: v1alpha1.ReasonNoRoom, Message: fmt.Sprintf(
				"There is less than %s of %s free: ask for less, or again later", asked.String(), name)}
		}
	}
	offer := v1alpha1.Offer{Interest: interest(demand, b.Free)}
	if b.Interest != nil {
		offer.Interest = *b.Interest
	}
	if offer.Interest == 0 {
		return v1alpha1.Offer{Reason: v1alpha1.ReasonRefusedByPolicy, Message: "The provider's policies say that there is no interest"}
	}
	offer.Price = PriceOf(b.Prices, demand)
	return offer
}

// interest is how much of what is free would be left, in percent, of the resource of which that is the least. What fits is of interest
// at least a little.
func interest(demand, free corev1.ResourceList) int32 {
	least := int32(v1alpha1.MaxInterest)
	for name, amount := range demand {
		if has := free[name]; !amount.IsZero() {
			left := 1 - amount.AsApproximateFloat64()/has.AsApproximateFloat64()
			least = min(least, int32(left*v1alpha1.MaxInterest))
		}
	}
	return max(1, least)
}

// NoOffers is the answer to a Quote that is refused as a whole.
func NoOffers(components []v1alpha1.RequestedComponent, reason, message string) (whole v1alpha1.Offer, each []v1alpha1.ComponentOffer) {
	whole = v1alpha1.Offer{Reason: reason, Message: sanitize.Text(message, maxMessage)}
	for _, c := range components {
		each = append(each, v1alpha1.ComponentOffer{Name: c.Name, Offer: v1alpha1.Offer{Reason: reason}})
	}
	return whole, each
}

// QuotedPrice returns the price of what the Request asks for: that which is advertised, or, if it is less, what the Quote has offered
// for the same. The Quote may be nil.
func QuotedPrice(advertised *v1alpha1.Price, quote *v1alpha1.Quote, asked *v1alpha1.RequestSpec, now time.Time) *v1alpha1.Price {
	if advertised == nil || quote == nil || !quote.Answered() || !quote.Spec.ExpirationTime.After(now) ||
		quote.Spec.Application.UID != asked.Application.UID {
		return advertised
	}
	offered, ok := offeredFor(quote, asked.Components)
	switch {
	case !ok:
		return advertised
	case offered == nil:
		return nil
	case offered.Currency == advertised.Currency && offered.Amount.Cmp(advertised.Amount) < 0:
		return offered
	default:
		return advertised
	}
}

// offeredFor is what the Quote offers for these components: if they are all that it asks for, for the whole, and else the sum.
func offeredFor(quote *v1alpha1.Quote, components []v1alpha1.RequestedComponent) (price *v1alpha1.Price, ok bool) {
	if equality.Semantic.DeepEqual(components, quote.Spec.Components) && quote.Status.Whole.Interest > 0 {
		return quote.Status.Whole.Price, true
	}
	var parts []*v1alpha1.Price
	for _, c := range components {
		asked := slices.ContainsFunc(quote.Spec.Components, func(q v1alpha1.RequestedComponent) bool { return equality.Semantic.DeepEqual(c, q) })
		i := slices.IndexFunc(quote.Status.Components, func(o v1alpha1.ComponentOffer) bool { return o.Name == c.Name && o.Interest > 0 })
		if !asked || i < 0 {
			return nil, false
		}
		parts = append(parts, quote.Status.Components[i].Price)
	}
	return Sum(parts), true
}

// Sum adds up prices in one currency, of which nil is nothing.
func Sum(prices []*v1alpha1.Price) *v1alpha1.Price {
	var sum *v1alpha1.Price
	for _, price := range prices {
		switch {
		case price == nil:
		case sum == nil:
			sum = price.DeepCopy()
		default:
			sum.Amount.Add(price.Amount)
		}
	}
	return sum
}
