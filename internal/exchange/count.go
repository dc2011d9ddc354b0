// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
)

// Count returns what a pod counts for: its requests, init containers, sidecars and overhead included, and the pod itself.
// Limits of peers, reservations, offers and guarantees all count by this function, so that they agree.
func Count(pod *corev1.Pod) corev1.ResourceList {
	counted := helpers.PodRequests(pod, helpers.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
	for name, amount := range counted {
		// The API server refuses negative requests. Until then they must not make room for others.
		if amount.Sign() < 0 {
			delete(counted, name)
		}
	}
	counted[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return counted
}

// LeastCount returns what each container counts for, at least, of the resources that are limited: a container that asks for
// nothing uses something all the same.
func LeastCount(limits corev1.ResourceList) corev1.ResourceList {
	least := corev1.ResourceList{}
	if _, limited := limits[corev1.ResourceCPU]; limited {
		least[corev1.ResourceCPU] = resource.MustParse("100m")
	}
	if _, limited := limits[corev1.ResourceMemory]; limited {
		least[corev1.ResourceMemory] = resource.MustParse("128Mi")
	}
	return least
}

// QuotaKey returns under which key a ResourceQuota counts a resource of pods, and "" if it cannot count it.
func QuotaKey(name corev1.ResourceName) corev1.ResourceName {
	switch {
	case name == corev1.ResourcePods:
		return name
	case name == corev1.ResourceStorage:
		return corev1.ResourceRequestsStorage
	case slices.Contains(mandatory, name),
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix), strings.Contains(string(name), "/"):
		return corev1.DefaultResourceRequestsPrefix + name
	default:
		return ""
	}
}

// CountedBy returns the resource of pods that a key of a ResourceQuota counts, if it counts one.
func CountedBy(key corev1.ResourceName) (corev1.ResourceName, bool) {
	switch {
	case slices.Contains(mandatory, key):
		return key, true
	case key == "count/pods":
		return corev1.ResourcePods, true
	case key == corev1.ResourceRequestsStorage:
		return "", false // of volume claims, which pods do not take along
	}
	name, requests := strings.CutPrefix(string(key), corev1.DefaultResourceRequestsPrefix)
	return corev1.ResourceName(name), requests
}
