// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// asking is a pod that asks for so much cpu.
func asking(name, cpu string) *corev1.Pod {
	pod := podOn("shop", name, "")
	pod.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: testkit.Quantities("cpu", cpu)}}}
	return pod
}

// gated is a pod as admission leaves it while no cluster takes it.
func gated(name, cpu string) *corev1.Pod {
	pod := asking(name, cpu)
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.GateNoClusterFits}}
	return pod
}

// roomless is a pod that the scheduler finds no node for, as admission leaves it while all nodes are too small for it.
func roomless(name, cpu string) *corev1.Pod {
	pod := asking(name, cpu)
	pod.Spec.Tolerations = []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists}}
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
	}}
	return pod
}

// offers has the provider say how large a pod may be.
func (w *world) offers(p offerer, cpu string) {
	w.t.Helper()
	ad := testkit.Get[v1alpha1.Advertisement](w.cluster, v1alpha1.TenantNamespace(p.name), "c-"+p.name)
	ad.Spec.LargestPod = testkit.Quantities("cpu", cpu)
	w.update(ad)
	w.lookAgain()
}

// release looks at the waiting pods of the namespace, and returns the pod.
func (w *world) release(pod *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	w.clock.Step(interval)
	w.mustReconcile(w.controller.waiting, reconcile.Request{NamespacedName: types.NamespacedName{Name: pod.Namespace}})
	return testkit.Get[corev1.Pod](w.cluster, pod.Namespace, pod.Name)
}

// full are the peers whose fullness the pod tolerates.
func full(pod *corev1.Pod) []string {
	var peers []string
	for _, t := range pod.Spec.Tolerations {
		if t.Key == v1alpha1.TaintFull {
			peers = append(peers, t.Value)
		}
	}
	return peers
}

func TestAPodMadeWhileNoClusterFitsGoesAsSoonAsOneDoes(t *testing.T) {
	most := &v1alpha1.Placement{MaxPrice: &v1alpha1.Price{Amount: testkit.Quantities("cpu", "10m")["cpu"], Currency: "EUR"}}
	w := newMarketWorld(t, v1alpha1.StrategyRemote, most)
	w.settleAll()
	w.expectPlaced("shop", metav1.ConditionFalse, v1alpha1.ReasonNoClusterFits)
	if !w.offloading("shop").Status.Placement.Admission.Gated {
		t.Error("admission lets pods go nowhere")
	}
	pod := gated("web", "1")
	w.update(pod)
	if got := w.release(pod); !offload.Gated(got) {
		t.Error("the pod is released while no cluster fits")
	}

	ad := testkit.Get[v1alpha1.Advertisement](w.cluster, v1alpha1.TenantNamespace("bremen"), "c-bremen")
	ad.Spec.Prices = nil
	w.update(ad)
	w.lookAgain()
	got := w.release(pod)
	want := []corev1.NodeSelectorRequirement{
		{Key: v1alpha1.LabelType, Operator: corev1.NodeSelectorOpIn, Values: []string{v1alpha1.TypeVirtualNode}},
		{Key: v1alpha1.LabelPeer, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"hamburg", "kiel"}},
	}
	if offload.Gated(got) || got.Spec.Affinity == nil {
		t.Fatalf("the pod still waits: %+v", got.Spec)
	}
	terms := got.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if diff := cmp.Diff(want, terms[0].MatchExpressions); diff != "" || !offload.ToleratesVirtualNodes(got) {
		t.Errorf("tolerations %v, terms (-want +got):\n%s", got.Spec.Tolerations, diff)
	}
}

// The pod is bound to a provider that is full, and another is not. What has passed must not keep the pod.
func TestAPodMadeWhileItsProviderWasFullGoesThereWhenThereIsRoom(t *testing.T) {
	w := newMarketWorld(t, v1alpha1.StrategyLocalAndRemote, nil)
	w.settleAll()
	w.offers(hamburg, "250m")
	pod := roomless("web", "300m")
	pod.Spec.NodeSelector = map[string]string{v1alpha1.LabelPeer: "hamburg"}
	w.update(pod)
	if diff := cmp.Diff([]string(nil), full(w.release(pod))); diff != "" {
		t.Errorf("while it is full: %s", diff)
	}
	w.offers(hamburg, "1800m")
	if diff := cmp.Diff([]string{"hamburg"}, full(w.release(pod))); diff != "" {
		t.Errorf("when there is room: %s", diff)
	}
	w.writes, w.allWrites = 0, 0
	w.release(pod)
	if w.allWrites != 0 {
		t.Errorf("%d more writes", w.allWrites)
	}
}

// What admission reads is rounded down. What decides in the end is not.
func TestAPodThatJustFitsIsReleased(t *testing.T) {
	w := newMarketWorld(t, v1alpha1.StrategyRemote, nil)
	w.settleAll()
	for _, p := range []offerer{bremen, hamburg, kiel} {
		w.offers(p, "1559m")
	}
	pod := gated("web", "1559m")
	w.update(pod)
	if got := w.release(pod); offload.Gated(got) {
		t.Error("it waits")
	}
}

func TestPodsNeverWaitForWhatIsOver(t *testing.T) {
	for name, after := range map[string]func(*world){
		"not offloaded any more": func(w *world) { w.cluster.Remove(w.offloading("shop")) },
		"Local by now": func(w *world) {
			offloading := w.offloading("shop")
			offloading.Spec.Strategy = v1alpha1.StrategyLocal
			w.update(offloading)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, namespace("shop", nil), offloadingBy("shop", v1alpha1.StrategyRemote, nil))
			w.settleAll()
			pod := gated("web", "1")
			w.update(pod)
			w.release(pod)
			after(w)
			if w.mark("shop").Labels[v1alpha1.LabelOffloads] != "true" {
				t.Error("the manager may not release the pod any more")
			}
			if got := w.release(pod); offload.Gated(got) || got.Spec.Affinity != nil {
				t.Errorf("gates %v, affinity %v", got.Spec.SchedulingGates, got.Spec.Affinity)
			}
			marked := w.mark("shop").Labels[v1alpha1.LabelOffloads] == "true"
			if _, offloaded := w.strategies()["shop"]; marked != offloaded {
				t.Errorf("marked: %t, offloaded: %t", marked, offloaded)
			}
		})
	}
}

func TestPodsAreReleasedInBoundedSteps(t *testing.T) {
	w := newMarketWorld(t, v1alpha1.StrategyRemote, nil)
	w.settleAll()
	for i := range 2*releasedAtOnce + 1 {
		w.update(gated(fmt.Sprint("web-", i), "1"))
	}
	request := reconcile.Request{NamespacedName: types.NamespacedName{Name: "shop"}}
	for step, want := range []int{releasedAtOnce, releasedAtOnce, 1, 0} {
		w.allWrites = 0
		result, err := w.controller.waiting.Reconcile(t.Context(), request)
		if err != nil || w.allWrites != want || (result.RequeueAfter > 0) != (step < 2) {
			t.Errorf("step %d: %d writes, again in %s, %v", step, w.allWrites, result.RequeueAfter, err)
		}
		w.clock.Step(interval)
	}
}

// The cache of the manager keeps of waiting pods what is patched, so that a patch says no more than what it changes.
func TestTheCacheKeepsWhatWaitingPodsNeed(t *testing.T) {
	pod := roomless("web", "1")
	pod.Spec.NodeSelector = map[string]string{"a": "b"}
	pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.GateNoClusterFits}}
	pod.Spec.HostNetwork = true
	want := pod.DeepCopy()
	want.Spec.HostNetwork, want.Spec.RestartPolicy = false, ""
	got, err := KeepWaiting(exchange.TrimPod)(pod)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	got, err = KeepWaiting(exchange.TrimPod)(podOn("shop", "web", "worker"))
	if err != nil || got.(*corev1.Pod).Spec.NodeName != "worker" {
		t.Errorf("another pod: %v, %v", got, err)
	}
}

func TestWhichEventsOfPodsAreLookedAt(t *testing.T) {
	update := func(before, after client.Object) event.UpdateEvent {
		return event.UpdateEvent{ObjectOld: before, ObjectNew: after}
	}
	free, held, waiting := asking("web", "1"), gated("web", "1"), roomless("web", "1")
	for name, got := range map[string]bool{
		"a new pod does not wait yet": !waits.Create(event.CreateEvent{Object: free}),
		"one that is gated waits":     waits.Create(event.CreateEvent{Object: held}),
		"nor does one that goes":      !waits.Delete(event.DeleteEvent{Object: held}),
		"one without a node waits":    waits.Update(update(free, waiting)),
		"the gate goes":               gateGoes.Update(update(held, free)),
		"the gate stays":              !gateGoes.Update(update(held, held)),
		"the gate goes with the pod":  gateGoes.Delete(event.DeleteEvent{Object: held}),
	} {
		if !got {
			t.Error(name)
		}
	}
}

// Each pod that waits has its namespace looked at, and each look reads all pods of the namespace.
func TestPodsOfANamespaceAreReadOncePerInterval(t *testing.T) {
	w := newMarketWorld(t, v1alpha1.StrategyRemote, nil)
	lists := 0
	w.cluster.OnRead(func(read testkit.Read) error {
		if read.Kind == "PodList" {
			lists++
		}
		return nil
	})
	for looks := 1; looks <= 2; looks++ {
		for range 100 {
			w.mustReconcile(w.controller.waiting, reconcile.Request{NamespacedName: types.NamespacedName{Name: "shop"}})
		}
		if lists != looks {
			t.Errorf("in %d intervals: read %d times", looks, lists)
		}
		w.clock.Step(interval)
	}
}
