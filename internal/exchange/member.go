package exchange

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// mostOfMember bounds the entries of each map of a member's offer.
const mostOfMember = 32

// quantitiesOfMember are the places of quantities in a member's offer.
var quantitiesOfMember = sanitize.QuantitiesIn(reflect.TypeFor[v1alpha1.MemberOffer]())

// ReadMemberOffer reads what a member has to spare from the body of its statement. What it names must be as in an advertisement, and no
// list may be longer than 32.
func ReadMemberOffer(body []byte) (*v1alpha1.MemberOffer, error) {
	if err := quantitiesOfMember.Check(body); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	offer := &v1alpha1.MemberOffer{}
	// Names in another case would be read, and not be checked before.
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, offer); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	if len(offer.Availability) > mostOfMember || len(offer.Labels) > mostOfMember {
		return nil, fmt.Errorf("body: availability and labels may have %d entries each", mostOfMember)
	}
	if offer.Prices != nil && (len(offer.Prices.PerHour) > mostOfMember || len(offer.Prices.PerPlacement) > 0) {
		return nil, fmt.Errorf("body.prices: there may be %d, and none of images", mostOfMember)
	}
	err := cmp.Or(
		judgeResources("body.availability", offer.Availability),
		judgePrices("body.prices", offer.Prices),
		judgeLabels("body.labels", offer.Labels),
	)
	if err != nil {
		return nil, err
	}
	return offer, nil
}

// MemberOfferOf is what of an advertisement is told to the members of a broker, the first 32 of each by name.
func MemberOfferOf(ad *v1alpha1.AdvertisementSpec) v1alpha1.MemberOffer {
	offer := v1alpha1.MemberOffer{Availability: firstOf(ad.Availability), Labels: firstOf(ad.Labels)}
	if ad.Prices != nil {
		offer.Prices = &v1alpha1.Prices{Currency: ad.Prices.Currency, PerHour: firstOf(ad.Prices.PerHour)}
	}
	if ad.Phase != "" && ad.Phase != v1alpha1.OfferOpen {
		offer.Availability = corev1.ResourceList{} // nobody new is let in
	}
	return offer
}

func firstOf[M ~map[K]V, K cmp.Ordered, V any](all M) M {
	if len(all) <= mostOfMember {
		return all
	}
	first := M{}
	for _, key := range slices.Sorted(maps.Keys(all))[:mostOfMember] {
		first[key] = all[key]
	}
	return first
}
