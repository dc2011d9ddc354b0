// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"cmp"
	"fmt"
	"slices"

	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

const (
	maxOfferMessage = 256
	maxAmountLength = 32
)

// CheckOffer returns what of a peer's answer to a Quote counts, and says of the rest why not. Whatever is wrong with an offer, no other
// one is worse for it.
func CheckOffer(asked *v1alpha1.QuoteSpec, got *v1alpha1.Quote) v1alpha1.AuctionOffer {
	if !equality.Semantic.DeepEqual(asked, &got.Spec) {
		return Silence("Its Quote is not what was asked for, so its offer does not count")
	}
	whole, seen, unasked := got.Status.Whole, map[string]bool{}, ""
	offer := v1alpha1.AuctionOffer{}
	var currency string
	for _, c := range got.Status.Components {
		if !slices.ContainsFunc(asked.Components, func(a v1alpha1.RequestedComponent) bool { return a.Name == c.Name }) || seen[c.Name] {
			unasked = "It also offers what was not asked for: component " + quoted(c.Name)
			continue
		}
		seen[c.Name] = true
		if err := checkOffer(&c.Offer, &currency); err != nil {
			return Silence(fmt.Sprintf("Its offer does not count: status.components[%s].%s", c.Name, err))
		}
		if c.Interest > 0 {
			offer.Components = append(offer.Components, v1alpha1.AuctionComponent{Name: c.Name, Interest: c.Interest, Price: written(c.Price)})
		}
	}
	if err := checkOffer(whole, &currency); err != nil {
		return Silence(fmt.Sprintf("Its offer does not count: status.whole.%s", err))
	}
	offer.Interest, offer.Message = whole.Interest, sanitize.Text(unasked, maxOfferMessage)
	if whole.Interest > 0 {
		offer.Price = written(whole.Price)
	} else if unasked == "" {
		offer.Message = sanitize.Text(whole.Message, maxOfferMessage)
	}
	return offer
}

// Silence is an offer of nothing, for this reason.
func Silence(why string) v1alpha1.AuctionOffer {
	return v1alpha1.AuctionOffer{Message: sanitize.Text(why, maxOfferMessage)}
}

// checkOffer returns what is wrong with an offer. All prices of one peer are in one currency, which it notes.
func checkOffer(offer *v1alpha1.Offer, currency *string) error {
	price := offer.Price
	switch {
	case offer.Interest < 0 || offer.Interest > v1alpha1.MaxInterest:
		return fmt.Errorf("interest is %d: it must be from 0 to %d", offer.Interest, v1alpha1.MaxInterest)
	case price == nil || offer.Interest == 0:
		return nil
	case price.Amount.Sign() < 0:
		return fmt.Errorf("price.amount is %s: it must not be negative", quoted(price.Amount.String()))
	case len(price.Amount.String()) > maxAmountLength:
		return fmt.Errorf("price.amount is longer than %d characters", maxAmountLength)
	case !currencyCode.MatchString(price.Currency):
		return fmt.Errorf("price.currency is %s: it must be three capital letters, such as EUR", quoted(price.Currency))
	case *currency != "" && *currency != price.Currency:
		return fmt.Errorf("price.currency is %s, and that of another price %s: all must be the same", price.Currency, *currency)
	}
	*currency = price.Currency
	return nil
}

func written(price *v1alpha1.Price) *v1alpha1.OfferedPrice {
	if price == nil || price.Amount.IsZero() {
		return nil
	}
	return &v1alpha1.OfferedPrice{Amount: price.Amount.String(), Currency: price.Currency}
}

// ReadPrice returns the price, nil if there is none, or if it is not one that this package has written.
func ReadPrice(offered *v1alpha1.OfferedPrice) *v1alpha1.Price {
	if offered == nil {
		return nil
	}
	amount, err := parseQuantity(offered.Amount)
	if err != nil {
		return nil
	}
	return &v1alpha1.Price{Amount: amount, Currency: offered.Currency}
}

// OwnOffer is what the cluster offers itself.
func (b Bidder) OwnOffer(components []v1alpha1.RequestedComponent) v1alpha1.AuctionOffer {
	asked := &v1alpha1.QuoteSpec{Components: components}
	whole, each := b.Offers(components)
	return CheckOffer(asked, &v1alpha1.Quote{Spec: *asked, Status: v1alpha1.QuoteStatus{Whole: &whole, Components: each}})
}

// A slot is what stands for one component in the rows of an auction: a row has one of it if its cluster has offered for the component.
func slot(i int) corev1.ResourceName {
	return corev1.ResourceName(fmt.Sprintf("auction.hanse.dev/component-%d", i))
}

// Award finds the best rows for the components of the job by what was offered: as Assign does it, with the prices and the interest of
// the offers, and in the place of what is free what was offered for. A cluster that has not offered for the whole does not get all of
// it. One that offers the whole for less than the best parts, or as much, gets all of it.
func Award(job Job, offers []v1alpha1.AuctionOffer) Assignment {
	a := newAuction(&job, offers)
	best := Assign(a.parts)
	whole, price := a.bestWhole()
	if whole >= 0 && (best.Rows == nil || job.Nearest && isAll(best.Rows, whole) || !job.Nearest && compareCosts(costOf(price), sumOf(best.PerHour)) <= 0) {
		best = Assignment{Rows: slices.Repeat([]int{whole}, len(job.Components)), Exact: best.Exact, PerHour: a.share(whole, price)}
	}
	for i, row := range best.Rows {
		best.Rows[i] = a.of[row]
	}
	best.Why = nil // the offers say it
	return best
}

func isAll(rows []int, row int) bool {
	return !slices.ContainsFunc(rows, func(r int) bool { return r != row })
}

// An auction is a job whose rows are those of clusters that have offered something.
type auction struct {
	parts  Job
	of     []int // row of the auction → row of the job
	offers []*v1alpha1.AuctionOffer
}

func newAuction(job *Job, offers []v1alpha1.AuctionOffer) *auction {
	a := &auction{parts: *job}
	a.parts.Rows, a.parts.Components = nil, nil
	index := map[string]int{} // component → where it is in the job
	for i, c := range job.Components {
		index[c.Name] = i
		c.Replicas, c.Resources = 1, corev1.ResourceList{slot(i): *resource.NewQuantity(1, resource.DecimalSI)}
		a.parts.Components = append(a.parts.Components, c)
	}
	for i := range offers {
		row := slices.IndexFunc(job.Rows, func(r Row) bool { return r.Peer == offers[i].Peer })
		if row < 0 || len(offers[i].Components) == 0 {
			continue
		}
		a.of, a.offers = append(a.of, row), append(a.offers, &offers[i])
		a.parts.Rows = append(a.parts.Rows, rowOf(job.Rows[row], &offers[i], index))
	}
	a.parts.Interest = func(component, row int) int32 {
		name := job.Components[component].Name
		for _, c := range a.offers[row].Components {
			if c.Name == name {
				return c.Interest
			}
		}
		return 0
	}
	return a
}

// rowOf is the row with what was offered in the place of what it has free, and of its prices.
func rowOf(row Row, offer *v1alpha1.AuctionOffer, index map[string]int) Row {
	most := len(index) // how many components it takes
	if offer.Interest == 0 {
		most--
	}
	row.Accepted, row.Open = true, true // of that the offer is newer
	row.Offer = v1alpha1.AdvertisementSpec{
		Images:       row.Offer.Images,
		Availability: corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(int64(most), resource.DecimalSI)},
	}
	prices := &v1alpha1.Prices{PerHour: map[corev1.ResourceName]resource.Quantity{}}
	for _, c := range offer.Components {
		i, asked := index[c.Name]
		if !asked {
			continue
		}
		row.Offer.Availability[slot(i)] = *resource.NewQuantity(1, resource.DecimalSI)
		if price := ReadPrice(c.Price); price != nil {
			prices.Currency, prices.PerHour[slot(i)] = price.Currency, price.Amount
			row.Offer.Prices = prices
		}
	}
	return row
}

// bestWhole is the row that takes all components for the least, of these the one with the most interest, and of these the nearest, or
// the nearest before all else; -1 if there is none.
func (a *auction) bestWhole() (best int, price *v1alpha1.Price) {
	best = -1
	if len(a.parts.Apart) > 0 {
		return best, nil
	}
	s := newSearch(&a.parts)
	for j := range a.parts.Rows {
		row, offered := &a.parts.Rows[j], ReadPrice(a.offers[j].Price)
		cost := costOf(offered)
		refused := a.offers[j].Interest == 0 || a.parts.MaxPrice != nil && tooDear(a.parts.MaxPrice, cost) != ""
		for i := range a.parts.Components {
			refused = refused || s.objection(i, row) != ""
		}
		if refused {
			continue
		}
		if best < 0 || a.better(j, best, cost, costOf(price)) {
			best, price = j, offered
		}
	}
	return best, price
}

func (a *auction) better(j, best int, cost, least Cost) bool {
	nearer := cmp.Compare(a.parts.Rows[j].distance(), a.parts.Rows[best].distance())
	if a.parts.Nearest && nearer != 0 {
		return nearer < 0
	}
	if order := compareCosts(cost, least); order != 0 {
		return order < 0
	}
	if more := a.offers[j].Interest - a.offers[best].Interest; more != 0 {
		return more > 0
	}
	return nearer < 0
}

// share says what each component costs of a price of the whole: in the proportion of what they cost alone, or else the first one all of
// it.
func (a *auction) share(row int, price *v1alpha1.Price) []*v1alpha1.Price {
	alone := make([]*v1alpha1.Price, len(a.parts.Components))
	for i := range a.parts.Components {
		alone[i] = PriceOf(a.parts.Rows[row].Offer.Prices, a.parts.Components[i].total())
	}
	sum, whole := sumOf(alone), costOf(price)
	if compareCosts(whole, sum) == 0 {
		return alone
	}
	shares, rest := make([]*v1alpha1.Price, len(alone)), whole.PerHour
	for i := len(alone) - 1; price != nil && i >= 0; i-- {
		part := new(inf.Dec).Set(rest)
		if i > 0 {
			part = new(inf.Dec)
			if sum.PerHour.Sign() > 0 {
				part.Mul(costOf(alone[i]).PerHour, whole.PerHour)
				part.QuoRound(part, sum.PerHour, priceDecimals, inf.RoundDown)
			}
		}
		rest = new(inf.Dec).Sub(rest, part)
		if part.Sign() > 0 {
			shares[i] = &v1alpha1.Price{Amount: *resource.NewDecimalQuantity(*part, resource.DecimalSI), Currency: price.Currency}
		}
	}
	return shares
}

func costOf(price *v1alpha1.Price) Cost {
	if price == nil {
		return Cost{PerHour: new(inf.Dec)}
	}
	return Cost{Currency: price.Currency, PerHour: exact(price.Amount)}
}

func sumOf(prices []*v1alpha1.Price) Cost { return costOf(Sum(prices)) }

// compareCosts puts what is free first, and what is paid in different currencies by their codes.
func compareCosts(a, b Cost) int {
	switch {
	case a.PerHour.Sign() == 0 || b.PerHour.Sign() == 0:
		return first(a.PerHour.Sign() == 0, b.PerHour.Sign() == 0)
	case a.Currency != b.Currency:
		return cmp.Compare(a.Currency, b.Currency)
	default:
		return a.PerHour.Cmp(b.PerHour)
	}
}
