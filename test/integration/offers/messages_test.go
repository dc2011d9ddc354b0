// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestFullAndPartial: a partial message changes only quantities and times, and has no answer. A full message follows a change, and
// comes periodically without one. It has an answer.
func TestFullAndPartial(t *testing.T) {
	begin(t)
	answered := func(ad *v1alpha1.Advertisement) bool {
		ack := ad.Status.Acknowledgement
		return ack != nil && ack.Sequence >= ad.Spec.FullSequence
	}
	partial := expectPartial(t, answered)
	if now := awaitMessage(t, hamburg, "hamburg reads its own offer", answered); now.Spec.FullSequence == partial.Spec.FullSequence &&
		now.Status.Acknowledgement.Sequence > partial.Status.Acknowledgement.Sequence {
		t.Errorf("lubeck has answered a partial message: %+v", now.Status.Acknowledgement)
	}
	awaitMessage(t, hamburg, "a full message comes though nothing has changed, and is answered", func(ad *v1alpha1.Advertisement) bool {
		return ad.Spec.FullSequence > partial.Spec.FullSequence && answered(ad) && ad.Spec.Prices == nil
	})
	expectNewPrices(t, answered)
}

// expectPartial waits for a partial message, and compares it with the full one before it and with the copy of lubeck.
func expectPartial(t *testing.T, answered func(*v1alpha1.Advertisement) bool) *v1alpha1.Advertisement {
	t.Helper()
	var full *v1alpha1.Advertisement
	partial := awaitMessage(t, hamburg, "a partial message follows a full one that was answered", func(ad *v1alpha1.Advertisement) bool {
		if ad.Spec.Sequence == ad.Spec.FullSequence && answered(ad) {
			full = ad
		}
		return full != nil && ad.Spec.FullSequence == full.Spec.Sequence && ad.Spec.Sequence > full.Spec.Sequence
	})
	if !full.Spec.Timestamp.Before(&partial.Spec.Timestamp) || !full.Spec.TimeToLive.Before(&partial.Spec.TimeToLive) {
		t.Errorf("the partial message is of %v until %v, the full one of %v until %v",
			partial.Spec.Timestamp, partial.Spec.TimeToLive, full.Spec.Timestamp, full.Spec.TimeToLive)
	}
	if diff := cmp.Diff(full.Spec, partial.Spec, cmpopts.IgnoreFields(v1alpha1.AdvertisementSpec{},
		"Sequence", "Timestamp", "TimeToLive", "Availability", "LargestPod")); diff != "" {
		t.Errorf("terms differ between the full message and the partial one: %s", diff)
	}
	framework.Eventually(t, "the copy of lubeck equals the offer of hamburg", func(ctx context.Context) error { return copyEquals(ctx, lubeck, partial.Spec.Sequence) })
	return partial
}

// copyEquals checks that the copy of the cluster equals the offer of hamburg, and is no older than that message.
func copyEquals(ctx context.Context, c *framework.Cluster, sequence int64) error {
	offer, err := hamburg.OfferTo(ctx, c)
	if err != nil {
		return err
	}
	held, err := c.CopyOf(ctx, hamburg)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(offer.Spec, held.Spec); diff != "" || held.Spec.Sequence < sequence {
		return fmt.Errorf("the copy has sequence %d: %s", held.Spec.Sequence, diff)
	}
	return nil
}

func expectNewPrices(t *testing.T, answered func(*v1alpha1.Advertisement) bool) {
	t.Helper()
	hamburg.SetPrices(t, lubeck, "0.02")
	price := resource.MustParse("0.02")
	awaitMessage(t, hamburg, "a full message has the new prices at once", func(ad *v1alpha1.Advertisement) bool {
		return ad.Spec.Prices != nil && price.Cmp(ad.Spec.Prices.PerHour[corev1.ResourceCPU]) == 0 && answered(ad)
	})
	// The consumer stores an offer before it answers.
	if table, err := lubeck.OfferTable(t.Context()); err != nil || table["hamburg"]["PRICE"] != "0.02 EUR" || table["hamburg"]["PRICES"] != "EUR 0.02/cpu" {
		t.Errorf("the table does not show the new price: %v (%v)", table["hamburg"], err)
	}
}

// awaitMessage waits until the offer to lubeck meets the condition.
func awaitMessage(t *testing.T, c *framework.Cluster, condition string, met func(*v1alpha1.Advertisement) bool) *v1alpha1.Advertisement {
	t.Helper()
	var found *v1alpha1.Advertisement
	framework.Eventually(t, condition, func(ctx context.Context) error {
		ad, err := c.OfferTo(ctx, lubeck)
		if err != nil {
			return err
		}
		if !met(ad) {
			return fmt.Errorf("sequence %d, full %d, prices %v, answer %+v",
				ad.Spec.Sequence, ad.Spec.FullSequence, ad.Spec.Prices, ad.Status.Acknowledgement)
		}
		found = ad
		return nil
	})
	return found
}

// TestLoopRefused: a consumer refuses an aggregated offer that contains its own. The manager of hamburg is stopped, so that it does
// not replace the offer.
func TestLoopRefused(t *testing.T) {
	begin(t)
	ctx := t.Context()
	hamburg.PauseServer(t, "manager")
	framework.Eventually(t, "the offer of hamburg contains one that came from lubeck", func(ctx context.Context) error {
		ad, err := hamburg.OfferTo(ctx, lubeck)
		if err != nil {
			return err
		}
		changed := ad.DeepCopy()
		changed.Spec.Sequence += 1000
		changed.Spec.FullSequence = changed.Spec.Sequence
		changed.Spec.Timestamp = metav1.Now()
		changed.Spec.TimeToLive = metav1.NewTime(time.Now().Add(time.Minute))
		changed.Spec.Flags = map[string]v1alpha1.Text{v1alpha1.FlagAggregated: "true"}
		changed.Spec.Nested = []v1alpha1.NestedOffer{{ClusterID: "visby", Path: []string{"lubeck"}, Availability: ad.Spec.Availability}}
		return hamburg.Patch(ctx, changed, client.MergeFromWithOptions(ad, client.MergeFromWithOptimisticLock{}))
	})
	hamburg.AwaitAnswer(t, lubeck, v1alpha1.AcknowledgementRefused, v1alpha1.ReasonLoop)
	lubeck.AwaitClosed(t, hamburg)
	held, err := lubeck.CopyOf(ctx, hamburg)
	if err != nil || len(held.Spec.Nested) > 0 || meta.IsStatusConditionTrue(held.Status.Conditions, v1alpha1.ConditionAccepted) {
		t.Errorf("the copy of lubeck is %+v (%v)", held, err)
	}
}

// TestTableShowsMeasurements: kubectl hanse table shows what lubeck has measured of each provider, beside what the provider offers.
func TestTableShowsMeasurements(t *testing.T) {
	begin(t)
	for _, provider := range []*framework.Cluster{hamburg, bremen} {
		setImages(t, provider, "hanse.dev/test/echo:v1", 10<<20)
	}
	for _, provider := range []*framework.Cluster{hamburg, bremen} {
		framework.Eventually(t, "the table shows the measurements and the offer of "+provider.Name, func(ctx context.Context) error {
			table, err := lubeck.OfferTable(ctx)
			if err != nil {
				return err
			}
			held, err := lubeck.CopyOf(ctx, provider)
			if err != nil {
				return err
			}
			for column, pattern := range map[string]string{
				"LATENCY": `^[1-9]\d*(\.\d+)?(µs|ms|s)$`, "DEVIATION": `^\d+(\.\d+)?(µs|ms|s)$`, "BANDWIDTH": `^[1-9]\d*[kMG]?B/s$`,
				"LAST HELLO": `^\d+s ago$`, "LEFT": `^[1-9]`, "ANSWER": `^Accepted$`, "PRICE": "^free$", "PRICES": "^free$",
				"CLUSTER ID": "^" + provider.Name + "$", "PODS": "^" + held.Spec.Availability.Pods().String() + "$",
				"IMAGES": `hanse\.dev/test`,
			} {
				if cell := table[provider.Name][column]; !regexp.MustCompile(pattern).MatchString(cell) {
					return fmt.Errorf("%s is %q, want %s", column, cell, pattern)
				}
			}
			return nil
		})
	}
}

// setImages puts an image of so many bytes into the status of the cluster's own nodes until the end of the test.
func setImages(t *testing.T, c *framework.Cluster, name string, size int64) {
	t.Helper()
	nodes := c.NodeNames(t)
	patch := func(ctx context.Context, images string) {
		for _, node := range nodes {
			change := client.RawPatch(types.MergePatchType, []byte(`{"status":{"images":`+images+`}}`))
			if err := c.Status().Patch(ctx, &corev1.Node{ObjectMeta: framework.Named("", node)}, change); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(func() { patch(context.Background(), "null") })
	patch(t.Context(), fmt.Sprintf(`[{"names":[%q],"sizeBytes":%d}]`, name, size))
}
