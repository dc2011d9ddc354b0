// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// Partial messages change nothing but numbers and times, and are not answered. A full one comes on change, and from time
// to time without any; it is answered.
func TestFullAndPartial(t *testing.T) {
	framework.Begin(t)
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

// expectPartial waits for a partial message, and compares it with the full one before it and with what lubeck takes in.
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
	framework.Eventually(t, "lubeck holds word for word what hamburg says", func(ctx context.Context) error { return holdsOffer(ctx, lubeck, partial.Spec.Sequence) })
	return partial
}

// holdsOffer checks that what the cluster has taken in is what hamburg says to it now, and is no older than that message.
func holdsOffer(ctx context.Context, c *framework.Cluster, sequence int64) error {
	said, err := hamburg.OfferFor(ctx, c)
	if err != nil {
		return err
	}
	held, err := c.ReceivedOffer(ctx, hamburg)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(said.Spec, held.Spec); diff != "" || held.Spec.Sequence < sequence {
		return fmt.Errorf("it holds sequence %d: %s", held.Spec.Sequence, diff)
	}
	return nil
}

func expectNewPrices(t *testing.T, answered func(*v1alpha1.Advertisement) bool) {
	t.Helper()
	hamburg.SetPrices(t, "0.02")
	price := resource.MustParse("0.02")
	awaitMessage(t, hamburg, "new prices are told in a full message at once", func(ad *v1alpha1.Advertisement) bool {
		return ad.Spec.Prices != nil && price.Cmp(ad.Spec.Prices.PerHour[corev1.ResourceCPU]) == 0 && answered(ad)
	})
	// Whoever answered has stored what it answered.
	if table, err := lubeck.OfferTable(t.Context()); err != nil || table["hamburg"]["PRICE"] != "0.02 EUR" || table["hamburg"]["PRICES"] != "EUR 0.02/cpu" {
		t.Errorf("the table does not show the new price: %v (%v)", table["hamburg"], err)
	}
}

// awaitMessage waits for what the cluster tells lubeck.
func awaitMessage(t *testing.T, c *framework.Cluster, what string, is func(*v1alpha1.Advertisement) bool) *v1alpha1.Advertisement {
	t.Helper()
	var found *v1alpha1.Advertisement
	framework.Eventually(t, what, func(ctx context.Context) error {
		ad, err := c.OfferFor(ctx, lubeck)
		if err != nil {
			return err
		}
		if !is(ad) {
			return fmt.Errorf("sequence %d, full %d, prices %v, answer %+v",
				ad.Spec.Sequence, ad.Spec.FullSequence, ad.Spec.Prices, ad.Status.Acknowledgement)
		}
		found = ad
		return nil
	})
	return found
}

func TestHelloExpiry(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreatePlacedNamespace(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Exclude: []string{"bremen"}}, excludes("bremen"))
	pod := lubeck.ExpectPodOn(t, ns, "hanse-hamburg")
	before := hamburg.MustGetRemotePod(t, pod)

	for _, provider := range []string{"hamburg", "bremen"} {
		framework.MustTestbed(t, "cut", "lubeck", provider)
		t.Cleanup(func() { framework.MustTestbed(t, "heal", "lubeck", provider) })
	}
	framework.Eventually(t, "the node without pods has gone", func(ctx context.Context) error {
		return lubeck.CheckGone(ctx, &corev1.Node{ObjectMeta: framework.ObjectMeta("hanse-bremen")})
	})
	lubeck.AwaitVirtualNode(t, hamburg, "is closed and stays", func(node *corev1.Node) bool { return !framework.IsOpen(node) })
	framework.Eventually(t, "the table has neither, and says why", func(ctx context.Context) error { return offersExpired(ctx, lubeck, "hamburg", "bremen") })
	if now, err := lubeck.GetPod(ctx, ns, pod.Name); err != nil || now.UID != pod.UID || !now.DeletionTimestamp.IsZero() {
		t.Errorf("its pod is not what it was: %v %v", now, err)
	}

	for _, provider := range []string{"hamburg", "bremen"} {
		framework.MustTestbed(t, "heal", "lubeck", provider)
	}
	for _, provider := range []*framework.Cluster{hamburg, bremen} {
		lubeck.AwaitOpen(t, provider)
	}
	lubeck.AwaitRunning(t, pod)
	if after := hamburg.MustGetRemotePod(t, pod); after.UID != before.UID {
		t.Error("the pod at hamburg is another one")
	}
	framework.Eventually(t, "the table has both again", func(ctx context.Context) error {
		table, err := lubeck.OfferTable(ctx)
		if err == nil && (table["hamburg"]["ANSWER"] != "Accepted" || table["bremen"]["ANSWER"] != "Accepted") {
			err = fmt.Errorf("it has %v", table)
		}
		return err
	})
	lubeck.ExpectPodsAt(t, []*framework.Cluster{hamburg, bremen})
}

// offersExpired checks that the table has no row for the peers, and says that they were not heard of.
func offersExpired(ctx context.Context, c *framework.Cluster, peers ...string) error {
	table, err := c.OfferTable(ctx)
	if err != nil {
		return err
	}
	out, err := c.Hanse(ctx, "table")
	for _, peer := range peers {
		if row, has := table[peer]; has || err != nil || !strings.Contains(out, peer+": no offer of it is in force: "+v1alpha1.ReasonExpired) {
			return fmt.Errorf("%s has the row %v (%w):\n%s", peer, row, err, out)
		}
	}
	return nil
}

// excludes checks that no pod may run at the peers.
func excludes(peers ...string) func(*v1alpha1.PlacementStatus) error {
	return func(decided *v1alpha1.PlacementStatus) error {
		for _, peer := range peers {
			found := false
			for _, node := range decided.Nodes {
				found = found || node.Name == v1alpha1.VirtualNodeName(peer) && node.Excluded != ""
			}
			if !found {
				return errors.New(peer + " is not excluded")
			}
		}
		return nil
	}
}

func TestAvailabilityFollowsLoad(t *testing.T) {
	ctx := framework.Begin(t)
	idle := lubeck.AwaitOpen(t, hamburg).Status.Allocatable.Cpu().DeepCopy()
	ns := hamburg.CreateNamespace(t)
	busy := framework.NewShellPod(ns, "busy", framework.RunForever)
	busy.Spec.Containers[0].Resources = framework.ResourceRequests("700m", "16Mi")
	busy.Spec.InitContainers = []corev1.Container{{ // a sidecar counts too
		Name: "sidecar", Image: framework.BusyboxImage, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		Command: []string{"/bin/sh", "-c", framework.RunForever}, Resources: framework.ResourceRequests("200m", "16Mi"),
	}}
	hamburg.MustCreate(t, busy)
	less := idle.DeepCopy()
	less.Sub(resource.MustParse("850m"))
	lubeck.AwaitVirtualNode(t, hamburg, "shows 900m less", func(node *corev1.Node) bool { return node.Status.Allocatable.Cpu().Cmp(less) <= 0 })
	if err := hamburg.Delete(ctx, busy); err != nil {
		t.Fatal(err)
	}
	almost := idle.DeepCopy()
	almost.Sub(resource.MustParse("50m"))
	lubeck.AwaitVirtualNode(t, hamburg, "shows all again", func(node *corev1.Node) bool { return node.Status.Allocatable.Cpu().Cmp(almost) >= 0 })

	if _, err := hamburg.Kubectl(ctx, "cordon", "hamburg-worker-1"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := hamburg.Kubectl(context.Background(), "uncordon", "hamburg-worker-1"); err != nil {
			t.Error(err)
		}
	})
	lubeck.AwaitVirtualNode(t, hamburg, "has nothing to spare on a cordoned node", func(node *corev1.Node) bool {
		return node.Status.Allocatable.Cpu().IsZero()
	})
	if _, err := hamburg.Kubectl(ctx, "uncordon", "hamburg-worker-1"); err != nil {
		t.Fatal(err)
	}
	for _, consumer := range []*framework.Cluster{lubeck, bremen} {
		consumer.AwaitVirtualNode(t, hamburg, "has room again", func(node *corev1.Node) bool {
			return node.Status.Allocatable.Cpu().Cmp(almost) >= 0
		})
	}
}

// An aggregated offer that contains the receiver's own is refused. hamburg's manager must not write a better one
// meanwhile.
func TestLoopRefused(t *testing.T) {
	ctx := framework.Begin(t)
	hamburg.PauseHanse(t, "manager")
	framework.Eventually(t, "hamburg says something that has been at lubeck before", func(ctx context.Context) error {
		ad, err := hamburg.OfferFor(ctx, lubeck)
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
	awaitAnswer(t, hamburg, lubeck, v1alpha1.AcknowledgementRefused, v1alpha1.ReasonLoop)
	lubeck.AwaitVirtualNode(t, hamburg, "is closed", func(node *corev1.Node) bool { return !framework.IsOpen(node) })
	held, err := lubeck.ReceivedOffer(ctx, hamburg)
	if err != nil || len(held.Spec.Nested) > 0 || meta.IsStatusConditionTrue(held.Status.Conditions, v1alpha1.ConditionAccepted) {
		t.Errorf("lubeck holds %+v (%v)", held, err)
	}
}

// The table shows what was measured of the link to each provider, and not only what these say.
func TestTableShowsMeasurements(t *testing.T) {
	framework.Begin(t)
	for _, provider := range []*framework.Cluster{hamburg, bremen} {
		framework.Eventually(t, "the table shows the measurements and the offer of "+provider.Name, func(ctx context.Context) error {
			table, err := lubeck.OfferTable(ctx)
			if err != nil {
				return err
			}
			held, err := lubeck.ReceivedOffer(ctx, provider)
			if err != nil {
				return err
			}
			row := table[provider.Name]
			for column, pattern := range map[string]string{
				"LATENCY": `^[1-9]\d*(\.\d+)?(µs|ms|s)$`, "DEVIATION": `^\d+(\.\d+)?(µs|ms|s)$`, "BANDWIDTH": `^[1-9]\d*[kMG]?B/s$`,
				"LAST HELLO": `^\d+s ago$`, "LEFT": `^[1-9]`, "ANSWER": `^Accepted$`, "PRICE": "^free$", "PRICES": "^free$",
				"CLUSTER ID": "^" + provider.Name + "$", "PODS": "^" + held.Spec.Availability.Pods().String() + "$",
				"IMAGES": regexp.QuoteMeta(framework.EchoImage[:strings.LastIndex(framework.EchoImage, "/")]),
			} {
				if cell := row[column]; !regexp.MustCompile(pattern).MatchString(cell) {
					return fmt.Errorf("%s is %q, want %s", column, cell, pattern)
				}
			}
			return nil
		})
	}
}
