// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/overlay"
	"github.com/hanse-dev/hanse/internal/testkit"
)

var byValue = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

func pod(namespace, name, node string, phase corev1.PodPhase, ips ...string) *corev1.Pod {
	p := testkit.Pod(namespace, name, node)
	p.Status.Phase, p.Status.PodIPs = phase, nil
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

func connection(namespace string, openings ...v1alpha1.Opening) *v1alpha1.Connection {
	return &v1alpha1.Connection{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ConnectionName},
		Spec: v1alpha1.ConnectionSpec{
			Theirs:   []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: "100.64.0.0/16"}},
			Openings: openings,
		},
	}
}

func world(t *testing.T, more ...client.Object) *testkit.World {
	t.Helper()
	data, err := exchange.NetworkData(&exchange.OwnNetwork{Network: v1alpha1.Network{
		PodCIDRs: []v1alpha1.CIDR{"10.244.0.0/16"}, ServiceCIDRs: []v1alpha1.CIDR{"10.96.0.0/12"}, Nameservers: []v1alpha1.IP{"10.96.0.10"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	active, err := Active{Pod: "gateway-1", Node: "n1", Addresses: []netip.Addr{netip.MustParseAddr("10.244.1.3")}, MTU: 1500}.Object("hanse-system-network")
	if err != nil {
		t.Fatal(err)
	}
	twin := testkit.TwinNamespace("shop-of-hamburg", "hamburg")
	twin.Annotations = map[string]string{v1alpha1.AnnotationHomeNamespace: "shop"}
	twin.Labels[v1alpha1.LabelManaged] = "true"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeExternalIP, Address: "203.0.113.1"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	return testkit.NewWorld(t, append([]client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-system", Name: v1alpha1.OwnNetwork}, Data: data},
		active, twin, node, testkit.VirtualNode("hamburg", nil), connection("hanse-peer-hamburg"),
	}, more...)...)
}

func read(t *testing.T, w *testkit.World) Network {
	t.Helper()
	n, err := (&Reader{Client: w.Home.Client, Namespace: "hanse-system"}).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTheStateIsWhatTheObjectsSay(t *testing.T) {
	n := read(t, world(t))
	want := overlay.State{
		Pods: overlay.Ranges([]v1alpha1.CIDR{"10.244.0.0/16"}), Services: overlay.Ranges([]v1alpha1.CIDR{"10.96.0.0/12"}),
		Nameservers: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		Gateway:     overlay.Gateway{Node: "n1", Addresses: []netip.Addr{netip.MustParseAddr("10.244.1.3")}, MTU: 1500},
		Nodes: []overlay.Host{{
			Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("203.0.113.1")},
			PodCIDRs: overlay.Ranges([]v1alpha1.CIDR{"10.244.1.0/24"}),
		}},
		Peers: []overlay.Peer{{
			Name: "hamburg", Theirs: overlay.Mappings([]v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: "100.64.0.0/16"}}),
		}},
	}
	if diff := cmp.Diff(want, n.State, byValue); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAPeerThatWasConnectedIsKnownToANewGateway(t *testing.T) {
	for status, want := range map[metav1.ConditionStatus]bool{metav1.ConditionTrue: true, metav1.ConditionFalse: false, metav1.ConditionUnknown: false} {
		w := world(t)
		testkit.Change(w.Home, "hanse-peer-hamburg", "hanse", func(c *v1alpha1.Connection) {
			testkit.SetCondition(&c.Status.Conditions, v1alpha1.ConditionConnected, status, v1alpha1.ReasonReady)
		})
		if got := read(t, w).Peers[0].Connected; got != want {
			t.Errorf("Connected is %s: got %v", status, got)
		}
	}
}

func TestWhosePodsAre(t *testing.T) {
	open := v1alpha1.Opening{From: v1alpha1.OpeningSide{PeerNamespace: "shop"}, To: v1alpha1.OpeningSide{Namespace: "stock"}}
	opened := connection("hanse-peer-bremen", open)
	hostNetwork := pod("shop-of-hamburg", "on-the-node", "n1", corev1.PodRunning, "192.0.2.1")
	hostNetwork.Spec.HostNetwork = true
	tests := map[string]struct {
		pod                 *corev1.Pod
		there, guests, ours bool
		sentOn              bool
	}{
		"a pod of ours at the peer":                {pod("web", "a", "hanse-hamburg", corev1.PodRunning, "100.64.1.5"), true, false, false, false},
		"one that has ended":                       {pod("web", "a", "hanse-hamburg", corev1.PodSucceeded, "100.64.1.5"), false, false, false, false},
		"a pod of the peer here":                   {pod("shop-of-hamburg", "a", "n1", corev1.PodRunning, "10.244.1.5"), false, true, false, false},
		"a pod of the peer that has no address":    {pod("shop-of-hamburg", "a", "n1", corev1.PodPending), false, false, false, false},
		"one that has failed":                      {pod("shop-of-hamburg", "a", "n1", corev1.PodFailed, "10.244.1.5"), false, false, false, false},
		"one on the network of its node":           {hostNetwork, false, false, false, false},
		"a pod of the peer that was sent on":       {pod("shop-of-hamburg", "a", "hanse-hamburg", corev1.PodRunning, "100.64.1.5"), false, false, false, true},
		"a pod of ours that an opening speaks of":  {pod("stock", "a", "n1", corev1.PodRunning, "10.244.1.6"), false, false, true, false},
		"a pod of ours that no opening speaks of":  {pod("secret", "a", "n1", corev1.PodRunning, "10.244.1.6"), false, false, false, false},
		"a pod of ours on a node of somebody else": {pod("web", "a", "hanse-rostock", corev1.PodRunning, "100.65.1.5"), false, false, false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := read(t, world(t, opened, test.pod))
			hamburg := n.Peers[1]
			if (len(hamburg.There) > 0) != test.there || (len(hamburg.Guests) > 0) != test.guests || (len(n.OurPods) > 0) != test.ours {
				t.Errorf("there %v, guests %v, ours %v", hamburg.There, hamburg.Guests, n.OurPods)
			}
			if (len(hamburg.SentOn) > 0) != test.sentOn {
				t.Errorf("sent on %v", hamburg.SentOn)
			}
			if test.guests && hamburg.Guests[0].Namespace != "shop" {
				t.Errorf("the guest is of namespace %q", hamburg.Guests[0].Namespace)
			}
		})
	}
}

func TestCopiesOfServicesAreThoseInTwins(t *testing.T) {
	service := func(namespace, name string, labels map[string]string, ips ...string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Spec: corev1.ServiceSpec{ClusterIPs: ips},
		}
	}
	reflected := map[string]string{v1alpha1.LabelReflected: "true"}
	n := read(t, world(t,
		service("shop-of-hamburg", "web", reflected, "10.96.1.2", "fd00::2"), service("shop-of-hamburg", "db", reflected, "None"),
		service("shop-of-hamburg", "mine", nil, "10.96.1.3"), service("default", "web", reflected, "10.96.1.4"),
	))
	want := []overlay.Service{
		{Home: overlay.HomeService{Namespace: "shop", Name: "db"}, Twin: "shop-of-hamburg"},
		{
			Home: overlay.HomeService{Namespace: "shop", Name: "web"}, Twin: "shop-of-hamburg",
			Addresses: []netip.Addr{netip.MustParseAddr("10.96.1.2"), netip.MustParseAddr("fd00::2")},
		},
	}
	if diff := cmp.Diff(want, n.Peers[0].Services, byValue); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestConnectionsElsewhereMeanNothing(t *testing.T) {
	n := read(t, world(t, connection("default")))
	if len(n.Connections) != 1 || n.Connections["hamburg"] == nil {
		t.Errorf("got %v", n.Connections)
	}
}

func TestRangesOfAPeerThatIsGoneLinger(t *testing.T) {
	w := world(t)
	d := Departed{Clock: w.Clock}
	d.Of(read(t, w).Peers)
	w.Clock.Step(linger - time.Second)
	if got := d.Of(nil); len(got) != 1 || got[0].String() != "100.64.0.0/16" {
		t.Errorf("got %v", got)
	}
	w.Clock.Step(time.Second)
	if got := d.Of(nil); len(got) != 0 {
		t.Errorf("they linger for ever: %v", got)
	}
}

func TestOnlyWhatIsReadCountsAsAChange(t *testing.T) {
	before := pod("web", "a", "n1", corev1.PodPending, "10.244.1.5")
	ready := before.DeepCopy()
	ready.Status.Phase = corev1.PodRunning
	ended := before.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	said := connection("hanse-peer-hamburg")
	saidMore := said.DeepCopy()
	saidMore.Status.LossPercent = new(int32)
	asked := said.DeepCopy()
	asked.Generation++
	copied := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.1.2"}}}
	reselected := copied.DeepCopy()
	reselected.Spec.Selector = map[string]string{"app": "web"}
	moved := copied.DeepCopy()
	moved.Spec.ClusterIPs = []string{"10.96.1.3"}
	tests := map[string]struct {
		before, after any
		same          bool
	}{
		"a Service of other pods":          {copied, reselected, true},
		"a Service at another address":     {copied, moved, false},
		"a pod that starts":                {before, ready, true},
		"a pod that ends":                  {before, ended, false},
		"our own status of a Connection":   {said, saidMore, true},
		"another spec of a Connection":     {said, asked, false},
		"another kind of object than that": {&corev1.ConfigMap{}, &corev1.ConfigMap{}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if same(test.before, test.after) != test.same {
				t.Errorf("want the same: %t", test.same)
			}
		})
	}
}
