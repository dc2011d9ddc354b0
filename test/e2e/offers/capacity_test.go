// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// The consumer's scheduler subtracts its own pods from what is offered, so the offer must include them: a virtual node
// can be filled to the whole of it, pod by pod, and no further.
func TestCapacityNotCountedTwice(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	free := freeCPU(t, lubeck, v1alpha1.VirtualNodeName("hamburg"))
	const parts = 4
	share := resource.NewMilliQuantity(free.MilliValue()/parts, resource.DecimalSI)
	for i := range parts {
		app := "part-" + strconv.Itoa(i)
		pod := framework.NewShellPod(ns, app, framework.RunForever)
		pod.Spec.Containers[0].Resources = framework.ResourceRequests(share.String(), "1Mi")
		lubeck.MustCreate(t, pod)
		home := lubeck.AwaitReadyPods(t, ns, app, 1)[0]
		framework.ExpectSamePod(t, &home, hamburg.MustGetRemotePod(t, &home))
	}
	tooMuch := framework.NewShellPod(ns, "too-much", framework.RunForever)
	tooMuch.Spec.Containers[0].Resources = framework.ResourceRequests(share.String(), "1Mi")
	lubeck.MustCreate(t, tooMuch)
	framework.Eventually(t, "home's own scheduler sees that the node is full", func(ctx context.Context) error {
		pod, err := lubeck.GetPod(ctx, ns, "too-much")
		if err != nil {
			return err
		}
		if framework.PodConditionStatus(pod, corev1.PodScheduled) != corev1.ConditionFalse {
			return fmt.Errorf("pod is on node %q, conditions %v", pod.Spec.NodeName, pod.Status.Conditions)
		}
		return nil
	})
}

// freeCPU waits until the virtual node's offer no longer moves with what earlier stories left, and returns how much of
// it no pod asks for.
func freeCPU(t *testing.T, c *framework.Cluster, nodeName string) resource.Quantity {
	t.Helper()
	var free resource.Quantity
	framework.Eventually(t, "nothing of earlier stories is left on "+nodeName, func(ctx context.Context) error {
		node, err := c.GetNode(ctx, nodeName)
		if err != nil {
			return err
		}
		pods := &corev1.PodList{}
		if err := c.List(ctx, pods, client.MatchingFields{"spec.nodeName": nodeName}); err != nil {
			return err
		}
		if len(pods.Items) > 0 {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		if err := hamburg.CheckNoRemotePods(ctx); err != nil {
			return err
		}
		free = node.Status.Allocatable[corev1.ResourceCPU]
		return offers(ctx, hamburg, free)
	})
	return free
}

// offers checks that the real nodes of the cluster have that much cpu free that nobody asks for: the offer is neither
// stale nor more than there is.
func offers(ctx context.Context, c *framework.Cluster, cpu resource.Quantity) error {
	nodes, err := c.RealNodes(ctx)
	if err != nil {
		return err
	}
	free := resource.Quantity{}
	for _, node := range nodes {
		free.Add(node.Status.Allocatable[corev1.ResourceCPU])
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods); err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if framework.IsOnVirtualNode(&pod) || pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, container := range pod.Spec.Containers {
			free.Sub(container.Resources.Requests[corev1.ResourceCPU])
		}
	}
	slack := resource.MustParse("100m")
	least := free.DeepCopy()
	least.Sub(slack)
	if cpu.Cmp(free) > 0 || cpu.Cmp(least) < 0 {
		return fmt.Errorf("%s of %s free cpu are offered", cpu.String(), free.String())
	}
	return nil
}

// A pod that came from another cluster runs on real nodes only, even where a virtual node has room and the real ones
// have none.
func TestNoLoop(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	nodes, err := hamburg.RealNodes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		hamburg.SetCordoned(t, node.Name, true)
		t.Cleanup(func() { hamburg.SetCordoned(t, node.Name, false) })
	}
	// Bound by name, since home's scheduler would not choose a cluster without room.
	pod := framework.NewShellPod(ns, "homing", framework.RunForever)
	pod.Spec.NodeName = v1alpha1.VirtualNodeName("hamburg")
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	lubeck.MustCreate(t, pod)
	framework.Eventually(t, "hamburg's scheduler finds no node", func(ctx context.Context) error {
		remote, err := hamburg.GetRemotePod(ctx, pod)
		if err != nil {
			return err
		}
		if framework.PodConditionStatus(remote, corev1.PodScheduled) != corev1.ConditionFalse {
			return fmt.Errorf("remote pod is on node %q", remote.Spec.NodeName)
		}
		return nil
	})
	for _, node := range nodes {
		hamburg.SetCordoned(t, node.Name, false)
	}
	home := lubeck.AwaitReadyPods(t, ns, "homing", 1)[0]
	framework.ExpectSamePod(t, &home, hamburg.MustGetRemotePod(t, &home))
}

// A pod that its provider has no room for after all says so at home, and its controller gets to make another, which runs
// where there is room.
func TestNoRoomLetsGo(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespaceWith(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy: v1alpha1.StrategyLocalAndRemote, PlacementTimeout: &metav1.Duration{Duration: 5 * time.Second},
		Placement: &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{Prefer: v1alpha1.PreferPrice}},
	})
	lubeck.AwaitPlacement(t, ns, func(decided *v1alpha1.PlacementStatus) error {
		if !decided.PrefersRemote {
			return fmt.Errorf("home comes first: %+v", decided)
		}
		return nil
	})
	lubeck.AwaitClusterStatus(t, ns, "hamburg", func(c v1alpha1.ClusterOffloading) bool { return c.State == "Ready" })
	// lubeck believes the last offer for as long as hamburg's manager is frozen, so it must have the room back that earlier
	// stories took.
	node := v1alpha1.VirtualNodeName("hamburg")
	freeCPU(t, lubeck, node)
	bare, owned := framework.NewShellPod(ns, "bare", framework.RunForever), framework.NewDeployment(ns, "owned", 1, framework.NewShellPodSpec(framework.RunForever))
	lubeck.AwaitPreference(t, bare, node)
	thaw := losesRoom(t, hamburg)
	lubeck.MustCreate(t, bare)
	lubeck.MustCreate(t, owned)
	first := awaitBoundAway(t, lubeck, ns)
	thaw()

	framework.Eventually(t, "the pod that nobody would make again says why it waits", func(ctx context.Context) error {
		now, err := lubeck.GetPod(ctx, ns, "bare")
		if err == nil && (now.Status.Phase != corev1.PodPending || !strings.Contains(now.Status.Message, "no node with room")) {
			err = fmt.Errorf("%s %q %q", now.Status.Phase, now.Status.Reason, now.Status.Message)
		}
		return err
	})
	framework.Eventually(t, "the pod that a controller makes again is let go", func(ctx context.Context) error {
		out, err := lubeck.Kubectl(ctx, "get", "events", "-n", ns, "-o", "jsonpath={.items[*].reason}")
		return framework.CheckOutput(out, v1alpha1.ReasonPlacementTimeout, err)
	})
	lubeck.AwaitReplacement(t, first)
	if now, err := lubeck.GetPod(ctx, ns, "bare"); err != nil || now.UID != bare.UID || !now.DeletionTimestamp.IsZero() {
		t.Errorf("the bare pod: %v", err)
	}
}

// losesRoom closes all nodes of the cluster while its manager is frozen: consumers believe the last offer until it is thawed.
func losesRoom(t *testing.T, c *framework.Cluster) (thaw func()) {
	t.Helper()
	thaw = freeze(t, c, "manager")
	nodes, err := c.RealNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		t.Cleanup(func() { c.SetCordoned(t, node.Name, false) })
		c.SetCordoned(t, node.Name, true)
	}
	return thaw
}

// awaitBoundAway waits until the scheduler has sent the pod "bare" and that of "owned", which it returns, to a peer.
func awaitBoundAway(t *testing.T, c *framework.Cluster, ns string) *corev1.Pod {
	t.Helper()
	var owned *corev1.Pod
	framework.Eventually(t, "home's scheduler sends both away", func(ctx context.Context) error {
		pods, err := c.GetPods(ctx, ns, "owned")
		if err != nil {
			return err
		}
		bare, err := c.GetPod(ctx, ns, "bare")
		if err != nil {
			return err
		}
		if len(pods) != 1 || !framework.IsOnVirtualNode(&pods[0]) || !framework.IsOnVirtualNode(bare) {
			return errors.New(framework.Summarize(append(pods, *bare)))
		}
		owned = &pods[0]
		return nil
	})
	return owned
}
