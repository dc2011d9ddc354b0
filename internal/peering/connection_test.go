// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

const otherKey = "4OBe7+mUs2QN2CZSAjC39N4Lc4QU2iFNVhoUu8XqBlg="

// hamburgs is what hamburg tells of its network, which has the same ranges as ours.
func hamburgs() *v1alpha1.Network {
	return &v1alpha1.Network{
		PodCIDRs: []v1alpha1.CIDR{"10.244.0.0/16"}, ServiceCIDRs: []v1alpha1.CIDR{"10.96.0.0/16"}, Nameservers: []v1alpha1.IP{"10.96.0.10"},
		Gateway: &v1alpha1.Gateway{
			PublicKey: gatewayKey, Endpoints: []v1alpha1.HostPort{"203.0.113.7:51820"}, Addresses: []v1alpha1.IP{"10.96.0.0"},
			Protocols: []string{"wireguard"},
		},
		Mappings: []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: "100.99.0.0/16"}, {Own: "10.96.0.0/16", Seen: "240.99.0.0/16"}},
	}
}

// newNetworkWorld is one in which our gateway runs, and hamburg has told of its network by what its role is.
func newNetworkWorld(t *testing.T, peer *v1alpha1.Peer, theirs *v1alpha1.Network) *world {
	t.Helper()
	w := newWorld(t, append(surrounded(), peer, gatewayDeployment(1))...)
	w.config.Gateway = true
	w.restart()
	w.keeps()
	w.reconcile()
	if peer.HasRole(v1alpha1.RoleConsumer) {
		w.joins()
	}
	w.tells(theirs)
	w.reconcile()
	return w
}

// tells has hamburg say this of its network, in its offer or in its answer to ours.
func (w *world) tells(network *v1alpha1.Network) {
	w.t.Helper()
	if w.peer().HasRole(v1alpha1.RoleProvider) {
		w.advertises(yes, v1alpha1.ReasonAccepted)
		offer := advertisement("")
		w.get(offer.Namespace, offer.Name, offer)
		offer.Spec.Network = network
		w.update(offer)
		return
	}
	ours := &v1alpha1.Advertisement{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "c-lubeck"}}
	if !w.exists(tenant, "c-lubeck", ours) {
		w.create(ours)
	}
	ours.Status.Network = network
	ours.Status.Acknowledgement = &v1alpha1.Acknowledgement{State: v1alpha1.AcknowledgementAccepted, Reason: v1alpha1.ReasonAccepted}
	w.update(ours)
}

// Lubeck and hamburg are providers of riga, which names hamburg to lubeck.
func TestPodsOfAHomeThatNamesBothGetRangesFromWhichTheySendDirectly(t *testing.T) {
	riga, named := peerOf(v1alpha1.RoleConsumer), hamburgs()
	riga.Name, riga.UID, riga.Spec.ClusterID = "riga", "", "c-riga"
	riga.Status.Mappings = []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: "100.90.0.0/16"}}
	named.Behind = []v1alpha1.ClusterRange{{ClusterID: "c-hamburg", RangeMapping: v1alpha1.RangeMapping{Own: "10.244.0.0/16", Seen: "100.99.0.0/16"}}}
	direct := func(seen v1alpha1.CIDR) []v1alpha1.ClusterRange {
		return []v1alpha1.ClusterRange{{ClusterID: "c-riga", RangeMapping: v1alpha1.RangeMapping{Own: "10.244.0.0/16", Seen: seen}}}
	}
	theirs := hamburgs()
	theirs.Direct = direct("240.80.0.0/16")
	w := newNetworkWorld(t, peerOf(v1alpha1.RoleProvider), theirs)
	if got := w.connection().Spec; got.ClusterID != "c-hamburg" || len(got.TheirDirect) > 0 {
		t.Errorf("without a home got %+v", got)
	}
	w.create(riga)
	w.create(&v1alpha1.Advertisement{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("riga"), Name: "c-lubeck"},
		Status:     v1alpha1.AdvertisementStatus{Network: named},
	})
	w.keeps()
	w.reconcile()
	want := direct("240.1.0.0/16")
	if diff := cmp.Diff(want, w.peer().Status.Direct); diff != "" {
		t.Errorf("of the Peer (-want +got):\n%s", diff)
	}
	spec := w.connection().Spec
	if diff := cmp.Diff(want, spec.TheirDirect) + cmp.Diff(theirs.Direct, spec.OurDirect); diff != "" {
		t.Errorf("of the Connection (-want +got):\n%s", diff)
	}
	w.expectNoWrites()
	w.restart()
	w.expectNoWrites()
}

// tunnelIs has our gateway say how the tunnel is.
func (w *world) tunnelIs(status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	c := w.connection()
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionConnected, Status: status, Reason: reason, Message: "As the gateway says"})
	if err := w.client.Status().Update(w.t.Context(), c); err != nil {
		w.t.Fatal(err)
	}
	w.reconcile()
}

func TestMeasurementsAreThoseOfTheTunnelWhileThereIsOne(t *testing.T) {
	w := newNetworkWorld(t, peerOf(v1alpha1.RoleProvider), hamburgs())
	request := w.peer().Status.RoundTripTime
	w.tunnelIs(metav1.ConditionTrue, v1alpha1.ReasonReady)
	c := w.connection()
	c.Status.RoundTripTime = &metav1.Duration{Duration: 700 * time.Microsecond}
	c.Status.LossPercent, c.Status.Throughput = ptr.To[int32](0), ptr.To(resource.MustParse("12M"))
	if err := w.client.Status().Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	if got := w.peer().Status; got.RoundTripTime.Duration != 700*time.Microsecond || got.RoundTripDeviation != nil {
		t.Errorf("with a tunnel it is %v, by %v", got.RoundTripTime, got.RoundTripDeviation)
	}
	if got := w.peer().Status; !ptr.Equal(got.LossPercent, ptr.To[int32](0)) || textOf(got.Throughput) != "12M" {
		t.Errorf("with a tunnel the loss is %v and the throughput %v", got.LossPercent, got.Throughput)
	}
	w.tunnelIs(metav1.ConditionFalse, v1alpha1.ReasonTunnelDown)
	w.clock.Step(time.Hour)
	w.reconcile()
	if got := w.peer().Status.RoundTripTime; !equality.Semantic.DeepEqual(got, request) {
		t.Errorf("without a tunnel it is %v, and was %v", got, request)
	}
	if got := w.peer().Status; got.LossPercent != nil || got.Throughput != nil {
		t.Errorf("without a tunnel the loss is %v and the throughput %v", got.LossPercent, got.Throughput)
	}
}

// connectionTo is that of the peer with the tenant namespace.
func connectionTo(namespace string) *v1alpha1.Connection {
	return named(&v1alpha1.Connection{Spec: v1alpha1.ConnectionSpec{PublicKey: otherKey}}, namespace, v1alpha1.ConnectionName)
}

func (w *world) connection() *v1alpha1.Connection {
	w.t.Helper()
	c := &v1alpha1.Connection{}
	w.get(tenant, v1alpha1.ConnectionName, c)
	return c
}

func (w *world) expectNoConnection() {
	w.t.Helper()
	if w.exists(tenant, v1alpha1.ConnectionName, &v1alpha1.Connection{}) {
		w.t.Error("there is a Connection")
	}
}

// hamburgSeen is how we see those ranges.
var hamburgSeen = []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: "100.64.0.0/16"}, {Own: "10.96.0.0/16", Seen: "240.0.0.0/16"}}

func TestConnectionSaysWhatOurGatewayMustKnow(t *testing.T) {
	for name, role := range map[string]v1alpha1.PeerRole{"of a provider": v1alpha1.RoleProvider, "of a consumer": v1alpha1.RoleConsumer} {
		t.Run(name, func(t *testing.T) {
			peer := peerOf(role)
			open := []v1alpha1.Opening{{From: v1alpha1.OpeningSide{PeerNamespace: "web"}, To: v1alpha1.OpeningSide{Namespace: "db"}}}
			peer.Spec.Network = &v1alpha1.PeerNetwork{Open: open}
			w := newNetworkWorld(t, peer, hamburgs())
			want := v1alpha1.ConnectionSpec{
				ClusterID: peer.Spec.ClusterID, PublicKey: gatewayKey, Endpoints: []v1alpha1.HostPort{"203.0.113.7:51820"}, Theirs: hamburgSeen, Ours: hamburgs().Mappings,
				GatewayAddresses: []v1alpha1.IP{"240.0.0.0"}, Nameservers: []v1alpha1.IP{"240.0.0.10"}, Openings: open,
			}
			if diff := cmp.Diff(want, w.connection().Spec); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := w.peer().Status.Mappings; !slices.Equal(got, hamburgSeen) {
				t.Errorf("the Peer is seen in %v", got)
			}
			w.expectNoWrites()
			w.restart()
			w.expectNoWrites()
		})
	}
}

func TestConnectedSaysHowTheTunnelIs(t *testing.T) {
	for _, role := range []v1alpha1.PeerRole{v1alpha1.RoleProvider, v1alpha1.RoleConsumer} {
		w := newNetworkWorld(t, peerOf(role), hamburgs())
		expect := func(status metav1.ConditionStatus, reason string) {
			t.Helper()
			w.expect(v1alpha1.ConditionConnected, status, reason)
			w.expect(v1alpha1.ConditionReady, status, reason)
		}
		w.reconcile()
		expect(no, v1alpha1.ReasonPending)
		w.tunnelIs(yes, v1alpha1.ReasonReady)
		expect(yes, v1alpha1.ReasonReady)
		w.expectNoWrites()
		w.tunnelIs(no, v1alpha1.ReasonTunnelDown)
		expect(no, v1alpha1.ReasonTunnelDown)

		stopped := gatewayDeployment(0)
		w.get(stopped.Namespace, stopped.Name, stopped)
		stopped.Status.ReadyReplicas = 0
		if err := w.client.Status().Update(t.Context(), stopped); err != nil {
			t.Fatal(err)
		}
		w.reconcile()
		expect(no, v1alpha1.ReasonNoGateway)
	}
}

func TestWhyThereIsNoTunnel(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.Network)
		reason string
		counts bool // for Ready
	}{
		"the peer has no gateway":             {func(n *v1alpha1.Network) { n.Gateway = nil }, v1alpha1.ReasonNoPeerGateway, false},
		"the peer's gateway speaks otherwise": {func(n *v1alpha1.Network) { n.Gateway.Protocols = []string{"ipsec"} }, v1alpha1.ReasonNoPeerGateway, false},
		"the peer has IPv6 alone, and we IPv4": {
			func(n *v1alpha1.Network) {
				n.PodCIDRs, n.ServiceCIDRs = []v1alpha1.CIDR{"fd00:10:244::/56"}, []v1alpha1.CIDR{"fd00:10:96::/112"}
			}, v1alpha1.ReasonNoCommonFamily, false,
		},
		"the peer has not seen us yet": {func(n *v1alpha1.Network) { n.Mappings = nil }, v1alpha1.ReasonPending, true},
		"the peer sees us nowhere":     {func(n *v1alpha1.Network) { n.Mappings[0].Seen = "127.0.0.0/16" }, v1alpha1.ReasonNetworkRefused, true},
		"everything is the peer's":     {func(n *v1alpha1.Network) { n.PodCIDRs[0] = "0.0.0.0/0" }, v1alpha1.ReasonNetworkRefused, true},
		"ranges that are none":         {func(n *v1alpha1.Network) { n.ServiceCIDRs[0] = "all" }, v1alpha1.ReasonNetworkRefused, true},
		"a key that is none":           {func(n *v1alpha1.Network) { n.Gateway.PublicKey = "key" }, v1alpha1.ReasonNetworkRefused, true},
		"our own key":                  {nil, v1alpha1.ReasonKeyTaken, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newNetworkWorld(t, peerOf(v1alpha1.RoleConsumer), hamburgs())
			w.tunnelIs(yes, v1alpha1.ReasonReady)
			theirs := hamburgs()
			if test.change == nil {
				theirs.Gateway.PublicKey = w.keeps().Gateway.PublicKey
			} else {
				test.change(theirs)
			}
			w.tells(theirs)
			w.reconcile()
			if test.reason == v1alpha1.ReasonPending { // the tunnel stays while there is nothing against it
				w.expect(v1alpha1.ConditionConnected, yes, v1alpha1.ReasonReady)
				w.remove(w.connection())
			} else {
				w.expectNoConnection()
			}
			w.reconcile()
			w.expect(v1alpha1.ConditionConnected, no, test.reason)
			if test.counts {
				w.expect(v1alpha1.ConditionReady, no, test.reason)
			} else {
				w.expect(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady)
			}
			w.expectNoWrites()
		})
	}
}

func TestAKeyBelongsToThePeerThatHadItFirst(t *testing.T) {
	w := newNetworkWorld(t, peerOf(v1alpha1.RoleProvider), hamburgs())
	other := &v1alpha1.Connection{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-peer-kiel", Name: "hanse", Labels: map[string]string{v1alpha1.LabelPeer: "kiel"}},
		Spec:       v1alpha1.ConnectionSpec{PublicKey: otherKey},
	}
	w.create(other)
	theirs := hamburgs()
	theirs.Gateway.PublicKey = otherKey
	w.tells(theirs)
	w.reconcile()
	w.expectNoConnection()
	w.expect(v1alpha1.ConditionConnected, no, v1alpha1.ReasonKeyTaken)

	kiel := peerOf(v1alpha1.RoleProvider)
	kiel.Name, kiel.UID = "kiel", "kiel-uid"
	w.create(kiel)
	if got := w.peersOfConnection(t.Context(), other); len(got) != 2 || got[0].Name != "kiel" || got[1].Name != "hamburg" {
		t.Errorf("a change of kiel's Connection has %v looked at", got)
	}
	w.remove(other)
	w.reconcile()
	if got := w.connection().Spec.PublicKey; got != otherKey {
		t.Errorf("the key is %s after it is free", got)
	}
}

func TestOfTwoConnectionsWithOneKeyTheOlderStays(t *testing.T) {
	at := func(peer string, age int) *v1alpha1.Connection {
		return &v1alpha1.Connection{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: v1alpha1.TenantNamespace(peer), Name: "hanse", Labels: map[string]string{v1alpha1.LabelPeer: peer},
				CreationTimestamp: metav1.NewTime(start.AddDate(0, 0, -age)),
			},
			Spec: v1alpha1.ConnectionSpec{PublicKey: gatewayKey},
		}
	}
	old, young := at("old", 2), at("young", 1)
	for _, c := range []*v1alpha1.Connection{old, young} {
		o := &observation{
			namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}},
			networks:  networks{ours: &exchange.OwnNetwork{Network: v1alpha1.Network{Gateway: &v1alpha1.Gateway{PublicKey: otherKey}}}, connection: c},
		}
		holder := keyHolder(o, gatewayKey, []v1alpha1.Connection{*old, *young})
		if want := map[*v1alpha1.Connection]string{old: "", young: `that of peer "old"`}[c]; holder != want {
			t.Errorf("%s is told that the key is %q", c.Namespace, holder)
		}
	}
}

func TestTwoGatewaysThatOnlyDialSayWhatToDo(t *testing.T) {
	theirs := hamburgs()
	theirs.Gateway.Endpoints = nil
	w := newNetworkWorld(t, peerOf(v1alpha1.RoleProvider), theirs)
	service := gatewayService("")
	w.get(service.Namespace, service.Name, service)
	w.remove(service)
	w.keeps()
	w.reconcile()
	w.reconcile()
	w.expect(v1alpha1.ConditionConnected, no, v1alpha1.ReasonPending)
	w.tunnelIs(no, v1alpha1.ReasonNoEndpoint)
	w.expect(v1alpha1.ConditionConnected, no, v1alpha1.ReasonNoEndpoint)
	w.tunnelIs(yes, v1alpha1.ReasonReady) // by a third that both reach
	w.expect(v1alpha1.ConditionConnected, yes, v1alpha1.ReasonReady)
}

func TestWithoutAGatewayHereThereIsNoConnection(t *testing.T) {
	w := newNetworkWorld(t, peerOf(v1alpha1.RoleProvider), hamburgs())
	w.connection()
	w.config.Gateway = false
	w.restart()
	w.keeps()
	w.reconcile()
	w.reconcile()
	w.expectNoConnection()
	w.expect(v1alpha1.ConditionConnected, no, v1alpha1.ReasonNoNetworkFabric)
	w.expect(v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady)
}

func TestATunnelOutlivesAnOfferThatIsGone(t *testing.T) {
	w := newNetworkWorld(t, peerOf(v1alpha1.RoleProvider), hamburgs())
	w.tunnelIs(yes, v1alpha1.ReasonReady)
	before := w.connection()
	w.advertises(no, v1alpha1.ReasonExpired)
	w.reconcile()
	w.expect(v1alpha1.ConditionConnected, yes, v1alpha1.ReasonReady)
	offer := advertisement("")
	w.get(offer.Namespace, offer.Name, offer)
	w.remove(offer)
	w.reconcile()
	if diff := cmp.Diff(before.Spec, w.connection().Spec); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestTheOfferOfAPeerOfBothRolesCounts(t *testing.T) {
	w := newNetworkWorld(t, peerOf(v1alpha1.RoleProvider, v1alpha1.RoleConsumer), hamburgs())
	answer := &v1alpha1.Advertisement{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "c-lubeck"}}
	answer.Status.Network = hamburgs()
	answer.Status.Network.Gateway.PublicKey = otherKey
	answer.Status.Acknowledgement = &v1alpha1.Acknowledgement{State: v1alpha1.AcknowledgementAccepted}
	w.create(answer)
	w.reconcile()
	if got := w.connection().Spec.PublicKey; got != gatewayKey {
		t.Errorf("the key is %s", got)
	}
}
