// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"encoding/json"
	"maps"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

const (
	// ReasonRemaking says that the pod goes or went, not by its own doing, and that the next is about to be made.
	ReasonRemaking = "Remaking"
	// maxCondition is the bound of messages of conditions in the API.
	maxCondition = 1024
)

var validReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// SetCondition sets the condition in the status of a ShadowPod, with a message that is not too long. Pods may give no
// reason, or one that is none: then it is the type.
func SetCondition(status *v1alpha1.ShadowPodStatus, c metav1.Condition) {
	if !validReason.MatchString(c.Reason) {
		c.Reason = c.Type
	}
	c.Message = sanitize.Text(c.Message, maxCondition)
	meta.SetStatusCondition(&status.Conditions, c)
}

// RecordPod stores the status of the pod in that of its ShadowPod.
func RecordPod(status *v1alpha1.ShadowPodStatus, pod *corev1.PodStatus) {
	status.Phase = string(pod.Phase)
	raw, err := json.Marshal(pod)
	if err != nil {
		return // nothing that came from an API server cannot be encoded
	}
	status.Pod = &runtime.RawExtension{Raw: raw}
}

// RecordedPod returns the status of the pod that is stored in that of its ShadowPod, and nil if there is none.
func RecordedPod(status *v1alpha1.ShadowPodStatus) *corev1.PodStatus {
	if status.Pod == nil {
		return nil
	}
	known := &corev1.PodStatus{}
	if err := json.Unmarshal(status.Pod.Raw, known); err != nil {
		return nil
	}
	return known
}

// AddRestarts adds the restarts of the pod's containers to those of earlier pods, and returns the sums. The pod is made
// again, which restarts each container that has run, but no ephemeral one. Others have told the numbers, so that they may be
// absurd.
func AddRestarts(earlier map[string]int32, pod *corev1.PodStatus) map[string]int32 {
	sums := maps.Clone(earlier)
	add := func(name string, restarts int32) {
		if restarts <= 0 {
			return
		}
		if sums == nil {
			sums = map[string]int32{}
		}
		sums[name] = added(sums[name], restarts)
	}
	for _, container := range ContainerStatuses(pod) {
		add(container.Name, container.RestartCount)
	}
	for _, containers := range [][]corev1.ContainerStatus{pod.InitContainerStatuses, pod.ContainerStatuses} {
		for i := range containers {
			if Started(&containers[i]) {
				add(containers[i].Name, 1)
			}
		}
	}
	return sums
}

// Started says whether the container has run.
func Started(container *corev1.ContainerStatus) bool {
	return container.State.Running != nil || container.State.Terminated != nil ||
		container.LastTerminationState.Terminated != nil || container.RestartCount > 0
}

// ContainerStatuses returns the statuses of containers of every kind.
func ContainerStatuses(status *corev1.PodStatus) []*corev1.ContainerStatus {
	var out []*corev1.ContainerStatus
	for _, containers := range [][]corev1.ContainerStatus{
		status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses,
	} {
		for i := range containers {
			out = append(out, &containers[i])
		}
	}
	return out
}

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
	if Terminal(out.Phase) {
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

// Terminal says whether a pod of that phase, or the pod of a record of that phase, has ended, whatever ended it. No pod leaves
// such a phase.
func Terminal[P ~string](phase P) bool {
	return phase == P(corev1.PodSucceeded) || phase == P(corev1.PodFailed)
}
