// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func service(name string, selector map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.ServiceSpec{Selector: selector},
	}
}

func TestServiceIsToldOnceOfPodsThatAreNoEndpoints(t *testing.T) {
	w := offloaded(t, podCalled("web-1"), podCalled("web-2"), service("web", map[string]string{"app": "shop"}))
	w.disconnect()
	c := &serviceController{client: w.Home.Client, events: w.Events}
	w.Reconcile(c, "shop", "web")
	w.Reconcile(c, "shop", "web")
	if event := w.NextEvent(); !strings.Contains(event, v1alpha1.ReasonNoNetworkFabric) || !strings.Contains(event, turin) {
		t.Errorf("event %q", event)
	}
	if n := len(w.Events.Events); n != 0 {
		t.Errorf("%d more events", n)
	}
	if got := c.ofPod(w.Context(), podCalled("web-1")); len(got) != 1 || got[0].Name != "web" {
		t.Errorf("a new pod has %v looked at", got)
	}
}

func TestServiceWithoutPodsAwayIsToldNothing(t *testing.T) {
	w := offloaded(t, podCalled("web-1"), service("other", map[string]string{"app": "other"}), service("headless", nil))
	w.disconnect()
	c := &serviceController{client: w.Home.Client, events: w.Events}
	w.Reconcile(c, "shop", "other")
	w.Reconcile(c, "shop", "headless")
	w.put(w.Home, peer()) // with a network
	w.put(w.Home, service("web", map[string]string{"app": "shop"}))
	w.Reconcile(c, "shop", "web")
	if n := len(w.Events.Events); n != 0 {
		t.Errorf("%d events", n)
	}
}

// disconnect takes the network to turin away.
func (w *world) disconnect() {
	w.Helper()
	apart := peer()
	apart.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionConnected, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoNetworkFabric,
	}}
	w.put(w.Home, apart)
}

// What is looked at again when the network begins or ends: the pods, for their addresses, and the Services.
func TestChangesOfTheNetworkAreSeen(t *testing.T) {
	apart := peer()
	apart.Status.Conditions = nil
	other := peer()
	other.Status.Version = "v9"
	for what, seen := range map[string]predicate.Predicate{"pods": remapped(), "Services": connects()} {
		if !seen.Update(updated(peer(), apart)) || !seen.Update(updated(apart, peer())) || seen.Update(updated(peer(), other)) {
			t.Errorf("the %s are not looked at with each change, and only then", what)
		}
	}
	w := offloaded(t, service("web", map[string]string{"app": "shop"}), service("headless", nil))
	c := &serviceController{client: w.Home.Client, events: w.Events}
	if got := c.ofAll(w.Context(), apart); len(got) != 1 || got[0].Name != "web" {
		t.Errorf("it has %v looked at", got)
	}
}

func TestPodOfAPeerWithoutANetworkHasNoAddress(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	w.runRemote("web-1", corev1.PodRunning)
	w.reconcilePod("web-1")
	if got := w.pod("web-1").Status; got.PodIP == "" {
		t.Fatal("with a network it has no address")
	}
	w.disconnect()
	w.reconcilePod("web-1")
	got := w.pod("web-1")
	if got.Status.PodIP != "" || len(got.Status.PodIPs) > 0 || !isReady(got) {
		t.Errorf("without one it has %q, ready: %t", got.Status.PodIP, isReady(got))
	}
	w.put(w.Home, peer())
	w.reconcilePod("web-1")
	if got := w.pod("web-1").Status.PodIP; got != "10.200.3.4" {
		t.Errorf("with the network back it has %q", got)
	}
}
