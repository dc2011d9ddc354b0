package peering

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

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
		ObjectMeta: metav1.ObjectMeta{Name: "bremen"}, Status: v1alpha1.PeerStatus{RemappedPodCIDR: "100.67.0.0/16"},
	}
	w := newWorld(t, peerOf(v1alpha1.RoleProvider), node, virtual, services, other)
	w.reconcile()
	if got := w.peer().Status.RemappedPodCIDR; got != "" {
		t.Errorf("got %s before the peer's range is known", got)
	}
	if err := w.client.Create(t.Context(), advertisement("10.244.0.0/16")); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	if got := w.peer().Status.RemappedPodCIDR; got != "" {
		t.Errorf("got %s before the offer is accepted", got)
	}
	w.advertises(yes, v1alpha1.ReasonAccepted)
	before := w.writes
	w.reconcile()
	w.expect(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady)
	if w.writes != before+1 {
		t.Errorf("Ready and the range took %d writes", w.writes-before)
	}
	if got := w.peer().Status.RemappedPodCIDR; got != "100.68.0.0/16" {
		t.Errorf("got %s, want the first range that nobody has", got)
	}
	w.expectNoWrites()

	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"100.68.9.0/24"}}})
	w.clock.Step(localPeriod)
	w.reconcile()
	if got := w.peer().Status.RemappedPodCIDR; got != "100.69.0.0/16" {
		t.Errorf("got %s where a new node has the range that the peer had", got)
	}
	w.expectNoWrites()

	w.restart()
	w.expectNoWrites()
}

func TestChoiceOfARange(t *testing.T) {
	pools := prefixes("100.64.0.0/15", "fd68::/48")
	tests := map[string]struct {
		asked, current, podCIDR string
		taken                   []string
		want                    string // "" is none
		problem                 bool
	}{
		"nothing is known":             {},
		"a free one":                   {podCIDR: "10.0.0.0/16", want: "100.64.0.0/16"},
		"the one that it has":          {podCIDR: "10.0.0.0/16", current: "100.65.0.0/16", want: "100.65.0.0/16"},
		"kept without advertisement":   {current: "100.65.0.0/16", want: "100.65.0.0/16"},
		"kept outside of the pools":    {podCIDR: "10.0.0.0/16", current: "10.9.0.0/16", want: "10.9.0.0/16"},
		"not when it clashes":          {podCIDR: "10.0.0.0/16", current: "100.64.0.0/16", taken: []string{"100.64.9.9/32"}, want: "100.65.0.0/16"},
		"not when the size changed":    {podCIDR: "10.0.0.0/20", current: "100.65.0.0/16", want: "100.64.0.0/20"},
		"IPv6":                         {podCIDR: "fd00::/56", want: "fd68::/56"},
		"none is free":                 {podCIDR: "10.0.0.0/16", taken: []string{"100.64.0.0/16", "100.65.0.0/24"}, problem: true},
		"larger than every pool":       {podCIDR: "10.0.0.0/8", problem: true},
		"as asked":                     {podCIDR: "10.0.0.0/16", asked: "10.7.0.0/16", current: "100.64.0.0/16", want: "10.7.0.0/16"},
		"as asked, before it is known": {asked: "10.7.0.0/16", want: "10.7.0.0/16"},
		"asked for a taken one":        {podCIDR: "10.0.0.0/16", asked: "10.7.0.0/16", current: "100.64.0.0/16", taken: []string{"10.0.0.0/8"}, problem: true},
		"asked for another size":       {podCIDR: "10.0.0.0/16", asked: "10.7.0.0/24", problem: true},
		"asked for another kind":       {podCIDR: "10.0.0.0/16", asked: "fd00::/16", problem: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			peer := peerOf(v1alpha1.RoleProvider)
			peer.Spec.RemappedPodCIDR, peer.Status.RemappedPodCIDR = test.asked, test.current
			podCIDR := podCIDR(advertisement(test.podCIDR))
			got := choose(peer, podCIDR, pools, parseRanges(test.taken...))
			cidr := ""
			if got.cidr.IsValid() {
				cidr = got.cidr.String()
			}
			if cidr != test.want || (got.problem != "") != test.problem {
				t.Errorf("got %q, problem %q", cidr, got.problem)
			}
		})
	}
}

func TestPeerWithoutARangeIsNotReady(t *testing.T) {
	peer := peerOf(v1alpha1.RoleProvider)
	peer.Spec.RemappedPodCIDR = "10.244.7.0/24" // our own pods are in 10.244.0.0/16
	w := newWorld(t, peer)
	w.reconcile()
	w.expect(v1alpha1.ConditionReady, no, v1alpha1.ReasonNoAddressRange)
}

func TestARangeThatIsNoLongerAskedForIsFree(t *testing.T) {
	asks := peerOf(v1alpha1.RoleProvider)
	asks.Spec.RemappedPodCIDR = "100.70.0.0/16"
	w := newWorld(t, asks) // the cache still shows that it asks
	now := peerOf(v1alpha1.RoleProvider)
	got, err := w.addresses.assign(t.Context(), now, netip.Prefix{})
	if err != nil || got != (assignment{}) {
		t.Errorf("got %+v, %v for a peer that asks for no range any more", got, err)
	}
}
