// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// A capture reads each packet that passes the bridge between all nodes, which plays the Internet.
type capture struct {
	marker   []byte
	clusters map[netip.Addr]*framework.Cluster // of nodes
	links    map[int]*framework.Cluster        // on which packets of a node come and go

	mu      sync.Mutex
	inside  int // packets with the marker within one cluster
	between int // packets between two clusters
	leaks   []string
}

// wire begins a capture that ends with the story.
func wire(t *testing.T, marker string, clusters ...*framework.Cluster) *capture {
	t.Helper()
	c := &capture{marker: []byte(marker), clusters: map[netip.Addr]*framework.Cluster{}, links: map[int]*framework.Cluster{}}
	for _, of := range clusters {
		for _, node := range of.WorkerNames(t) {
			address, err := of.AddressOfNode(t.Context(), node)
			if err != nil {
				t.Fatal(err)
			}
			c.clusters[netip.MustParseAddr(address)] = of
			c.links[linkOutside(t, netnsOf(t, of, node))] = of
		}
	}
	listen(t, framework.NetNS(""), func(packet []byte, link int) {
		if len(packet) >= 20 && packet[0]>>4 == 4 {
			c.note(packet, c.links[link])
		}
	})
	return c
}

// note judges an IPv4 packet on a link of a cluster. It is inside of that cluster if neither end is a node of another one.
func (c *capture) note(packet []byte, on *framework.Cluster) {
	from, to := netip.AddrFrom4([4]byte(packet[12:16])), netip.AddrFrom4([4]byte(packet[16:20]))
	shown := bytes.Contains(packet, c.marker)
	c.mu.Lock()
	defer c.mu.Unlock()
	sender, receiver := c.clusters[from], c.clusters[to]
	seen := isSeen(from) || isSeen(to)
	switch {
	case shown && !seen && has(on, sender) && has(on, receiver):
		c.inside++
	case shown || seen:
		c.leaks = append(c.leaks, fmt.Sprintf("protocol %d from %s to %s, with the text: %t", packet[9], from, to, shown))
	case sender != nil && receiver != nil && sender != receiver:
		c.between++
	}
}

// has tells whether a node, which is of the other cluster or not a node of any, may be on links of this one.
func has(c *framework.Cluster, other *framework.Cluster) bool {
	return c != nil && (other == nil || other == c)
}

// isSeen tells whether an address is of the ranges in which clusters see each other's pods and Services.
func isSeen(address netip.Addr) bool {
	return netip.MustParsePrefix("100.64.0.0/10").Contains(address) || netip.MustParsePrefix("240.0.0.0/4").Contains(address)
}

// expectNothing fails the story if anything was in the clear, or if nothing passed at all.
func (c *capture) expectNothing(t *testing.T, state string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.leaks) > 0 {
		t.Errorf("%s: %d packets in the clear, such as %s", state, len(c.leaks), c.leaks[0])
	}
	t.Logf("%s: %d packets passed between the clusters, none of them in the clear; %d with the text within one", state, c.between, c.inside)
	c.leaks = nil
}

// counts returns how many packets have passed between clusters, and how many with the marker within one.
func (c *capture) counts() (between, inside int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.between, c.inside
}

// awaitTraffic waits until packets have passed between clusters again.
func (c *capture) awaitTraffic(t *testing.T) {
	t.Helper()
	before, _ := c.counts()
	framework.Eventually(t, "packets pass between the clusters", func(context.Context) error {
		if now, _ := c.counts(); now < before+20 {
			return fmt.Errorf("%d have passed, and %d before", now, before)
		}
		return nil
	})
}

// A pod says the same all the time to one at a provider. Whatever happens to the network between them, nobody in between ever
// reads it, or the addresses of the two.
func TestNoPlaintext(t *testing.T) {
	framework.Begin(t)
	const secret = "never-to-be-read-on-the-way"
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	away := lubeck.StartNetworkPod(t, ns, "away", bremen)
	onWire := wire(t, secret, lubeck, bremen)
	var here *framework.NetworkPod
	for i, node := range lubeck.WorkerNames(t) { // one of them is not the gateway's, so that its packets cross the bridge
		here = lubeck.StartNetworkPod(t, ns, fmt.Sprintf("here-%d", i), nil, framework.OnNode(node), framework.WithScript(
			framework.RunForever, fmt.Sprintf("while sleep 0.1; do echo >>/tmp/said; timeout 1 wget -q -O- http://%s:8080/%s; done", away.Address, secret)))
	}
	framework.Eventually(t, "the capture sees the text where it is in the clear", func(context.Context) error {
		if _, inside := onWire.counts(); inside == 0 {
			return errors.New("it saw none")
		}
		return nil
	})
	onWire.awaitTraffic(t)
	onWire.expectNothing(t, "connected")

	for _, c := range []*framework.Cluster{lubeck, bremen} {
		killGateway(t, c)
		onWire.awaitTraffic(t)
		onWire.expectNothing(t, "gateway of "+c.Name+" killed")
	}
	for _, what := range []string{"deployment/hanse-gateway", "daemonset/hanse-fabric"} {
		for _, verb := range []string{"restart", "status"} {
			if _, err := lubeck.Kubectl(t.Context(), "rollout", verb, "-n", framework.NetworkNamespace, what); err != nil {
				t.Fatal(err)
			}
		}
		onWire.awaitTraffic(t)
		onWire.expectNothing(t, what+" started again")
	}

	t.Cleanup(func() {
		if err := framework.PeerBothWays(context.Background(), lubeck, bremen); err != nil {
			t.Error(err)
		}
	})
	if _, err := lubeck.Hanse(t.Context(), "unpeer", bremen.Name, "--force"); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the way to bremen is gone", func(ctx context.Context) error {
		if err := lubeck.CheckConnectedTo(ctx, bremen); err == nil {
			return errors.New("they are still connected")
		}
		return nil
	})
	before := said(t.Context(), t, here)
	framework.Eventually(t, "the pod goes on saying it", func(ctx context.Context) error {
		if now := said(ctx, t, here); now < before+10 {
			return fmt.Errorf("it said it %d times, and %d before", now, before)
		}
		return nil
	})
	onWire.expectNothing(t, "unpeered")
}

// said returns how often the pod has spoken.
func said(ctx context.Context, t *testing.T, p *framework.NetworkPod) int {
	t.Helper()
	out, err := p.Run(ctx, "cat /tmp/said")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(out, "\n")
}
