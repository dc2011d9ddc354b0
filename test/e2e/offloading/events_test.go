// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// What the provider's kubelet says of a pod is seen where its user looks.
func TestEventsOfRemotePods(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)

	well := framework.NewShellPod(ns, "well", framework.RunForever)
	fails := framework.NewShellPod(ns, "fails", framework.RunForever)
	fails.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "echo not yet; exit 1"}}},
		PeriodSeconds: 1,
	}
	missing := framework.NewShellPod(ns, "missing", framework.RunForever)
	missing.Spec.Containers[0].Image = "registry.invalid/nothing:v1"
	greedy := framework.NewShellPod(ns, "greedy", "tail /dev/zero")
	greedy.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi")}
	for _, pod := range []*corev1.Pod{well, fails, missing, greedy} {
		lubeck.MustCreate(t, pod)
	}

	lubeck.AwaitDescription(t, ns, "pod/well", "Started", "Pulled")
	lubeck.AwaitDescription(t, ns, "pod/fails", "Unhealthy", "Readiness probe failed: not yet")
	lubeck.AwaitDescription(t, ns, "pod/missing", "Failed", "registry.invalid/nothing:v1", "BackOff")
	lubeck.AwaitDescription(t, ns, "pod/greedy", "OOMKilled", "BackOff")

	nodes := &corev1.NodeList{}
	if err := hamburg.List(ctx, nodes); err != nil {
		t.Fatal(err)
	}
	events := &corev1.EventList{}
	if err := lubeck.List(ctx, events, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for i := range events.Items {
		for _, node := range nodes.Items {
			if isOurs(&node) && strings.Contains(fmt.Sprint(events.Items[i]), node.Name) {
				t.Errorf("the event %+v names node %s of the provider", events.Items[i], node.Name)
			}
		}
	}
	expectEvents(t, lubeck, ns, "well", 2)
}

// isOurs says whether it is a real node.
func isOurs(node *corev1.Node) bool {
	return node.Labels[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode
}

// expectEvents checks how many events of its kubelet a pod has at most.
func expectEvents(t *testing.T, c *framework.Cluster, ns, pod string, most int) {
	t.Helper()
	events := &corev1.EventList{}
	err := c.List(t.Context(), events, client.InNamespace(ns), client.MatchingFieldsSelector{
		Selector: fields.SelectorFromSet(fields.Set{"involvedObject.name": pod, "source": "kubelet"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(events.Items) > most {
		t.Errorf("pod %s has %d events, more than %d: %+v", pod, len(events.Items), most, events.Items)
	}
}
