// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"strings"
	"time"

	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// ReservationOf is what the ledger calls the Request of that name in the tenant namespace of the peer: by the peer, and a name. What a member
// asks for through a broker is for the peer that it is to become, and called so that no Request of a peer is called the same.
func ReservationOf(peer, name, from string) (of, called string) {
	if from == "" {
		return peer, name
	}
	return from, peer + "/" + name
}

// BrokerOf is the broker through which was asked what ReservationOf calls so, empty if the peer has asked itself.
func BrokerOf(called string) string {
	broker, _, relayed := strings.Cut(called, "/")
	if !relayed {
		return ""
	}
	return broker
}

// DemandOf returns what all replicas of all components ask for together, counted as pods are: see Count.
func DemandOf(components []v1alpha1.RequestedComponent) corev1.ResourceList {
	sum := corev1.ResourceList{}
	add := func(name corev1.ResourceName, amount resource.Quantity, times int32) {
		total := sum[name]
		amount = amount.DeepCopy()
		amount.Mul(int64(times))
		total.Add(amount)
		sum[name] = total
	}
	for _, component := range components {
		for name, amount := range component.Resources {
			add(name, amount, component.Replicas)
		}
		add(corev1.ResourcePods, *resource.NewQuantity(1, resource.DecimalSI), component.Replicas)
	}
	return sum
}

// priceDecimals is how fine the amounts are that a quantity holds.
const priceDecimals = 9

// PriceOf returns what so much costs for an hour at these prices, nil if it costs nothing.
func PriceOf(prices *v1alpha1.Prices, demand corev1.ResourceList) *v1alpha1.Price {
	cost := PricePerHour(prices, demand)
	if cost.PerHour.Sign() == 0 {
		return nil
	}
	rounded := new(inf.Dec).Round(cost.PerHour, priceDecimals, inf.RoundUp)
	return &v1alpha1.Price{Amount: *resource.NewDecimalQuantity(*rounded, resource.DecimalSI), Currency: cost.Currency}
}

// ObjectionTo returns what stands against the Request whatever room there is, as a reason and a message for the one who asks: when
// it is to expire, and what it costs. Both are empty if nothing does.
func ObjectionTo(asked *v1alpha1.RequestSpec, price *v1alpha1.Price, now time.Time) (reason, message string) {
	ahead := asked.ExpirationTime.Sub(now)
	switch most := asked.MaxPrice; {
	case ahead <= 0:
		return v1alpha1.ReasonInvalidExpirationTime, "spec.expirationTime is in the past by the clock of the provider: name a later one"
	case ahead > v1alpha1.MaxReservation:
		return v1alpha1.ReasonInvalidExpirationTime, fmt.Sprintf(
			"spec.expirationTime is more than %.0f hours ahead by the clock of the provider: name an earlier one, and move it on in time",
			v1alpha1.MaxReservation.Hours())
	case most == nil || price == nil:
		return "", ""
	case most.Currency != price.Currency:
		return v1alpha1.ReasonTooExpensive, fmt.Sprintf(
			"spec.maxPrice is in %s, and the provider asks for %s %s for an hour", most.Currency, price.Amount.String(), price.Currency)
	case price.Amount.Cmp(most.Amount) > 0:
		return v1alpha1.ReasonTooExpensive, fmt.Sprintf("spec.maxPrice is %s %s for an hour, and the provider asks for %s",
			most.Amount.String(), most.Currency, price.Amount.String())
	default:
		return "", ""
	}
}
