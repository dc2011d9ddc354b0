package trace

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/internal/offload"
)

// Underway says whether the trace of a pod of that status goes on: the pod has not ended and has never been ready. That
// shows in how long it has not been: since it was started.
func Underway(status *corev1.PodStatus) bool {
	if status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed {
		return false
	}
	ready := offload.PodCondition(status, corev1.PodReady)
	if ready == nil || status.StartTime == nil {
		return ready == nil || ready.Status != corev1.ConditionTrue
	}
	return ready.Status != corev1.ConditionTrue && !ready.LastTransitionTime.After(status.StartTime.Time)
}
