// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// withToken ends the revision of a ShadowPod whose pod has a Secret with its tokens. Whether it has is decided when it goes out,
// since its volumes never change; and the record says it without being read as a whole.
const withToken = "-token"

func hasToken(shadow *v1alpha1.ShadowPod) bool {
	return strings.HasSuffix(shadow.Annotations[annotationRevision], withToken)
}

// withOrWithoutToken returns the pod without what of it does not go to the peer, and whether it goes with a Secret of its tokens,
// or has gone. An error says to its author why it cannot go.
func withOrWithoutToken(pod *corev1.Pod, seen *podFacts) (sent *corev1.Pod, token bool, err error) {
	if seen.shadow != nil {
		token = hasToken(seen.shadow)
	} else {
		token = offload.TakesTokenSecret(pod, seen.to.HasNetwork())
	}
	switch {
	case token && !seen.to.Protocol().Network:
		return nil, false, &heldError{"it asks for a token of its service account, or for kube-root-ca.crt, which do not go to a " +
			"cluster without Hanse: keep it off that cluster, or take the volume or variable out of it"}
	case token:
		return pod, true, nil
	default:
		return offload.WithoutToken(pod), false, nil
	}
}

const withoutToken = "The pod runs at the provider without the token of its service account: %s. If it needs the token, %s. " +
	"If not, set automountServiceAccountToken: false in its spec or its service account"

// whyWithoutToken says why a pod has no token at the peer, and what its author can do about it.
func whyWithoutToken(to *v1alpha1.Peer) string {
	switch {
	case to.Agentless():
		return fmt.Sprintf(withoutToken, "there is no Hanse in that cluster, so the pod does not reach the API server of this one",
			"keep it off that cluster")
	case !to.HasNetwork():
		return fmt.Sprintf(withoutToken, "no network connects the clusters, so the pod does not reach the API server of this one",
			"connect the clusters and delete it, so that it is made anew, or keep it at home")
	default:
		return fmt.Sprintf(withoutToken, "it went out before a network connected the clusters", "delete it, so that it is made anew")
	}
}

const waitsForToken = "The pod waits at the provider for the tokens of its service account, which are not there. An event TokenRefused of " +
	"this pod says what keeps this cluster from making them, or the provider from taking them, and what to do"

// showMissingToken says in the status of a home pod whether it waits for its tokens.
func showMissingToken(status *corev1.PodStatus, seen *podFacts, now metav1.Time) {
	said := offload.PodCondition(status, v1alpha1.PodToken)
	says, waits := said != nil && said.Reason == v1alpha1.ReasonTokenRefused, hasToken(seen.shadow) && offload.WaitsForTokens(seen.home, seen.shadow)
	switch {
	case waits && said == nil:
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: v1alpha1.PodToken, Status: corev1.ConditionFalse, LastTransitionTime: now,
			Reason: v1alpha1.ReasonTokenRefused, Message: waitsForToken,
		})
	case says && !waits:
		status.Conditions = slices.DeleteFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == v1alpha1.PodToken })
	}
}

// showToken says in the status of a home pod that it runs without the token that Kubernetes gave it, and returns that if it is
// news for its author: somebody has given the pod a service account of its own. Every other pod has a token too, and hardly any
// uses it: its condition says enough.
func showToken(status *corev1.PodStatus, seen *podFacts, now metav1.Time) (news []corev1.PodCondition) {
	if seen.shadow.Status.Pod == nil || hasToken(seen.shadow) || !offload.LeavesToken(seen.home) ||
		offload.PodCondition(status, v1alpha1.PodToken) != nil {
		return nil
	}
	lacks := corev1.PodCondition{
		Type: v1alpha1.PodToken, Status: corev1.ConditionFalse, LastTransitionTime: now,
		Reason: v1alpha1.ReasonTokenLeftAtHome, Message: whyWithoutToken(seen.to),
	}
	status.Conditions = append(status.Conditions, lacks)
	if account := seen.home.Spec.ServiceAccountName; account == "" || account == "default" {
		return nil
	}
	return []corev1.PodCondition{lacks}
}
