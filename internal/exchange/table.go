// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// AnnotationReceived carries, on our copy of a peer's advertisement, when by our own clock the message came in that the
// copy holds, as RFC 3339 has it. A copy without it was never accepted.
const AnnotationReceived = v1alpha1.AnnotationReceived

// A Table is what all providers offer at one time. It is a value: computed when needed, stored nowhere.
type Table struct {
	Rows []Row // by cluster id
}

// A Row is the offer of one cluster, and our answer to it.
type Row struct {
	Peer      string // the name of the Peer that makes the offer
	ClusterID string
	// Offer is what we use of the offer, if it is accepted. It shares memory with the advertisement and must not be changed.
	Offer v1alpha1.AdvertisementSpec
	// Accepted says that we use the offer; Open that it is for new pods too, as the provider has it.
	Accepted, Open bool

	State           v1alpha1.AcknowledgementState // Pending if nobody has answered yet
	Reason, Message string
	Corrections     []string

	LastHello            time.Time     // zero if it is not known
	RoundTrip, Deviation time.Duration // zero if they are not known, see WithLinks
	Bandwidth            int64         // in bytes per second; zero if it is not known, see WithLinks
	Throughput           int64         // in bytes per second: so much passes at least, and maybe more; see WithLinks
	Loss                 *int32        // in percent; nil if it is not known, see WithLinks
}

// NewTable returns the table at the time now of the advertisements that were taken in. Those that have expired or were
// withdrawn are left out; those that are pending or refused are rows that are not accepted. It does not depend on the
// order of the advertisements, or on how often one is named; of several of one cluster the newest counts, and an accepted
// one before others.
func NewTable(ads []v1alpha1.Advertisement, now time.Time) Table {
	current := make([]*v1alpha1.Advertisement, 0, len(ads))
	for i := range ads {
		if isCurrent(&ads[i], now) {
			current = append(current, &ads[i])
		}
	}
	slices.SortFunc(current, compareAds)
	current = slices.CompactFunc(current, func(a, b *v1alpha1.Advertisement) bool { return a.Spec.ClusterID == b.Spec.ClusterID })
	rows := make([]Row, len(current))
	for i, ad := range current {
		fill(&rows[i], ad)
	}
	return Table{Rows: rows}
}

func isAccepted(ad *v1alpha1.Advertisement) bool {
	return meta.IsStatusConditionTrue(ad.Status.Conditions, v1alpha1.ConditionAccepted)
}

func isCurrent(ad *v1alpha1.Advertisement, now time.Time) bool {
	if !ad.Spec.TimeToLive.After(now) {
		return false
	}
	answer := answerTo(ad)
	return isAccepted(ad) || answer.Reason != v1alpha1.ReasonExpired && answer.Reason != v1alpha1.ReasonNoAdvertisement
}

// compareAds orders advertisements by cluster id, and of those of one cluster puts that first which counts. Two objects
// never compare equal: no two have the same namespace and name.
func compareAds(a, b *v1alpha1.Advertisement) int {
	if order := strings.Compare(a.Spec.ClusterID, b.Spec.ClusterID); order != 0 {
		return order
	}
	return cmp.Or(
		first(isAccepted(a), isAccepted(b)),
		cmp.Compare(b.Spec.Sequence, a.Spec.Sequence),
		strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Name, b.Name),
	)
}

// answerTo is our answer to the advertisement, also before there is one.
func answerTo(ad *v1alpha1.Advertisement) v1alpha1.Acknowledgement {
	switch {
	case ad.Status.Acknowledgement != nil:
		return *ad.Status.Acknowledgement
	case isAccepted(ad):
		return v1alpha1.Acknowledgement{State: v1alpha1.AcknowledgementAccepted, Reason: v1alpha1.ReasonAccepted}
	default:
		return v1alpha1.Acknowledgement{State: v1alpha1.AcknowledgementPending, Reason: v1alpha1.ReasonPending}
	}
}

func fill(row *Row, ad *v1alpha1.Advertisement) {
	answer := answerTo(ad)
	row.Peer, row.ClusterID, row.Offer = ad.Labels[v1alpha1.LabelPeer], ad.Spec.ClusterID, ad.Spec
	row.Accepted, row.Open = isAccepted(ad), Phase(&ad.Spec) == v1alpha1.OfferOpen
	row.State, row.Reason, row.Message, row.Corrections = answer.State, answer.Reason, answer.Message, answer.Corrections
	if received := ad.Annotations[AnnotationReceived]; received != "" {
		row.LastHello, _ = time.Parse(time.RFC3339, received) // zero is not known
	}
}

// WithLinks returns the table with what was measured of the links to the peers.
func (t Table) WithLinks(peers []v1alpha1.Peer) Table {
	byName := make(map[string]*v1alpha1.PeerStatus, len(peers))
	for i := range peers {
		byName[peers[i].Name] = &peers[i].Status
	}
	rows := slices.Clone(t.Rows)
	for i := range rows {
		link, known := byName[rows[i].Peer]
		if !known {
			continue
		}
		rows[i].MeasuredBy(link)
	}
	return Table{Rows: rows}
}

// MeasuredBy takes over what the status of a Peer says of the link to it.
func (r *Row) MeasuredBy(link *v1alpha1.PeerStatus) {
	bandwidth, throughput := ptr.Deref(link.Bandwidth, resource.Quantity{}), ptr.Deref(link.Throughput, resource.Quantity{})
	r.RoundTrip, r.Deviation = ptr.Deref(link.RoundTripTime, metav1.Duration{}).Duration, ptr.Deref(link.RoundTripDeviation, metav1.Duration{}).Duration
	r.Bandwidth, r.Throughput, r.Loss = bandwidth.Value(), throughput.Value(), link.LossPercent
}

// passes returns how many bytes per second pass as far as it is known: as many as have passed already, at least.
func (r *Row) passes() *resource.Quantity {
	return resource.NewQuantity(max(r.Bandwidth, r.Throughput), resource.DecimalSI)
}

// PricePerHour returns what the request costs there for an hour.
func (r *Row) PricePerHour(request corev1.ResourceList) Cost {
	return PricePerHour(r.Offer.Prices, request)
}

// Orders of rows, by what the first one has.
const (
	OrderPrice   = "price"   // the lowest price of a pod of DefaultRequest
	OrderLatency = "latency" // the shortest round trip; what was not measured comes last
	OrderCPU     = "cpu"     // the most free cores
)

// By returns how two rows compare in the order of that name. Rows that are equal in it come by cluster id.
func By(order string) (func(a, b Row) int, error) {
	usual := demandOf(Query{Request: DefaultRequest()})
	compare, known := map[string]func(a, b *Row) int{
		OrderPrice: func(a, b *Row) int {
			chargeA, chargeB := usual.charge(a.Offer.Prices), usual.charge(b.Offer.Prices)
			return chargeA.compare(&chargeB)
		},
		OrderLatency: func(a, b *Row) int { return nearer(a.RoundTrip, b.RoundTrip) },
		OrderCPU: func(a, b *Row) int {
			free := Offered(&b.Offer)[corev1.ResourceCPU]
			return free.Cmp(Offered(&a.Offer)[corev1.ResourceCPU])
		},
	}[order]
	if !known {
		return nil, fmt.Errorf("%s is no order: use %s, %s or %s", quoted(order), OrderPrice, OrderLatency, OrderCPU)
	}
	return func(a, b Row) int { return cmp.Or(compare(&a, &b), cmp.Compare(a.ClusterID, b.ClusterID)) }, nil
}

// DefaultRequest is the pod by which offers are compared where none is named: one core and 1Gi of memory.
func DefaultRequest() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(1, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(1<<30, resource.BinarySI),
	}
}

// Phase returns the phase of the offer, which is Open unless it names another.
func Phase(ad *v1alpha1.AdvertisementSpec) v1alpha1.OfferPhase {
	return cmp.Or(ad.Phase, v1alpha1.OfferOpen)
}

// PhaseFor returns the phase of what we offer to the peer as a consumer.
func PhaseFor(peer *v1alpha1.Peer) v1alpha1.OfferPhase {
	if !peer.DeletionTimestamp.IsZero() {
		return v1alpha1.OfferLeaving
	}
	switch peer.Spec.Access {
	case v1alpha1.AccessDraining:
		return v1alpha1.OfferDraining
	case v1alpha1.AccessCordoned, v1alpha1.AccessSuspended:
		return v1alpha1.OfferCordoned
	default:
		return v1alpha1.OfferOpen
	}
}
