package offload

import (
	"encoding/json"
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

// AddRestarts adds the restarts of the pod's containers to those of earlier pods, and returns the sums. Others have told
// the numbers, so that they may be absurd.
func AddRestarts(earlier map[string]int32, pod *corev1.PodStatus) map[string]int32 {
	for _, container := range ContainerStatuses(pod) {
		if container.RestartCount <= 0 {
			continue
		}
		if earlier == nil {
			earlier = map[string]int32{}
		}
		earlier[container.Name] = added(earlier[container.Name], container.RestartCount)
	}
	return earlier
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
