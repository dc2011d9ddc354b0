package e2e

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
)

// Partial messages change nothing but numbers and times, and are not answered. A full one comes on change, and from time
// to time without any; it is answered.
func TestFullAndPartial(t *testing.T) {
	market(t)
	answered := func(ad *v1alpha1.Advertisement) bool {
		ack := ad.Status.Acknowledgement
		return ack != nil && ack.Sequence >= ad.Spec.FullSequence
	}
	partial := expectPartial(t, answered)
	if now := hamburg.awaitMessage(t, "hamburg reads its own offer", answered); now.Spec.FullSequence == partial.Spec.FullSequence &&
		now.Status.Acknowledgement.Sequence > partial.Status.Acknowledgement.Sequence {
		t.Errorf("lubeck has answered a partial message: %+v", now.Status.Acknowledgement)
	}
	hamburg.awaitMessage(t, "a full message comes though nothing has changed, and is answered", func(ad *v1alpha1.Advertisement) bool {
		return ad.Spec.FullSequence > partial.Spec.FullSequence && answered(ad) && ad.Spec.Prices == nil
	})
	expectNewPrices(t, answered)
}

// expectPartial waits for a partial message, and compares it with the full one before it and with what lubeck takes in.
func expectPartial(t *testing.T, answered func(*v1alpha1.Advertisement) bool) *v1alpha1.Advertisement {
	t.Helper()
	var full *v1alpha1.Advertisement
	partial := hamburg.awaitMessage(t, "a partial message follows a full one that was answered", func(ad *v1alpha1.Advertisement) bool {
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
	eventually(t, "lubeck holds word for word what hamburg says", func(ctx context.Context) error { return lubeck.holdsOffer(ctx, partial.Spec.Sequence) })
	return partial
}

// holdsOffer checks that what the cluster has taken in is what hamburg says to it now, and is no older than that message.
func (c *cluster) holdsOffer(ctx context.Context, sequence int64) error {
	said, err := hamburg.offerFor(ctx, c)
	if err != nil {
		return err
	}
	held, err := c.copyFrom(ctx, hamburg)
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
	hamburg.prices(t, "0.02")
	price := resource.MustParse("0.02")
	hamburg.awaitMessage(t, "new prices are told in a full message at once", func(ad *v1alpha1.Advertisement) bool {
		return ad.Spec.Prices != nil && price.Cmp(ad.Spec.Prices.PerHour[corev1.ResourceCPU]) == 0 && answered(ad)
	})
	// Whoever answered has stored what it answered.
	if table, err := lubeck.table(t.Context()); err != nil || table["hamburg"]["PRICE"] != "0.02 EUR" || table["hamburg"]["PRICES"] != "EUR 0.02/cpu" {
		t.Errorf("the table does not show the new price: %v (%v)", table["hamburg"], err)
	}
}

// awaitMessage waits for what the cluster tells lubeck.
func (c *cluster) awaitMessage(t *testing.T, what string, is func(*v1alpha1.Advertisement) bool) *v1alpha1.Advertisement {
	t.Helper()
	var found *v1alpha1.Advertisement
	eventually(t, what, func(ctx context.Context) error {
		ad, err := c.offerFor(ctx, lubeck)
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
	ctx := market(t)
	ns := lubeck.placed(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Exclude: []string{"bremen"}}, excludes("bremen"))
	pod := lubeck.landsOn(t, ns, "hanse-hamburg")
	before := hamburg.mustRemotePod(t, pod)

	for _, provider := range []string{"hamburg", "bremen"} {
		mustTestbed(t, "cut", "lubeck", provider)
		t.Cleanup(func() { mustTestbed(t, "heal", "lubeck", provider) })
	}
	eventually(t, "the node without pods has gone", func(ctx context.Context) error {
		return lubeck.isGone(ctx, &corev1.Node{ObjectMeta: named("hanse-bremen")})
	})
	lubeck.awaitVirtual(t, hamburg, "is closed and stays", func(node *corev1.Node) bool { return !isOpen(node) })
	eventually(t, "the table has neither, and says why", func(ctx context.Context) error { return lubeck.offersExpired(ctx, "hamburg", "bremen") })
	if now, err := lubeck.pod(ctx, ns, pod.Name); err != nil || now.UID != pod.UID || !now.DeletionTimestamp.IsZero() {
		t.Errorf("its pod is not what it was: %v %v", now, err)
	}

	for _, provider := range []string{"hamburg", "bremen"} {
		mustTestbed(t, "heal", "lubeck", provider)
	}
	for _, provider := range []*cluster{hamburg, bremen} {
		lubeck.awaitOpen(t, provider)
	}
	lubeck.awaitRunning(t, pod)
	if after := hamburg.mustRemotePod(t, pod); after.UID != before.UID {
		t.Error("the pod at hamburg is another one")
	}
	eventually(t, "the table has both again", func(ctx context.Context) error {
		table, err := lubeck.table(ctx)
		if err == nil && (table["hamburg"]["ANSWER"] != "Accepted" || table["bremen"]["ANSWER"] != "Accepted") {
			err = fmt.Errorf("it has %v", table)
		}
		return err
	})
	lubeck.expectPodsAt(t, []*cluster{hamburg, bremen})
}

// offersExpired checks that the table has no row for the peers, and says that they were not heard of.
func (c *cluster) offersExpired(ctx context.Context, peers ...string) error {
	table, err := c.table(ctx)
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

// anywhere is content with every decision.
func anywhere(*v1alpha1.PlacementStatus) error { return nil }

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
	ctx := market(t)
	idle := lubeck.awaitOpen(t, hamburg).Status.Allocatable.Cpu().DeepCopy()
	ns := hamburg.namespace(t)
	busy := shellPod(ns, "busy", forever)
	busy.Spec.Containers[0].Resources = requests("700m", "16Mi")
	busy.Spec.InitContainers = []corev1.Container{{ // a sidecar counts too
		Name: "sidecar", Image: busybox, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		Command: []string{"/bin/sh", "-c", forever}, Resources: requests("200m", "16Mi"),
	}}
	hamburg.create(t, busy)
	less := idle.DeepCopy()
	less.Sub(resource.MustParse("850m"))
	lubeck.awaitVirtual(t, hamburg, "shows 900m less", func(node *corev1.Node) bool { return node.Status.Allocatable.Cpu().Cmp(less) <= 0 })
	if err := hamburg.Delete(ctx, busy); err != nil {
		t.Fatal(err)
	}
	almost := idle.DeepCopy()
	almost.Sub(resource.MustParse("50m"))
	lubeck.awaitVirtual(t, hamburg, "shows all again", func(node *corev1.Node) bool { return node.Status.Allocatable.Cpu().Cmp(almost) >= 0 })

	if _, err := hamburg.Kubectl(ctx, "cordon", "hamburg-worker-1"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := hamburg.Kubectl(context.Background(), "uncordon", "hamburg-worker-1"); err != nil {
			t.Error(err)
		}
	})
	lubeck.awaitVirtual(t, hamburg, "has nothing to spare on a cordoned node", func(node *corev1.Node) bool {
		return node.Status.Allocatable.Cpu().IsZero()
	})
	if _, err := hamburg.Kubectl(ctx, "uncordon", "hamburg-worker-1"); err != nil {
		t.Fatal(err)
	}
	for _, consumer := range []*cluster{lubeck, bremen} {
		consumer.awaitVirtual(t, hamburg, "has room again", func(node *corev1.Node) bool {
			return node.Status.Allocatable.Cpu().Cmp(almost) >= 0
		})
	}
}

func TestDifferentOffersToDifferentPeers(t *testing.T) {
	market(t)
	hamburg.policy(t, "outgoing", `package hanse.outgoing

patch.availability.cpu := 1 if input.peer.name == "bremen"

patch.labels["example.org/tier"] := "gold" if input.peer.name == "lubeck"
`)
	bremen.awaitVirtual(t, hamburg, "has one core", func(node *corev1.Node) bool { return node.Status.Allocatable.Cpu().String() == "1" })
	lubeck.awaitVirtual(t, hamburg, "is of tier gold and has more than a core", func(node *corev1.Node) bool {
		return node.Labels["example.org/tier"] == "gold" && node.Status.Allocatable.Cpu().MilliValue() > 1000
	})
}

// An aggregated offer that contains the receiver's own is refused. hamburg's manager must not write a better one
// meanwhile.
func TestLoopRefused(t *testing.T) {
	ctx := market(t)
	hamburg.pause(t, "manager")
	eventually(t, "hamburg says something that has been at lubeck before", func(ctx context.Context) error {
		ad, err := hamburg.offerFor(ctx, lubeck)
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
	hamburg.awaitAnswer(t, lubeck, v1alpha1.AcknowledgementRefused, v1alpha1.ReasonLoop)
	lubeck.awaitVirtual(t, hamburg, "is closed", func(node *corev1.Node) bool { return !isOpen(node) })
	held, err := lubeck.copyFrom(ctx, hamburg)
	if err != nil || len(held.Spec.Nested) > 0 || meta.IsStatusConditionTrue(held.Status.Conditions, v1alpha1.ConditionAccepted) {
		t.Errorf("lubeck holds %+v (%v)", held, err)
	}
}

// pause scales one of Hanse's Deployments to nothing, until the story's end.
func (c *cluster) pause(t *testing.T, component string) {
	t.Helper()
	c.scale(t.Context(), t, component, "0")
	t.Cleanup(func() { c.scale(context.Background(), t, component, "1") })
	eventually(t, "hanse "+component+" of "+c.Name+" has ended", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		err := c.List(ctx, pods, client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/component": component})
		if err == nil && len(pods.Items) > 0 {
			err = errors.New(summary(pods.Items))
		}
		return err
	})
}

// scale sets how many pods one of Hanse's Deployments has.
func (c *cluster) scale(ctx context.Context, t *testing.T, component, replicas string) {
	t.Helper()
	if _, err := c.Kubectl(ctx, "scale", "-n", v1alpha1.SystemNamespace, "deployment/hanse-"+component, "--replicas", replicas); err != nil {
		t.Error(err)
	}
}

// The table shows what was measured of the link to each provider, and not only what these say.
func TestTableShowsMeasurements(t *testing.T) {
	market(t)
	for _, provider := range []*cluster{hamburg, bremen} {
		eventually(t, "the table shows the measurements and the offer of "+provider.Name, func(ctx context.Context) error {
			table, err := lubeck.table(ctx)
			if err != nil {
				return err
			}
			held, err := lubeck.copyFrom(ctx, provider)
			if err != nil {
				return err
			}
			row := table[provider.Name]
			for column, pattern := range map[string]string{
				"LATENCY": `^[1-9]\d*(\.\d+)?(µs|ms|s)$`, "DEVIATION": `^\d+(\.\d+)?(µs|ms|s)$`, "BANDWIDTH": `^[1-9]\d*[kMG]?B/s$`,
				"LAST HELLO": `^\d+s ago$`, "LEFT": `^[1-9]`, "ANSWER": `^Accepted$`, "PRICE": "^free$", "PRICES": "^free$",
				"CLUSTER ID": "^" + provider.Name + "$", "PODS": "^" + held.Spec.Availability.Pods().String() + "$",
				"IMAGES": regexp.QuoteMeta(echoImage[:strings.LastIndex(echoImage, "/")]),
			} {
				if cell := row[column]; !regexp.MustCompile(pattern).MatchString(cell) {
					return fmt.Errorf("%s is %q, want %s", column, cell, pattern)
				}
			}
			return nil
		})
	}
}

// table is what kubectl hanse table prints for people: for each peer what is in each column.
func (c *cluster) table(ctx context.Context) (map[string]map[string]string, error) {
	out, err := c.Hanse(ctx, "table", "-o", "wide")
	if err != nil {
		return nil, err
	}
	apart := regexp.MustCompile(` {2,}`)
	header, body, _ := strings.Cut(out, "\n")
	columns := apart.Split(header, -1)
	table := map[string]map[string]string{}
	for line := range strings.Lines(body) {
		cells := apart.Split(strings.TrimSpace(line), -1)
		if strings.HasPrefix(line, " ") || len(cells) != len(columns) {
			continue // what there is to say about the rows
		}
		row := map[string]string{}
		for i, column := range columns {
			row[column] = cells[i]
		}
		table[cells[0]] = row
	}
	return table, nil
}
