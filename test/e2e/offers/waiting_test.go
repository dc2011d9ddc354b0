// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// A pod that was made while no cluster fitted runs as soon as one does: the first pod, not a later one.
func TestPodWaitsForACluster(t *testing.T) {
	ctx := framework.Begin(t)
	hamburg.SetPrices(t, "0.02")
	bremen.SetPrices(t, "0.02")
	least := &v1alpha1.Price{Amount: resource.MustParse("0.001"), Currency: "EUR"}
	ns := lubeck.CreatePlacedNamespace(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{MaxPrice: least}, excludes("hamburg", "bremen"))
	pod := framework.NewShellPod(ns, "waits", framework.RunForever)
	lubeck.MustCreate(t, pod)
	made, err := lubeck.GetPod(ctx, ns, pod.Name)
	if err != nil || !offload.Gated(made) {
		t.Fatalf("the pod does not wait: %v, gates %v", err, made.Spec.SchedulingGates)
	}
	bremen.SetPrices(t, "0.0005")
	lubeck.AwaitRunning(t, pod)
	now, err := lubeck.GetPod(ctx, ns, pod.Name)
	if err != nil || now.UID != made.UID || now.Spec.NodeName != "hanse-bremen" {
		t.Errorf("pod %s is on %q (%v)", now.UID, now.Spec.NodeName, err)
	}

	// Nothing holds it when the namespace is not offloaded any more.
	bremen.SetPrices(t, "0.02")
	lubeck.AwaitPlacement(t, ns, excludes("hamburg", "bremen"))
	comesHome := framework.NewShellPod(ns, "comes-home", framework.RunForever)
	framework.Eventually(t, "admission knows that no cluster fits", func(ctx context.Context) error {
		comesHome = framework.NewShellPod(ns, "comes-home", framework.RunForever)
		if err := lubeck.Create(ctx, comesHome); err != nil {
			return err
		}
		if !offload.Gated(comesHome) {
			_ = lubeck.Delete(ctx, comesHome)
			return fmt.Errorf("a new pod has gates %v", comesHome.Spec.SchedulingGates)
		}
		return nil
	})
	offloading := &v1alpha1.NamespaceOffloading{}
	offloading.Namespace, offloading.Name = ns, v1alpha1.NamespaceOffloadingName
	if err := lubeck.Delete(ctx, offloading); err != nil {
		t.Fatal(err)
	}
	lubeck.AwaitRunning(t, comesHome)
}

// A pod that was made while its provider was full goes there when there is room, as an identical later pod does.
func TestPodWaitsForRoom(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	onHamburg := func(app, cpu string) *corev1.Pod {
		pod := framework.NewShellPod(ns, app, framework.RunForever)
		pod.Spec.NodeSelector = map[string]string{v1alpha1.LabelPeer: "hamburg"}
		pod.Spec.Containers[0].Resources = framework.ResourceRequests(cpu, "16Mi")
		return pod
	}
	var largest resource.Quantity
	framework.Eventually(t, "hamburg says how large a pod it takes", func(ctx context.Context) error {
		if largest = largestPod(ctx, t, lubeck, ns, "hanse-hamburg"); largest.MilliValue() < 300 {
			return fmt.Errorf("it says %s", largest.String())
		}
		return nil
	})
	// It is rounded down by less than 100m.
	filler := onHamburg("filler", fmt.Sprintf("%dm", largest.MilliValue()-150))
	lubeck.MustCreate(t, filler)
	lubeck.AwaitRunning(t, filler)
	framework.Eventually(t, "hamburg says that it is full", func(ctx context.Context) error {
		left := largestPod(ctx, t, lubeck, ns, "hanse-hamburg")
		if left.MilliValue() >= 300 {
			return fmt.Errorf("it has room for %s", left.String())
		}
		return nil
	})
	lubeck.AwaitVirtualNode(t, hamburg, "has the taint", func(node *corev1.Node) bool {
		for _, taint := range node.Spec.Taints {
			if taint.Key == v1alpha1.TaintFull && taint.Value == "hamburg" {
				return true
			}
		}
		return false
	})
	pod := onHamburg("waits", "300m")
	lubeck.MustCreate(t, pod)
	framework.Eventually(t, "no node takes the pod", func(ctx context.Context) error {
		now, err := lubeck.GetPod(ctx, ns, pod.Name)
		if err == nil && framework.PodConditionStatus(now, corev1.PodScheduled) != corev1.ConditionFalse {
			err = fmt.Errorf("it is on %q", now.Spec.NodeName)
		}
		return err
	})
	if err := lubeck.Delete(ctx, filler); err != nil {
		t.Fatal(err)
	}
	lubeck.AwaitRunning(t, pod)
}

// largestPod is how many cores a pod may ask for that goes to the node, as admission is told.
func largestPod(ctx context.Context, t *testing.T, c *framework.Cluster, ns, node string) resource.Quantity {
	t.Helper()
	offloading := &v1alpha1.NamespaceOffloading{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}, offloading); err != nil {
		t.Fatal(err)
	}
	if offloading.Status.Placement != nil {
		for _, n := range offloading.Status.Placement.Nodes {
			if n.Name == node {
				return n.LargestPod[corev1.ResourceCPU]
			}
		}
	}
	return resource.Quantity{}
}
