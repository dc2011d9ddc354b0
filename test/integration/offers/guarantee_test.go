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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestGuaranteeIsLocked: a core that is guaranteed to lubeck is missing from the offers to others. Neither a consumer that ignores
// schedulers nor one that uses its whole offer gets it. lubeck gets it while the rest is in use.
func TestGuaranteeIsLocked(t *testing.T) {
	begin(t)
	idle := useOneNode(t, hamburg, lubeck, bremen)
	guarantee := func(list string) string { return fmt.Sprintf(`{"spec":{"guarantee":%s}}`, list) }
	peer := &v1alpha1.Peer{ObjectMeta: framework.Named("", "lubeck")}
	t.Cleanup(func() {
		if err := hamburg.Patch(context.Background(), peer, client.RawPatch(types.MergePatchType, []byte(guarantee("null")))); err != nil {
			t.Error(err)
		}
	})
	hamburg.MustPatch(t, peer, guarantee(`{"cpu":"1"}`))
	awaitOffered(t, "a core is guaranteed to lubeck", hamburg, idle-1000, bremen)
	framework.Eventually(t, "the offer to lubeck has the guarantee", func(ctx context.Context) error {
		held, err := lubeck.CopyOf(ctx, hamburg)
		if err == nil && (held.Spec.Guarantee.Cpu().String() != "1" || held.Spec.Availability.Cpu().MilliValue() != idle) {
			err = fmt.Errorf("%s cores are guaranteed and %s offered", held.Spec.Guarantee.Cpu(), held.Spec.Availability.Cpu())
		}
		return err
	})
	guestGetsNoMore(t, idle-1000)
	awaitOffered(t, "the pods of the guest are gone", hamburg, idle-1000, bremen)
	lubeckUsesTheGuarantee(t, idle)
	hamburg.MustPatch(t, peer, guarantee("null"))
	awaitOffered(t, "nothing is guaranteed to lubeck", hamburg, idle, bremen)
}

// guestGetsNoMore creates ShadowPods as a consumer without a scheduler: one that is larger than the offer, and at the same time fifty of
// which half fit into the offer. The provider runs no more than it has offered.
func guestGetsNoMore(t *testing.T, offered int64) {
	t.Helper()
	ctx := t.Context()
	guest := hamburg.Welcome(t, "visby-grasping")
	twin := guest.Twin(t, "shop")
	framework.Eventually(t, "the guest has an offer without what is guaranteed to lubeck", func(ctx context.Context) error {
		ad := &v1alpha1.Advertisement{}
		if err := guest.Get(ctx, types.NamespacedName{Namespace: guest.Invitation.Namespace, Name: "hamburg"}, ad); err != nil {
			return err
		}
		if has := ad.Spec.Availability.Cpu().MilliValue(); has != offered {
			return fmt.Errorf("%dm are offered, want %dm", has, offered)
		}
		return nil
	})
	template := func(milli int64) string {
		return strings.ReplaceAll(framework.BusyPod, "cpu: 1m", fmt.Sprintf("cpu: %dm", milli))
	}
	guest.MustCreate(t, framework.Shadow(t, twin, "large", template(offered+500)))
	framework.Eventually(t, "the large pod is refused", func(ctx context.Context) error { return findNoRoom(ctx, guest, twin, 1) })

	const many, fit = 50, 25
	var creating sync.WaitGroup
	for i := range many {
		creating.Go(func() {
			if err := guest.Create(ctx, framework.Shadow(t, twin, fmt.Sprintf("grab-%d", i), template(offered/fit))); err != nil {
				t.Errorf("create: %v", err)
			}
		})
	}
	creating.Wait()
	framework.Eventually(t, "half of the fifty are refused, and the large one", func(ctx context.Context) error {
		return findNoRoom(ctx, guest, twin, 1+many-fit)
	})
	if err := hamburg.DeleteAllOf(ctx, &v1alpha1.ShadowPod{}, client.InNamespace(twin)); err != nil {
		t.Fatal(err)
	}
}

// findNoRoom checks that so many ShadowPods have the condition that there is no capacity and have no pod, and that all others have one.
func findNoRoom(ctx context.Context, guest *framework.Guest, twin string, want int) error {
	records, pods := &v1alpha1.ShadowPodList{}, &corev1.PodList{}
	if err := errors.Join(guest.List(ctx, records, client.InNamespace(twin)), hamburg.List(ctx, pods, client.InNamespace(twin))); err != nil {
		return err
	}
	refused := 0
	for i := range records.Items {
		c := meta.FindStatusCondition(records.Items[i].Status.Conditions, v1alpha1.ConditionScheduled)
		if c != nil && c.Reason == v1alpha1.ReasonNoRoom && strings.Contains(c.Message, "free for this cluster") {
			refused++
		}
	}
	if refused != want || len(pods.Items) != len(records.Items)-refused {
		return fmt.Errorf("of %d ShadowPods %d find no room and %d have pods, want %d without", len(records.Items), refused, len(pods.Items), want)
	}
	return nil
}

// lubeckUsesTheGuarantee fills the offer of hamburg to bremen, which gets no more. Then a pod of lubeck uses the guaranteed core.
func lubeckUsesTheGuarantee(t *testing.T, idle int64) {
	t.Helper()
	node, err := bremen.VirtualNode(t.Context(), hamburg)
	if err != nil {
		t.Fatal(err)
	}
	most := node.Status.Allocatable.Cpu().MilliValue() - 50
	greedy := bremen.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyLocalAndRemote})
	all, more := podFor(greedy, "all", most, hamburg), podFor(greedy, "more", 100, hamburg)
	bremen.MustCreate(t, all)
	awaitReady(t, bremen, all)
	awaitOffered(t, "pods of bremen are a part of its offer", hamburg, idle-1000, bremen)
	awaitOffered(t, "what bremen does not use is offered to lubeck", hamburg, idle-most, lubeck)
	bremen.MustCreate(t, more)
	awaitUnschedulable(t, bremen, more)
	own := podFor(lubeck.MustOffloadTo(t, hamburg), "own", 900, nil)
	lubeck.MustCreate(t, own)
	home := awaitReady(t, lubeck, own)
	framework.ExpectSamePod(t, home, hamburg.MustRemotePod(t, home))
	mustDelete(t, lubeck, own)
	mustDelete(t, bremen, more)
	bremen.DeleteAndWait(t, all)
}
