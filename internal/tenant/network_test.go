// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// connected is the Connection to lubeck.
func connected() *v1alpha1.Connection {
	return &v1alpha1.Connection{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-peer-lubeck", Name: "hanse"},
		Spec: v1alpha1.ConnectionSpec{
			PublicKey: "KYR3g4P5xFyhkz12TyxZTCJ4aKVeCzaHbMPRlDVSdWE=", Nameservers: []v1alpha1.IP{"240.0.0.10"},
			Theirs: []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: "100.64.0.0/16"}, {Own: "10.96.0.0/16", Seen: "240.0.0.0/16"}},
		},
	}
}

func TestPodsAskTheDNSOfTheirHomeWhereANetworkLeadsThere(t *testing.T) {
	s := newStage(t, shadowPod())
	s.Home.Put(connected())
	s.run()
	pod := s.pod()
	if pod == nil {
		t.Fatal("there is no pod")
	}
	want := []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"} // not those of the twin
	if config := pod.Spec.DNSConfig; config == nil || !slices.Equal(config.Nameservers, []string{"240.0.0.10"}) || !slices.Equal(config.Searches, want) {
		t.Errorf("the pod has DNS %+v", config)
	}
	if pod.Spec.DNSPolicy != corev1.DNSNone {
		t.Errorf("its DNS policy is %s", pod.Spec.DNSPolicy)
	}
	if !slices.Contains(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: "KUBERNETES_SERVICE_HOST", Value: "kubernetes.default.svc"}) {
		t.Errorf("it has variables %v", pod.Spec.Containers[0].Env)
	}
}

func TestPodsThatWereSentOnAskTheirHomeAsItIsSeenHere(t *testing.T) {
	on := connected()
	on.Spec.Theirs = append(on.Spec.Theirs, v1alpha1.RangeMapping{Own: "240.16.0.0/16", Seen: "240.32.0.0/16"})
	w := newWorld(t, on)
	home, err := homeOf(t.Context(), w.Home.Client, lubeck.namespace(""))
	if err != nil || home == nil {
		t.Fatalf("got %v, %v", home, err)
	}
	for address, want := range map[string]string{"240.16.0.10": "240.32.0.10", "10.96.0.10": "240.0.0.10", "1.1.1.1": ""} {
		seen, ok := home.Seen(netip.MustParseAddr(address))
		if ok != (want != "") || ok && seen.String() != want {
			t.Errorf("%s is seen as %s, want %s", address, seen, want)
		}
	}
}

func TestPodsKeepTheDNSOfTheProviderWithoutANetwork(t *testing.T) {
	for name, connection := range map[string]*v1alpha1.Connection{
		"home has told of no DNS":      {ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-peer-lubeck", Name: "hanse"}},
		"it is another home's network": {ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-peer-kiel", Name: "hanse"}, Spec: connected().Spec},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, shadowPod())
			s.Home.Put(connection)
			s.run()
			if pod := s.pod(); pod == nil || pod.Spec.DNSConfig != nil || pod.Spec.DNSPolicy == corev1.DNSNone {
				t.Errorf("got %+v", pod)
			}
		})
	}
}

func TestTheNetworkPolicyOpensTheWayHome(t *testing.T) {
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"))
	m := mapperIn(w)
	blocks := func() [2][]string {
		w.Reconcile(m, "hanse-peer-lubeck", "shop")
		policy := &networkingv1.NetworkPolicy{}
		if !w.Home.Find(policy, lubeck.name(), "hanse") {
			t.Fatal("there is no NetworkPolicy")
		}
		return [2][]string{blocksOf(policy.Spec.Ingress[0].From), blocksOf(policy.Spec.Egress[0].To)}
	}
	if diff := cmp.Diff([2][]string{}, blocks()); diff != "" {
		t.Errorf("without a network (-want +got):\n%s", diff)
	}
	w.Home.Put(connected())
	ranges := []string{"100.64.0.0/16", "240.0.0.0/16"}
	if diff := cmp.Diff([2][]string{ranges, ranges}, blocks()); diff != "" {
		t.Errorf("with one (-want +got):\n%s", diff)
	}
}

func blocksOf(peers []networkingv1.NetworkPolicyPeer) []string {
	var blocks []string
	for _, p := range peers {
		if p.IPBlock != nil {
			blocks = append(blocks, p.IPBlock.CIDR)
		}
	}
	return blocks
}
