// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// maxNested is how many offers of others an advertisement can carry.
const maxNested = 100

// Aggregate returns our own offer to the receiver with the offers of others as parts of it: those that we have accepted
// and that are open, and what is nested in them in turn. Left out are the receiver's own, what would go in circles (see
// Loops), and those whose provider does not want it. Of several ways to a cluster the shortest counts; of more than an
// advertisement can carry the nearest.
//
// The shares of all on the way are in the prices: each adds its own, which is so many percent. The largest pod is the largest that fits anywhere.
// Neither own nor the offers are changed.
func Aggregate(
	own v1alpha1.AdvertisementSpec, offers []v1alpha1.Advertisement, share int64, receiver string,
) v1alpha1.AdvertisementSpec {
	candidates, private, largest := nestable(offers, share)
	candidates = slices.DeleteFunc(candidates, func(n v1alpha1.NestedOffer) bool {
		return private[n.ClusterID] || len(n.Path) > MaxDepth || !distinct(receiver, own.ClusterID, n)
	})
	if len(candidates) == 0 {
		return own
	}
	own.Flags = maps.Clone(own.Flags)
	if own.Flags == nil {
		own.Flags = map[string]v1alpha1.Text{}
	}
	own.Flags[v1alpha1.FlagAggregated] = "true"
	own.Nested = nearest(candidates)
	own.LargestPod = largestOf(append(largest, own.LargestPod))
	return own
}

// largestOf returns the largest of those pods: see largest. None fits where none is named.
func largestOf(pods []corev1.ResourceList) corev1.ResourceList {
	var rooms []amounts
	for _, pod := range pods {
		if pod != nil {
			room := amountsOf(pod)
			room[corev1.ResourcePods] = 1
			rooms = append(rooms, room)
		}
	}
	best := largest(rooms)
	if best == nil {
		return nil
	}
	list := best.list()
	delete(list, corev1.ResourcePods)
	return list
}

// nestable returns the offers and what is nested in them as parts of an offer of ours, the ids of the clusters whose
// offers must not become a part of another, and the largest pods that fit.
func nestable(
	offers []v1alpha1.Advertisement, share int64,
) (candidates []v1alpha1.NestedOffer, private map[string]bool, largest []corev1.ResourceList) {
	private = map[string]bool{}
	for i := range offers {
		offer := &offers[i].Spec
		if !isAccepted(&offers[i]) {
			continue
		}
		if offer.Flags[v1alpha1.FlagAggregatable] == "false" {
			private[offer.ClusterID] = true
			continue
		}
		if Phase(offer) != v1alpha1.OfferOpen {
			continue
		}
		direct := v1alpha1.NestedOffer{
			ClusterID: offer.ClusterID, Availability: offer.Availability, Prices: offer.Prices, Labels: offer.Labels,
		}
		if nested, tellable := passedOn(direct, nil, share); tellable {
			candidates = append(candidates, nested)
			largest = append(largest, offer.LargestPod)
		}
		for _, further := range offer.Nested {
			if nested, tellable := passedOn(further, slices.Concat([]string{offer.ClusterID}, further.Path), share); tellable {
				candidates = append(candidates, nested)
			}
		}
	}
	return candidates, private, largest
}

// nearest keeps one of each cluster, and of all the nearest that fit into an advertisement, by cluster id.
func nearest(candidates []v1alpha1.NestedOffer) []v1alpha1.NestedOffer {
	slices.SortStableFunc(candidates, func(a, b v1alpha1.NestedOffer) int {
		return cmp.Or(
			cmp.Compare(len(a.Path), len(b.Path)), strings.Compare(a.ClusterID, b.ClusterID), slices.Compare(a.Path, b.Path),
		)
	})
	seen := map[string]bool{}
	candidates = slices.DeleteFunc(candidates, func(n v1alpha1.NestedOffer) bool {
		known := seen[n.ClusterID]
		seen[n.ClusterID] = true
		return known
	})
	candidates = candidates[:min(len(candidates), maxNested)]
	slices.SortFunc(candidates, func(a, b v1alpha1.NestedOffer) int { return strings.Compare(a.ClusterID, b.ClusterID) })
	return candidates
}

// passedOn returns the offer as one that has come by the path, at prices with the share. It is not told on if a price would be
// too long to be read by the receiver.
func passedOn(offer v1alpha1.NestedOffer, path []string, share int64) (nested v1alpha1.NestedOffer, tellable bool) {
	nested = *offer.DeepCopy()
	nested.Path = path
	if nested.Prices == nil {
		return nested, true
	}
	return nested, addShare(nested.Prices.PerHour, share) && addShare(nested.Prices.PerPlacement, share)
}

// addShare is exact to the finest amount that a quantity can hold, 10^-9, and rounds up there.
func addShare[Name ~string](prices map[Name]resource.Quantity, share int64) (tellable bool) {
	factor := inf.NewDec(100+max(0, share), 2)
	for name, price := range prices {
		sum := new(inf.Dec).Mul(exact(price), factor)
		sum.Round(sum, 9, inf.RoundUp)
		shared := *resource.NewDecimalQuantity(*sum, price.Format)
		if !sanitize.Quantity(shared.String()) {
			return false
		}
		prices[name] = shared
	}
	return true
}

// Offered returns all that pods can be given by way of an offer: what its own cluster has, and the clusters behind it.
// The caller must not change it.
func Offered(ad *v1alpha1.AdvertisementSpec) corev1.ResourceList {
	if len(ad.Nested) == 0 {
		return ad.Availability
	}
	sum := amountsOf(ad.Availability)
	for i := range ad.Nested {
		sum.add(amountsOf(ad.Nested[i].Availability))
	}
	return sum.list()
}

// Scattered reports whether not all that is offered has room for one pod: a pod may be too large for any one node of the
// provider although the offer is larger. That depends on the offer alone and not on which of our pods run there, so that it
// does not change with each of them.
func Scattered(ad *v1alpha1.AdvertisementSpec) bool {
	offered := Offered(ad)
	for name, largest := range ad.LargestPod {
		if all, limited := offered[name]; limited && largest.Cmp(all) < 0 {
			return true
		}
	}
	return false
}

// Fits reports whether a pod that asks for that is no larger than the largest one. Resources that this does not name are no
// limit.
func Fits(asked, largest corev1.ResourceList) bool {
	for name, amount := range asked {
		if most, limited := largest[name]; limited && amount.Cmp(most) > 0 {
			return false
		}
	}
	return true
}

// NextHops returns the ids of the clusters that the sender of an offer sends pods on to, sorted: those nested in it that
// it knows itself, and those that it knows the others through.
func NextHops(ad *v1alpha1.AdvertisementSpec) []string {
	var hops []string
	for i := range ad.Nested {
		hop := ad.Nested[i].ClusterID
		if path := ad.Nested[i].Path; len(path) > 0 {
			hop = path[0]
		}
		hops = append(hops, hop)
	}
	slices.Sort(hops)
	return slices.Compact(hops)
}

// Leftovers returns of each offer of a provider what the peer can be offered of it: all but what pods of others, ours
// among them, hold there. What the peer's own pods hold is in it, as in Availability. The offers are not changed.
//
// Nobody knows which of those pods a provider has sent on, so they count against the provider first and then against
// what is nested in its offer.
func (c Capacity) Leftovers(peer string, offers []v1alpha1.Advertisement) []v1alpha1.Advertisement {
	left := make([]v1alpha1.Advertisement, len(offers))
	for i := range offers {
		left[i] = offers[i]
		provider := strings.TrimPrefix(offers[i].Namespace, v1alpha1.TenantNamespacePrefix)
		others := amounts{}
		for holder, sum := range c.away[v1alpha1.VirtualNodeName(provider)] {
			if holder != peer {
				others.add(sum)
			}
		}
		if len(others) == 0 {
			continue
		}
		take := func(list corev1.ResourceList) corev1.ResourceList {
			have := amountsOf(list)
			for name := range have {
				taken := min(have[name], others[name])
				have[name] -= taken
				others[name] -= taken
			}
			return have.list()
		}
		left[i].Spec.Availability = take(left[i].Spec.Availability)
		left[i].Spec.Nested = slices.Clone(left[i].Spec.Nested)
		for n := range left[i].Spec.Nested {
			left[i].Spec.Nested[n].Availability = take(left[i].Spec.Nested[n].Availability)
		}
	}
	return left
}

// Within cuts what is nested in an offer to what the limits of the receiver leave of it. What they do not name is not
// limited.
func Within(limits corev1.ResourceList, offer *v1alpha1.AdvertisementSpec) {
	if len(limits) == 0 || len(offer.Nested) == 0 {
		return
	}
	left := amountsOf(limits)
	left.subtract(amountsOf(offer.Availability))
	offer.Nested = slices.Clone(offer.Nested)
	for i := range offer.Nested {
		have := amountsOf(offer.Nested[i].Availability)
		have.limitNamed(left)
		left.subtract(have)
		offer.Nested[i].Availability = have.list()
	}
	offer.LargestPod = maps.Clone(offer.LargestPod)
	for name, most := range limits {
		if largest, named := offer.LargestPod[name]; named && largest.Cmp(most) > 0 {
			offer.LargestPod[name] = most
		}
	}
}

// MaxDepth is through how many clusters an offer may come to the one that advertises it as part of its own.
const MaxDepth = 4

// Loops reports whether an aggregated advertisement goes in circles: an offer in it is of the cluster of that id, or has
// come through it; has come through a cluster twice; or through more clusters than MaxDepth.
func Loops(ad *v1alpha1.AdvertisementSpec, clusterID string) bool {
	return slices.ContainsFunc(ad.Nested, func(nested v1alpha1.NestedOffer) bool {
		return len(nested.Path) > MaxDepth || !distinct(clusterID, ad.ClusterID, nested)
	})
}

// distinct reports whether no cluster occurs twice on the way of a nested offer: from the cluster that makes it, over the
// path, to the sender and the receiver.
func distinct(receiver, sender string, nested v1alpha1.NestedOffer) bool {
	way := append([]string{receiver, sender, nested.ClusterID}, nested.Path...)
	slices.Sort(way)
	return len(slices.Compact(way)) == len(nested.Path)+3
}
