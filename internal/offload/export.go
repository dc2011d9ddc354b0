package offload

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// told replaces messages that count the provider's nodes or what is left on them, by the reason of the condition.
var told = map[string]string{
	corev1.PodReasonUnschedulable: unschedulable,
	corev1.PodReasonDeferred:      "The provider has no room for the new size at the moment",
	corev1.PodReasonInfeasible:    "The provider cannot give the pod the new size where it runs",
}

const unschedulable = "The provider has no node with room for the pod"

// exported are the conditions of a pod that a consumer sees, and those of them whose message it sees.
var exported = map[corev1.PodConditionType]bool{
	corev1.PodScheduled:              false,
	corev1.PodReadyToStartContainers: true,
	corev1.PodInitialized:            true,
	corev1.ContainersReady:           true,
	corev1.PodReady:                  true,
	corev1.DisruptionTarget:          false,
	corev1.PodResizePending:          false,
	corev1.PodResizeInProgress:       false,
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
		InitContainerStatuses: copyContainers(in.InitContainerStatuses, scrub),
		ContainerStatuses:     copyContainers(in.ContainerStatuses, scrub),

		EphemeralContainerStatuses: copyContainers(in.EphemeralContainerStatuses, scrub),
		AllocatedResources:         copyResourceList(in.AllocatedResources),
		Resources:                  copyResources(in.Resources),
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
		c.Message = told[c.Reason]
		if withMessage {
			c.Message = bounded(scrub(in[i].Message), maxMessage)
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
