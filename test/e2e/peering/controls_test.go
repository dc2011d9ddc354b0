// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

func TestSuspendedPeerMayNotEvenRead(t *testing.T) {
	ctx := framework.Begin(t)
	g := hamburg.PeerWithGuest(t, "visby-suspended")
	twin := g.CreateTwin(t, "shop")
	if err := g.Create(ctx, framework.NewShadowPod(t, twin, "stall", framework.BusyPodTemplate)); err != nil {
		t.Fatal(err)
	}
	g.AwaitRunning(t, twin, "stall")
	before, err := hamburg.GetPod(ctx, twin, "stall")
	if err != nil {
		t.Fatal(err)
	}

	if _, err := hamburg.Hanse(ctx, "suspend", "visby-suspended"); err != nil {
		t.Fatal(err)
	}
	info := types.NamespacedName{Namespace: g.Invitation.Namespace, Name: v1alpha1.ClusterInfo}
	record := types.NamespacedName{Namespace: twin, Name: "stall"}
	framework.Eventually(t, "the peer is refused everything", func(ctx context.Context) error {
		for _, err := range []error{g.Get(ctx, info, &corev1.ConfigMap{}), g.Get(ctx, record, &v1alpha1.ShadowPod{})} {
			if err == nil {
				return errors.New("it can still read")
			}
			if !apierrors.IsForbidden(err) {
				return err
			}
		}
		return nil
	})

	if _, err := hamburg.Hanse(ctx, "resume", "visby-suspended"); err != nil {
		t.Fatal(err)
	}
	g.AwaitRunning(t, twin, "stall")
	after, err := hamburg.GetPod(ctx, twin, "stall")
	if err != nil || after.UID != before.UID || after.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("its pod did not just run on: %v", err)
	}
}

func TestCordonAndDrainByTheProvider(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	away, budget := spreadPair(t, lubeck, ns)
	lubeck.MustCreate(t, framework.NewShellPod(ns, "lone", framework.RunForever))
	lone := lubeck.AwaitReadyPods(t, ns, "lone", 1)[0]
	if !framework.IsOnVirtualNode(&lone) {
		wanted := framework.NewPodMove(&lone, v1alpha1.MoveDestination{Peer: "hamburg"}, time.Minute)
		wanted.Spec.Method = v1alpha1.MoveDeleteFirst
		lubeck.MustCreate(t, wanted)
		lone = *lubeck.AwaitMovedInPlace(t, wanted, v1alpha1.VirtualNodeName("hamburg"))
	}
	t.Cleanup(func() {
		if _, err := hamburg.Hanse(context.Background(), "uncordon", "lubeck"); err != nil {
			t.Error(err)
		}
	})
	drain := func(more ...string) {
		t.Helper()
		if _, err := hamburg.Hanse(ctx, append([]string{"drain", "lubeck"}, more...)...); err != nil {
			t.Fatal(err)
		}
	}

	drain("--wait=false")
	framework.Eventually(t, "lubeck's node for hamburg takes no more pods", lubeck.CheckClosedToHamburg)
	// The budget of lubeck's user holds: the pod may not be evicted while both must be available.
	framework.Eventually(t, "the budget holds the pod", func(ctx context.Context) error { return saysBlocked(ctx, lubeck, away) })
	if still, err := lubeck.GetPod(ctx, ns, away.Name); err != nil || !still.DeletionTimestamp.IsZero() {
		t.Fatalf("the budget was not respected: %v", err)
	}
	lubeck.AwaitRecreatedAtHome(t, &lone)
	before := budget.DeepCopy()
	budget.Spec.MinAvailable = ptr.To(intstr.FromInt32(1))
	if err := lubeck.Patch(ctx, budget, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	drain()
	if err := hamburg.CheckNoRemotePods(ctx); err != nil {
		t.Error(err)
	}
	// hamburg waits for its own pods. That they are gone, lubeck hears a moment later.
	framework.Eventually(t, "the pod is gone at home too", func(ctx context.Context) error { return lubeck.CheckGone(ctx, away.DeepCopy()) })
	if _, err := hamburg.Hanse(ctx, "uncordon", "lubeck"); err != nil {
		t.Fatal(err)
	}
	lubeck.AwaitReadyPods(t, ns, "moving", 2)
}

// spreadPair runs two pods of a kind that never share a node, so that one of them is at hamburg, with a budget that lets
// neither go. It returns the one at hamburg.
func spreadPair(t *testing.T, c *framework.Cluster, ns string) (*corev1.Pod, *policyv1.PodDisruptionBudget) {
	t.Helper()
	moving := framework.NewDeployment(ns, "moving", 2, framework.NewShellPodSpec(framework.RunForever))
	moving.Spec.Template.Spec.Affinity = apartFrom("moving")
	c.MustCreate(t, moving)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "moving"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "moving"}},
		},
	}
	c.MustCreate(t, budget)
	for _, pod := range c.AwaitReadyPods(t, ns, "moving", 2) {
		if framework.IsOnVirtualNode(&pod) {
			return &pod, budget
		}
	}
	t.Fatal("none of the two is at hamburg")
	return nil, nil
}

// saysBlocked checks that an event on the pod tells its user that a budget holds it.
func saysBlocked(ctx context.Context, c *framework.Cluster, pod *corev1.Pod) error {
	out, err := c.Kubectl(ctx, "get", "events", "-n", pod.Namespace, "--field-selector", "reason=DrainBlocked,involvedObject.name="+pod.Name, "-o", "name")
	if err == nil && out == "" {
		return errors.New("there is no event")
	}
	return err
}

func apartFrom(app string) *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, TopologyKey: corev1.LabelHostname,
		}},
	}}
}
