// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// The API server gives a policy a budget, and ignores this one when it runs out.
func TestTheLongestPlacementIsWithinTheBudget(t *testing.T) {
	policy := mutatingPolicy(t, "hanse-place-pods")
	longName := strings.Repeat("n", 36)
	var decided, avoided []string
	for i := range 200 {
		decided = append(decided, fmt.Sprintf("{name: hanse-%s-%03d, weight: %d, excluded: %q, largestPod: {cpu: 1234m, memory: 123456789Ki}}",
			longName, i, i%100+1, map[bool]string{true: "too dear"}[i%2 == 0]))
	}
	for i := range 100 {
		avoided = append(avoided, fmt.Sprintf("%s-%03d", longName, i))
	}
	// The pod has nearly all labels of each class, and all of the last.
	var classes, classesDecided []string
	carried := map[string]string{}
	for c := range 8 {
		var asked []string
		for l := range 8 {
			key := fmt.Sprintf("%s.%s/%s-%d-%d", strings.Repeat("d", 63), strings.Repeat("e", 63), longName, c, l)
			carried[key] = strings.Repeat("v", 63)
			asked = append(asked, fmt.Sprintf("%s: %s", key, carried[key]))
			if c < 7 && l == 7 {
				delete(carried, key)
			}
		}
		classes = append(classes, fmt.Sprintf("{name: class-%d, podLabels: {%s}, exclude: [%s]}", c, strings.Join(asked, ", "),
			strings.ReplaceAll(strings.Join(avoided, ", "), "n-", "m-")))
		classesDecided = append(classesDecided, fmt.Sprintf("{name: class-%d, prefersRemote: true, nodes: [%s]}", c, strings.Join(decided, ", ")))
	}
	params := admitted(t, fmt.Sprintf(
		"{spec: {placement: {exclude: [%s], classes: [%s]}}, status: {placement: {prefersRemote: true, nodes: [%[3]s], classes: [%[4]s]}}}",
		strings.Join(avoided, ", "), strings.Join(classes, ", "), strings.Join(decided, ", "), strings.Join(classesDecided, ", ")))
	pod := podWith(t, terms("{matchExpressions: [{key: disk, operator: Exists}]}, {matchExpressions: [{key: gpu, operator: Exists}]}"))
	pod.Labels = carried
	pod.Annotations = map[string]string{v1alpha1.AnnotationExclude: strings.Join(avoided, ",") + strings.Repeat(",x", 10_000)}
	pod = policy.mutate(review{object: pod, params: params}).(*corev1.Pod)

	if got := len(preferredTerms(pod)); got != 50 {
		t.Errorf("%d preferred terms, want one for each weight", got)
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if got := len(required); got != 4 {
		t.Errorf("%d required terms, want 4", got)
	}
	excluded := 0
	for _, requirement := range required[3].MatchExpressions {
		if requirement.Operator == corev1.NodeSelectorOpNotIn {
			excluded += len(requirement.Values)
		}
	}
	if excluded != 350 {
		t.Errorf("%d are excluded, want half of what was decided, what else the class and the namespace exclude, and those of the pod", excluded)
	}
}
