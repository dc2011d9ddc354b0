package offload

import (
	corev1 "k8s.io/api/core/v1"
)

// PodCondition returns the condition of that type in the status, not a copy of it, or nil.
func PodCondition(status *corev1.PodStatus, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == kind {
			return &status.Conditions[i]
		}
	}
	return nil
}

// FailedByPlatform says whether the pod failed by what happened to its node or cluster, and not by its own
// containers. Such a pod is made again.
func FailedByPlatform(status *corev1.PodStatus) bool {
	if status.Phase != corev1.PodFailed {
		return false
	}
	if c := PodCondition(status, corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue {
		return true
	}
	return platformReason(status.Reason)
}

// platformReason knows the reasons by which kubelets and controllers fail a pod.
func platformReason(reason string) bool {
	switch reason {
	case "Evicted", "NodeShutdown", "Terminated", "UnexpectedAdmissionError", "NodeAffinity", "NodeLost",
		"Preempting", "Shutdown", "TopologyAffinityError":
		return true
	}
	return len(reason) > len("OutOf") && reason[:len("OutOf")] == "OutOf"
}

// Ended says whether the containers of the pod have run to their end: it is never run again.
func Ended(status *corev1.PodStatus) bool {
	if status.Phase == corev1.PodSucceeded {
		return true
	}
	return status.Phase == corev1.PodFailed && !FailedByPlatform(status)
}

// Interrupted returns what home may see of a pod that is about to be made again: the same, but not ready and not
// ended, because home's controllers would replace a pod that ended.
func Interrupted(status *corev1.PodStatus, reason string) corev1.PodStatus {
	out := *status.DeepCopy()
	if terminal(out.Phase) {
		out.Phase = corev1.PodRunning
	}
	out.Reason, out.Message = "", ""
	for i := range out.Conditions {
		c := &out.Conditions[i]
		if (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) && c.Status == corev1.ConditionTrue {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, reason, ""
		}
	}
	for i := range out.ContainerStatuses {
		out.ContainerStatuses[i].Ready = false
	}
	return out
}

func terminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
