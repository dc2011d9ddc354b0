// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// killGateway ends the active gateway as a crash of its node would: at once.
func killGateway(t *testing.T, c *framework.Cluster) {
	t.Helper()
	if err := c.Delete(t.Context(), c.AwaitStandbyGateway(t), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
}

func evictGateway(t *testing.T, c *framework.Cluster) { c.EvictGateway(t) }

// A TCP connection between two clusters survives when the active gateway of one, and then of the other, is evicted, and when it is gone
// from one moment to the next.
func TestGatewayFailover(t *testing.T) {
	framework.Begin(t)
	for what, end := range map[string]func(*testing.T, *framework.Cluster){"evicted": evictGateway, "killed": killGateway} {
		s := lubeck.StartStream(t)
		for _, c := range []*framework.Cluster{lubeck, hamburg} {
			end(t, c)
			s.AwaitMore(t, "the stream flows on after the gateway of "+c.Name+" was "+what)
			t.Logf("%s: the longest gap of the stream so far: %.2f s", what, s.LongestGap(t))
		}
	}
}

// Gateways are killed as soon as there is another one.
func TestGatewayKilledRepeatedly(t *testing.T) {
	framework.Begin(t)
	s := lubeck.StartStream(t)
	for range 2 {
		killGateway(t, lubeck)
		killGateway(t, hamburg)
	}
	s.AwaitMore(t, "the stream flows on")
	t.Logf("the longest gap of the stream: %.2f s", s.LongestGap(t))
	framework.AwaitConnected(t, lubeck, hamburg)
}

// The active gateway is cut off from its API server and from nothing else, so that nobody can tell it that another one takes over. It
// gives up its tunnels by itself, and takes no peer away from the other one.
func TestGatewayCutOffFromItsAPIServer(t *testing.T) {
	ctx := framework.Begin(t)
	s := lubeck.StartStream(t)
	first := lubeck.AwaitStandbyGateway(t)
	inFirst := netnsOfPod(t, first.UID, "/hanse")
	apiServer := "blackhole " + lubeck.ClusterIP(t, "default", "kubernetes")
	if _, err := inFirst.Run(ctx, "ip route add "+apiServer); err != nil {
		t.Fatal(err)
	}
	heal := sync.OnceFunc(func() {
		if _, err := inFirst.Run(context.Background(), "ip route delete "+apiServer); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(heal)
	framework.Eventually(t, "another gateway is active", func(ctx context.Context) error {
		now, err := lubeck.ActiveGateway(ctx)
		if err == nil && now.Name == first.Name {
			return errors.New("it is still the first one")
		}
		return err
	})
	framework.Eventually(t, "the first one has given up its tunnels", func(ctx context.Context) error {
		if _, err := inFirst.Run(ctx, "ip link show hanse-wg"); err == nil {
			return errors.New("it has them yet")
		}
		return nil
	})
	s.AwaitMore(t, "the stream flows on")
	heal()
	s.AwaitMore(t, "the stream flows on when the first one knows of the other")
	t.Logf("the longest gap of the stream: %.2f s", s.LongestGap(t))
	framework.AwaitConnected(t, lubeck, bremen)
}

// All of Hanse starts again in both clusters, at the same time.
func TestBothRestart(t *testing.T) {
	ctx := framework.Begin(t)
	s := lubeck.StartStream(t)
	for _, verb := range []string{"restart", "status"} {
		for _, c := range []*framework.Cluster{lubeck, hamburg} {
			for ns, what := range map[string][]string{
				v1alpha1.SystemNamespace:   {"deployment/hanse-manager", "deployment/hanse-kubelet"},
				framework.NetworkNamespace: {"deployment/hanse-gateway", "daemonset/hanse-fabric"},
			} {
				for _, what := range what {
					if out, err := c.Kubectl(ctx, "rollout", verb, "-n", ns, what); err != nil {
						t.Fatalf("%v\n%s", err, out)
					}
				}
			}
		}
	}
	s.AwaitMore(t, "the stream flows on")
	t.Logf("the longest gap of the stream: %.2f s", s.LongestGap(t))
}

// The key of a gateway is made anew: the stream goes on, and nothing of it is lost.
func TestKeyRotationNoLoss(t *testing.T) {
	ctx := framework.Begin(t)
	s := lubeck.StartStream(t)
	before := gatewayKey(ctx, t, lubeck)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.GatewayName}}
	if err := lubeck.Delete(ctx, secret); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "hamburg knows another key of lubeck", func(ctx context.Context) error {
		if now := gatewayKey(ctx, t, lubeck); now == before {
			return fmt.Errorf("it is still %s", now)
		}
		return nil
	})
	s.AwaitMore(t, "the stream flows on")
	t.Logf("the longest gap of the stream: %.2f s", s.LongestGap(t))
	framework.AwaitConnected(t, lubeck, bremen)
}

// gatewayKey is the public key by which hamburg knows the cluster.
func gatewayKey(ctx context.Context, t *testing.T, c *framework.Cluster) string {
	t.Helper()
	connection, err := hamburg.GetConnection(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	return connection.Spec.PublicKey
}

// Whatever was made on a node is gone, as after a start of its machine, and comes back.
func TestNodeReboots(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	away, here := lubeck.StartNetworkPod(t, ns, "away", hamburg), lubeck.StartNetworkPod(t, ns, "here", nil, framework.OnNode(lubeck.WorkerNames(t)[1]))
	here.ExpectReaches(t, away, away.Address)
	inNode := netnsOf(t, lubeck, lubeck.WorkerNames(t)[1])
	link := func(ctx context.Context) (string, error) {
		out, err := inNode.Run(ctx, "ip -o link show hanse-vx")
		index, _, _ := strings.Cut(out, ":")
		return index, err
	}
	before, err := link(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{
		"ip link delete hanse-vx", "nft delete table inet hanse", "nft delete table bridge hanse",
	} {
		if out, err := inNode.Run(ctx, command); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	framework.Eventually(t, "the node has another link", func(ctx context.Context) error {
		now, err := link(ctx)
		if err == nil && now == before {
			err = errors.New("it has the one that was deleted")
		}
		return err
	})
	here.ExpectReaches(t, away, away.Address)
	framework.Eventually(t, "the guards of the node are back", func(ctx context.Context) error {
		_, err := inNode.Run(ctx, "nft list table bridge hanse")
		return err
	})
}
