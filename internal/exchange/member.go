// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

// MemberOfferOf is what of an advertisement is told to the members of a broker: the first 32 resources and labels by name, and no more
// of them than fits into a statement. Resources of nodes themselves come before those of devices.
func MemberOfferOf(ad *v1alpha1.AdvertisementSpec) v1alpha1.MemberOffer {
	offer := v1alpha1.MemberOffer{Availability: corev1.ResourceList{}, Labels: map[string]v1alpha1.Text{}}
	labels := slices.Sorted(maps.Keys(ad.Labels))
	for _, key := range firstOf(labels, func(key string) int { return textOf(key, ad.Labels[key]) }) {
		offer.Labels[key] = ad.Labels[key]
	}
	asked := map[corev1.ResourceName]resource.Quantity{}
	if ad.Prices != nil {
		asked = ad.Prices.PerHour
		offer.Prices = &v1alpha1.Prices{Currency: ad.Prices.Currency, PerHour: map[corev1.ResourceName]resource.Quantity{}}
	}
	if ad.Phase != "" && ad.Phase != v1alpha1.OfferOpen {
		return offer // nobody new is let in
	}
	resources := slices.SortedFunc(maps.Keys(ad.Availability), func(a, b corev1.ResourceName) int {
		return cmp.Or(strings.Count(string(a), "/")-strings.Count(string(b), "/"), cmp.Compare(a, b))
	})
	// With its price: one whose price were left out would seem to be free.
	for _, name := range firstOf(resources, func(name corev1.ResourceName) int {
		return textOf(name, ad.Availability[name]) + textOf(name, asked[name])
	}) {
		offer.Availability[name] = ad.Availability[name]
		if price, there := asked[name]; there {
			offer.Prices.PerHour[name] = price
		}
	}
	return offer
}

// maxTold bounds the text of what members are told of resources, and of labels. Both fit into a statement, which has 16 KiB.
const maxTold = 7 << 10

// firstOf are the first of the names that members are told.
func firstOf[K ~string](names []K, text func(K) int) []K {
	left := maxTold
	for i, name := range names {
		if left -= text(name); left < 0 || i == mostOfMember {
			return names[:i]
		}
	}
	return names
}

// textOf is how many bytes the entry takes in a map.
func textOf(key, value any) int {
	text, err := json.Marshal([]any{key, value}) // has as many commas and such as an entry
	if err != nil {
		return maxTold // nothing that could be told
	}
	return len(text)
}
