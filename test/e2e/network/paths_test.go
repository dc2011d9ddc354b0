// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
	"github.com/hanse-dev/hanse/test/harness"
)

// badLink makes the link between the clusters bad until the story ends.
func badLink(t *testing.T, a, b *framework.Cluster, how ...string) {
	t.Helper()
	if _, err := harness.Testbed(t.Context(), append([]string{"link", a.Name, b.Name}, how...)...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := harness.Testbed(context.Background(), "link", a.Name, b.Name, "off"); err != nil {
			t.Error(err)
		}
	})
}

// mirror has a pod send back whatever comes on port 9000.
var mirror = framework.WithScript(framework.RunForever, "while true; do nc -l -p 9000 -e /bin/cat; done")

// carries returns an error unless so many bytes get there and back, in packets as large as may be.
func carries(ctx context.Context, p *framework.NetworkPod, at string, bytes int) error {
	out, err := p.Run(ctx, fmt.Sprintf("head -c %d /dev/zero | timeout 20 nc %s 9000 | head -c %d | wc -c", bytes, at, bytes))
	if got := strings.TrimSpace(out); err == nil && got != fmt.Sprint(bytes) {
		return fmt.Errorf("%s of %d bytes came back", got, bytes)
	}
	return err
}

// The way between two gateways takes packets of 1,280 bytes at most, and drops larger ones without a word.
func TestMTU(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	away := lubeck.StartNetworkPod(t, ns, "away", hamburg, mirror)
	here := lubeck.StartNetworkPod(t, ns, "here", nil, framework.OnNode(lubeck.WorkerNames(t)[0]))
	pass := func(ctx context.Context) error { return carries(ctx, here, away.Address, 300_000) }
	framework.Eventually(t, "much passes", pass)
	badLink(t, lubeck, hamburg, "--mtu", "1280")
	framework.Eventually(t, "both have found out how much fits", func(ctx context.Context) error {
		for c, peer := range map[*framework.Cluster]*framework.Cluster{lubeck: hamburg, hamburg: lubeck} {
			connection, err := c.GetConnection(ctx, peer)
			if err != nil {
				return err
			}
			if mtu := connection.Status.MTU; mtu > 1220 { // 1,280 without the headers of IPv4, UDP and WireGuard
				return fmt.Errorf("%s takes %d bytes for the MTU of the tunnel", c.Name, mtu)
			}
		}
		return nil
	})
	framework.Eventually(t, "much passes", pass)
	if _, err := here.Run(t.Context(), "ping -c 1 -W 2 -s 3000 "+away.Address); err != nil {
		t.Error(err)
	}
}

// A link loses one packet of twenty each way, and takes 200 ms there and back: what is sent gets there, and the Connection says
// how the link is.
func TestLossAndDelay(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	away := lubeck.StartNetworkPod(t, ns, "away", hamburg, mirror)
	here := lubeck.StartNetworkPod(t, ns, "here", nil, framework.OnNode(lubeck.WorkerNames(t)[0]))
	badLink(t, lubeck, hamburg, "--loss", "5%", "--delay", "100ms")
	framework.Eventually(t, "the Connection tells delay and loss", func(ctx context.Context) error {
		connection, err := lubeck.GetConnection(ctx, hamburg)
		if err != nil {
			return err
		}
		s := connection.Status
		if s.RoundTripTime == nil || s.RoundTripTime.Duration < 200*time.Millisecond || s.LossPercent == nil || *s.LossPercent == 0 {
			return fmt.Errorf("round trip %v, loss %v", s.RoundTripTime, s.LossPercent)
		}
		return nil
	})
	framework.Eventually(t, "something passes", func(ctx context.Context) error { return carries(ctx, here, away.Address, 50_000) })
	if err := lubeck.CheckConnectedTo(t.Context(), hamburg); err != nil {
		t.Error(err)
	}
}

// peerFor makes one cluster a consumer of the other until the story ends, and waits until they are connected.
func peerFor(t *testing.T, consumer, provider *framework.Cluster) {
	t.Helper()
	if err := harness.Peer(t.Context(), consumer.Cluster, provider.Cluster); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for c, other := range map[*framework.Cluster]*framework.Cluster{consumer: provider, provider: consumer} {
			if _, err := c.Hanse(context.Background(), "unpeer", other.Name, "--force", "--forget"); err != nil {
				t.Error(err)
			}
		}
	})
	framework.AwaitConnected(t, consumer, provider)
}

// A cluster that nobody can reach consumes from one that it reaches. Its pods there and those at home talk both ways.
func TestPeerBehindNAT(t *testing.T) {
	ctx := framework.Begin(t)
	if err := framework.Install(ctx, visby, "gateway.service.type=ClusterIP"); err != nil {
		t.Fatal(err)
	}
	peerFor(t, visby, lubeck)
	ns := visby.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	away := visby.StartNetworkPod(t, ns, "away", lubeck)
	here := visby.StartNetworkPod(t, ns, "here", nil, framework.OnNode(visby.WorkerNames(t)[0]))
	here.ExpectReaches(t, away, away.Address)
	away.ExpectReaches(t, here, visby.TranslateToPeer(ctx, t, lubeck, here.Address))

	// What a NAT forgets on which nothing was sent is kept open.
	framework.Eventually(t, "longer than the NAT remembers has passed", func(ctx context.Context) error {
		pod, err := visby.GetPod(ctx, ns, "here")
		if err == nil && time.Since(pod.CreationTimestamp.Time) < 40*time.Second {
			return fmt.Errorf("the pods have run since %s", pod.CreationTimestamp)
		}
		return err
	})
	if err := lubeck.CheckConnectedTo(ctx, visby); err != nil {
		t.Error(err)
	}
	if err := here.CheckReaches(ctx, away, away.Address); err != nil {
		t.Error(err)
	}
}

// Two clusters of which neither gateway reaches the other meet through a third one that both reach, as long as that allows it.
func TestBothBehindNAT(t *testing.T) {
	ctx := framework.Begin(t)
	dialsOnly := "gateway.service.type=ClusterIP"
	for _, c := range []*framework.Cluster{visby, hamburg} {
		if err := framework.Install(ctx, c, dialsOnly); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := framework.Install(context.Background(), hamburg); err != nil {
			t.Error(err)
		}
	})
	peerFor(t, visby, lubeck)
	some := resource.MustParse("20M")
	lubeck.SetNetwork(t, visby, &v1alpha1.PeerNetwork{RelayBandwidth: &some})
	lubeck.SetNetwork(t, hamburg, &v1alpha1.PeerNetwork{RelayBandwidth: &some})
	peerFor(t, visby, hamburg)
	for c, peer := range map[*framework.Cluster]*framework.Cluster{visby: hamburg, hamburg: visby} {
		if through := c.MustGetConnection(ctx, t, peer).Status.Through; through != "lubeck" {
			t.Errorf("%s reaches %s through %q", c.Name, peer.Name, through)
		}
	}
	ns := visby.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	away := visby.StartNetworkPod(t, ns, "away", hamburg, mirror)
	here := visby.StartNetworkPod(t, ns, "here", nil, framework.OnNode(visby.WorkerNames(t)[0]))
	here.ExpectReaches(t, away, away.Address)
	away.ExpectReaches(t, here, visby.TranslateToPeer(ctx, t, hamburg, here.Address))
	framework.Eventually(t, "much passes", func(ctx context.Context) error { return carries(ctx, here, away.Address, 1_000_000) })
	if err := lubeck.CheckConnectedTo(ctx, hamburg); err != nil {
		t.Error(err)
	}

	lubeck.SetNetwork(t, hamburg, nil)
	framework.Eventually(t, "hamburg says that nobody relays for it any more", func(ctx context.Context) error {
		return hamburg.CheckPeerCondition(ctx, visby.Name, v1alpha1.ConditionConnected, v1alpha1.ReasonNoEndpoint)
	})
	framework.Eventually(t, "visby says that hamburg does not answer", func(ctx context.Context) error {
		return visby.CheckPeerCondition(ctx, hamburg.Name, v1alpha1.ConditionConnected, v1alpha1.ReasonTunnelDown)
	})
	if err := visby.CheckConnectedTo(ctx, lubeck); err != nil {
		t.Error(err)
	}
}
