// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// connection has the Peer say this of the network.
func (w *world) connection(status metav1.ConditionStatus, reason string) {
	w.Helper()
	p := peer()
	if !w.Home.Find(p, "", turin) {
		w.Fatal("there is no Peer")
	}
	meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionConnected, Status: status, Reason: reason, Message: "As the manager says",
	})
	w.put(w.Home, p)
}

func TestNodeSaysWhetherANetworkIsMissing(t *testing.T) {
	w := newWorld(t, peer(), advertisement())
	for _, step := range []struct {
		status metav1.ConditionStatus
		reason string
		want   corev1.ConditionStatus
		says   string // its reason
	}{
		{metav1.ConditionTrue, v1alpha1.ReasonReady, corev1.ConditionFalse, v1alpha1.ReasonReady},
		{metav1.ConditionFalse, v1alpha1.ReasonTunnelDown, corev1.ConditionTrue, v1alpha1.ReasonTunnelDown},
		{metav1.ConditionFalse, v1alpha1.ReasonNoGateway, corev1.ConditionTrue, v1alpha1.ReasonNoGateway},
		{metav1.ConditionFalse, v1alpha1.ReasonPending, corev1.ConditionTrue, v1alpha1.ReasonPending},
		{metav1.ConditionFalse, v1alpha1.ReasonKeyTaken, corev1.ConditionTrue, v1alpha1.ReasonKeyTaken},
		{metav1.ConditionFalse, v1alpha1.ReasonNoPeerGateway, corev1.ConditionFalse, v1alpha1.ReasonNoNetworkFabric},
		{metav1.ConditionFalse, v1alpha1.ReasonNoNetworkFabric, corev1.ConditionFalse, v1alpha1.ReasonNoNetworkFabric},
		{metav1.ConditionFalse, v1alpha1.ReasonAgentless, corev1.ConditionFalse, v1alpha1.ReasonNoNetworkFabric},
	} {
		w.connection(step.status, step.reason)
		w.reconcileNode()
		if got := nodeCondition(w.node(), corev1.NodeNetworkUnavailable); got.Status != step.want || got.Reason != step.says {
			t.Errorf("Connected is %s, %s: NetworkUnavailable is %s, %s", step.status, step.reason, got.Status, got.Reason)
		}
		w.wrote()
		w.reconcileNode()
		if got := w.wrote(); got != nil {
			t.Errorf("wrote %v though nothing changed", got)
		}
	}
}

// A pod that is not reached from here is no endpoint of a Service, as one on a node that is not heard of.
func TestPodsAreNotReadyWhileTheTunnelIsDown(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	w.runRemote("web-1", corev1.PodRunning)
	w.reconcilePod("web-1")
	address := w.pod("web-1").Status.PodIP
	if address == "" {
		t.Fatal("the pod has no address")
	}
	ready := func() *corev1.PodCondition {
		t.Helper()
		w.reconcilePod("web-1")
		status := w.pod("web-1").Status
		if status.PodIP != address {
			t.Errorf("the pod has %q", status.PodIP)
		}
		return offload.PodCondition(&status, corev1.PodReady)
	}
	for range 2 { // the second time nothing is news
		w.connection(metav1.ConditionFalse, v1alpha1.ReasonTunnelDown)
		if got := ready(); got.Status != corev1.ConditionFalse || got.Reason != v1alpha1.ReasonTunnelDown || got.LastTransitionTime.IsZero() {
			t.Errorf("the tunnel is down: %+v", got)
		}
		w.wrote()
		w.Clock.Step(time.Minute)
	}
	w.reconcilePod("web-1")
	if got := w.wrote(); got != nil {
		t.Errorf("wrote %v though nothing changed", got)
	}
	w.connection(metav1.ConditionTrue, v1alpha1.ReasonReady)
	if got := ready(); got.Status != corev1.ConditionTrue || got.Reason != "" {
		t.Errorf("the tunnel is back: %+v", got)
	}
	w.connection(metav1.ConditionFalse, v1alpha1.ReasonNoNetworkFabric)
	w.reconcilePod("web-1")
	if got := w.pod("web-1").Status.PodIP; got != "" {
		t.Errorf("the pod has %s without a network", got)
	}
}

func TestPodsShowNoAddressOfAFamilyThatHomeLacks(t *testing.T) {
	for family, own := range map[string]string{"IPv4": "10.244.0.7", "IPv6": "fd00::7"} {
		w := offloaded(t, podCalled("web-1"))
		w.pods.podIPs = []netip.Addr{netip.MustParseAddr(own)}
		w.reconcilePod("web-1")
		w.runRemote("web-1", corev1.PodRunning)
		w.reconcilePod("web-1")
		if got := w.pod("web-1").Status.PodIP; (got != "") != (family == "IPv4") {
			t.Errorf("home has %s alone, and shows %q of a pod with IPv4", family, got)
		}
	}
}
