package kubelet

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// mergeNode returns the Node as it is, with what we keep of it made as desired. What others put on it stays: labels and
// annotations of the administrator, the cordon, taints and conditions of Kubernetes' own controllers. A capacity that
// moves a little stays as it is shown, so that the Node is not written with every pod that starts or ends at the peer.
func mergeNode(current, desired *corev1.Node, now metav1.Time) *corev1.Node {
	merged := current.DeepCopy()
	for _, key := range strings.Split(current.Annotations[annotationPeerLabels], ",") {
		delete(merged.Labels, key)
	}
	merged.Labels = with(merged.Labels, desired.Labels)
	merged.Annotations = with(merged.Annotations, desired.Annotations)
	merged.Spec.ProviderID = desired.Spec.ProviderID
	merged.Spec.Taints = mergeTaints(current.Spec.Taints, desired.Spec.Taints)

	capacity := exchange.Steady(current.Status.Capacity, desired.Status.Capacity)
	conditions := slices.Clone(current.Status.Conditions)
	for _, condition := range desired.Status.Conditions {
		conditions = setNodeCondition(conditions, condition, now)
	}
	desired.Status.DeepCopyInto(&merged.Status)
	merged.Status.Capacity, merged.Status.Allocatable = capacity, capacity.DeepCopy()
	merged.Status.Conditions = conditions
	merged.Status.VolumesAttached = current.Status.VolumesAttached
	merged.Status.VolumesInUse = current.Status.VolumesInUse
	return merged
}

func with(labels, more map[string]string) map[string]string {
	if labels == nil {
		labels = map[string]string{}
	}
	for key, value := range more {
		labels[key] = value
	}
	return labels
}

// mergeTaints keeps the taints of others, in their order, behind ours.
func mergeTaints(current, ours []corev1.Taint) []corev1.Taint {
	merged := slices.Clone(ours)
	for _, taint := range current {
		if taint.Key != v1alpha1.TaintVirtualNode && taint.Key != v1alpha1.TaintWithdrawn {
			merged = append(merged, taint)
		}
	}
	return merged
}

// setNodeCondition sets one condition. Its times move only when something else of it does: the lease is the heartbeat.
func setNodeCondition(conditions []corev1.NodeCondition, c corev1.NodeCondition, now metav1.Time) []corev1.NodeCondition {
	c.LastHeartbeatTime, c.LastTransitionTime = now, now
	at := slices.IndexFunc(conditions, func(was corev1.NodeCondition) bool { return was.Type == c.Type })
	if at < 0 {
		return append(conditions, c)
	}
	was := conditions[at]
	if was.Status == c.Status && was.Reason == c.Reason && was.Message == c.Message {
		return conditions
	}
	if was.Status == c.Status {
		c.LastTransitionTime = was.LastTransitionTime
	}
	conditions[at] = c
	return conditions
}
