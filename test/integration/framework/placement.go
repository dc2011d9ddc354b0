// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	quota "k8s.io/apiserver/pkg/quota/v1"
	resourcehelpers "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/internal/offload"
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

// AwaitGate waits until admission gates such pods. A dry run shows it.
func (c *Cluster) AwaitGate(t T, pod *corev1.Pod) {
	t.Helper()
	Eventually(t, "admission gates pods of "+pod.Namespace, func(ctx context.Context) error {
		probe := pod.DeepCopy()
		err := c.Create(ctx, probe, client.DryRunAll)
		if err == nil && !offload.Gated(probe) {
			err = fmt.Errorf("a new pod has gates %v", probe.Spec.SchedulingGates)
		}
		return err
	})
}

// FreeCapacity returns what the schedulable nodes of the cluster can allocate, without the requests of the pods on them.
func (c *Cluster) FreeCapacity(ctx context.Context) (corev1.ResourceList, error) {
	nodes, err := c.RealNodes(ctx)
	if err != nil {
		return nil, err
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods); err != nil {
		return nil, err
	}
	free, counts := corev1.ResourceList{}, map[string]bool{}
	for i := range nodes {
		if !nodes[i].Spec.Unschedulable && IsNodeReady(&nodes[i]) {
			free, counts[nodes[i].Name] = quota.Add(free, nodes[i].Status.Allocatable), true
		}
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if counts[pod.Spec.NodeName] && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			requests := resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{})
			requests[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
			free = quota.Subtract(free, requests)
		}
	}
	return free, nil
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
