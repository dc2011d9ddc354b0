// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// AwaitClusterStatus waits for what the status of a namespace's offloading says of one peer.
func (c *Cluster) AwaitClusterStatus(t *testing.T, ns, peer string, expected func(v1alpha1.ClusterOffloading) bool) {
	t.Helper()
	Eventually(t, "the offloading of "+ns+" says what it should of "+peer, func(ctx context.Context) error {
		offloading := &v1alpha1.NamespaceOffloading{}
		if err := c.Get(ctx, types.NamespacedName{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}, offloading); err != nil {
			return err
		}
		for _, entry := range offloading.Status.Clusters {
			if entry.Peer == peer && expected(entry) {
				return nil
			}
		}
		return fmt.Errorf("it says %+v", offloading.Status.Clusters)
	})
}

// AwaitRecreatedAtHome waits until the pod that nobody else makes again runs at home under its name.
func (c *Cluster) AwaitRecreatedAtHome(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	Eventually(t, pod.Name+" runs at home", func(ctx context.Context) error {
		now, err := c.GetPod(ctx, pod.Namespace, pod.Name)
		if err == nil && (now.UID == pod.UID || !IsPodReady(now) || IsOnVirtualNode(now)) {
			err = fmt.Errorf("%s", Summarize([]corev1.Pod{*now}))
		}
		return err
	})
}
