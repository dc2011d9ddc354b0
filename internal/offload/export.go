package offload

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// unschedulable replaces the scheduler's message, which counts the provider's nodes.
const unschedulable = "The provider has no node with room for the pod"

// exported are the conditions of a pod that a consumer sees, and those of them whose message it sees.
var exported = map[corev1.PodConditionType]bool{
	corev1.PodScheduled:              false,
	corev1.PodReadyToStartContainers: true,
	corev1.PodInitialized:            true,
	corev1.ContainersReady:           true,
	corev1.PodReady:                  true,
	corev1.DisruptionTarget:          false,
}

// Export returns what a provider shows of the pod's status to the consumer: no names, addresses or number of nodes,
// everything bounded.
func Export(pod *corev1.Pod) corev1.PodStatus {
	in := &pod.Status
	scrub := scrubber(pod)
	return corev1.PodStatus{
		Phase:                 in.Phase,
		Conditions:            exportConditions(in.Conditions, scrub),
		Reason:                bounded(in.Reason, maxWord),
		Message:               bounded(scrub(in.Message), maxMessage),
		PodIP:                 in.PodIP,
		PodIPs:                in.PodIPs,
		StartTime:             in.StartTime,
		QOSClass:              in.QOSClass,
		InitContainerStatuses: copyContainers(in.InitContainerStatuses, scrub),
		ContainerStatuses:     copyContainers(in.ContainerStatuses, scrub),
	}
}

func exportConditions(in []corev1.PodCondition, scrub func(string) string) []corev1.PodCondition {
	var out []corev1.PodCondition
	for i := range in {
		withMessage, ok := exported[in[i].Type]
		if !ok {
			continue
		}
		c := corev1.PodCondition{
			Type:               in[i].Type,
			Status:             in[i].Status,
			LastTransitionTime: in[i].LastTransitionTime,
			Reason:             bounded(in[i].Reason, maxWord),
		}
		switch {
		case withMessage:
			c.Message = bounded(scrub(in[i].Message), maxMessage)
		case c.Reason == corev1.PodReasonUnschedulable:
			c.Message = unschedulable
		}
		out = append(out, c)
	}
	return out
}

// scrubber returns what takes the name and the addresses of the pod's node out of a text.
func scrubber(pod *corev1.Pod) func(string) string {
	var pairs []string
	for _, secret := range append([]string{pod.Spec.NodeName, pod.Status.HostIP}, hostIPs(pod)...) {
		if secret != "" {
			pairs = append(pairs, secret, "(node)")
		}
	}
	return strings.NewReplacer(pairs...).Replace
}

func hostIPs(pod *corev1.Pod) []string {
	out := make([]string, 0, len(pod.Status.HostIPs))
	for _, host := range pod.Status.HostIPs {
		out = append(out, host.IP)
	}
	return out
}

// copyContainers is the allow-list of what is told of containers, bounded.
func copyContainers(in []corev1.ContainerStatus, scrub func(string) string) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range in {
		s := &in[i]
		out = append(out, corev1.ContainerStatus{
			Name:                 s.Name,
			State:                copyState(&s.State, scrub),
			LastTerminationState: copyState(&s.LastTerminationState, scrub),
			Ready:                s.Ready,
			RestartCount:         s.RestartCount,
			Image:                bounded(s.Image, maxReference),
			ImageID:              bounded(s.ImageID, maxReference),
			ContainerID:          bounded(s.ContainerID, maxReference),
			Started:              s.Started,
		})
	}
	return out
}

func copyState(in *corev1.ContainerState, scrub func(string) string) corev1.ContainerState {
	switch {
	case in.Terminated != nil:
		t := in.Terminated
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode:    t.ExitCode,
			Signal:      t.Signal,
			Reason:      bounded(t.Reason, maxWord),
			Message:     bounded(scrub(t.Message), maxTermination),
			StartedAt:   t.StartedAt,
			FinishedAt:  t.FinishedAt,
			ContainerID: bounded(t.ContainerID, maxReference),
		}}
	case in.Running != nil:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: in.Running.StartedAt}}
	case in.Waiting != nil:
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason:  bounded(in.Waiting.Reason, maxWord),
			Message: bounded(scrub(in.Waiting.Message), maxMessage),
		}}
	}
	return corev1.ContainerState{}
}
