package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestUnpeerLeavesNothing(t *testing.T) {
	ctx := alone(t)
	before := separated(t)
	if err := peerBothWays(ctx, lubeck, hamburg); err != nil {
		t.Fatal(err)
	}
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	pinned := deployment(ns, "away", 2, shellSpec(forever))
	pinned.Spec.Template.Spec.NodeSelector = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}
	lubeck.create(t, pinned)
	lubeck.awaitReadyPods(t, ns, "away", 2)

	// Pods run: nothing happens before somebody says what becomes of them.
	if _, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--timeout", "20s"); err == nil || !strings.Contains(err.Error(), "away") {
		t.Errorf("unpeer with running pods says %v", err)
	}
	// One side parts, and the other follows.
	if _, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--drain", "wait"); err != nil {
		t.Fatal(err)
	}
	awaitParted(t)
	lubeck.deleteAndWait(t, pinned)
	lubeck.deleteAndWait(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	expectSameObjects(t, before)
}

func TestUnpeerDeadPeer(t *testing.T) {
	ctx := alone(t)
	before := separated(t)
	if err := peerBothWays(ctx, lubeck, hamburg); err != nil {
		t.Fatal(err)
	}
	hamburg.disappears(t)

	// Agreed parting has nobody to agree with, and says what to do.
	_, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--timeout", "20s")
	if err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("unpeer of a dead peer says %v", err)
	}
	out, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--force", "--forget")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("unpeer --force --forget says: %s", out)
	expectSameObjects(t, map[*cluster][]string{lubeck: before[lubeck]})
}

func TestPeerReturnsAfterForce(t *testing.T) {
	ctx := alone(t)
	before := separated(t)
	if err := peerBothWays(ctx, lubeck, hamburg); err != nil {
		t.Fatal(err)
	}
	// hamburg runs a pod at lubeck, and lubeck one at hamburg, when hamburg disappears.
	_, orphan := lubeck.runsAt(t, hamburg)
	restarts := hamburg.restarts(t)
	hamburg.disappears(t)
	if _, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--force"); err != nil {
		t.Fatal(err)
	}
	// All that is left is one namespace with the record.
	left := &corev1.Namespace{}
	if err := lubeck.Get(ctx, types.NamespacedName{Name: v1alpha1.TenantNamespace("hamburg")}, left); err != nil {
		t.Fatal(err)
	}
	if left.Labels[v1alpha1.LabelType] != v1alpha1.TypeTombstone || left.Annotations[v1alpha1.AnnotationExpires] == "" {
		t.Errorf("what is left: %v %v", left.Labels, left.Annotations)
	}

	hamburg.returns(t)
	eventually(t, "hamburg, back again, parts as well", func(ctx context.Context) error {
		return errors.Join(hamburg.isGone(ctx, &v1alpha1.Peer{ObjectMeta: named("lubeck")}), hamburg.isGone(ctx, orphan))
	})
	if now := hamburg.restarts(t); now != restarts {
		t.Errorf("Hanse does not outlive an outage of its API server: its containers were started again %d times", now-restarts)
	}
	lubeck.dropTombstone(t, "hamburg")
	lubeck.deleteStories(t)
	expectSameObjects(t, before)
}

// restarts counts how often Kubernetes has started Hanse's containers again.
func (c *cluster) restarts(t *testing.T) int {
	t.Helper()
	pods := &corev1.PodList{}
	if err := c.List(t.Context(), pods, client.InNamespace(v1alpha1.SystemNamespace)); err != nil {
		t.Fatal(err)
	}
	count := 0
	for i := range pods.Items {
		for _, container := range pods.Items[i].Status.ContainerStatuses {
			count += int(container.RestartCount)
		}
	}
	return count
}

// disappears stops the cluster's API server until it returns, at the story's end at the latest.
func (c *cluster) disappears(t *testing.T) {
	t.Helper()
	mustTestbed(t, "stop", c.Name, "apiserver")
	t.Cleanup(func() { c.returns(t) })
}

func (c *cluster) returns(t *testing.T) {
	t.Helper()
	mustTestbed(t, "start", c.Name, "apiserver")
	eventuallyAfter(t, c.Name+" answers", func(ctx context.Context) error {
		return c.List(ctx, &v1alpha1.PeerList{})
	})
}

// dropTombstone deletes the record as an administrator would who does not want to wait 30 days.
func (c *cluster) dropTombstone(t *testing.T, peer string) {
	t.Helper()
	c.deleteAndWait(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantNamespace(peer)}})
}

// deleteStories deletes the namespaces of this story before its end, to count what is left.
func (c *cluster) deleteStories(t *testing.T) {
	t.Helper()
	list := &corev1.NamespaceList{}
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, "story-") {
			c.deleteAndWait(t, &list.Items[i])
		}
	}
}

func TestCordonAndDrainByTheProvider(t *testing.T) {
	ctx := alone(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	away, budget := lubeck.spreadPair(t, ns)
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
	before := budget.DeepCopy()
	budget.Spec.MinAvailable = ptr.To(intstr.FromInt32(1))
	if err := lubeck.Patch(ctx, budget, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	drain()
	if err := errors.Join(lubeck.isGone(ctx, away), hamburg.noRemotePods(ctx)); err != nil {
		t.Error(err)
	}
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
