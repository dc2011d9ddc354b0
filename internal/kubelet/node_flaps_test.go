// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestNodeOfAPeerThatFlapsSaysSo(t *testing.T) {
	told := func(status corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: v1alpha1.NodeFlaps, Status: status}}}}
	}
	for name, c := range map[string]struct {
		flaps bool
		node  *corev1.Node
		want  corev1.ConditionStatus // "" for no condition
	}{
		"a new node":                   {},
		"one that never did":           {node: &corev1.Node{}},
		"one that does":                {flaps: true, node: &corev1.Node{}, want: corev1.ConditionTrue},
		"one that does when it is new": {flaps: true, want: corev1.ConditionTrue},
		"one that did":                 {node: told(corev1.ConditionTrue), want: corev1.ConditionFalse},
		"one that did long ago":        {node: told(corev1.ConditionFalse), want: corev1.ConditionFalse},
	} {
		t.Run(name, func(t *testing.T) {
			got := flapsOf(c.flaps, c.node)
			if got == nil != (c.want == "") || got != nil && (got.Status != c.want || got.Message == "") {
				t.Errorf("it says %+v, want %q", got, c.want)
			}
		})
	}
}
