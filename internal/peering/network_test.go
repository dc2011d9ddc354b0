// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

const gatewayKey = "KYR3g4P5xFyhkz12TyxZTCJ4aKVeCzaHbMPRlDVSdWE="

func realNode(name, podCIDR, inside, outside string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: podCIDR}}
	for kind, address := range map[corev1.NodeAddressType]string{corev1.NodeInternalIP: inside, corev1.NodeExternalIP: outside} {
		if address != "" {
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: kind, Address: address})
		}
	}
	return node
}

func dualNode(inside ...string) *corev1.Node {
	node := realNode("dual", "", "", "")
	for _, address := range inside {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	return node
}

func ofFamilies(service *corev1.Service, families ...corev1.IPFamily) *corev1.Service {
	service.Spec.IPFamilies = families
	return service
}

func gatewayService(kind corev1.ServiceType, ingress ...corev1.LoadBalancerIngress) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-system-network", Name: "hanse-gateway"},
		Spec:       corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Port: 51820, NodePort: 31820}}},
		Status:     corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: ingress}},
	}
}

func TestEndpointsOfTheGateway(t *testing.T) {
	inside := []*corev1.Node{realNode("a", "", "192.168.1.1", ""), realNode("b", "", "fd00::2", "")}
	outside := []*corev1.Node{
		realNode("a", "", "192.168.1.1", "203.0.113.1"), realNode("b", "", "192.168.1.2", ""), realNode("c", "", "192.168.1.3", "203.0.113.3"),
		realNode("d", "", "192.168.1.4", "203.0.113.4"), realNode("e", "", "192.168.1.5", "203.0.113.5"),
	}
	for name, test := range map[string]struct {
		asked   []string
		service *corev1.Service
		nodes   []*corev1.Node
		want    []v1alpha1.HostPort
	}{
		"without a Service it only dials":         {nil, nil, inside, nil},
		"what the administrator says comes first": {[]string{"gw.example:51820"}, gatewayService(corev1.ServiceTypeNodePort), inside, []v1alpha1.HostPort{"gw.example:51820"}},
		"a Service inside the cluster is none":    {nil, gatewayService(corev1.ServiceTypeClusterIP), inside, nil},
		"a load balancer that is not there yet":   {nil, gatewayService(corev1.ServiceTypeLoadBalancer), inside, nil},
		"a load balancer with address and name": {
			nil,
			gatewayService(corev1.ServiceTypeLoadBalancer, corev1.LoadBalancerIngress{IP: "2001:db8::7"}, corev1.LoadBalancerIngress{Hostname: "lb.example"}),
			inside,
			[]v1alpha1.HostPort{"[2001:db8::7]:51820", "lb.example:51820"},
		},
		"the addresses of a node of both families": {
			nil, gatewayService(corev1.ServiceTypeNodePort),
			[]*corev1.Node{dualNode("192.168.1.1", "fd00::1"), dualNode("fd00::2", "192.168.1.2")},
			[]v1alpha1.HostPort{"192.168.1.1:31820", "[fd00::1]:31820", "[fd00::2]:31820", "192.168.1.2:31820"},
		},
		"not the family that the Service lacks": {
			nil, ofFamilies(gatewayService(corev1.ServiceTypeNodePort), corev1.IPv6Protocol),
			[]*corev1.Node{realNode("a", "", "192.168.1.1", ""), dualNode("192.168.1.1", "fd00::1")},
			[]v1alpha1.HostPort{"[fd00::1]:31820"},
		},
		"nodes inside": {nil, gatewayService(corev1.ServiceTypeNodePort), inside, []v1alpha1.HostPort{"192.168.1.1:31820", "[fd00::2]:31820"}},
		"at most three nodes, and those outside alone": {
			nil, gatewayService(corev1.ServiceTypeNodePort), outside,
			[]v1alpha1.HostPort{"203.0.113.1:31820", "203.0.113.3:31820", "203.0.113.4:31820"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{GatewayEndpoints: test.asked}
			if diff := cmp.Diff(test.want, config.endpoints(test.service, test.nodes)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// keeps has the keeper look, and returns what it says of our network.
func (w *world) keeps() *exchange.OwnNetwork {
	w.t.Helper()
	if _, err := w.network.Reconcile(w.t.Context(), reconcile.Request{}); err != nil {
		w.t.Fatal(err)
	}
	kept := &corev1.ConfigMap{}
	w.get("hanse-system", v1alpha1.OwnNetwork, kept)
	network, err := exchange.ParseNetwork(kept.Data)
	if err != nil {
		w.t.Fatal(err)
	}
	return network
}

// surrounded are the objects of a usual cluster.
func surrounded() []client.Object {
	virtual := realNode("hanse-x", "10.99.0.0/24", "", "")
	virtual.Labels = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}
	return []client.Object{
		realNode("n1", "10.20.1.0/24", "192.168.1.1", ""), realNode("n2", "10.20.2.0/24", "192.168.1.2", ""), virtual,
		&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}}},
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns", Labels: map[string]string{"k8s-app": "kube-dns"}},
			Spec:       corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.10"}},
		},
		gatewayService(corev1.ServiceTypeNodePort),
	}
}

func TestOwnNetworkIsFoundOut(t *testing.T) {
	w := newWorld(t, surrounded()...)
	w.config.PodCIDRs = nil
	w.restart()
	want := &v1alpha1.Network{
		PodCIDRs: []v1alpha1.CIDR{"10.20.0.0/16"}, ServiceCIDRs: []v1alpha1.CIDR{"10.96.0.0/16"}, Nameservers: []v1alpha1.IP{"10.96.0.10"},
	}
	if diff := cmp.Diff(want, &w.keeps().Network); diff != "" {
		t.Errorf("without a gateway (-want +got):\n%s", diff)
	}
	if w.exists("hanse-system", "hanse-gateway", &corev1.Secret{}) {
		t.Error("there is a key though there is no gateway")
	}

	w.config.Gateway = true
	w.config.Nameservers, w.config.PodCIDRs = []string{"10.96.0.53"}, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/12")}
	w.restart()
	got := w.keeps()
	want = &v1alpha1.Network{
		PodCIDRs: []v1alpha1.CIDR{"10.0.0.0/12"}, ServiceCIDRs: []v1alpha1.CIDR{"10.96.0.0/16"}, Nameservers: []v1alpha1.IP{"10.96.0.53"},
		Gateway: &v1alpha1.Gateway{
			PublicKey: got.Gateway.PublicKey, Protocols: []string{"wireguard"}, Addresses: []v1alpha1.IP{"10.96.0.0"},
			Endpoints: []v1alpha1.HostPort{"192.168.1.1:31820", "192.168.1.2:31820"},
		},
	}
	if diff := cmp.Diff(want, &got.Network); diff != "" {
		t.Errorf("with a gateway (-want +got):\n%s", diff)
	}
	before := w.writes
	w.restart()
	if diff := cmp.Diff(got, w.keeps()); diff != "" || w.writes != before {
		t.Errorf("%d writes though nothing changed: %s", w.writes-before, diff)
	}
}

func TestKeyOfTheGatewayIsMadeOnce(t *testing.T) {
	w := newWorld(t)
	w.config.Gateway = true
	w.restart()
	first := w.keeps().Gateway.PublicKey
	if again := w.keeps().Gateway.PublicKey; again != first {
		t.Errorf("got %s, then %s", first, again)
	}
	kept := &corev1.Secret{}
	w.get("hanse-system", "hanse-gateway", kept)
	w.remove(kept)
	if rotated := w.keeps().Gateway.PublicKey; rotated == first {
		t.Error("the same key after the Secret was deleted")
	}
	w.get("hanse-system", "hanse-gateway", kept)
	for name, text := range map[string]string{
		"no base64": "?", "too short": base64.StdEncoding.EncodeToString([]byte("short")), "nothing": "",
	} {
		kept.Data = map[string][]byte{v1alpha1.GatewaySecretKey: []byte(text)}
		w.update(kept)
		if _, err := w.network.Reconcile(t.Context(), reconcile.Request{}); err == nil {
			t.Errorf("no error with a key that is %s", name)
		}
	}
}

func TestWhatIsRelayed(t *testing.T) {
	network := &v1alpha1.Network{
		PodCIDRs: []v1alpha1.CIDR{"10.244.0.0/16"}, ServiceCIDRs: []v1alpha1.CIDR{"10.96.0.0/16"}, Gateway: &v1alpha1.Gateway{PublicKey: gatewayKey},
		RelayedCIDRs: []v1alpha1.CIDR{"100.99.0.0/16"},
		Behind: []v1alpha1.ClusterRange{
			{ClusterID: "c-visby", RangeMapping: v1alpha1.RangeMapping{Own: "10.244.0.0/16", Seen: "100.99.0.0/16"}},
			{ClusterID: "c-bremen"},
			{ClusterID: "c-visby"},
		},
	}
	homes := []exchange.Home{{ClusterID: "c-consumer", Providers: []string{"c-bremen", "c-visby"}}}
	providers := v1alpha1.Network{
		RelayedCIDRs: []v1alpha1.CIDR{"100.65.0.0/16", "100.64.0.0/16"},
		Behind: []v1alpha1.ClusterRange{
			{ClusterID: "c-old", RangeMapping: v1alpha1.RangeMapping{Own: "10.244.0.0/16", Seen: "100.65.0.0/16"}},
			{ClusterID: "c-young", RangeMapping: v1alpha1.RangeMapping{Own: "10.244.0.0/16", Seen: "100.64.0.0/16"}},
		},
	}
	// A peer that is seen in 100.N.0.0/16 and 240.N.0.0/16, and what is behind it in 100.(N+100).0.0/16.
	known := func(name string, age, n int, role v1alpha1.PeerRole, network *v1alpha1.Network) []client.Object {
		peer, told := peerOf(role), advertisement("")
		peer.Name, peer.UID, peer.Spec.ClusterID = name, "", "c-"+name
		peer.CreationTimestamp = metav1.NewTime(start.AddDate(0, 0, -age))
		seen := func(format string, n int) v1alpha1.CIDR { return v1alpha1.CIDR(fmt.Sprintf(format, n)) }
		peer.Status.Mappings = []v1alpha1.RangeMapping{
			{Own: "10.244.0.0/16", Seen: seen("100.%d.0.0/16", n)},
			{Own: "10.96.0.0/16", Seen: seen("240.%d.0.0/16", n)},
			{Own: "100.99.0.0/16", Seen: seen("100.%d.0.0/16", n+100)},
		}
		told.Namespace = v1alpha1.TenantNamespace(name)
		if role == v1alpha1.RoleConsumer {
			told.Name, told.Status.Network = "c-lubeck", network
		} else {
			told.Name, told.Spec.Network = "c-"+name, network
		}
		return []client.Object{peer, told}
	}
	apart := network.DeepCopy()
	apart.Gateway = nil
	for name, test := range map[string]struct {
		sendOn bool
		want   exchange.OwnNetwork
	}{
		"pods of providers, of the oldest first": {false, exchange.OwnNetwork{Network: providers, Homes: homes}},
		"all of consumers too, if their pods are sent on": {true, exchange.OwnNetwork{
			Network: providers, Homes: homes, ConsumerCIDRs: []v1alpha1.CIDR{"100.67.0.0/16", "240.67.0.0/16"}, SendsOn: true,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, known("young", 1, 64, v1alpha1.RoleProvider, network)...)
			w.create(known("old", 9, 65, v1alpha1.RoleProvider, network)...)
			w.create(known("apart", 5, 66, v1alpha1.RoleProvider, apart)...)
			w.create(known("consumer", 5, 67, v1alpha1.RoleConsumer, network)...)
			w.create(known("far-consumer", 5, 68, v1alpha1.RoleConsumer, apart)...)
			w.config.Gateway, w.config.SendOn = true, test.sendOn
			w.restart()
			got := w.keeps()
			got.Network = v1alpha1.Network{RelayedCIDRs: got.RelayedCIDRs, Behind: got.Behind}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// gatewayDeployment is that of our gateway.
func gatewayDeployment(ready int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-system-network", Name: "hanse-gateway"}, Status: appsv1.DeploymentStatus{ReadyReplicas: ready},
	}
}

func TestSettingsOfTheNetworkAreChecked(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		good   bool
	}{
		"an address":            {func(c *Config) { c.GatewayEndpoints = []string{"[2001:db8::1]:51820", "203.0.113.7:1"} }, true},
		"a name":                {func(c *Config) { c.GatewayEndpoints = []string{"gw.example.org:51820"} }, true},
		"no port":               {func(c *Config) { c.GatewayEndpoints = []string{"203.0.113.7"} }, false},
		"port 0":                {func(c *Config) { c.GatewayEndpoints = []string{"203.0.113.7:0"} }, false},
		"no host":               {func(c *Config) { c.GatewayEndpoints = []string{":51820"} }, false},
		"nine endpoints":        {func(c *Config) { c.GatewayEndpoints = make([]string, 9) }, false},
		"a name server":         {func(c *Config) { c.Nameservers = []string{"10.96.0.10"} }, true},
		"a name as name server": {func(c *Config) { c.Nameservers = []string{"dns"} }, false},
		"a pool with host bits": {func(c *Config) { c.ServicePools = []netip.Prefix{netip.MustParsePrefix("240.0.0.1/4")} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{}
			test.change(&config)
			if err := config.validateNetwork(); (err == nil) != test.good {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A provider sends to all that home names past home, and a consumer's own pods are not home's.
func TestRangesOfConsumersWhosePodsAreSentOnAreNotNamedAsOurs(t *testing.T) {
	ours := v1alpha1.ClusterRange{ClusterID: "c-bremen", RangeMapping: v1alpha1.RangeMapping{Own: "10.244.0.0/16", Seen: "100.64.0.0/16"}}
	both := v1alpha1.ClusterRange{ClusterID: "c-lubeck", RangeMapping: v1alpha1.RangeMapping{Own: "10.244.0.0/16", Seen: "100.65.0.0/16"}}
	r := relayed{behind: []v1alpha1.ClusterRange{ours, both}}
	if diff := cmp.Diff([]v1alpha1.ClusterRange{ours, both}, r.ofOurs()); diff != "" {
		t.Errorf("nobody's pods are sent on (-want +got):\n%s", diff)
	}
	r.consumers = []v1alpha1.CIDR{both.Seen}
	if diff := cmp.Diff([]v1alpha1.ClusterRange{ours}, r.ofOurs()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
