// SPDX-License-Identifier: Apache-2.0

package offers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestPodWaitsForACluster: a pod that was created while no cluster fitted runs as soon as one does. A pod that waits for a cluster
// runs at home when its namespace is not offloaded any more.
func TestPodWaitsForACluster(t *testing.T) {
	begin(t)
	hamburg.SetPrices(t, lubeck, "0.02")
	bremen.SetPrices(t, lubeck, "0.02")
	least := &v1alpha1.Price{Amount: resource.MustParse("0.001"), Currency: "EUR"}
	ns := offloadAs(t, lubeck, &v1alpha1.Placement{MaxPrice: least}, excludes("hamburg", "bremen"))
	pod := mustWait(t, ns, "waits")
	bremen.SetPrices(t, lubeck, "0.0005")
	if home := awaitReady(t, lubeck, pod); home.UID != pod.UID || home.Spec.NodeName != v1alpha1.VirtualNodeName("bremen") {
		t.Errorf("pod %s, which was %s, is on %q", home.UID, pod.UID, home.Spec.NodeName)
	}

	bremen.SetPrices(t, lubeck, "0.02")
	awaitDecision(t, lubeck, ns, excludes("hamburg", "bremen"))
	comesHome := mustWait(t, ns, "comes-home")
	offloading, err := offloadingOf(t.Context(), lubeck, ns)
	if err != nil {
		t.Fatal(err)
	}
	mustDelete(t, lubeck, offloading)
	if home := awaitReady(t, lubeck, comesHome); framework.IsVirtual(home) || home.UID != comesHome.UID {
		t.Errorf("pod %s, which was %s, is on %q", home.UID, comesHome.UID, home.Spec.NodeName)
	}
}

// mustWait creates a pod in lubeck that waits behind a gate, because no cluster fits.
func mustWait(t *testing.T, ns, name string) *corev1.Pod {
	t.Helper()
	lubeck.AwaitGate(t, framework.Pod(ns, "probe"))
	pod := framework.Pod(ns, name)
	lubeck.MustCreate(t, pod)
	if !offload.Gated(pod) {
		t.Fatalf("pod %s has gates %v", name, pod.Spec.SchedulingGates)
	}
	return pod
}

// TestPodWaitsForRoom: a pod that was created while its provider was full runs there when capacity is free again.
func TestPodWaitsForRoom(t *testing.T) {
	begin(t)
	idle := useOneNode(t, hamburg, lubeck)
	ns := lubeck.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyLocalAndRemote})
	filler := podFor(ns, "filler", idle-150, hamburg)
	lubeck.MustCreate(t, filler)
	awaitReady(t, lubeck, filler)
	framework.Eventually(t, "admission knows that hamburg has room for 150m", func(ctx context.Context) error {
		offloading, err := offloadingOf(ctx, lubeck, ns)
		if err != nil {
			return err
		}
		if offloading.Status.Placement == nil {
			return errors.New("there is no decision")
		}
		nodes := offloading.Status.Placement.Nodes
		if !slices.ContainsFunc(nodes, func(node v1alpha1.NodePlacement) bool {
			return node.Name == v1alpha1.VirtualNodeName("hamburg") && node.LargestPod.Cpu().MilliValue() == 150
		}) {
			return fmt.Errorf("the decision is %+v", nodes)
		}
		return nil
	})
	lubeck.AwaitVirtualNode(t, hamburg, "has the taint for pods that are too large", func(node *corev1.Node) bool {
		return slices.Contains(node.Spec.Taints, corev1.Taint{Key: v1alpha1.TaintFull, Value: "hamburg", Effect: corev1.TaintEffectNoSchedule})
	})
	pod := podFor(ns, "waits", 300, hamburg)
	lubeck.MustCreate(t, pod)
	awaitUnschedulable(t, lubeck, pod)
	mustDelete(t, lubeck, filler)
	home := awaitReady(t, lubeck, pod)
	if home.UID != pod.UID {
		t.Errorf("pod %s was %s", home.UID, pod.UID)
	}
	framework.ExpectSamePod(t, home, hamburg.MustRemotePod(t, home))
}
