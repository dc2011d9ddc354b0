package exchange

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// TrimPod is a transform of a cache of pods: it keeps the metadata and what decides how much a pod holds where. A remote
// pod (one that carries the UID of its home pod) is kept whole but for its managed fields, since its status goes home.
// Whoever needs the rest of any other pod reads it from the API server. What is no pod is returned as it is.
func TrimPod(object any) (any, error) {
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return object, nil
	}
	trimMetadata(&pod.ObjectMeta)
	if _, remote := pod.Labels[v1alpha1.LabelHomeUID]; remote {
		return pod, nil
	}
	pod.Spec = corev1.PodSpec{
		NodeName:       pod.Spec.NodeName,
		Containers:     trimContainers(pod.Spec.Containers),
		InitContainers: trimContainers(pod.Spec.InitContainers),
		Resources:      pod.Spec.Resources,
		Overhead:       pod.Spec.Overhead,
	}
	pod.Status = corev1.PodStatus{
		Phase:                 pod.Status.Phase,
		Conditions:            trimPodConditions(pod.Status.Conditions),
		ContainerStatuses:     trimContainerStatuses(pod.Status.ContainerStatuses),
		InitContainerStatuses: trimContainerStatuses(pod.Status.InitContainerStatuses),
		Resources:             pod.Status.Resources,
		AllocatedResources:    pod.Status.AllocatedResources,
	}
	return pod, nil
}

// TrimNode is a transform of a cache of nodes: it keeps the metadata and what an offer is computed from, and the
// addresses. What is no node is returned as it is.
func TrimNode(object any) (any, error) {
	node, isNode := object.(*corev1.Node)
	if !isNode {
		return object, nil
	}
	trimMetadata(&node.ObjectMeta)
	node.Spec = corev1.NodeSpec{
		PodCIDR:       node.Spec.PodCIDR,
		PodCIDRs:      node.Spec.PodCIDRs,
		Unschedulable: node.Spec.Unschedulable,
		Taints:        node.Spec.Taints,
	}
	node.Status = corev1.NodeStatus{
		Allocatable: node.Status.Allocatable,
		Conditions:  trimNodeConditions(node.Status.Conditions),
		Addresses:   node.Status.Addresses,
		Images:      node.Status.Images,
		NodeInfo: corev1.NodeSystemInfo{
			Architecture:   node.Status.NodeInfo.Architecture,
			KubeletVersion: node.Status.NodeInfo.KubeletVersion,
		},
	}
	return node, nil
}

func trimMetadata(meta *metav1.ObjectMeta) {
	meta.ManagedFields = nil
	delete(meta.Annotations, corev1.LastAppliedConfigAnnotation)
}

func trimContainers(containers []corev1.Container) []corev1.Container {
	trimmed := make([]corev1.Container, 0, len(containers))
	for i := range containers {
		trimmed = append(trimmed, corev1.Container{
			Name:          containers[i].Name,
			Resources:     containers[i].Resources,
			RestartPolicy: containers[i].RestartPolicy,
		})
	}
	return trimmed
}

func trimContainerStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var trimmed []corev1.ContainerStatus
	for i := range statuses {
		trimmed = append(trimmed, corev1.ContainerStatus{
			Name:               statuses[i].Name,
			Resources:          statuses[i].Resources,
			AllocatedResources: statuses[i].AllocatedResources,
		})
	}
	return trimmed
}

// trimPodConditions keeps whether a resize of the pod waits: it says which of its resources count.
func trimPodConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	for _, c := range conditions {
		if c.Type == corev1.PodResizePending {
			return []corev1.PodCondition{{Type: c.Type, Status: c.Status, Reason: c.Reason}}
		}
	}
	return nil
}

// trimNodeConditions drops the times, which change with every heartbeat.
func trimNodeConditions(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	for _, c := range conditions {
		if c.Type == corev1.NodeReady {
			return []corev1.NodeCondition{{Type: c.Type, Status: c.Status, Reason: c.Reason}}
		}
	}
	return nil
}
