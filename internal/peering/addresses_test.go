// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/overlay"
)

// advertisement is the offer of a provider with that range of pods, or of one whose range is not known.
func advertisement(podCIDR string) *v1alpha1.Advertisement {
	ad := &v1alpha1.Advertisement{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-peer-hamburg", Name: "c-hamburg"},
		Spec:       v1alpha1.AdvertisementSpec{ClusterID: "c-hamburg"},
	}
	if podCIDR != "" {
		ad.Spec.Network = &v1alpha1.Network{PodCIDRs: []v1alpha1.CIDR{v1alpha1.CIDR(podCIDR)}}
	}
	return ad
}

// seenIn is how we see a peer with the usual range of pods.
func seenIn(text v1alpha1.CIDR) []v1alpha1.RangeMapping {
	return []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: text}}
}

func TestAddressesOfPeers(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{"100.64.0.0/24"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeInternalIP, Address: "100.65.3.7"},
		}},
	}
	virtual := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "hanse-x", Labels: map[string]string{"hanse.dev/type": "virtual-node"}},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{"100.68.0.0/16"}},
	}
	services := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"100.66.0.0/20"}},
	}
	other := &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: "bremen"}, Status: v1alpha1.PeerStatus{Mappings: seenIn("100.67.0.0/16")},
	}
	w := newWorld(t, peerOf(v1alpha1.RoleProvider), node, virtual, services, other)
	w.reconcile()
	if got := w.peer().Status.Mappings; got != nil {
		t.Errorf("got %v before the peer's range is known", got)
	}
	if err := w.client.Create(t.Context(), advertisement("10.244.0.0/16")); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	if got := w.peer().Status.Mappings; got != nil {
		t.Errorf("got %v before the offer is accepted", got)
	}
	w.advertises(yes, v1alpha1.ReasonAccepted)
	before := w.writes
	w.reconcile()
	w.expect(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady)
	if w.writes != before+1 {
		t.Errorf("Ready and the range took %d writes", w.writes-before)
	}
	if got := w.peer().Status.Mappings; !slices.Equal(got, seenIn("100.68.0.0/16")) {
		t.Errorf("got %v, want the first range that nobody has", got)
	}
	w.expectNoWrites()

	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"100.68.9.0/24"}}})
	w.clock.Step(localPeriod)
	w.reconcile()
	if got := w.peer().Status.Mappings; !slices.Equal(got, seenIn("100.69.0.0/16")) {
		t.Errorf("got %v where a new node has the range that the peer had", got)
	}
	w.expectNoWrites()

	w.restart()
	w.expectNoWrites()
}

func TestPeerWithoutARangeIsNotReady(t *testing.T) {
	peer := peerOf(v1alpha1.RoleProvider)
	peer.Spec.Network = &v1alpha1.PeerNetwork{Mappings: []v1alpha1.RangeMapping{{Own: "10.0.0.0/24", Seen: "10.244.7.0/24"}}} // our own pods are in 10.244.0.0/16
	w := newWorld(t, peer)
	w.reconcile()
	w.expect(v1alpha1.ConditionReady, no, v1alpha1.ReasonNoAddressRange)
}

func TestARangeThatIsNoLongerAskedForIsFree(t *testing.T) {
	asks := peerOf(v1alpha1.RoleProvider)
	asks.Spec.Network = &v1alpha1.PeerNetwork{Mappings: seenIn("100.70.0.0/16")}
	w := newWorld(t, asks) // the cache still shows that it asks
	got, err := w.addresses.assign(t.Context(), overlay.Request{Peer: asks.Name})
	if err != nil || got.Mappings != nil || got.conflict != nil {
		t.Errorf("got %+v, %v for a peer that asks for no range any more", got, err)
	}
}

func TestAPeerWhoseNetworkCannotBeUsedIsNotReady(t *testing.T) {
	w := newWorld(t, peerOf(v1alpha1.RoleProvider), advertisement("0.0.0.0/0"))
	w.reconcile()
	w.advertises(yes, v1alpha1.ReasonAccepted)
	w.reconcile()
	w.expect(v1alpha1.ConditionReady, no, v1alpha1.ReasonNetworkRefused)
	w.expectNoWrites()
}

func TestAPeerIsSeenInTheRangesThatAreAskedFor(t *testing.T) {
	peer := peerOf(v1alpha1.RoleProvider)
	peer.Spec.Network = &v1alpha1.PeerNetwork{Mappings: seenIn("10.7.0.0/16")}
	offer := advertisement("10.244.0.0/16")
	offer.Spec.Network.ServiceCIDRs = []v1alpha1.CIDR{"10.60.0.0/16"}
	w := newWorld(t, peer, offer)
	w.reconcile()
	w.advertises(yes, v1alpha1.ReasonAccepted)
	w.reconcile()
	want := append(seenIn("10.7.0.0/16"), v1alpha1.RangeMapping{Own: "10.60.0.0/16", Seen: "10.60.0.0/16"})
	if got := w.peer().Status.Mappings; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	w.expectNoWrites()
}
