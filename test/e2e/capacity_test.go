package e2e

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
)

// The consumer's scheduler subtracts its own pods from what is offered, so the offer must include them: a virtual node
// can be filled to the whole of it, pod by pod, and no further.
func TestCapacityNotCountedTwice(t *testing.T) {
	alone(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	free := lubeck.freeCPU(t, v1alpha1.VirtualNodeName("hamburg"))
	const parts = 4
	share := resource.NewMilliQuantity(free.MilliValue()/parts, resource.DecimalSI)
	for i := range parts {
		app := "part-" + strconv.Itoa(i)
		pod := shellPod(ns, app, forever)
		pod.Spec.Containers[0].Resources = requests(share.String(), "1Mi")
		lubeck.create(t, pod)
		home := lubeck.awaitReadyPods(t, ns, app, 1)[0]
		expectSamePod(t, &home, hamburg.mustRemotePod(t, &home))
	}
	tooMuch := shellPod(ns, "too-much", forever)
	tooMuch.Spec.Containers[0].Resources = requests(share.String(), "1Mi")
	lubeck.create(t, tooMuch)
	eventually(t, "home's own scheduler sees that the node is full", func(ctx context.Context) error {
		pod, err := lubeck.pod(ctx, ns, "too-much")
		if err != nil {
			return err
		}
		if podCondition(pod, corev1.PodScheduled) != corev1.ConditionFalse {
			return fmt.Errorf("pod is on node %q, conditions %v", pod.Spec.NodeName, pod.Status.Conditions)
		}
		return nil
	})
}

// freeCPU waits until the virtual node's offer no longer moves with what earlier stories left, and returns how much of
// it no pod asks for.
func (c *cluster) freeCPU(t *testing.T, nodeName string) resource.Quantity {
	t.Helper()
	var free resource.Quantity
	eventually(t, "nothing of earlier stories is left on "+nodeName, func(ctx context.Context) error {
		node, err := c.node(ctx, nodeName)
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
		if err := hamburg.noRemotePods(ctx); err != nil {
			return err
		}
		free = node.Status.Allocatable[corev1.ResourceCPU]
		return hamburg.offers(ctx, free)
	})
	return free
}

// offers checks that the real nodes of the cluster have that much cpu free that nobody asks for: the offer is neither
// stale nor more than there is.
func (c *cluster) offers(ctx context.Context, cpu resource.Quantity) error {
	nodes, err := c.realNodes(ctx)
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
		if isVirtual(&pod) || pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
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
	ctx := alone(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	nodes, err := hamburg.realNodes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		hamburg.cordon(t, node.Name, true)
		t.Cleanup(func() { hamburg.cordon(t, node.Name, false) })
	}
	// Bound by name, since home's scheduler would not choose a cluster without room.
	pod := shellPod(ns, "homing", forever)
	pod.Spec.NodeName = v1alpha1.VirtualNodeName("hamburg")
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	lubeck.create(t, pod)
	eventually(t, "hamburg's scheduler finds no node", func(ctx context.Context) error {
		remote, err := hamburg.remotePod(ctx, pod)
		if err != nil {
			return err
		}
		if podCondition(remote, corev1.PodScheduled) != corev1.ConditionFalse {
			return fmt.Errorf("remote pod is on node %q", remote.Spec.NodeName)
		}
		return nil
	})
	for _, node := range nodes {
		hamburg.cordon(t, node.Name, false)
	}
	home := lubeck.awaitReadyPods(t, ns, "homing", 1)[0]
	expectSamePod(t, &home, hamburg.mustRemotePod(t, &home))
}

func (c *cluster) cordon(t *testing.T, node string, on bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	verb := map[bool]string{true: "cordon", false: "uncordon"}[on]
	if _, err := c.Kubectl(ctx, verb, node); err != nil {
		t.Fatal(err)
	}
}

// A pod that its provider has no room for after all says so at home, and its controller gets to make another, which runs
// where there is room.
func TestNoRoomLetsGo(t *testing.T) {
	ctx := alone(t)
	ns := lubeck.offloadedBy(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy: v1alpha1.StrategyLocalAndRemote, PlacementTimeout: &metav1.Duration{Duration: 5 * time.Second},
		Placement: &v1alpha1.NamespacePlacement{Placement: v1alpha1.Placement{Prefer: v1alpha1.PreferPrice}},
	})
	lubeck.awaitPlacement(t, ns, func(decided *v1alpha1.PlacementStatus) error {
		if !decided.PrefersRemote {
			return fmt.Errorf("home comes first: %+v", decided)
		}
		return nil
	})
	lubeck.awaitCluster(t, ns, "hamburg", func(c v1alpha1.ClusterOffloading) bool { return c.State == "Ready" })
	// lubeck believes the last offer for as long as hamburg's manager is frozen, so it must have the room back that earlier
	// stories took.
	node := v1alpha1.VirtualNodeName("hamburg")
	lubeck.freeCPU(t, node)
	bare, owned := shellPod(ns, "bare", forever), deployment(ns, "owned", 1, shellSpec(forever))
	lubeck.awaitAdmission(t, bare, node)
	thaw := hamburg.losesRoom(t)
	lubeck.create(t, bare)
	lubeck.create(t, owned)
	first := lubeck.awaitBoundAway(t, ns)
	thaw()

	eventually(t, "the pod that nobody would make again says why it waits", func(ctx context.Context) error {
		now, err := lubeck.pod(ctx, ns, "bare")
		if err == nil && (now.Status.Phase != corev1.PodPending || !strings.Contains(now.Status.Message, "no node with room")) {
			err = fmt.Errorf("%s %q %q", now.Status.Phase, now.Status.Reason, now.Status.Message)
		}
		return err
	})
	eventually(t, "the pod that a controller makes again is let go", func(ctx context.Context) error {
		out, err := lubeck.Kubectl(ctx, "get", "events", "-n", ns, "-o", "jsonpath={.items[*].reason}")
		return wants(out, v1alpha1.ReasonPlacementTimeout, err)
	})
	lubeck.awaitReplacement(t, first)
	if now, err := lubeck.pod(ctx, ns, "bare"); err != nil || now.UID != bare.UID || !now.DeletionTimestamp.IsZero() {
		t.Errorf("the bare pod: %v", err)
	}
}

// losesRoom closes all nodes of the cluster while its manager is frozen: consumers believe the last offer until it is thawed.
func (c *cluster) losesRoom(t *testing.T) (thaw func()) {
	t.Helper()
	thaw = c.freeze(t, "manager")
	nodes, err := c.realNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		t.Cleanup(func() { c.cordon(t, node.Name, false) })
		c.cordon(t, node.Name, true)
	}
	return thaw
}

// awaitBoundAway waits until the scheduler has sent the pod "bare" and that of "owned", which it returns, to a peer.
func (c *cluster) awaitBoundAway(t *testing.T, ns string) *corev1.Pod {
	t.Helper()
	var owned *corev1.Pod
	eventually(t, "home's scheduler sends both away", func(ctx context.Context) error {
		pods, err := c.pods(ctx, ns, "owned")
		if err != nil {
			return err
		}
		bare, err := c.pod(ctx, ns, "bare")
		if err != nil {
			return err
		}
		if len(pods) != 1 || !isVirtual(&pods[0]) || !isVirtual(bare) {
			return errors.New(summary(append(pods, *bare)))
		}
		owned = &pods[0]
		return nil
	})
	return owned
}
