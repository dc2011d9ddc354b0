// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

func TestGuaranteeIsLocked(t *testing.T) {
	framework.Begin(t)
	offered := bremen.AwaitVirtualNode(t, hamburg, "has more than a core", func(node *corev1.Node) bool {
		return framework.IsOpen(node) && node.Status.Allocatable.Cpu().MilliValue() > 1000
	}).Status.Allocatable.Cpu().DeepCopy()
	guarantee := guarantees(t, hamburg, lubeck)
	guarantee(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")})
	most := offered.DeepCopy()
	most.Sub(resource.MustParse("950m"))
	bremen.AwaitVirtualNode(t, hamburg, "lacks the guaranteed core", func(node *corev1.Node) bool { return node.Status.Allocatable.Cpu().Cmp(most) <= 0 })
	framework.Eventually(t, "lubeck is guaranteed a core and offered no less", func(ctx context.Context) error {
		held, err := lubeck.ReceivedOffer(ctx, hamburg)
		if err == nil && (held.Spec.Guarantee.Cpu().String() != "1" || held.Spec.Availability.Cpu().MilliValue() < 1000) {
			err = fmt.Errorf("it is guaranteed %s cores and offered %s", held.Spec.Guarantee.Cpu(), held.Spec.Availability.Cpu())
		}
		return err
	})
	keepsFromAGuest(t, hamburg)
	usesWhatItIsGuaranteed(t, lubeck)
	guarantee(nil)
	least := offered.DeepCopy()
	least.Sub(resource.MustParse("50m"))
	bremen.AwaitVirtualNode(t, hamburg, "has the core again", func(node *corev1.Node) bool { return node.Status.Allocatable.Cpu().Cmp(least) >= 0 })
}

// guarantees returns what sets the guarantee of the consumer. When the story ends there is none.
func guarantees(t *testing.T, c *framework.Cluster, consumer *framework.Cluster) func(corev1.ResourceList) {
	t.Helper()
	set := func(list corev1.ResourceList) {
		t.Helper()
		framework.EventuallyInCleanup(t, c.Name+"'s Peer is changed", func(ctx context.Context) error {
			peer, err := c.GetPeer(ctx, consumer.Name)
			if err != nil {
				return err
			}
			changed := peer.DeepCopy()
			changed.Spec.Guarantee = list
			return c.Patch(ctx, changed, client.MergeFrom(peer))
		})
	}
	t.Cleanup(func() { set(nil) })
	return set
}

// What one consumer is guaranteed nobody else gets, be it by a Request or by a pod, also while it lies idle. It is there when the consumer
// asks for it.
func TestGuaranteeHolds(t *testing.T) {
	ctx := framework.Begin(t)
	const slip, all, guaranteed = corev1.ResourceName("example.com/slips"), 10, 6
	hamburg.AddExtendedResource(t, string(slip), all)
	other := hamburg.PeerWithGuest(t, "visby-unguaranteed")
	t.Cleanup(func() { hamburg.ForgetGuests(t, []*framework.Guest{other}) })
	twin := other.CreateTwin(t, "shop")
	other.AwaitOffered(t, slip, all)
	guarantees(t, hamburg, lubeck)(corev1.ResourceList{slip: *resource.NewQuantity(guaranteed, resource.DecimalSI)})
	other.AwaitOffered(t, slip, all-guaranteed)
	other.MustCreate(t, framework.NewReservedShadowPod(t, twin, "grasps", framework.ResourceUnits(slip, all-guaranteed+1), ""), other.NewRequest("grasps", slip, all-guaranteed+1))
	other.AwaitRequestPhase(t, "grasps", v1alpha1.RequestRefused, v1alpha1.ReasonNoRoom)
	other.AwaitPodRefused(t, twin, "grasps")
	other.MustCreate(t, other.NewRequest("fits", slip, all-guaranteed))
	other.AwaitRequestPhase(t, "fits", v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)

	app := framework.NewApplication(lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote), &v1alpha1.ApplicationPlacement{Clusters: []string{"hamburg"}}, "10m", "web")
	app.Spec.Components[0].Resources[slip] = *resource.NewQuantity(guaranteed, resource.DecimalSI)
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	request, err := hamburg.RequestOf(ctx, app, lubeck)
	if got := request.Locked()[slip]; err != nil || got.Value() != guaranteed {
		t.Errorf("hamburg reserves %s (%v)", got.String(), err)
	}
	lubeck.DeleteAndWait(t, app)
}

// keepsFromAGuest has a consumer that obeys no scheduler ask for what others are guaranteed: with one large pod, and with
// fifty at once of which half fit into what it is offered. When it returns, the others are offered what they were before.
func keepsFromAGuest(t *testing.T, c *framework.Cluster) {
	t.Helper()
	ctx := t.Context()
	before := bremen.AwaitOpen(t, c).Status.Allocatable.Cpu().MilliValue()
	g := c.PeerWithGuest(t, "visby-grasping")
	twin := g.CreateTwin(t, "shop")
	var offered int64
	framework.Eventually(t, "the guest is offered something", func(ctx context.Context) error {
		ads := &v1alpha1.AdvertisementList{}
		if err := g.List(ctx, ads, client.InNamespace(g.Invitation.Namespace)); err != nil {
			return err
		}
		if len(ads.Items) == 0 {
			return errors.New("there is no offer")
		}
		offered = ads.Items[0].Spec.Availability.Cpu().MilliValue()
		return nil
	})
	asking := func(cpu int64) string {
		return strings.ReplaceAll(framework.BusyPodTemplate, "cpu: 1m", fmt.Sprintf("cpu: %dm", cpu))
	}
	if err := g.Create(ctx, framework.NewShadowPod(t, twin, "large", asking(offered+500))); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the large pod is refused", func(ctx context.Context) error { return findsNoRoom(ctx, g, twin, 1) })

	const many, fit = 50, 25
	var creating sync.WaitGroup
	for i := range many {
		creating.Go(func() {
			if err := g.Create(ctx, framework.NewShadowPod(t, twin, fmt.Sprintf("grab-%d", i), asking(offered/fit))); err != nil {
				t.Errorf("create: %v", err)
			}
		})
	}
	creating.Wait()
	framework.Eventually(t, "half of the fifty are refused, and the large one", func(ctx context.Context) error {
		return findsNoRoom(ctx, g, twin, 1+many-fit)
	})
	if err := c.DeleteAllOf(ctx, &v1alpha1.ShadowPod{}, client.InNamespace(twin)); err != nil {
		t.Fatal(err)
	}
	bremen.AwaitVirtualNode(t, c, "has what the guest held", func(node *corev1.Node) bool {
		return node.Status.Allocatable.Cpu().MilliValue() >= before-50
	})
}

// findsNoRoom checks that so many records, one more or less, say that there is no room for their pods, which do not exist. What
// is free moves a little while pods of other stories come and go.
func findsNoRoom(ctx context.Context, g *framework.Guest, twin string, want int) error {
	records, pods := &v1alpha1.ShadowPodList{}, &corev1.PodList{}
	if err := errors.Join(
		g.List(ctx, records, client.InNamespace(twin)), g.Provider.List(ctx, pods, client.InNamespace(twin))); err != nil {
		return err
	}
	refused := 0
	for i := range records.Items {
		c := meta.FindStatusCondition(records.Items[i].Status.Conditions, v1alpha1.ConditionScheduled)
		if c != nil && c.Reason == v1alpha1.ReasonNoRoom && strings.Contains(c.Message, "free for this cluster") {
			refused++
		}
	}
	if refused < want-1 || refused > want+1 || len(pods.Items) != len(records.Items)-refused {
		return fmt.Errorf("of %d records %d find no room and %d have pods, want %d without", len(records.Items), refused, len(pods.Items), want)
	}
	return nil
}

// usesWhatItIsGuaranteed has bremen take all that hamburg offers it, and expects that nearly a core is left for lubeck.
func usesWhatItIsGuaranteed(t *testing.T, c *framework.Cluster) {
	t.Helper()
	greedy := bremen.CreatePlacedNamespace(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Exclude: []string{c.Name}}, excludes(c.Name))
	all := bremen.AwaitOpen(t, hamburg).Status.Allocatable.Cpu()
	fill := func(name, cpu string) *corev1.Pod {
		pod := framework.NewShellPod(greedy, name, framework.RunForever)
		pod.Spec.Containers[0].Resources = framework.ResourceRequests(cpu, "1Mi")
		pod.Spec.NodeSelector = map[string]string{v1alpha1.LabelPeer: "hamburg"}
		bremen.MustCreate(t, pod)
		return pod
	}
	bremen.AwaitRunning(t, fill("all", fmt.Sprintf("%dm", all.MilliValue()-50)))
	more := fill("more", "100m")
	framework.Eventually(t, "bremen gets no more than it is offered", func(ctx context.Context) error {
		pod, err := bremen.GetPod(ctx, greedy, more.Name)
		if err == nil && framework.PodConditionStatus(pod, corev1.PodScheduled) != corev1.ConditionFalse {
			err = fmt.Errorf("it is on %q", pod.Spec.NodeName)
		}
		return err
	})
	ns := c.CreatePlacedNamespace(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Exclude: []string{"bremen"}}, excludes("bremen"))
	own := framework.NewShellPod(ns, "own", framework.RunForever)
	own.Spec.Containers[0].Resources = framework.ResourceRequests("900m", "1Mi")
	c.MustCreate(t, own)
	home := c.AwaitReadyPods(t, ns, "own", 1)[0]
	framework.ExpectSamePod(t, &home, hamburg.MustGetRemotePod(t, &home))
	for _, pod := range []*corev1.Pod{own, more} {
		owner := c
		if pod == more {
			owner = bremen
		}
		if err := owner.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
			t.Error(err)
		}
	}
	bremen.DeleteAndWait(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: greedy, Name: "all"}})
}
