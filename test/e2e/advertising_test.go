package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
	first := hamburg.awaitMessage(t, "there is an answer to a full message", answered)
	partial := hamburg.awaitMessage(t, "a partial message follows", func(ad *v1alpha1.Advertisement) bool {
		return ad.Spec.Sequence > max(first.Spec.Sequence, ad.Spec.FullSequence)
	})
	if partial.Spec.Timestamp.Before(&first.Spec.Timestamp) {
		t.Errorf("the hello of %v is older than the message before, of %v", partial.Spec.Timestamp, first.Spec.Timestamp)
	}
	eventually(t, "lubeck has taken the partial message in", func(ctx context.Context) error {
		held, err := lubeck.copyFrom(ctx, hamburg)
		if err == nil && held.Spec.Sequence < partial.Spec.Sequence {
			err = fmt.Errorf("it holds sequence %d", held.Spec.Sequence)
		}
		return err
	})
	if now := hamburg.awaitMessage(t, "hamburg reads its own offer", answered); now.Spec.FullSequence == partial.Spec.FullSequence &&
		now.Status.Acknowledgement.Sequence > partial.Status.Acknowledgement.Sequence {
		t.Errorf("lubeck has answered a partial message: %+v", now.Status.Acknowledgement)
	}
	hamburg.awaitMessage(t, "a full message comes though nothing has changed, and is answered", func(ad *v1alpha1.Advertisement) bool {
		return ad.Spec.FullSequence > partial.Spec.FullSequence && answered(ad) && ad.Spec.Prices == nil
	})
	expectNewPrices(t, answered)
}

func expectNewPrices(t *testing.T, answered func(*v1alpha1.Advertisement) bool) {
	t.Helper()
	hamburg.prices(t, "0.02")
	price := resource.MustParse("0.02")
	hamburg.awaitMessage(t, "new prices are told in a full message at once", func(ad *v1alpha1.Advertisement) bool {
		return ad.Spec.Prices != nil && price.Cmp(ad.Spec.Prices.PerHour[corev1.ResourceCPU]) == 0 && answered(ad)
	})
	out, err := lubeck.Hanse(t.Context(), "table")
	if err != nil || !strings.Contains(out, "hamburg") || !strings.Contains(out, "EUR") {
		t.Errorf("kubectl hanse table: %v\n%s", err, out)
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
	both := lubeck.placed(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferSpread}, anywhere)
	for _, provider := range []string{"hamburg", "bremen"} {
		lubeck.landsOn(t, both, v1alpha1.VirtualNodeName(provider))
	}
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

func TestGuaranteeIsLocked(t *testing.T) {
	market(t)
	offered := bremen.awaitVirtual(t, hamburg, "has more than a core", func(node *corev1.Node) bool {
		return isOpen(node) && node.Status.Allocatable.Cpu().MilliValue() > 1000
	}).Status.Allocatable.Cpu().DeepCopy()
	guarantee := func(list corev1.ResourceList) {
		t.Helper()
		eventually(t, "hamburg's Peer is changed", func(ctx context.Context) error {
			peer, err := hamburg.peer(ctx, "lubeck")
			if err != nil {
				return err
			}
			changed := peer.DeepCopy()
			changed.Spec.Guarantee = list
			return hamburg.Patch(ctx, changed, client.MergeFrom(peer))
		})
	}
	t.Cleanup(func() {
		peer, err := hamburg.peer(context.Background(), "lubeck")
		if err == nil {
			changed := peer.DeepCopy()
			changed.Spec.Guarantee = nil
			err = hamburg.Patch(context.Background(), changed, client.MergeFrom(peer))
		}
		if err != nil {
			t.Error(err)
		}
	})
	guarantee(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")})
	most := offered.DeepCopy()
	most.Sub(resource.MustParse("950m"))
	bremen.awaitVirtual(t, hamburg, "lacks the guaranteed core", func(node *corev1.Node) bool { return node.Status.Allocatable.Cpu().Cmp(most) <= 0 })
	eventually(t, "lubeck is guaranteed a core and offered no less", func(ctx context.Context) error {
		held, err := lubeck.copyFrom(ctx, hamburg)
		if err == nil && (held.Spec.Guarantee.Cpu().String() != "1" || held.Spec.Availability.Cpu().MilliValue() < 1000) {
			err = fmt.Errorf("it is guaranteed %s cores and offered %s", held.Spec.Guarantee.Cpu(), held.Spec.Availability.Cpu())
		}
		return err
	})
	guarantee(nil)
	least := offered.DeepCopy()
	least.Sub(resource.MustParse("50m"))
	bremen.awaitVirtual(t, hamburg, "has the core again", func(node *corev1.Node) bool { return node.Status.Allocatable.Cpu().Cmp(least) >= 0 })
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
	eventually(t, "the table shows latency and bandwidth of both providers", func(ctx context.Context) error {
		out, err := lubeck.Hanse(ctx, "table", "-o", "json")
		if err != nil {
			return err
		}
		var table struct {
			Rows []struct {
				RoundTripTime string          `json:"roundTripTime"`
				Bandwidth     json.RawMessage `json:"bandwidth"`
			} `json:"rows"`
		}
		if err := json.Unmarshal([]byte(out), &table); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		measured := 0
		for _, row := range table.Rows {
			if row.RoundTripTime != "" && len(row.Bandwidth) > 0 {
				measured++
			}
		}
		if measured < 2 {
			return fmt.Errorf("%d rows have both: %s", measured, out)
		}
		return nil
	})
}
