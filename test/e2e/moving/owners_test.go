// SPDX-License-Identifier: Apache-2.0

package moving

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// few and many are how many pods the Deployments have that are scaled while a pod of theirs moves.
const few, many = 2, 4

// Whoever the owner is, whatever keeps its pods from being deleted otherwise, and however it is scaled meanwhile, one pod goes and one is
// in its place.
func TestPodsOfEachOwnerMove(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	template := func(app string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}}, Spec: framework.NewShellPodSpec(framework.RunForever)}
	}
	one := int32(1)
	breakable := framework.NewShellPodSpec(framework.RunForever)
	breakable.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "test ! -e /tmp/broken"}}},
		PeriodSeconds: 1, FailureThreshold: 1,
	}
	lubeck.MustCreate(t, &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "rc"},
		Spec:       corev1.ReplicationControllerSpec{Replicas: &one, Selector: map[string]string{"app": "rc"}, Template: new(template("rc"))},
	})
	lubeck.MustCreate(t, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "rs"},
		Spec:       appsv1.ReplicaSetSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rs"}}, Template: template("rs")},
	})
	paused := framework.NewDeployment(ns, "paused", 1, framework.NewShellPodSpec(framework.RunForever))
	lubeck.MustCreate(t, paused)
	lubeck.MustCreate(t, framework.NewDeployment(ns, "broken", 2, breakable))
	lubeck.MustCreate(t, deploymentByHand(ns, "by-hand"))
	for _, app := range []string{"stays", "goes"} {
		scaled := framework.NewDeployment(ns, app, few, framework.NewShellPodSpec(framework.RunForever))
		scaled.Spec.MinReadySeconds = 3 // for as long there is a copy that has not taken over
		lubeck.MustCreate(t, scaled)
	}
	lubeck.MustCreate(t, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "all"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "paused"}}},
	})
	pods := map[string]corev1.Pod{} // app → the one that is to move
	for _, app := range []string{"rc", "rs", "paused"} {
		pods[app] = lubeck.AwaitReadyPods(t, ns, app, 1)[0]
	}
	lubeck.BindPod(t, &lubeck.AwaitPods(t, ns, "by-hand", 1)[0], lubeck.WorkerNames(t)[0])
	pods["by-hand"] = lubeck.AwaitReadyPods(t, ns, "by-hand", 1)[0]
	broken := breaks(t, lubeck, ns)
	pods["broken"] = lubeck.AwaitReadyPods(t, ns, "broken", 1)[0]
	if err := lubeck.Patch(ctx, paused, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"paused":true}}`))); err != nil {
		t.Fatal(err)
	}
	hold(t, lubeck, pods["rs"])

	moves := map[string]*v1alpha1.PodMove{}
	for app, pod := range pods {
		wanted := framework.NewPodMove(&pod, v1alpha1.MoveDestination{Peer: "hamburg"}, framework.WaitTimeout)
		if app == "by-hand" {
			wanted.Spec.Bind = v1alpha1.BindAtCreation
		}
		lubeck.MustCreate(t, wanted)
		moves[app] = wanted
	}
	moveWhileScaled(t, lubeck, ns)
	for app, move := range moves {
		lubeck.AwaitMove(t, move, v1alpha1.MoveSucceeded, v1alpha1.ReasonMoved)
		ready := lubeck.AwaitReadyPods(t, ns, app, 1)
		if ready[0].UID != move.Status.Copy.UID || !framework.IsOnVirtualNode(&ready[0]) {
			t.Errorf("%s: after %+v there is %s", app, move.Status, framework.Summarize(ready))
		}
	}
	expectKept(t, lubeck, broken, moves["broken"])
	isHeld(t, lubeck, pods["rs"])
	if scheduler := lubeck.AwaitReadyPods(t, ns, "by-hand", 1)[0].Spec.SchedulerName; scheduler != framework.NoScheduler {
		t.Errorf("the copy asks for scheduler %s", scheduler)
	}
	if err := lubeck.Get(ctx, client.ObjectKeyFromObject(paused), paused); err != nil || !paused.Spec.Paused {
		t.Errorf("the Deployment is paused: %t (%v)", paused.Spec.Paused, err)
	}
}

// expectKept checks that the broken sibling is there, since the original was evicted.
func expectKept(t *testing.T, c *framework.Cluster, broken *corev1.Pod, move *v1alpha1.PodMove) {
	t.Helper()
	if !slices.ContainsFunc(move.Status.Steps, func(s v1alpha1.MoveStep) bool { return s.Action == v1alpha1.MoveEvicted }) {
		t.Errorf("the original was not evicted: %+v", move.Status.Steps)
	}
	now, err := c.GetPod(t.Context(), broken.Namespace, broken.Name)
	if err != nil || now.UID != broken.UID || now.DeletionTimestamp != nil {
		t.Errorf("the broken sibling was deleted (%v)", err)
	}
}

// breaks has one of the two pods not be Ready any more, and returns it.
func breaks(t *testing.T, c *framework.Cluster, ns string) *corev1.Pod {
	t.Helper()
	pod := c.AwaitReadyPods(t, ns, "broken", 2)[0]
	if out, err := c.Kubectl(t.Context(), "exec", "-n", ns, pod.Name, "--", "touch", "/tmp/broken"); err != nil {
		t.Fatal(err, out)
	}
	framework.Eventually(t, "it is not Ready", func(ctx context.Context) error {
		now, err := c.GetPod(ctx, ns, pod.Name)
		if err == nil && framework.IsPodReady(now) {
			err = errors.New("it is Ready")
		}
		return err
	})
	return &pod
}

// deploymentByHand has pods that no scheduler binds.
func deploymentByHand(ns, app string) *appsv1.Deployment {
	spec := framework.NewShellPodSpec(framework.RunForever)
	spec.SchedulerName = framework.NoScheduler
	return framework.NewDeployment(ns, app, 1, spec)
}

// heldBy is the finalizer of somebody else.
const heldBy = "hanse.test/hold"

// hold has the pod stay in existence when it is deleted, until release or the end of the story.
func hold(t *testing.T, c *framework.Cluster, pod corev1.Pod) {
	t.Helper()
	c.MergePatch(t, &pod, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, heldBy))
	t.Cleanup(func() { // a story that has failed must not hold its namespace
		_ = c.Patch(context.Background(), &pod, client.RawPatch(types.MergePatchType, letGo(&pod)))
	})
}

// release undoes hold.
func release(t *testing.T, c *framework.Cluster, pod corev1.Pod) {
	t.Helper()
	c.MergePatch(t, &pod, string(letGo(&pod)))
}

func letGo(pod *corev1.Pod) []byte {
	return fmt.Appendf(nil, `{"metadata":{"uid":%q,"finalizers":null}}`, pod.UID)
}

// isHeld checks that the pod was deleted and is in existence yet, and then has it go.
func isHeld(t *testing.T, c *framework.Cluster, pod corev1.Pod) {
	t.Helper()
	now, err := c.GetPod(t.Context(), pod.Namespace, pod.Name)
	if err != nil || now.UID != pod.UID || now.DeletionTimestamp == nil || !slices.Contains(now.Finalizers, heldBy) {
		t.Errorf("the original is %v (%v)", now.ObjectMeta, err)
	}
	release(t, c, pod)
	framework.Eventually(t, "the original is gone", func(ctx context.Context) error { return c.CheckGone(ctx, pod.DeepCopy()) })
}

// moveWhileScaled moves a pod of each of two Deployments, which are scaled up and down meanwhile: of one the original goes last by its cost,
// of the other one first. They are scaled by the subresource that a HorizontalPodAutoscaler writes: one of those acts every 15 seconds at
// most, which is longer than a move takes.
func moveWhileScaled(t *testing.T, c *framework.Cluster, ns string) {
	t.Helper()
	moves := map[string]*v1alpha1.PodMove{}
	seen, stop := watchReady(t, c, ns, "stays", "goes")
	for app, cost := range map[string]string{"stays": "1", "goes": "-1"} {
		pod := c.AwaitReadyPods(t, ns, app, few)[0]
		c.MergePatch(t, &pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, corev1.PodDeletionCost, cost))
		moves[app] = c.CreatePodMove(t, &pod, v1alpha1.MoveDestination{Peer: "hamburg"}, framework.WaitTimeout)
	}
	isOver := func(app string) bool {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(moves[app]), moves[app]); err != nil {
			t.Fatal(err)
		}
		return moves[app].Status.Phase.IsOver()
	}
	for rounds := 1; !isOver("stays") || !isOver("goes"); rounds++ {
		c.ScaleDeployments(t, ns, many, "stays", "goes")
		c.ScaleDeployments(t, ns, few, "stays", "goes")
		t.Logf("scaled to %d and back %d times", many, rounds)
	}
	for app := range moves {
		c.AwaitReadyPods(t, ns, app, few)
	}
	if stop(); seen.least < few {
		t.Errorf("%d pods were Ready, want %d at least", seen.least, few)
	}
	expectScaled(t, c, moves["stays"], moves["goes"])
}

// expectScaled checks what became of the moves. An original that goes before its copy is Ready has gone by its owner's will.
func expectScaled(t *testing.T, c *framework.Cluster, stays, goes *v1alpha1.PodMove) {
	t.Helper()
	c.AwaitMove(t, stays, v1alpha1.MoveSucceeded, v1alpha1.ReasonMoved)
	moved, err := c.GetPod(t.Context(), stays.Namespace, stays.Status.Copy.Name)
	if err != nil || moved.UID != stays.Status.Copy.UID || !framework.IsOnVirtualNode(moved) || moved.Annotations[corev1.PodDeletionCost] != "1" {
		t.Errorf("in the place of %s is %v (%v)", stays.Spec.Pod.Name, moved.ObjectMeta, err)
	}
	t.Logf("with the original that goes first the move is %s: %+v", goes.Status.Phase, goes.Status.Steps)
	if goes.Status.Phase == v1alpha1.MoveSucceeded {
		return
	}
	c.AwaitMove(t, goes, v1alpha1.MoveFailed, v1alpha1.ReasonOriginalLost)
	framework.Eventually(t, "no copy is left", func(ctx context.Context) error {
		return c.CheckGone(ctx, &corev1.Pod{ObjectMeta: framework.NamespacedMeta(goes.Namespace, goes.Status.Copy.Name)})
	})
}
