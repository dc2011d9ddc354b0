// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
)

// A provider can say of a pod that it will never run there. Home's controllers replace a pod that fails at once, and most
// often on the same node, so such a pod is held for a while before it fails: longer with each pod of the same controller that
// failed so on the node. What was counted can be seen by anybody: the pods that failed.
const (
	// firstHold is for how long a pod is held, and how long it must be there before it fails. It doubles up to longestHold.
	firstHold   = time.Minute
	longestHold = 30 * time.Minute
	// remembered is for how long a pod that failed counts.
	remembered = 2 * time.Hour
	// askAgainAfter is how soon a provider is asked again about a pod that must not fail.
	askAgainAfter = 10 * time.Minute
)

// judgement is what becomes of a pod that its provider gives up.
type judgement int

const (
	holdOn judgement = iota
	fail
	// askAgain: the record goes, so that the provider decides about the pod anew.
	askAgain
)

// isRefused says whether the status is of a pod that its provider will not run, and that has not run.
func isRefused(status *corev1.PodStatus) bool {
	placed := offload.PodCondition(status, v1alpha1.PodPlaced)
	return placed != nil && placed.Reason == v1alpha1.ReasonRefusedByProvider
}

// judge says what becomes of a home pod with that new status, which its provider gives up after so many others of the same
// controller, and when to look again if it is held.
func judge(home *corev1.Pod, status *corev1.PodStatus, failed int, now time.Time) (judgement, time.Duration) {
	if !home.DeletionTimestamp.IsZero() {
		return holdOn, 0
	}
	ran := everStarted(status)
	if !ran && !isReplaced(home) {
		return judgeKept(status, now)
	}
	since, hold := now, holdFor(failed, ran)
	if c := offload.PodCondition(status, markOf(ran)); c != nil {
		since = c.LastTransitionTime.Time
	}
	until := since.Add(hold)
	if earliest := home.CreationTimestamp.Add(firstHold); until.Before(earliest) {
		until = earliest
	}
	if left := until.Sub(now); left > 0 {
		return holdOn, left
	}
	return fail, 0
}

// judgeKept is for a pod that never ran and must not fail: a Job would count it, and without a controller it would be lost.
func judgeKept(status *corev1.PodStatus, now time.Time) (judgement, time.Duration) {
	placed := offload.PodCondition(status, v1alpha1.PodPlaced)
	if placed == nil {
		return holdOn, askAgainAfter
	}
	asked := placed.LastTransitionTime.Time
	if placed.LastProbeTime.After(asked) {
		asked = placed.LastProbeTime.Time
	}
	if left := asked.Add(askAgainAfter).Sub(now); left > 0 {
		return holdOn, left
	}
	return askAgain, 0
}

// markOf returns the condition whose time says since when the pod is held.
func markOf(ran bool) corev1.PodConditionType {
	if ran {
		return corev1.DisruptionTarget
	}
	return v1alpha1.PodPlaced
}

// holdFor returns for how long a pod is held if so many failed before it. One that ran fails at once if it is the first.
func holdFor(failed int, ran bool) time.Duration {
	if ran {
		failed--
	}
	if failed < 0 {
		return 0
	}
	return min(firstHold<<min(failed, 10), longestHold)
}

// failedBefore counts the pods of the same controller on the same node that the provider gave up not long ago.
func failedBefore(pods []corev1.Pod, home *corev1.Pod, now time.Time) int {
	owner := metav1.GetControllerOf(home)
	if owner == nil {
		return 0
	}
	count := 0
	for i := range pods {
		other := metav1.GetControllerOf(&pods[i])
		target := offload.PodCondition(&pods[i].Status, corev1.DisruptionTarget)
		if other != nil && other.UID == owner.UID && pods[i].Status.Phase == corev1.PodFailed &&
			target != nil && now.Sub(target.LastTransitionTime.Time) < remembered {
			count++
		}
	}
	return count
}

// holdOrFail has a pod that its provider gives up wait in its new status, or fail.
func (c *podController) holdOrFail(
	ctx context.Context, home *corev1.Pod, shadow *v1alpha1.ShadowPod, status *corev1.PodStatus,
) (judgement, time.Duration, error) {
	reason, message, is := offload.GivenUp(shadow)
	if !is {
		return holdOn, 0, nil
	}
	pods, err := podsOn(ctx, c.client, home.Spec.NodeName, home.Namespace)
	if err != nil {
		return holdOn, 0, err
	}
	now := c.clock.Now()
	if everStarted(status) {
		offload.Disrupt(status, reason, message, now)
	}
	verdict, again := judge(home, status, failedBefore(pods, home, now), now)
	switch verdict {
	case holdOn:
	case fail:
		offload.GiveUp(status, reason, message, now)
	case askAgain:
		offload.PodCondition(status, v1alpha1.PodPlaced).LastProbeTime = metav1.NewTime(now.Truncate(time.Second))
	}
	return verdict, again, nil
}

// ask has the provider decide anew about a pod that it has refused: its record goes, and the next look makes another.
func (c *podController) ask(ctx context.Context, shadow *v1alpha1.ShadowPod, link *peers.Link) error {
	ctrl.LoggerFrom(ctx).Info("Asking again about a pod that was refused", "homeUID", shadow.Spec.HomeUID)
	return c.deleteShadow(ctx, shadow, link)
}

// waitsRefused says whether the pod waits at a node whose peer refuses it.
func waitsRefused(pod *corev1.Pod) bool { return !terminal(pod) && isRefused(&pod.Status) }

// refusesPods is a condition of a virtual node: whether its peer refuses pods that are bound to it, and why the one that waits
// longest. A node on which none ever waited has no such condition.
func refusesPods(pods []corev1.Pod, node *corev1.Node) *corev1.NodeCondition {
	var first *corev1.Pod
	for i := range pods {
		pod := &pods[i]
		if !waitsRefused(pod) {
			continue
		}
		if first == nil || pod.CreationTimestamp.Before(&first.CreationTimestamp) ||
			pod.CreationTimestamp.Equal(&first.CreationTimestamp) && pod.Namespace+"/"+pod.Name < first.Namespace+"/"+first.Name {
			first = pod
		}
	}
	if first != nil {
		return &corev1.NodeCondition{
			Type: v1alpha1.NodeRefusesPods, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonRefusedByProvider,
			Message: "The peer refuses pods of namespace " + first.Namespace + ": " +
				bounded(offload.PodCondition(&first.Status, v1alpha1.PodPlaced).Message),
		}
	}
	if node == nil || nodeCondition(node, v1alpha1.NodeRefusesPods) == nil {
		return nil
	}
	return ptr.To(corev1.NodeCondition{
		Type: v1alpha1.NodeRefusesPods, Status: corev1.ConditionFalse, Reason: reasonServing, Message: "No pod waits that the peer refuses",
	})
}

func nodeCondition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// turnsRefused passes on that a pod is refused, or not any more.
func turnsRefused(before, after *corev1.Pod) bool {
	return waitsRefused(before) != waitsRefused(after)
}
