// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/fault"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
)

// For how long a provider may look for room for a pod, unless the user said.
var (
	placementTimeoutDefault = metav1.Duration{Duration: 30 * time.Second}
	scaleUpTimeoutDefault   = metav1.Duration{Duration: 10 * time.Minute}
)

// isRoomless says whether the condition Scheduled of a ShadowPod says that there is no node with room for the pod.
func isRoomless(scheduled *metav1.Condition) bool {
	return scheduled != nil && scheduled.Status == metav1.ConditionFalse &&
		(scheduled.Reason == v1alpha1.ReasonNoRoom || scheduled.Reason == v1alpha1.ReasonScalingUp)
}

// showPlacement says in the status of a home pod why it has no place yet. It is bound here, so PodScheduled stays.
func showPlacement(status *corev1.PodStatus, home *corev1.Pod) {
	placed := offload.PodCondition(status, v1alpha1.PodPlaced)
	if placed == nil || status.Phase == corev1.PodFailed || terminal(home) {
		return
	}
	status.Reason, status.Message = placed.Reason, placed.Message
	if everStarted(status) {
		return
	}
	status.ContainerStatuses = waiting(home, placed.Reason, placed.Message)
}

// everStarted says whether a container of the pod ever ran, as far as home was told.
func everStarted(status *corev1.PodStatus) bool {
	return status.Phase != corev1.PodPending && status.Phase != "" || slices.ContainsFunc(
		slices.Concat(status.InitContainerStatuses, status.ContainerStatuses), func(c corev1.ContainerStatus) bool {
			return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil || c.RestartCount > 0
		})
}

// letGoAt returns when the pod is let go if its provider has no room for it by then: deleted, so that its controller makes
// another, which finds another node. A pod without a controller would be lost by that, a Job would count it as failed, and
// what a container that ran has done would be undone, so those stay.
func letGoAt(home *corev1.Pod, how *v1alpha1.NamespaceOffloadingSpec) (time.Time, bool) {
	placed := offload.PodCondition(&home.Status, v1alpha1.PodPlaced)
	if placed == nil || isRefused(&home.Status) || everStarted(&home.Status) || !home.DeletionTimestamp.IsZero() || !isReplaced(home) {
		return time.Time{}, false
	}
	timeout := ptr.Deref(how.PlacementTimeout, placementTimeoutDefault).Duration
	if placed.Reason == v1alpha1.ReasonScalingUp {
		timeout = ptr.Deref(how.ScaleUpTimeout, scaleUpTimeoutDefault).Duration
	}
	return placed.LastTransitionTime.Add(timeout), true
}

// isReplaced says whether something makes another pod when this one is deleted.
func isReplaced(home *corev1.Pod) bool {
	owner := metav1.GetControllerOf(home)
	return owner != nil && owner.Kind != "Job"
}

// letGo lets the pod go if it is time for it, and returns how long it has otherwise.
func (c *podController) letGo(ctx context.Context, seen podFacts, link *peers.Link) (time.Duration, error) {
	deadline, may := letGoAt(seen.home, &seen.how)
	if !may || !seen.answers || !isRoomless(meta.FindStatusCondition(seen.shadow.Status.Conditions, v1alpha1.ConditionScheduled)) {
		return 0, nil
	}
	if left := deadline.Sub(c.clock.Now()); left > 0 {
		return left, nil
	}
	now := &v1alpha1.ShadowPod{}
	if err := link.Client().Get(ctx, client.ObjectKeyFromObject(seen.shadow), now); err != nil {
		return 0, remoteGone("read ShadowPod", err)
	}
	if !isRoomless(meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionScheduled)) {
		return 0, nil // it has found room, and the mirror will say so
	}
	return 0, c.disrupt(ctx, seen.home)
}

// disrupt deletes the pod, and says before why.
func (c *podController) disrupt(ctx context.Context, home *corev1.Pod) error {
	const why = "The provider had no room for the pod for too long, so another node gets it"
	status := *home.Status.DeepCopy()
	if offload.PodCondition(&status, corev1.DisruptionTarget) == nil {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonPlacementTimeout,
			Message: why, LastTransitionTime: metav1.NewTime(c.clock.Now()),
		})
		if _, err := c.write(ctx, home, status); err != nil {
			return err
		}
	}
	fault.Point(fault.BeforeLettingGo)
	if err := c.delete(ctx, home); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Let go of pod without room", "homeUID", home.UID)
	c.events.Eventf(home, nil, corev1.EventTypeWarning, v1alpha1.ReasonPlacementTimeout, "Delete", "%s", why)
	return nil
}

// disconnectedStatus returns the status of a pod whose provider does not answer: as it was when it was last heard of, but
// not ready, as that of a pod on a node that is not heard of. What the provider tells when it answers again replaces that.
func disconnectedStatus(home *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := *home.Status.DeepCopy()
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if c.Type != corev1.PodReady && c.Type != corev1.ContainersReady {
			continue
		}
		if c.Status != corev1.ConditionFalse {
			c.LastTransitionTime = now
		}
		c.Status, c.Reason = corev1.ConditionFalse, v1alpha1.ReasonDisconnected
		c.Message = "The provider does not answer, so nobody knows how the pod is"
	}
	return status
}

// replaceAfterDefault is for how long a provider is cut off before its pods are replaced, unless the user said.
var replaceAfterDefault = metav1.Duration{Duration: 5 * time.Minute}

// tolerationsOf returns the tolerations by which the pod does on disconnection what its namespace wants, and whether they
// differ from those that it has. Kubernetes has put its own times on every pod, and the shortest wins, so these are changed
// and none is added. A time that is not Kubernetes' own was chosen by the user, or by our policy at admission, and stays.
func tolerationsOf(
	home *corev1.Pod, how *v1alpha1.NamespaceOffloadingSpec, byDefault time.Duration,
) ([]corev1.Toleration, bool) {
	wanted := stayFor(how)
	var tolerations []corev1.Toleration
	changed := false
	for _, toleration := range home.Spec.Tolerations {
		if isDefaultTime(&toleration, byDefault) && !ptr.Equal(toleration.TolerationSeconds, wanted) {
			toleration.TolerationSeconds = wanted
			changed = true
		}
		tolerations = append(tolerations, toleration)
	}
	return tolerations, changed
}

// stayFor returns for how many seconds pods of a provider that is cut off stay, or nil for as long as it takes.
func stayFor(how *v1alpha1.NamespaceOffloadingSpec) *int64 {
	if how.OnDisconnect != v1alpha1.DisconnectionReplace {
		return nil
	}
	return ptr.To(int64(ptr.Deref(how.ReplaceAfter, replaceAfterDefault).Duration / time.Second))
}

func isDefaultTime(t *corev1.Toleration, byDefault time.Duration) bool {
	return (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable) &&
		t.Effect == corev1.TaintEffectNoExecute &&
		t.TolerationSeconds != nil && *t.TolerationSeconds == int64(byDefault/time.Second)
}

// tolerate has the pod do on disconnection what its namespace wants, and returns the pod as it is then. It returns nil if
// the pod is gone, or another one, by now.
func (c *podController) tolerate(
	ctx context.Context, home *corev1.Pod, how *v1alpha1.NamespaceOffloadingSpec,
) (*corev1.Pod, error) {
	tolerations, changed := tolerationsOf(home, how, c.defaultToleration)
	if !changed {
		return home, nil
	}
	// The API server refuses the list, and we come back, if somebody else has added to it meanwhile.
	before := &corev1.Pod{ObjectMeta: nameOf(home), Spec: corev1.PodSpec{Tolerations: home.Spec.Tolerations}}
	target := before.DeepCopy()
	target.UID, target.Spec.Tolerations = home.UID, tolerations
	err := c.client.Patch(ctx, target, client.MergeFrom(before))
	if isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("change tolerations of Pod: %w", err)
	}
	fault.Point(fault.TolerationsChanged)
	_, err = TrimPod(target) // as the cache has it, so that its revision is the same
	return target, err
}
