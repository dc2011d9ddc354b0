// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// CutOff cuts lubeck and hamburg off from each other until it is healed, at the story's end at the latest.
func CutOff(t *testing.T) {
	t.Helper()
	MustTestbed(t, "cut", "lubeck", "hamburg")
	t.Cleanup(func() { MustTestbed(t, "heal", "lubeck", "hamburg") })
}

// AwaitReplacement waits for another pod of the same app that runs on a node of this cluster.
func (c *Cluster) AwaitReplacement(t *testing.T, of *corev1.Pod) *corev1.Pod {
	t.Helper()
	replacement := &corev1.Pod{}
	Eventually(t, "another pod runs at home", func(ctx context.Context) error {
		pods, err := c.GetPods(ctx, of.Namespace, of.Labels["app"])
		if err != nil {
			return err
		}
		for i := range pods {
			if pods[i].UID != of.UID && IsPodReady(&pods[i]) && !IsOnVirtualNode(&pods[i]) {
				pods[i].DeepCopyInto(replacement)
				return nil
			}
		}
		return fmt.Errorf("no: %s", Summarize(pods))
	})
	return replacement
}
