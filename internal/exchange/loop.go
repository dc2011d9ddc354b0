package exchange

import (
	"slices"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

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
