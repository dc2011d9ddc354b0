package kubelet

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/fault"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
)

// For how long a provider may look for room for a pod, unless the user said.
const (
	placementTimeoutDefault = 30 * time.Second
	scaleUpTimeoutDefault   = 10 * time.Minute
)

// isRoomless says whether the condition Scheduled of a ShadowPod says that there is no node with room for the pod.
func isRoomless(scheduled *metav1.Condition) bool {
	return scheduled != nil && scheduled.Status == metav1.ConditionFalse &&
		(scheduled.Reason == v1alpha1.ReasonNoRoom || scheduled.Reason == v1alpha1.ReasonScalingUp)
}

// showPlacement says in the status of a home pod why it has no place yet. It is bound here, so PodScheduled stays.
func showPlacement(status *corev1.PodStatus, home *corev1.Pod) {
	placed := offload.PodCondition(status, podPlaced)
	if placed == nil || terminal(home) {
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
	if status.Phase != corev1.PodPending && status.Phase != "" {
		return true
	}
	for _, containers := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range containers {
			c := &containers[i]
			if c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil || c.RestartCount > 0 {
				return true
			}
		}
	}
	return false
}

// letGoAt returns when the pod is let go if its provider has no room for it by then: deleted, so that its controller makes
// another, which finds another node. A pod without a controller would be lost by that, a Job would count it as failed, and
// what a container that ran has done would be undone, so those stay.
func letGoAt(home *corev1.Pod, how *v1alpha1.NamespaceOffloadingSpec) (time.Time, bool) {
	placed := offload.PodCondition(&home.Status, podPlaced)
	if placed == nil || everStarted(&home.Status) || !home.DeletionTimestamp.IsZero() || !isReplaced(home) {
		return time.Time{}, false
	}
	timeout := durationOr(how.PlacementTimeout, placementTimeoutDefault)
	if placed.Reason == v1alpha1.ReasonScalingUp {
		timeout = durationOr(how.ScaleUpTimeout, scaleUpTimeoutDefault)
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
		if err := c.write(ctx, home, status); err != nil {
			return err
		}
	}
	fault.Point(fault.BeforeLettingGo)
	target := &corev1.Pod{}
	target.Namespace, target.Name = home.Namespace, home.Name
	err := c.client.Delete(ctx, target, client.Preconditions{UID: &home.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone, or another one, by now
	}
	if err != nil {
		return fmt.Errorf("delete Pod: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("Let go of pod without room", "homeUID", home.UID)
	c.events.Eventf(home, nil, corev1.EventTypeWarning, v1alpha1.ReasonPlacementTimeout, "Delete", "%s", why)
	return nil
}
