package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// keepsName waits until the pod was moved by DeleteFirst, and returns the one that has its name now.
func (c *cluster) keepsName(t *testing.T, wanted *v1alpha1.PodMove, node string) *corev1.Pod {
	t.Helper()
	done := c.awaitMove(t, wanted, v1alpha1.MoveSucceeded, v1alpha1.ReasonMoved)
	now, err := c.pod(t.Context(), done.Namespace, done.Spec.Pod.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s is Ready again %s after its PodMove: %+v", now.Name, podReadySince(now).Sub(done.CreationTimestamp.Time), done.Status.Steps)
	if now.UID != done.Status.Copy.UID || now.UID == done.Spec.Pod.UID || now.Spec.NodeName != node || !podReady(now) || len(now.OwnerReferences) > 0 {
		t.Errorf("in its place is %s: %v", summary([]corev1.Pod{*now}), now.ObjectMeta)
	}
	if done.Status.Method != v1alpha1.MoveDeleteFirst || done.Status.Record != "" {
		t.Errorf("it was moved by %s, and %q is kept of it", done.Status.Method, done.Status.Record)
	}
	return now
}

// isRestored waits until the move has failed for that reason, and the pod runs at home again.
func (c *cluster) isRestored(t *testing.T, wanted *v1alpha1.PodMove, reason, home string) {
	t.Helper()
	done := c.awaitMove(t, wanted, v1alpha1.MoveFailed, reason)
	if !meta.IsStatusConditionTrue(done.Status.Conditions, v1alpha1.ConditionRestored) {
		t.Errorf("its conditions are %+v", done.Status.Conditions)
	}
	now := c.awaitReadyPods(t, done.Namespace, done.Spec.Pod.Name, 1)[0]
	if now.Name != done.Spec.Pod.Name || now.UID == done.Spec.Pod.UID || now.Spec.NodeName != home || len(now.OwnerReferences) > 0 {
		t.Errorf("there is %s: %v", summary([]corev1.Pod{now}), now.ObjectMeta)
	}
	c.describeSays(t, done.Namespace, "pod/"+now.Name, reason)
}

// Pods that were created by hand keep their names. If they cannot start at their destination, or cannot be created at all for a while,
// they are made again where they were. What was attached to debug them is not made again.
func TestPodsKeepTheirNames(t *testing.T) {
	ctx := shared(t)
	ns, full := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote), lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	home, away := lubeck.workers(t)[0], v1alpha1.VirtualNodeName("hamburg")
	atHamburg := v1alpha1.MoveDestination{Peer: "hamburg"}

	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: full, Name: "one"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
	}
	lubeck.create(t, quota)
	lubeck.create(t, shellPod(full, "toolbox", forever))
	anchor, tied := shellPod(ns, "anchor", forever), shellPod(ns, "toolbox", forever)
	anchor.Spec.NodeSelector = map[string]string{corev1.LabelHostname: home}
	tied.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
		{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: anchor.Labels}},
	}}}
	lubeck.create(t, anchor)
	lubeck.create(t, tied)
	toolbox, near := lubeck.awaitReadyPods(t, full, "toolbox", 1)[0], lubeck.awaitReadyPods(t, ns, "toolbox", 1)[0]
	stuck := podMoveOf(&near, atHamburg, 5*time.Second) // the scheduler keeps it with its anchor
	stuck.Spec.Method = v1alpha1.MoveDeleteFirst
	lubeck.create(t, stuck)

	if toolbox.Spec.NodeName != home {
		toolbox = *lubeck.keepsName(t, lubeck.moves(t, &toolbox, v1alpha1.MoveDestination{Node: home}, waitTimeout), home)
	}
	lubeck.awaitsQuotaOf(ctx, t, full)
	lubeck.debug(t, &toolbox)
	moved := lubeck.keepsName(t, lubeck.moves(t, &toolbox, atHamburg, waitTimeout), away)
	expectNoDebugger(t, moved)
	expectSamePod(t, moved, hamburg.mustRemotePod(t, moved))
	if out, err := lubeck.Hanse(ctx, "move", "-n", full, "toolbox", "--to", home, "--method", "DeleteFirst"); err != nil || !strings.Contains(out, "1 pods have moved") {
		t.Fatal(err, out)
	}
	back := lubeck.awaitReadyPods(t, full, "toolbox", 1)[0]
	if back.Name != "toolbox" || back.Spec.NodeName != home {
		t.Errorf("it is back as %s", summary([]corev1.Pod{back}))
	}
	lubeck.isRestored(t, stuck, v1alpha1.ReasonDeadlineExceeded, home)
	lubeck.losesQuota(t, &back, quota, home)
}

// debug runs an ephemeral container in the pod, as kubectl debug does.
func (c *cluster) debug(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	changed := pod.DeepCopy()
	changed.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debugger", Image: busybox, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"/bin/sh", "-c", forever},
			VolumeMounts: pod.Spec.Containers[0].VolumeMounts, // where the token is
		},
		TargetContainerName: "main",
	}}
	if err := c.SubResource("ephemeralcontainers").Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the ephemeral container of "+pod.Name+" runs", func(ctx context.Context) error {
		now, err := c.pod(ctx, pod.Namespace, pod.Name)
		if err == nil && !slices.ContainsFunc(now.Status.EphemeralContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil }) {
			err = fmt.Errorf("it does not: %+v", now.Status.EphemeralContainerStatuses)
		}
		return err
	})
}

func expectNoDebugger(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if debuggers := pod.Spec.EphemeralContainers; len(debuggers) > 0 {
		t.Errorf("%s has ephemeral containers %+v", pod.Name, debuggers)
	}
}

// losesQuota has the quota have no more room for the pod when that is gone, and some again when the move has failed because of it.
func (c *cluster) losesQuota(t *testing.T, pod *corev1.Pod, quota *corev1.ResourceQuota, home string) {
	t.Helper()
	c.awaitsQuotaOf(t.Context(), t, pod.Namespace)
	c.hold(t, *pod)
	wanted := c.moves(t, pod, v1alpha1.MoveDestination{Peer: "hamburg"}, waitTimeout)
	c.saysHeld(t, wanted)
	c.mergePatch(t, quota, `{"spec":{"hard":{"pods":"0"}}}`)
	eventually(t, "the quota has no room", func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(quota), quota)
		if hard := quota.Status.Hard[corev1.ResourcePods]; err == nil && !hard.IsZero() {
			err = fmt.Errorf("it has %s", hard.String())
		}
		return err
	})
	c.release(t, *pod)
	eventually(t, "the PodMove says why the pod is not there", func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(wanted), wanted)
		restored := meta.FindStatusCondition(wanted.Status.Conditions, v1alpha1.ConditionRestored)
		if err == nil && (restored == nil || restored.Reason != v1alpha1.ReasonCopyRefused || !strings.Contains(restored.Message, "exceeded quota")) {
			err = fmt.Errorf("it is %s: %+v", wanted.Status.Phase, wanted.Status.Conditions)
		}
		return err
	})
	c.mergePatch(t, quota, `{"spec":{"hard":{"pods":"1"}}}`)
	c.isRestored(t, wanted, v1alpha1.ReasonCopyRefused, home)
}
