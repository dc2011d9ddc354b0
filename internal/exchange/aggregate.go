package exchange

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"gopkg.in/inf.v0"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// A Share is what a cluster adds to the prices of offers that it passes on.
type Share struct {
	// Percent is added to every price.
	Percent int64
}

// Aggregate returns our own offer to the receiver with the offers of others as parts of it: those that we have accepted
// and that are open, and what is nested in them in turn. Left out are the receiver's own, what would go in circles (see
// Loops), and those whose provider does not want it. Of several ways to a cluster the shortest counts; of more than an
// advertisement can carry the nearest.
//
// The shares of all on the way are in the prices: each adds its own. The largest pod is the largest that fits anywhere.
// Neither own nor the offers are changed.
func Aggregate(
	own v1alpha1.AdvertisementSpec, offers []v1alpha1.Advertisement, share Share, receiver string,
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
	offers []v1alpha1.Advertisement, share Share,
) (candidates []v1alpha1.NestedOffer, private map[string]bool, largest []corev1.ResourceList) {
	private = map[string]bool{}
	for i := range offers {
		offer := &offers[i].Spec
		if !meta.IsStatusConditionTrue(offers[i].Status.Conditions, v1alpha1.ConditionAccepted) {
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
		if nested, tellable := share.nest(direct, nil); tellable {
			candidates = append(candidates, nested)
			largest = append(largest, offer.LargestPod)
		}
		for _, further := range offer.Nested {
			if nested, tellable := share.nest(further, slices.Concat([]string{offer.ClusterID}, further.Path)); tellable {
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

// nest returns the offer as one that has come by the path, at prices with the share. It is not told on if a price would be
// too long to be read by the receiver.
func (s Share) nest(offer v1alpha1.NestedOffer, path []string) (nested v1alpha1.NestedOffer, tellable bool) {
	nested = *offer.DeepCopy()
	nested.Path = path
	if nested.Prices == nil {
		return nested, true
	}
	return nested, addShare(nested.Prices.PerHour, s) && addShare(nested.Prices.PerPlacement, s)
}

// addShare is exact to the finest amount that a quantity can hold, 10^-9, and rounds up there.
func addShare[Name ~string](prices map[Name]resource.Quantity, s Share) (tellable bool) {
	factor := inf.NewDec(100+max(0, s.Percent), 2)
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
