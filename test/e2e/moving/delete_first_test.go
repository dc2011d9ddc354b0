// SPDX-License-Identifier: Apache-2.0

package moving

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
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// isRestored waits until the move has failed for that reason, and the pod runs at home again.
func isRestored(t *testing.T, c *framework.Cluster, wanted *v1alpha1.PodMove, reason, home string) {
	t.Helper()
	done := c.AwaitMove(t, wanted, v1alpha1.MoveFailed, reason)
	if !meta.IsStatusConditionTrue(done.Status.Conditions, v1alpha1.ConditionRestored) {
		t.Errorf("its conditions are %+v", done.Status.Conditions)
	}
	now := c.AwaitReadyPods(t, done.Namespace, done.Spec.Pod.Name, 1)[0]
	if now.Name != done.Spec.Pod.Name || now.UID == done.Spec.Pod.UID || now.Spec.NodeName != home || len(now.OwnerReferences) > 0 {
		t.Errorf("there is %s: %v", framework.Summarize([]corev1.Pod{now}), now.ObjectMeta)
	}
	c.AwaitDescription(t, done.Namespace, "pod/"+now.Name, reason)
}

// Pods that were created by hand keep their names. If they cannot start at their destination, or cannot be created at all for a while,
// they are made again where they were. What was attached to debug them is not made again.
func TestPodsKeepTheirNames(t *testing.T) {
	ctx := framework.Begin(t)
	ns, full := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote), lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	home, away := lubeck.WorkerNames(t)[0], v1alpha1.VirtualNodeName("hamburg")
	atHamburg := v1alpha1.MoveDestination{Peer: "hamburg"}

	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: full, Name: "one"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
	}
	lubeck.MustCreate(t, quota)
	lubeck.MustCreate(t, framework.NewShellPod(full, "toolbox", framework.RunForever))
	anchor, tied := framework.NewShellPod(ns, "anchor", framework.RunForever), framework.NewShellPod(ns, "toolbox", framework.RunForever)
	anchor.Spec.NodeSelector = map[string]string{corev1.LabelHostname: home}
	tied.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
		{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: anchor.Labels}},
	}}}
	lubeck.MustCreate(t, anchor)
	lubeck.MustCreate(t, tied)
	toolbox, near := lubeck.AwaitReadyPods(t, full, "toolbox", 1)[0], lubeck.AwaitReadyPods(t, ns, "toolbox", 1)[0]
	stuck := framework.NewPodMove(&near, atHamburg, 30*time.Second) // the scheduler keeps it with its anchor
	stuck.Spec.Method = v1alpha1.MoveDeleteFirst
	lubeck.MustCreate(t, stuck)

	if toolbox.Spec.NodeName != home {
		toolbox = *lubeck.AwaitMovedInPlace(t, lubeck.CreatePodMove(t, &toolbox, v1alpha1.MoveDestination{Node: home}, framework.WaitTimeout), home)
	}
	awaitsQuotaOf(ctx, t, lubeck, full)
	debug(t, lubeck, &toolbox)
	moved := lubeck.AwaitMovedInPlace(t, lubeck.CreatePodMove(t, &toolbox, atHamburg, framework.WaitTimeout), away)
	expectNoDebugger(t, moved)
	framework.ExpectSamePod(t, moved, hamburg.MustGetRemotePod(t, moved))
	if out, err := lubeck.Hanse(ctx, "move", "-n", full, "toolbox", "--to", home, "--method", "DeleteFirst"); err != nil || !strings.Contains(out, "1 pods have moved") {
		t.Fatal(err, out)
	}
	back := lubeck.AwaitReadyPods(t, full, "toolbox", 1)[0]
	if back.Name != "toolbox" || back.Spec.NodeName != home {
		t.Errorf("it is back as %s", framework.Summarize([]corev1.Pod{back}))
	}
	isRestored(t, lubeck, stuck, v1alpha1.ReasonDeadlineExceeded, home)
	losesQuota(t, lubeck, &back, quota, home)
}

// debug runs an ephemeral container in the pod, as kubectl debug does.
func debug(t *testing.T, c *framework.Cluster, pod *corev1.Pod) {
	t.Helper()
	changed := pod.DeepCopy()
	changed.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debugger", Image: framework.BusyboxImage, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"/bin/sh", "-c", framework.RunForever},
			VolumeMounts: pod.Spec.Containers[0].VolumeMounts, // where the token is
		},
		TargetContainerName: "main",
	}}
	if err := c.SubResource("ephemeralcontainers").Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the ephemeral container of "+pod.Name+" runs", func(ctx context.Context) error {
		now, err := c.GetPod(ctx, pod.Namespace, pod.Name)
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
func losesQuota(t *testing.T, c *framework.Cluster, pod *corev1.Pod, quota *corev1.ResourceQuota, home string) {
	t.Helper()
	awaitsQuotaOf(t.Context(), t, c, pod.Namespace)
	hold(t, c, *pod)
	wanted := c.CreatePodMove(t, pod, v1alpha1.MoveDestination{Peer: "hamburg"}, framework.WaitTimeout)
	saysHeld(t, c, wanted)
	c.MergePatch(t, quota, `{"spec":{"hard":{"pods":"0"}}}`)
	framework.Eventually(t, "the quota has no room", func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(quota), quota)
		if hard := quota.Status.Hard[corev1.ResourcePods]; err == nil && !hard.IsZero() {
			err = fmt.Errorf("it has %s", hard.String())
		}
		return err
	})
	release(t, c, *pod)
	framework.Eventually(t, "the PodMove says why the pod is not there", func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(wanted), wanted)
		restored := meta.FindStatusCondition(wanted.Status.Conditions, v1alpha1.ConditionRestored)
		if err == nil && (restored == nil || restored.Reason != v1alpha1.ReasonCopyRefused || !strings.Contains(restored.Message, "exceeded quota")) {
			err = fmt.Errorf("it is %s: %+v", wanted.Status.Phase, wanted.Status.Conditions)
		}
		return err
	})
	c.MergePatch(t, quota, `{"spec":{"hard":{"pods":"1"}}}`)
	isRestored(t, c, wanted, v1alpha1.ReasonCopyRefused, home)
}
