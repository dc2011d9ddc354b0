// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NodeNames returns the names of the cluster's own nodes, in their order.
func (c *Cluster) NodeNames(t T) []string {
	t.Helper()
	nodes, err := c.RealNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(nodes))
	for i := range nodes {
		names = append(names, nodes[i].Name)
	}
	slices.Sort(names)
	return names
}

// Cordon cordons nodes until the end of the test.
func (c *Cluster) Cordon(t T, nodes ...string) {
	t.Helper()
	t.Cleanup(func() {
		if _, err := c.Kubectl(context.Background(), slices.Concat([]string{"uncordon"}, nodes)...); err != nil {
			t.Error(err)
		}
	})
	c.MustKubectl(t, slices.Concat([]string{"cordon"}, nodes)...)
}

// Uncordon uncordons nodes.
func (c *Cluster) Uncordon(t T, nodes ...string) {
	t.Helper()
	c.MustKubectl(t, slices.Concat([]string{"uncordon"}, nodes)...)
}

// AwaitPreference waits until admission makes such pods prefer the node to all others. A dry run shows it.
func (c *Cluster) AwaitPreference(t T, pod *corev1.Pod, node string) {
	t.Helper()
	Eventually(t, "admission sends pods of "+pod.Namespace+" to "+node, func(ctx context.Context) error {
		probe := pod.DeepCopy()
		if err := c.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		best, err := c.PreferredNodes(ctx, probe)
		if err == nil && !slices.Equal(best, []string{node}) {
			err = fmt.Errorf("it prefers %v by affinity %+v", best, probe.Spec.Affinity)
		}
		return err
	})
}
