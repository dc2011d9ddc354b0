// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// Keys of gateways that do not exist.
const (
	rostocksKey    = "4OBe7+mUs2QN2CZSAjC39N4Lc4QU2iFNVhoUu8XqBlg="
	rostocksNewKey = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08="
)

// A networkLie is what rostock tells of its network, and what lubeck must say of that.
type networkLie struct {
	name  string
	tell  func(network *v1alpha1.Network)
	check func(ctx context.Context) error
}

// A provider tells whatever it likes of its network, one thing after the other: of each lubeck says what is wrong with it, and a
// stream to another provider flows on.
func TestHostileNetwork(t *testing.T) {
	ctx := framework.Begin(t)
	s := lubeck.StartStream(t)
	playPeer(t, rostock)
	consumeFromRostock(t, lubeck, &clientcmdapi.Cluster{Server: rostock.Config.Host, CertificateAuthorityData: rostock.Config.CAData})
	lubecks := ownNetwork(ctx, t, lubeck)
	hamburgs := ownNetwork(ctx, t, hamburg)
	for _, lie := range []networkLie{
		{"nothing that is wrong, but nobody is there", func(*v1alpha1.Network) {}, saysOfRostock(v1alpha1.ReasonTunnelDown, "")},
		{"our own ranges", func(n *v1alpha1.Network) { tellRangesOf(n, lubecks) }, seesRostockElsewhere(lubecks)},
		{"everything", func(n *v1alpha1.Network) { n.PodCIDRs[0] = "0.0.0.0/0" }, saysOfRostock(v1alpha1.ReasonNetworkRefused, "0.0.0.0/0")},
		{"pieces that overlap", func(n *v1alpha1.Network) { n.PodCIDRs = append(n.PodCIDRs, "10.50.7.0/24") }, saysOfRostock(v1alpha1.ReasonNetworkRefused, "overlap")},
		{"all of the pool", func(n *v1alpha1.Network) { n.PodCIDRs = asWideAsMayBe }, saysOfRostock(v1alpha1.ReasonNetworkRefused, "too wide together")},
		{"that it sees us nowhere", func(n *v1alpha1.Network) { n.Mappings[0].Seen = "127.0.0.0/16" }, saysOfRostock(v1alpha1.ReasonNetworkRefused, "127.0.0.0/16")},
		{"the key of another peer", func(n *v1alpha1.Network) { n.Gateway.PublicKey = hamburgs.Gateway.PublicKey }, saysOfRostock(v1alpha1.ReasonKeyTaken, "hamburg")},
		{"our own key", func(n *v1alpha1.Network) { n.Gateway.PublicKey = lubecks.Gateway.PublicKey }, saysOfRostock(v1alpha1.ReasonKeyTaken, "our own")},
		{"another key", func(n *v1alpha1.Network) { n.Gateway.PublicKey = rostocksNewKey }, connectsByKey(rostocksNewKey)},
		{"our gateway as its own", func(n *v1alpha1.Network) { n.Gateway.Endpoints = lubecks.Gateway.Endpoints[:1] }, saysOfRostock(v1alpha1.ReasonEndpointRefused, "our own gateway")},
		{"ten thousand ranges", func(n *v1alpha1.Network) { n.PodCIDRs = tenThousand() }, mentionsOfRostock("spec.network.podCIDRs")},
		{"a key that is none", func(n *v1alpha1.Network) { n.Gateway.PublicKey = "key" }, mentionsOfRostock("publicKey")},
	} {
		t.Run(lie.name, func(t *testing.T) {
			tellNetwork(t, rostock, lubecks, lie.tell)
			framework.Eventually(t, "lubeck says what rostock tells", lie.check)
			s.AwaitMore(t, "the stream to hamburg flows on")
		})
	}
	if err := errors.Join(lubeck.CheckConnectedTo(ctx, hamburg), lubeck.CheckConnectedTo(ctx, bremen)); err != nil {
		t.Error(err)
	}
	t.Logf("the longest gap of the stream: %.2f s", s.LongestGap(t))
}

// ownNetwork returns what the cluster tells of its own network.
func ownNetwork(ctx context.Context, t *testing.T, c *framework.Cluster) *v1alpha1.Network {
	t.Helper()
	kept := &corev1.ConfigMap{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.OwnNetwork}, kept); err != nil {
		t.Fatal(err)
	}
	own, err := exchange.ParseNetwork(kept.Data)
	if err != nil {
		t.Fatal(err)
	}
	return &own.Network
}

// tellNetwork has rostock's next advertisement tell of a good network, spoiled by the caller.
func tellNetwork(t *testing.T, c *framework.Cluster, readers *v1alpha1.Network, spoil func(*v1alpha1.Network)) {
	t.Helper()
	told := &v1alpha1.Network{
		PodCIDRs: []v1alpha1.CIDR{"10.50.0.0/16"}, ServiceCIDRs: []v1alpha1.CIDR{"10.60.0.0/16"},
		Gateway: &v1alpha1.Gateway{
			PublicKey: rostocksKey, Endpoints: []v1alpha1.HostPort{"203.0.113.7:51820"}, Addresses: []v1alpha1.IP{"10.60.0.0"},
		},
	}
	for _, own := range slices.Concat(readers.PodCIDRs, readers.ServiceCIDRs) {
		told.Mappings = append(told.Mappings, v1alpha1.RangeMapping{Own: own, Seen: own})
	}
	spoil(told)
	written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(told)
	if err != nil {
		t.Fatal(err)
	}
	advertise(t, c, func(spec map[string]any) { spec["network"] = written })
}

// saysOfRostock checks that condition Connected of lubeck's Peer is False for that reason, and says why.
func saysOfRostock(reason, why string) func(context.Context) error {
	return func(ctx context.Context) error {
		peer, err := lubeck.GetPeer(ctx, "rostock")
		if err != nil {
			return err
		}
		said := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionConnected)
		if said == nil || said.Status != metav1.ConditionFalse || said.Reason != reason || said.Message == "" || !strings.Contains(said.Message, why) {
			return fmt.Errorf("condition Connected is %+v", said)
		}
		return nil
	}
}

// mentionsOfRostock checks that condition Advertised says what is wrong with the newest message.
func mentionsOfRostock(what string) func(context.Context) error {
	return func(ctx context.Context) error {
		peer, err := lubeck.GetPeer(ctx, "rostock")
		if err != nil {
			return err
		}
		said := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionAdvertised)
		if said == nil || !strings.Contains(said.Message, what) {
			return fmt.Errorf("condition Advertised is %+v", said)
		}
		return nil
	}
}

// tellRangesOf has the network tell the ranges of another one.
func tellRangesOf(n, other *v1alpha1.Network) {
	n.PodCIDRs, n.ServiceCIDRs, n.Gateway.Addresses = other.PodCIDRs, other.ServiceCIDRs, other.Gateway.Addresses
}

// seesRostockElsewhere checks that there is a tunnel to rostock with these ranges, none of which is seen as it is.
func seesRostockElsewhere(has *v1alpha1.Network) func(context.Context) error {
	return func(ctx context.Context) error {
		connection, err := lubeck.GetConnection(ctx, rostock)
		if err != nil {
			return err
		}
		var own []v1alpha1.CIDR
		for _, m := range connection.Spec.Theirs {
			own = append(own, m.Own)
			if m.Own == m.Seen {
				return fmt.Errorf("it is seen in its own range %s", m.Own)
			}
		}
		if !slices.Equal(own, slices.Concat(has.PodCIDRs, has.ServiceCIDRs)) {
			return fmt.Errorf("its ranges are %v", own)
		}
		return saysOfRostock(v1alpha1.ReasonTunnelDown, "")(ctx)
	}
}

// connectsByKey checks that lubeck's gateway is told of that key of rostock's.
func connectsByKey(key string) func(context.Context) error {
	return func(ctx context.Context) error {
		connection, err := lubeck.GetConnection(ctx, rostock)
		if err == nil && connection.Spec.PublicKey != key {
			err = fmt.Errorf("the key is %s", connection.Spec.PublicKey)
		}
		return err
	}
}

var asWideAsMayBe = []v1alpha1.CIDR{"10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8", "13.0.0.0/8", "14.0.0.0/8"}

func tenThousand() []v1alpha1.CIDR {
	var ranges []v1alpha1.CIDR
	for i := range 10_000 {
		ranges = append(ranges, v1alpha1.CIDR(fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255)))
	}
	return ranges
}
