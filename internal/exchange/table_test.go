// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func taken(cluster string, sequence int64, changes ...func(*v1alpha1.Advertisement)) v1alpha1.Advertisement {
	ad := v1alpha1.Advertisement{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.TenantNamespace(cluster), Name: cluster,
			Labels: map[string]string{v1alpha1.LabelPeer: cluster},
		},
		Spec: *offer(func(s *v1alpha1.AdvertisementSpec) { s.ClusterID, s.Sequence = cluster, sequence }),
		Status: v1alpha1.AdvertisementStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue},
		}},
	}
	for _, change := range changes {
		change(&ad)
	}
	return ad
}

// answered is the answer that the receiver writes onto its copy.
func answered(state v1alpha1.AcknowledgementState, reason string) func(*v1alpha1.Advertisement) {
	return func(ad *v1alpha1.Advertisement) {
		ad.Status.Acknowledgement = &v1alpha1.Acknowledgement{State: state, Reason: reason, Message: "because"}
		if state != v1alpha1.AcknowledgementAccepted {
			ad.Status.Conditions[0].Status = metav1.ConditionFalse
		}
	}
}

func TestTableHasARowOfEachOfferThatIsCurrent(t *testing.T) {
	ended := func(ad *v1alpha1.Advertisement) { ad.Spec.TimeToLive = metav1.NewTime(now) }
	unanswered := func(ad *v1alpha1.Advertisement) { ad.Status.Conditions = nil }
	corrected := func(ad *v1alpha1.Advertisement) { ad.Status.Acknowledgement.Corrections = []string{"spec.prices"} }
	heard := func(ad *v1alpha1.Advertisement) {
		ad.Annotations = map[string]string{AnnotationReceived: "2026-01-02T03:04:00Z"}
	}

	table := NewTable([]v1alpha1.Advertisement{
		taken("lubeck", 1), taken("bremen", 1, answered("Accepted", "Corrected"), corrected, heard),
		taken("lubeck", 3), taken("lubeck", 2), taken("kiel", 1, ended), taken("riga", 1, unanswered),
		taken("visby", 1, answered("Refused", "RefusedByPolicy")), taken("wismar", 1, answered("Pending", "PendingApproval")),
		taken("stettin", 1, answered("Refused", "Expired")), taken("danzig", 1, answered("Refused", "NoAdvertisement")),
	}, now)

	row := func(cluster string, sequence int64, change func(*Row)) Row {
		r := Row{Peer: cluster, ClusterID: cluster, Open: true, Offer: taken(cluster, sequence).Spec}
		change(&r)
		return r
	}
	expectEqual(t, []Row{
		row("bremen", 1, func(r *Row) {
			r.Accepted, r.State, r.Reason, r.Message = true, "Accepted", "Corrected", "because"
			r.Corrections, r.LastHello = []string{"spec.prices"}, now.Add(-5*time.Second)
		}),
		row("lubeck", 3, func(r *Row) { r.Accepted, r.State, r.Reason = true, "Accepted", "Accepted" }),
		row("riga", 1, func(r *Row) { r.State, r.Reason = "Pending", "Pending" }),
		row("visby", 1, func(r *Row) { r.State, r.Reason, r.Message = "Refused", "RefusedByPolicy", "because" }),
		row("wismar", 1, func(r *Row) { r.State, r.Reason, r.Message = "Pending", "PendingApproval", "because" }),
	}, table.Rows)
}

func TestAnAcceptedOfferIsNotReplacedByARefusedOneOfTheSameCluster(t *testing.T) {
	impostor := taken("lubeck", 99, answered("Refused", "ClusterIDMismatch"), func(ad *v1alpha1.Advertisement) {
		ad.Namespace, ad.Labels = v1alpha1.TenantNamespace("impostor"), map[string]string{v1alpha1.LabelPeer: "impostor"}
	})
	rows := NewTable([]v1alpha1.Advertisement{impostor, taken("lubeck", 1)}, now).Rows
	expectEqual(t, 1, len(rows))
	expectEqual(t, "lubeck", rows[0].Peer)
}

func TestWithLinks(t *testing.T) {
	measured := v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "lubeck"}, Status: v1alpha1.PeerStatus{
		RoundTripTime:      &metav1.Duration{Duration: 20 * time.Millisecond},
		RoundTripDeviation: &metav1.Duration{Duration: 3 * time.Millisecond},
		Bandwidth:          resource.NewQuantity(1200, resource.DecimalSI),
		Throughput:         resource.NewQuantity(3400, resource.DecimalSI),
		LossPercent:        ptr.To[int32](2),
	}}
	plain := NewTable([]v1alpha1.Advertisement{taken("lubeck", 1), taken("bremen", 1)}, now)
	table := plain.WithLinks([]v1alpha1.Peer{measured, {ObjectMeta: metav1.ObjectMeta{Name: "bremen"}}})
	expectEqual(t, []time.Duration{0, 0, 20 * time.Millisecond, 3 * time.Millisecond},
		[]time.Duration{table.Rows[0].RoundTrip, table.Rows[0].Deviation, table.Rows[1].RoundTrip, table.Rows[1].Deviation})
	expectEqual(t, []int64{0, 1200}, []int64{table.Rows[0].Bandwidth, table.Rows[1].Bandwidth})
	expectEqual(t, []int64{0, 3400}, []int64{table.Rows[0].Throughput, table.Rows[1].Throughput})
	expectEqual(t, []*int32{nil, ptr.To[int32](2)}, []*int32{table.Rows[0].Loss, table.Rows[1].Loss})
	expectEqual(t, time.Duration(0), plain.Rows[1].RoundTrip)
}

func TestTableIsTheSameUnderReorderingAndRepetition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ads []v1alpha1.Advertisement
		for i := range rapid.IntRange(0, 12).Draw(t, "ads") {
			cluster := rapid.SampledFrom([]string{"lubeck", "bremen", "kiel"}).Draw(t, "cluster")
			ads = append(ads, taken(cluster, rapid.Int64Range(0, 3).Draw(t, "sequence"), func(ad *v1alpha1.Advertisement) {
				ad.Namespace = fmt.Sprint("namespace-", i)
				if rapid.Bool().Draw(t, "refused") {
					answered("Refused", "RefusedByPolicy")(ad)
				}
				ad.Spec.TimeToLive = metav1.NewTime(now.Add(time.Duration(rapid.IntRange(-1, 2).Draw(t, "life")) * time.Minute))
			}))
		}
		shuffled := append(ads[:len(ads):len(ads)], ads...)
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)).Shuffle(len(shuffled), func(i, j int) {
			shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
		})
		if diff := cmp.Diff(NewTable(ads, now), NewTable(shuffled, now), cmpopts.IgnoreUnexported(Row{})); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestFitting(t *testing.T) {
	small := taken("small", 1, func(ad *v1alpha1.Advertisement) { ad.Spec.Availability["cpu"] = resource.MustParse("1") })
	split := taken("split", 1, func(ad *v1alpha1.Advertisement) { ad.Spec.LargestPod = resources("cpu", "1500m") })
	device := taken("device", 1, func(ad *v1alpha1.Advertisement) { ad.Spec.Availability["example.com/gpu"] = resource.MustParse("1") })
	table := NewTable([]v1alpha1.Advertisement{small, split, device}, now)

	for name, test := range map[string]struct {
		request corev1.ResourceList
		want    []string
	}{
		"nothing fits everywhere":                      {nil, []string{"device", "small", "split"}},
		"a request of zero of something does, too":     {resources("example.com/gpu", "0"), []string{"device", "small", "split"}},
		"exactly what there is fits":                   {resources("cpu", "1"), []string{"device", "small", "split"}},
		"more than the largest pod does not":           {resources("cpu", "2"), []string{"device"}},
		"a device fits where there is one":             {resources("cpu", "1", "example.com/gpu", "1"), []string{"device"}},
		"what nobody has fits nowhere":                 {resources("cpu", "5"), nil},
		"storage that nodes do not count fits nowhere": {resources("ephemeral-storage", "1Mi"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, match := range table.Match(Query{Request: test.request}) {
				if match.Fits {
					got = append(got, match.ClusterID)
				}
			}
			expectEqual(t, test.want, got)
		})
	}
}

func TestClosedOffersAreForNoNewPod(t *testing.T) {
	var ads []v1alpha1.Advertisement
	for cluster, phase := range map[string]v1alpha1.OfferPhase{
		"open": v1alpha1.OfferOpen, "plain": "", "cordoned": v1alpha1.OfferCordoned,
		"draining": v1alpha1.OfferDraining, "leaving": v1alpha1.OfferLeaving,
	} {
		ads = append(ads, taken(cluster, 1, func(ad *v1alpha1.Advertisement) { ad.Spec.Phase = phase }))
	}
	table := NewTable(ads, now)
	expectEqual(t, 5, len(table.Rows))
	var got []string
	for _, match := range table.Match(Query{}) {
		if match.Fits {
			got = append(got, match.ClusterID)
		}
	}
	expectEqual(t, []string{"open", "plain"}, got)
}

func TestPhaseOfAnOfferFollowsThePeer(t *testing.T) {
	for name, test := range map[string]struct {
		access  v1alpha1.PeerAccess
		deleted bool
		want    v1alpha1.OfferPhase
	}{
		"nothing said":        {"", false, v1alpha1.OfferOpen},
		"open":                {v1alpha1.AccessOpen, false, v1alpha1.OfferOpen},
		"cordoned":            {v1alpha1.AccessCordoned, false, v1alpha1.OfferCordoned},
		"suspended":           {v1alpha1.AccessSuspended, false, v1alpha1.OfferCordoned},
		"draining":            {v1alpha1.AccessDraining, false, v1alpha1.OfferDraining},
		"deleted, whatever":   {v1alpha1.AccessSuspended, true, v1alpha1.OfferLeaving},
		"deleted, while open": {"", true, v1alpha1.OfferLeaving},
	} {
		t.Run(name, func(t *testing.T) {
			peer := &v1alpha1.Peer{Spec: v1alpha1.PeerSpec{Access: test.access}}
			if test.deleted {
				peer.DeletionTimestamp = &metav1.Time{Time: now}
			}
			expectEqual(t, test.want, PhaseFor(peer))
		})
	}
}
