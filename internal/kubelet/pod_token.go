package kubelet

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

const tokenMessage = "The pod runs at a provider without the token of its service account, so no API server knows it there. " +
	"If it needs the token, keep it at home. If not, set automountServiceAccountToken: false in its spec or its service account"

// showToken says in the status of a home pod that it runs without the token that Kubernetes gave it, and returns whether that
// is news.
func showToken(status *corev1.PodStatus, home *corev1.Pod, shadow *v1alpha1.ShadowPod, now metav1.Time) bool {
	if shadow.Status.Pod == nil || !offload.LeavesToken(home) || offload.PodCondition(status, v1alpha1.PodToken) != nil {
		return false
	}
	status.Conditions = append(status.Conditions, corev1.PodCondition{
		Type: v1alpha1.PodToken, Status: corev1.ConditionFalse, LastTransitionTime: now,
		Reason: v1alpha1.ReasonTokenLeftAtHome, Message: tokenMessage,
	})
	return true
}

// likelyUsesToken says of a pod that somebody has given a service account of its own. Every other pod has a token too, and
// hardly any uses it: its condition says enough.
func likelyUsesToken(home *corev1.Pod) bool {
	return home.Spec.ServiceAccountName != "" && home.Spec.ServiceAccountName != "default"
}
