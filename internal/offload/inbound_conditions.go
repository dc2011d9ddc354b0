package offload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reflected are the conditions that a kubelet would set, so they come from the provider. All others have other writers
// at home.
var reflected = []corev1.PodConditionType{
	corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
	corev1.PodResizePending, corev1.PodResizeInProgress,
}

// passing are those of them that are gone when they no longer hold.
var passing = []corev1.PodConditionType{corev1.PodResizePending, corev1.PodResizeInProgress}

func takeConditions(out *corev1.PodStatus, home *corev1.Pod, remote *corev1.PodStatus) {
	out.Conditions = slices.DeleteFunc(out.Conditions, func(c corev1.PodCondition) bool {
		return slices.Contains(passing, c.Type) && PodCondition(remote, c.Type) == nil
	})
	for _, kind := range reflected {
		claimed := PodCondition(remote, kind)
		if claimed == nil || !knownConditionStatus(claimed.Status) {
			continue
		}
		c := corev1.PodCondition{
			Type:               kind,
			Status:             claimed.Status,
			ObservedGeneration: home.Generation,
			LastTransitionTime: claimed.LastTransitionTime,
			Reason:             bounded(claimed.Reason, maxWord),
			Message:            bounded(claimed.Message, maxMessage),
		}
		if kind == corev1.PodReady {
			judgeGates(&c, home)
		}
		setCondition(out, c)
	}
}

func knownConditionStatus(s corev1.ConditionStatus) bool {
	return s == corev1.ConditionTrue || s == corev1.ConditionFalse || s == corev1.ConditionUnknown
}

// judgeGates holds a ready pod back until home's readiness gates are open: their controllers are at home.
func judgeGates(ready *corev1.PodCondition, home *corev1.Pod) {
	if ready.Status != corev1.ConditionTrue {
		return
	}
	for _, gate := range home.Spec.ReadinessGates {
		c := PodCondition(&home.Status, gate.ConditionType)
		if c != nil {
			ready.LastTransitionTime = later(ready.LastTransitionTime, c.LastTransitionTime)
		}
		if c == nil || c.Status != corev1.ConditionTrue {
			ready.Status = corev1.ConditionFalse
			ready.Reason = "ReadinessGatesNotReady"
			ready.Message = "Readiness gate " + string(gate.ConditionType) + " is not True"
			return
		}
	}
}

func later(a, b metav1.Time) metav1.Time {
	if a.Before(&b) {
		return b
	}
	return a
}

// setCondition replaces the condition of the same type. The time of the last change stays while the status does.
func setCondition(out *corev1.PodStatus, c corev1.PodCondition) {
	was := PodCondition(out, c.Type)
	if was == nil {
		out.Conditions = append(out.Conditions, c)
		return
	}
	if was.Status == c.Status && !was.LastTransitionTime.IsZero() {
		c.LastTransitionTime = was.LastTransitionTime
	}
	*was = c
}
