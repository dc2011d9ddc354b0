package exchange

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

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
		if len(others) > 0 {
			cut(&left[i].Spec, func(have amounts) {
				for name := range have {
					taken := min(have[name], others[name])
					have[name] -= taken
					others[name] -= taken
				}
			})
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

// cut changes the amounts of the offer and of those nested in it, one after the other.
func cut(offer *v1alpha1.AdvertisementSpec, change func(have amounts)) {
	apply := func(list corev1.ResourceList) corev1.ResourceList {
		have := amountsOf(list)
		change(have)
		return have.list()
	}
	offer.Availability = apply(offer.Availability)
	offer.Nested = slices.Clone(offer.Nested)
	for i := range offer.Nested {
		offer.Nested[i].Availability = apply(offer.Nested[i].Availability)
	}
}
