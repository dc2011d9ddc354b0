package e2e

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
)

func TestGuaranteeIsLocked(t *testing.T) {
	market(t)
	offered := bremen.awaitVirtual(t, hamburg, "has more than a core", func(node *corev1.Node) bool {
		return isOpen(node) && node.Status.Allocatable.Cpu().MilliValue() > 1000
	}).Status.Allocatable.Cpu().DeepCopy()
	guarantee := hamburg.guarantees(t, lubeck)
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
	hamburg.keepsFromAGuest(t)
	lubeck.usesWhatItIsGuaranteed(t)
	guarantee(nil)
	least := offered.DeepCopy()
	least.Sub(resource.MustParse("50m"))
	bremen.awaitVirtual(t, hamburg, "has the core again", func(node *corev1.Node) bool { return node.Status.Allocatable.Cpu().Cmp(least) >= 0 })
}

// guarantees returns what sets the guarantee of the consumer. When the story ends there is none.
func (c *cluster) guarantees(t *testing.T, consumer *cluster) func(corev1.ResourceList) {
	t.Helper()
	set := func(list corev1.ResourceList) {
		t.Helper()
		eventuallyAfter(t, c.Name+"'s Peer is changed", func(ctx context.Context) error {
			peer, err := c.peer(ctx, consumer.Name)
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
	ctx := market(t)
	const slip, all, guaranteed = corev1.ResourceName("example.com/slips"), 10, 6
	hamburg.berths(t, string(slip), all)
	other := hamburg.welcome(t, "visby-unguaranteed")
	t.Cleanup(func() { hamburg.disperse(t, []*guest{other}) })
	twin := other.twin(t, "shop")
	other.awaitOffered(t, slip, all)
	hamburg.guarantees(t, lubeck)(corev1.ResourceList{slip: *resource.NewQuantity(guaranteed, resource.DecimalSI)})
	other.awaitOffered(t, slip, all-guaranteed)
	other.create(t, mooring(t, twin, "grasps", units(slip, all-guaranteed+1), ""), other.request("grasps", slip, all-guaranteed+1))
	other.awaitPhase(t, "grasps", v1alpha1.RequestRefused, v1alpha1.ReasonNoRoom)
	other.awaitRefused(t, twin, "grasps")
	other.create(t, other.request("fits", slip, all-guaranteed))
	other.awaitPhase(t, "fits", v1alpha1.RequestAcknowledged, v1alpha1.ReasonReserved)

	app := applicationOf(lubeck.offloaded(t, v1alpha1.StrategyRemote), &v1alpha1.ApplicationPlacement{Clusters: []string{"hamburg"}}, "10m", "web")
	app.Spec.Components[0].Resources[slip] = *resource.NewQuantity(guaranteed, resource.DecimalSI)
	lubeck.create(t, app)
	lubeck.awaitApplication(t, app, v1alpha1.ApplicationPlaced)
	request, err := hamburg.requestOf(ctx, app, lubeck)
	if got := request.Locked()[slip]; err != nil || got.Value() != guaranteed {
		t.Errorf("hamburg reserves %s (%v)", got.String(), err)
	}
	lubeck.deleteAndWait(t, app)
}

// keepsFromAGuest has a consumer that obeys no scheduler ask for what others are guaranteed: with one large pod, and with
// fifty at once of which half fit into what it is offered. When it returns, the others are offered what they were before.
func (c *cluster) keepsFromAGuest(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	before := bremen.awaitOpen(t, c).Status.Allocatable.Cpu().MilliValue()
	g := c.welcome(t, "visby-grasping")
	twin := g.twin(t, "shop")
	var offered int64
	eventually(t, "the guest is offered something", func(ctx context.Context) error {
		ads := &v1alpha1.AdvertisementList{}
		if err := g.List(ctx, ads, client.InNamespace(g.invitation.Namespace)); err != nil {
			return err
		}
		if len(ads.Items) == 0 {
			return errors.New("there is no offer")
		}
		offered = ads.Items[0].Spec.Availability.Cpu().MilliValue()
		return nil
	})
	asking := func(cpu int64) string {
		return strings.ReplaceAll(busyPod, "cpu: 1m", fmt.Sprintf("cpu: %dm", cpu))
	}
	if err := g.Create(ctx, shadow(t, twin, "large", asking(offered+500))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the large pod is refused", func(ctx context.Context) error { return g.findsNoRoom(ctx, twin, 1) })

	const many, fit = 50, 25
	var creating sync.WaitGroup
	for i := range many {
		creating.Go(func() {
			if err := g.Create(ctx, shadow(t, twin, fmt.Sprintf("grab-%d", i), asking(offered/fit))); err != nil {
				t.Errorf("create: %v", err)
			}
		})
	}
	creating.Wait()
	eventually(t, "half of the fifty are refused, and the large one", func(ctx context.Context) error {
		return g.findsNoRoom(ctx, twin, 1+many-fit)
	})
	if err := c.DeleteAllOf(ctx, &v1alpha1.ShadowPod{}, client.InNamespace(twin)); err != nil {
		t.Fatal(err)
	}
	bremen.awaitVirtual(t, c, "has what the guest held", func(node *corev1.Node) bool {
		return node.Status.Allocatable.Cpu().MilliValue() >= before-50
	})
}

// findsNoRoom checks that so many records, one more or less, say that there is no room for their pods, which do not exist. What
// is free moves a little while pods of other stories come and go.
func (g *guest) findsNoRoom(ctx context.Context, twin string, want int) error {
	records, pods := &v1alpha1.ShadowPodList{}, &corev1.PodList{}
	if err := errors.Join(
		g.List(ctx, records, client.InNamespace(twin)), g.provider.List(ctx, pods, client.InNamespace(twin))); err != nil {
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
func (c *cluster) usesWhatItIsGuaranteed(t *testing.T) {
	t.Helper()
	greedy := bremen.placed(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Exclude: []string{c.Name}}, excludes(c.Name))
	all := bremen.awaitOpen(t, hamburg).Status.Allocatable.Cpu()
	fill := func(name, cpu string) *corev1.Pod {
		pod := shellPod(greedy, name, forever)
		pod.Spec.Containers[0].Resources = requests(cpu, "1Mi")
		pod.Spec.NodeSelector = map[string]string{v1alpha1.LabelPeer: "hamburg"}
		bremen.create(t, pod)
		return pod
	}
	bremen.awaitRunning(t, fill("all", fmt.Sprintf("%dm", all.MilliValue()-50)))
	more := fill("more", "100m")
	eventually(t, "bremen gets no more than it is offered", func(ctx context.Context) error {
		pod, err := bremen.pod(ctx, greedy, more.Name)
		if err == nil && podCondition(pod, corev1.PodScheduled) != corev1.ConditionFalse {
			err = fmt.Errorf("it is on %q", pod.Spec.NodeName)
		}
		return err
	})
	ns := c.placed(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Exclude: []string{"bremen"}}, excludes("bremen"))
	own := shellPod(ns, "own", forever)
	own.Spec.Containers[0].Resources = requests("900m", "1Mi")
	c.create(t, own)
	home := c.awaitReadyPods(t, ns, "own", 1)[0]
	expectSamePod(t, &home, hamburg.mustRemotePod(t, &home))
	for _, pod := range []*corev1.Pod{own, more} {
		owner := c
		if pod == more {
			owner = bremen
		}
		if err := owner.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
			t.Error(err)
		}
	}
	bremen.deleteAndWait(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: greedy, Name: "all"}})
}
