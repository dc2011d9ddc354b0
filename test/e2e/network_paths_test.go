package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
)

// visby is a cluster behind NAT: nobody reaches it, and it reaches the others.
var visby *cluster

// badLink makes the link between the clusters bad until the story ends.
func badLink(t *testing.T, a, b *cluster, how ...string) {
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
var mirror = script(forever, "while true; do nc -l -p 9000 -e /bin/cat; done")

// carries returns an error unless so many bytes get there and back, in packets as large as may be.
func (p *party) carries(ctx context.Context, at string, bytes int) error {
	out, err := p.run(ctx, fmt.Sprintf("head -c %d /dev/zero | timeout 20 nc %s 9000 | head -c %d | wc -c", bytes, at, bytes))
	if got := strings.TrimSpace(out); err == nil && got != fmt.Sprint(bytes) {
		return fmt.Errorf("%s of %d bytes came back", got, bytes)
	}
	return err
}

// connection returns what the cluster knows of the tunnel to the peer.
func (c *cluster) connection(ctx context.Context, peer *cluster) (*v1alpha1.Connection, error) {
	connection := &v1alpha1.Connection{}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: v1alpha1.ConnectionName}
	return connection, c.Get(ctx, key, connection)
}

// The way between two gateways takes packets of 1,280 bytes at most, and drops larger ones without a word.
func TestMTU(t *testing.T) {
	network(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	away := lubeck.party(t, ns, "away", hamburg, mirror)
	here := lubeck.party(t, ns, "here", nil, atHome(lubeck.workers(t)[0]))
	pass := func(ctx context.Context) error { return here.carries(ctx, away.address, 300_000) }
	eventually(t, "much passes", pass)
	badLink(t, lubeck, hamburg, "--mtu", "1280")
	eventually(t, "both have found out how much fits", func(ctx context.Context) error {
		for c, peer := range map[*cluster]*cluster{lubeck: hamburg, hamburg: lubeck} {
			connection, err := c.connection(ctx, peer)
			if err != nil {
				return err
			}
			if mtu := connection.Status.MTU; mtu > 1220 { // 1,280 without the headers of IPv4, UDP and WireGuard
				return fmt.Errorf("%s takes %d bytes for the MTU of the tunnel", c.Name, mtu)
			}
		}
		return nil
	})
	eventually(t, "much passes", pass)
	if _, err := here.run(t.Context(), "ping -c 1 -W 2 -s 3000 "+away.address); err != nil {
		t.Error(err)
	}
}

// A link loses one packet of twenty each way, and takes 200 ms there and back: what is sent gets there, and the Connection says
// how the link is.
func TestLossAndDelay(t *testing.T) {
	network(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	away := lubeck.party(t, ns, "away", hamburg, mirror)
	here := lubeck.party(t, ns, "here", nil, atHome(lubeck.workers(t)[0]))
	badLink(t, lubeck, hamburg, "--loss", "5%", "--delay", "100ms")
	eventually(t, "the Connection tells delay and loss", func(ctx context.Context) error {
		connection, err := lubeck.connection(ctx, hamburg)
		if err != nil {
			return err
		}
		s := connection.Status
		if s.RoundTripTime == nil || s.RoundTripTime.Duration < 200*time.Millisecond || s.LossPercent == nil || *s.LossPercent == 0 {
			return fmt.Errorf("round trip %v, loss %v", s.RoundTripTime, s.LossPercent)
		}
		return nil
	})
	eventually(t, "something passes", func(ctx context.Context) error { return here.carries(ctx, away.address, 50_000) })
	if err := lubeck.connectedTo(t.Context(), hamburg); err != nil {
		t.Error(err)
	}
}

// peerFor makes one cluster a consumer of the other until the story ends, and waits until they are connected.
func peerFor(t *testing.T, consumer, provider *cluster) {
	t.Helper()
	if err := harness.Peer(t.Context(), consumer.Cluster, provider.Cluster); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for c, other := range map[*cluster]*cluster{consumer: provider, provider: consumer} {
			if _, err := c.Hanse(context.Background(), "unpeer", other.Name, "--force", "--forget"); err != nil {
				t.Error(err)
			}
		}
	})
	awaitConnected(t, consumer, provider)
}

// A cluster that nobody can reach consumes from one that it reaches. Its pods there and those at home talk both ways.
func TestPeerBehindNAT(t *testing.T) {
	ctx := network(t, "visby")
	if err := visby.Install(ctx, append(settings(visby), "gateway.service.type=ClusterIP")...); err != nil {
		t.Fatal(err)
	}
	peerFor(t, visby, lubeck)
	ns := visby.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	away := visby.party(t, ns, "away", lubeck)
	here := visby.party(t, ns, "here", nil, atHome(visby.workers(t)[0]))
	here.expectReaches(t, away, away.address)
	away.expectReaches(t, here, visby.seenBy(ctx, t, lubeck, here.address))

	// What a NAT forgets on which nothing was sent is kept open.
	eventually(t, "longer than the NAT remembers has passed", func(ctx context.Context) error {
		pod, err := visby.pod(ctx, ns, "here")
		if err == nil && time.Since(pod.CreationTimestamp.Time) < 40*time.Second {
			return fmt.Errorf("the pods have run since %s", pod.CreationTimestamp)
		}
		return err
	})
	if err := lubeck.connectedTo(ctx, visby); err != nil {
		t.Error(err)
	}
	if err := here.reaches(ctx, away, away.address); err != nil {
		t.Error(err)
	}
}

// Two clusters of which neither gateway reaches the other meet through a third one that both reach, as long as that allows it.
func TestBothBehindNAT(t *testing.T) {
	ctx := network(t, "visby")
	dialsOnly := "gateway.service.type=ClusterIP"
	for _, c := range []*cluster{visby, hamburg} {
		if err := installWith(ctx, c, dialsOnly); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := installWith(context.Background(), hamburg); err != nil {
			t.Error(err)
		}
	})
	peerFor(t, visby, lubeck)
	some := resource.MustParse("20M")
	lubeck.setNetwork(t, visby, &v1alpha1.PeerNetwork{RelayBandwidth: &some})
	lubeck.setNetwork(t, hamburg, &v1alpha1.PeerNetwork{RelayBandwidth: &some})
	peerFor(t, visby, hamburg)
	for c, peer := range map[*cluster]*cluster{visby: hamburg, hamburg: visby} {
		if through := c.mustConnection(ctx, t, peer).Status.Through; through != "lubeck" {
			t.Errorf("%s reaches %s through %q", c.Name, peer.Name, through)
		}
	}
	ns := visby.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	away := visby.party(t, ns, "away", hamburg, mirror)
	here := visby.party(t, ns, "here", nil, atHome(visby.workers(t)[0]))
	here.expectReaches(t, away, away.address)
	away.expectReaches(t, here, visby.seenBy(ctx, t, hamburg, here.address))
	eventually(t, "much passes", func(ctx context.Context) error { return here.carries(ctx, away.address, 1_000_000) })
	if err := lubeck.connectedTo(ctx, hamburg); err != nil {
		t.Error(err)
	}

	lubeck.setNetwork(t, hamburg, nil)
	eventually(t, "hamburg says that nobody relays for it any more", func(ctx context.Context) error {
		return hamburg.peerSays(ctx, visby.Name, v1alpha1.ConditionConnected, v1alpha1.ReasonNoEndpoint)
	})
	eventually(t, "visby says that hamburg does not answer", func(ctx context.Context) error {
		return visby.peerSays(ctx, hamburg.Name, v1alpha1.ConditionConnected, v1alpha1.ReasonTunnelDown)
	})
	if err := visby.connectedTo(ctx, lubeck); err != nil {
		t.Error(err)
	}
}
