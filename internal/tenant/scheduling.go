// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/internal/offload"
)

const (
	noRoom    = "The provider has no node with room for the pod"
	scalingUp = "The provider's autoscaler makes room for the pod"

	// mostResources is how many of the resources that are short are named.
	mostResources = 8
)

// unschedulable returns what the scheduler says of a pod that it finds no node for, and nil for any other pod.
func unschedulable(pod *corev1.Pod) *corev1.PodCondition {
	if pod == nil || pod.Spec.NodeName != "" {
		return nil
	}
	c := offload.PodCondition(&pod.Status, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason != corev1.PodReasonUnschedulable {
		return nil
	}
	return c
}

// insufficient finds the names of resources that are short.
var insufficient = regexp.MustCompile(`\bInsufficient ([A-Za-z0-9][-A-Za-z0-9._/]{0,126}[A-Za-z0-9])`)

// obstacles are what else a scheduler says, in lower case, and what a consumer is told of it.
var obstacles = []struct{ says, told string }{
	{"too many pods", "too many pods"},
	{"untolerated taint", "untolerated taint"},
	{"taints that the pod didn't tolerate", "untolerated taint"},
	{"were unschedulable", "nodes that take no pods now"},
	{"node affinity/selector", "node affinity or selector"},
	{"enforced node affinity", "node affinity or selector"},
	{"pod affinity rules", "pod affinity"},
	{"anti-affinity rules", "pod anti-affinity"},
	{"topology spread constraints", "topology spread constraints"},
	{"free ports", "no free ports"},
	{"required features", "required features"},
	{"volume count", "volumes"},
	{"persistent volume", "volumes"},
	{"persistentvolume", "volumes"},
	{"pvc(s)", "volumes"},
	{"volume zone", "volumes"},
	{"free storage", "volumes"},
	{"available disk", "volumes"},
	{"resourceclaim", "resource claims"},
	{"no nodes available", "no nodes"},
}

// reasonsOf returns what of the scheduler's message a consumer may know: which reasons it gives, and neither how many
// nodes there are, nor what they are called, nor what their taints say. The same reasons give the same text.
func reasonsOf(message string) string {
	// The rest of the message is about pods of other tenants that could make room.
	message, _, _ = strings.Cut(message, " preemption:")
	var reasons []string
	for _, found := range insufficient.FindAllStringSubmatch(message, -1) {
		reasons = append(reasons, "Insufficient "+found[1])
	}
	slices.Sort(reasons)
	reasons = slices.Compact(reasons)
	reasons = reasons[:min(len(reasons), mostResources)]
	message = strings.ToLower(message)
	told := map[string]struct{}{}
	for _, obstacle := range obstacles {
		if strings.Contains(message, obstacle.says) {
			told[obstacle.told] = struct{}{}
		}
	}
	return strings.Join(append(reasons, slices.Sorted(maps.Keys(told))...), "; ")
}

// because puts what the scheduler says behind a sentence.
func because(sentence string, c *corev1.PodCondition) string {
	if reasons := reasonsOf(c.Message); reasons != "" {
		return sentence + ": " + reasons
	}
	return sentence
}
