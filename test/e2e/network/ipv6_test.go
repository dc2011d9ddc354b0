// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// Two clusters whose gateways and API servers can meet over IPv6 alone. Each is home of pods at the other one, and they talk both ways.
func TestIPv6(t *testing.T) {
	ctx := framework.Begin(t)
	if err := framework.InstallAll(ctx, stade, stralsund); err != nil {
		t.Fatal(err)
	}
	if !stralsund.Knows(ctx, stade) {
		peerOverIPv6(t)
	}
	framework.AwaitConnected(t, stade, stralsund)
	for home, provider := range map[*framework.Cluster]*framework.Cluster{stade: stralsund, stralsund: stade} {
		expectMetOverIPv6(t, home, provider)
		t.Run(home.Name, func(t *testing.T) { talksOverIPv6(t, home, provider) })
	}
	t.Run("at a host port", meetAtHostPort)
}

// meetAtHostPort has nothing lead to either gateway but a port of the node that stade's runs on.
func meetAtHostPort(t *testing.T) {
	const noService = "gateway.service.type=ClusterIP"
	port := []string{noService, "gateway.replicas=1", "gateway.hostPort=51900", "gateway.endpoints={[" + ipv6(t, stade, 11) + "]:51900}"}
	// The gateway of stade is another one when it has its port, and finds no way to that of stralsund by then.
	if err := errors.Join(framework.Install(t.Context(), stralsund, noService), framework.Install(t.Context(), stade, port...)); err != nil {
		t.Fatal(err)
	}
	ns := stade.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	away := stade.StartNetworkPod(t, ns, "away", stralsund)
	here := stade.StartNetworkPod(t, ns, "here", nil, framework.OnNode(stade.WorkerNames(t)[0]))
	here.ExpectReaches(t, away, away.Address)
	connection, err := stralsund.GetConnection(t.Context(), stade)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(connection.Status.Endpoint); !strings.HasSuffix(got, "]:51900") {
		t.Errorf("stralsund meets stade at %s", got)
	}
}

// ipv6 returns the address of a node: 1 is the control plane, and 11 the first worker.
func ipv6(t *testing.T, c *framework.Cluster, node int) string {
	t.Helper()
	server, err := url.Parse(c.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	a := netip.MustParseAddr(server.Hostname()).As4()
	return fmt.Sprintf("fd00:%d::%d:%d", a[1], a[2], node) // as testbed numbers nodes
}

// peerOverIPv6 has stade invite stralsund. What stade says by itself is the address of its API server by IPv4, its main family: that
// leads nowhere, and stralsund says what to do.
func peerOverIPv6(t *testing.T) {
	t.Helper()
	server, err := url.Parse(stade.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	byIPv6 := fmt.Sprintf("https://[%s]:%s", ipv6(t, stade, 1), server.Port())
	invite := func(how ...string) string {
		token, err := stade.Hanse(t.Context(), append([]string{"invite", stralsund.Name, "--mutual"}, how...)...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(token)
	}
	join := func(how ...string) {
		if _, err := stralsund.Hanse(t.Context(), append([]string{"join", "--mutual"}, how...)...); err != nil {
			t.Fatal(err)
		}
	}
	join(invite(), "--wait=false")
	framework.Eventually(t, "stralsund says that nothing leads to stade's API server", func(ctx context.Context) error {
		peer, err := stralsund.GetPeer(ctx, stade.Name)
		if err != nil {
			return err
		}
		says := fmt.Sprintf("%+v", peer.Status.Conditions)
		if !strings.Contains(says, "--server URL") {
			return errors.New(says)
		}
		return nil
	})
	join(invite("--renew", "--server", byIPv6))
}

func expectMetOverIPv6(t *testing.T, c *framework.Cluster, peer *framework.Cluster) {
	t.Helper()
	framework.Eventually(t, c.Name+" leaves nothing out of the connection, which leads over IPv6", func(ctx context.Context) error {
		connection, err := c.GetConnection(ctx, peer)
		if err != nil {
			return err
		}
		endpoint, err := netip.ParseAddrPort(string(connection.Status.Endpoint))
		if err != nil {
			return err
		}
		if !endpoint.Addr().Is6() || !meta.IsStatusConditionTrue(connection.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("%s %+v", endpoint, connection.Status.Conditions)
		}
		return nil
	})
}

// talksOverIPv6 has pods of the home talk, one of which runs at the provider, and then has kubectl hanse try everything.
func talksOverIPv6(t *testing.T, c *framework.Cluster, provider *framework.Cluster) {
	ns := c.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	away := c.StartNetworkPod(t, ns, "away", provider)
	here := c.StartNetworkPod(t, ns, "here", nil, framework.OnNode(c.WorkerNames(t)[0]))
	if address := netip.MustParseAddr(away.Address); !address.Is6() {
		t.Errorf("%s shows the address %s, where IPv6 alone leads", c.Name, address)
	}
	here.ExpectReaches(t, away, away.Address)
	away.ExpectReaches(t, here, c.TranslateToPeer(t.Context(), t, provider, address6(t, here)))
	for from, to := range map[*framework.NetworkPod]*framework.NetworkPod{here: away, away: here} {
		svc := c.CreateService(t, ns, to.Pod, map[string]string{"app": to.Pod}, corev1.IPv6Protocol)
		framework.Eventually(t, from.Pod+" reaches Service "+svc.Name, func(ctx context.Context) error {
			answered, err := from.Request(ctx, svc.Name)
			if err == nil && answered != to.Pod {
				return fmt.Errorf("%s answers", answered)
			}
			return err
		})
	}
	expectNetworkTest(t, c, provider)
}

// address6 returns the address of IPv6 of a pod that runs at home.
func address6(t *testing.T, p *framework.NetworkPod) string {
	t.Helper()
	pod, err := p.Home.GetPod(t.Context(), p.Ns, p.Pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, ip := range pod.Status.PodIPs {
		if strings.Contains(ip.IP, ":") {
			return ip.IP
		}
	}
	t.Fatalf("%s has the addresses %v", p.Pod, pod.Status.PodIPs)
	return ""
}

// expectNetworkTest has kubectl hanse try everything between home and the peer. All works, but that pods at stralsund do not reach the
// API server of stade: the Service of that has an address of the main family alone.
func expectNetworkTest(t *testing.T, c *framework.Cluster, peer *framework.Cluster) {
	t.Helper()
	out, err := c.Hanse(t.Context(), "test", "network", "--peer", peer.Name, "-o", "json")
	var rows []struct{ From, To, What, Result, Found, Cause string }
	if json.Unmarshal([]byte(out), &rows) != nil || len(rows) == 0 {
		t.Fatalf("%v: %s", err, out)
	}
	var failed []string
	for _, row := range rows {
		if row.Result != "works" {
			failed = append(failed, row.What)
			t.Logf("%+v", row)
		}
	}
	var want []string
	if c == stade {
		want = []string{"API server at kubernetes.default"}
	}
	if diff := cmp.Diff(want, failed); diff != "" {
		t.Errorf("what does not work (-want +got):\n%s", diff)
	}
}
