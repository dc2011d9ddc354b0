// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/policy"
)

// lubeck is our network, with a gateway. In the relayed ranges we see two providers.
func lubeck() *exchange.OwnNetwork {
	return &exchange.OwnNetwork{Network: v1alpha1.Network{
		PodCIDRs: []v1alpha1.CIDR{"10.244.0.0/16"}, ServiceCIDRs: []v1alpha1.CIDR{"10.96.0.0/16"},
		RelayedCIDRs: []v1alpha1.CIDR{"100.64.0.0/16", "100.65.0.0/16"}, Nameservers: []v1alpha1.IP{"10.96.0.10"},
		Gateway: &v1alpha1.Gateway{PublicKey: "KYR3g4P5xFyhkz12TyxZTCJ4aKVeCzaHbMPRlDVSdWE=", Endpoints: []v1alpha1.HostPort{"203.0.113.7:51820"}},
	}}
}

// theirPods is how we see hamburg.
var theirPods = []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: "100.64.0.0/16"}}

// network keeps what this cluster tells of its network.
func (w *world) network(n *exchange.OwnNetwork) {
	w.Helper()
	data, err := exchange.NetworkData(n)
	if err != nil {
		w.Fatal(err)
	}
	w.Home.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-system", Name: v1alpha1.OwnNetwork}, Data: data})
}

func TestAPeerIsToldOurNetworkAndHowWeSeeIt(t *testing.T) {
	withoutGateway, sendsOn := lubeck(), lubeck()
	withoutGateway.Gateway, sendsOn.SendsOn = nil, true
	seen := func(change func(*v1alpha1.Network)) *v1alpha1.Network {
		n := lubeck().Network
		n.RelayedCIDRs = nil
		change(&n)
		return &n
	}
	for name, test := range map[string]struct {
		own      *exchange.OwnNetwork
		mappings []v1alpha1.RangeMapping
		want     *v1alpha1.Network
	}{
		"not known":             {},
		"without a gateway":     {withoutGateway, theirPods, seen(func(n *v1alpha1.Network) { n.Gateway = nil })},
		"not seen yet":          {lubeck(), nil, seen(func(*v1alpha1.Network) {})},
		"seen":                  {lubeck(), theirPods, seen(func(n *v1alpha1.Network) { n.Mappings = theirPods })},
		"not relayed to itself": {sendsOn, theirPods, seen(func(n *v1alpha1.Network) { n.Mappings, n.RelayedCIDRs = theirPods, []v1alpha1.CIDR{"100.65.0.0/16"} })},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			peer := w.peer(v1alpha1.RoleConsumer)
			peer.Status.Mappings = test.mappings
			w.Home.Put(peer)
			if test.own != nil {
				w.network(test.own)
			}
			w.reconcile(w.publisher)
			w.expect(test.want, w.ours().Spec.Network)
		})
	}
}

func TestAConsumerLearnsAtOnceInWhichRangesItIsSeen(t *testing.T) {
	w := newWorld(t)
	w.network(lubeck())
	peer := w.peer(v1alpha1.RoleConsumer)
	w.reconcile(w.publisher)

	peer.Status.Mappings = theirPods
	w.Home.Put(peer)
	w.expectWrites(1, w.publisher)
	w.expect(theirPods, w.ours().Spec.Network.Mappings)

	peer.Status.Mappings = []v1alpha1.RangeMapping{{Own: "10.244.0.0/16", Seen: "100.99.0.0/16"}}
	w.Home.Put(peer)
	result := w.expectWrites(0, w.publisher)
	w.expect(w.publisher.config.MinInterval, result.RequeueAfter)
}

func TestAnswerTellsTheProviderOfOurNetwork(t *testing.T) {
	w := newWorld(t)
	w.network(lubeck())
	peer := w.peer(v1alpha1.RoleProvider)
	peer.Status.Mappings = theirPods
	w.Home.Put(peer)
	w.offered()
	w.reconcile(w.receiver)
	want := exchange.NetworkFor(lubeck(), &peer.Spec, theirPods)
	w.expect(want, w.theirs().Status.Network)
	w.expectWrites(0, w.receiver)

	w.Clock.Step(10 * time.Minute)
	w.says(w.offer(2))
	w.wrote()
	w.reconcile(w.receiver)
	w.expect([]string(nil), w.Away.Wrote()) // a hello is not answered

	moved := lubeck()
	moved.Gateway.Endpoints[0] = "203.0.113.8:51820"
	w.network(moved)
	w.reconcile(w.receiver)
	w.expect(exchange.NetworkFor(moved, &peer.Spec, theirPods), w.theirs().Status.Network)

	moved.Gateway = nil
	w.network(moved)
	w.reconcile(w.receiver)
	w.expect((*v1alpha1.Network)(nil), w.theirs().Status.Network)
}

func TestAProviderThatIsRefusedLearnsNothingOfOurNetwork(t *testing.T) {
	w := newWorld(t)
	w.network(lubeck())
	w.policies.say(policy.Incoming, policy.Decision{Outcome: policy.Deny}, nil)
	w.peer(v1alpha1.RoleProvider)
	w.offered()
	w.reconcile(w.receiver)
	w.expect((*v1alpha1.Network)(nil), w.theirs().Status.Network)
}
