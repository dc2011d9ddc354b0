package exchange

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A Table is the offers in force at one time. It is a value: computed when needed, stored nowhere.
type Table struct {
	Rows []Row // by cluster id
}

// A Row is the offer of one cluster.
type Row struct {
	Peer  string // the name of the Peer that makes the offer
	Open  bool   // the offer is for new pods too
	Offer v1alpha1.AdvertisementSpec
}

// NewTable returns the table at the time now of the advertisements that were taken in. Those that are not accepted or
// whose time to live has passed are left out. It does not depend on the order of the advertisements, or on how often one
// is named; of several of one cluster the newest counts.
func NewTable(ads []v1alpha1.Advertisement, now time.Time) Table {
	newest := map[string]*v1alpha1.Advertisement{}
	for i := range ads {
		ad := &ads[i]
		if !inForce(ad, now) {
			continue
		}
		if known, found := newest[ad.Spec.ClusterID]; !found || compareAge(ad, known) > 0 {
			newest[ad.Spec.ClusterID] = ad
		}
	}
	rows := make([]Row, 0, len(newest))
	for _, ad := range newest {
		rows = append(rows, Row{Peer: ad.Labels[v1alpha1.LabelPeer], Open: Phase(&ad.Spec) == v1alpha1.OfferOpen, Offer: ad.Spec})
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Offer.ClusterID, b.Offer.ClusterID) })
	return Table{Rows: rows}
}

func inForce(ad *v1alpha1.Advertisement, now time.Time) bool {
	return meta.IsStatusConditionTrue(ad.Status.Conditions, v1alpha1.ConditionAccepted) && ad.Spec.TimeToLive.After(now)
}

// compareAge is positive if a is newer than b. Two objects of one cluster never compare equal: no two of them have the
// same namespace and name.
func compareAge(a, b *v1alpha1.Advertisement) int {
	return cmp.Or(
		cmp.Compare(a.Spec.Sequence, b.Spec.Sequence),
		cmp.Compare(b.Namespace, a.Namespace),
		cmp.Compare(b.Name, a.Name),
	)
}

// Fitting returns the rows whose offer is open and has room for the request.
func (t Table) Fitting(request corev1.ResourceList) []Row {
	var fitting []Row
	for _, row := range t.Rows {
		if row.Fits(request) {
			fitting = append(fitting, row)
		}
	}
	return fitting
}

// Fits reports whether the offer is open and has room for the request of one pod.
func (r Row) Fits(request corev1.ResourceList) bool {
	if !r.Open {
		return false
	}
	for name, quantity := range request {
		if quantity.IsZero() {
			continue
		}
		if available := r.Offer.Availability[name]; quantity.Cmp(available) > 0 {
			return false
		}
		if largest, known := r.Offer.LargestPod[name]; known && quantity.Cmp(largest) > 0 {
			return false
		}
	}
	return true
}

// PricePerHour returns what the request costs there for an hour.
func (r Row) PricePerHour(request corev1.ResourceList) Cost {
	return PricePerHour(r.Offer.Prices, request)
}
