package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// describeSays waits until `kubectl describe` says all of it in the events of the object, which is called kind/name.
func (c *cluster) describeSays(t *testing.T, ns, object string, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("kubectl describe %s says %s", object, strings.Join(want, ", ")), func(ctx context.Context) error {
		said, err := c.Kubectl(ctx, "-n", ns, "describe", object)
		if err != nil {
			return err
		}
		_, events, _ := strings.Cut(said, "Events:")
		for _, text := range want {
			if !strings.Contains(events, text) {
				return fmt.Errorf("no %q in %s", text, events)
			}
		}
		return nil
	})
}

// What the provider's kubelet says of a pod is seen where its user looks.
func TestEventsOfRemotePods(t *testing.T) {
	ctx := shared(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)

	well := shellPod(ns, "well", forever)
	fails := shellPod(ns, "fails", forever)
	fails.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "echo not yet; exit 1"}}},
		PeriodSeconds: 1,
	}
	missing := shellPod(ns, "missing", forever)
	missing.Spec.Containers[0].Image = "registry.invalid/nothing:v1"
	greedy := shellPod(ns, "greedy", "tail /dev/zero")
	greedy.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi")}
	for _, pod := range []*corev1.Pod{well, fails, missing, greedy} {
		lubeck.create(t, pod)
	}

	lubeck.describeSays(t, ns, "pod/well", "Started", "Pulled")
	lubeck.describeSays(t, ns, "pod/fails", "Unhealthy", "Readiness probe failed: not yet")
	lubeck.describeSays(t, ns, "pod/missing", "Failed", "registry.invalid/nothing:v1", "BackOff")
	lubeck.describeSays(t, ns, "pod/greedy", "OOMKilled", "BackOff")

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
	lubeck.expectEvents(t, ns, "well", 2)
}

// isOurs says whether it is a real node.
func isOurs(node *corev1.Node) bool {
	return node.Labels[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode
}

// expectEvents checks how many events of its kubelet a pod has at most.
func (c *cluster) expectEvents(t *testing.T, ns, pod string, most int) {
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
