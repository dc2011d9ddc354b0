package e2e

import (
	"context"
	"errors"
	"fmt"
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
)

func TestSuspendedPeerMayNotEvenRead(t *testing.T) {
	ctx := shared(t)
	g := hamburg.welcome(t, "visby-suspended")
	twin := g.twin(t, "shop")
	if err := g.Create(ctx, shadow(t, twin, "stall", busyPod)); err != nil {
		t.Fatal(err)
	}
	g.awaitRunning(t, twin, "stall")
	before, err := hamburg.pod(ctx, twin, "stall")
	if err != nil {
		t.Fatal(err)
	}

	if _, err := hamburg.Hanse(ctx, "suspend", "visby-suspended"); err != nil {
		t.Fatal(err)
	}
	info := types.NamespacedName{Namespace: g.invitation.Namespace, Name: v1alpha1.ClusterInfo}
	record := types.NamespacedName{Namespace: twin, Name: "stall"}
	eventually(t, "the peer is refused everything", func(ctx context.Context) error {
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
	g.awaitRunning(t, twin, "stall")
	after, err := hamburg.pod(ctx, twin, "stall")
	if err != nil || after.UID != before.UID || after.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("its pod did not just run on: %v", err)
	}
}

func TestCordonAndDrainByTheProvider(t *testing.T) {
	ctx := alone(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	away, budget := lubeck.spreadPair(t, ns)
	lubeck.create(t, shellPod(ns, "lone", forever))
	lone := lubeck.awaitReadyPods(t, ns, "lone", 1)[0]
	if !isVirtual(&lone) {
		wanted := podMoveOf(&lone, v1alpha1.MoveDestination{Peer: "hamburg"}, time.Minute)
		wanted.Spec.Method = v1alpha1.MoveDeleteFirst
		lubeck.create(t, wanted)
		lone = *lubeck.keepsName(t, wanted, v1alpha1.VirtualNodeName("hamburg"))
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
	eventually(t, "lubeck's node for hamburg takes no more pods", lubeck.closedToHamburg)
	// The budget of lubeck's user holds: the pod may not be evicted while both must be available.
	eventually(t, "the budget holds the pod", func(ctx context.Context) error { return lubeck.saysBlocked(ctx, away) })
	if still, err := lubeck.pod(ctx, ns, away.Name); err != nil || !still.DeletionTimestamp.IsZero() {
		t.Fatalf("the budget was not respected: %v", err)
	}
	lubeck.isMadeAgainAtHome(t, &lone)
	before := budget.DeepCopy()
	budget.Spec.MinAvailable = ptr.To(intstr.FromInt32(1))
	if err := lubeck.Patch(ctx, budget, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	drain()
	if err := hamburg.noRemotePods(ctx); err != nil {
		t.Error(err)
	}
	// hamburg waits for its own pods. That they are gone, lubeck hears a moment later.
	eventually(t, "the pod is gone at home too", func(ctx context.Context) error { return lubeck.isGone(ctx, away.DeepCopy()) })
	if _, err := hamburg.Hanse(ctx, "uncordon", "lubeck"); err != nil {
		t.Fatal(err)
	}
	lubeck.awaitReadyPods(t, ns, "moving", 2)
}

// spreadPair runs two pods of a kind that never share a node, so that one of them is at hamburg, with a budget that lets
// neither go. It returns the one at hamburg.
func (c *cluster) spreadPair(t *testing.T, ns string) (*corev1.Pod, *policyv1.PodDisruptionBudget) {
	t.Helper()
	moving := deployment(ns, "moving", 2, shellSpec(forever))
	moving.Spec.Template.Spec.Affinity = apartFrom("moving")
	c.create(t, moving)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "moving"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "moving"}},
		},
	}
	c.create(t, budget)
	for _, pod := range c.awaitReadyPods(t, ns, "moving", 2) {
		if isVirtual(&pod) {
			return &pod, budget
		}
	}
	t.Fatal("none of the two is at hamburg")
	return nil, nil
}

// closedToHamburg checks that the virtual node of hamburg takes no more pods.
func (c *cluster) closedToHamburg(ctx context.Context) error {
	node, err := c.node(ctx, v1alpha1.VirtualNodeName("hamburg"))
	if err != nil {
		return err
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == v1alpha1.TaintWithdrawn {
			return nil
		}
	}
	return fmt.Errorf("taints: %v", node.Spec.Taints)
}

// saysBlocked checks that an event on the pod tells its user that a budget holds it.
func (c *cluster) saysBlocked(ctx context.Context, pod *corev1.Pod) error {
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
