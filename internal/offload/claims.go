// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// ClaimsOf returns the names of the claims that the pod uses, sorted, each once.
func ClaimsOf(spec *corev1.PodSpec) []string {
	var names []string
	for i := range spec.Volumes {
		if claim := spec.Volumes[i].PersistentVolumeClaim; claim != nil {
			names = append(names, claim.ClaimName)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// UsesClaims says whether the pod uses claims. Where their volumes are decides where it can run, and only the scheduler knows, or
// decides itself.
func UsesClaims(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil })
}

// WithClaims returns the pod with other names of claims: those that they have in another cluster, by the names here.
func WithClaims(pod *corev1.Pod, names map[string]string) *corev1.Pod {
	pod = pod.DeepCopy()
	for i := range pod.Spec.Volumes {
		if claim := pod.Spec.Volumes[i].PersistentVolumeClaim; claim != nil {
			claim.ClaimName = names[claim.ClaimName]
		}
	}
	return pod
}
