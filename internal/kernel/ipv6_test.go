// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// only6 leaves the cluster no address of IPv4 of its own: its gateway is reached, and reaches its nodes, over IPv6.
func (c *cluster) only6() {
	c.pod.t.Helper()
	c.outer = netip.AddrPortFrom(addr("2001:db8::%d", 10+c.number), wireguardPort)
	c.gatewayAt = c.gatewayAt[1:]
	c.pod.remove(podAddress(1, 2).String() + "/24")
	for _, n := range c.nodes {
		n.space.remove(n.inner[0].String() + "/24")
		n.inner = n.inner[1:]
	}
	c.nodes[0].space.remove(fmt.Sprintf("192.0.2.%d/24", 10+c.number))
	c.nodes[0].space.must(func() error {
		conn, chain, err := natChain("portmap6", nftables.ChainHookPrerouting, *nftables.ChainPriorityNATDest)
		if err != nil {
			return err
		}
		conn.AddRule(&nftables.Rule{Table: chain.Table, Chain: chain, Exprs: rule(
			ipv6.packet(), toThisMachine(), transport(unix.IPPROTO_UDP), destinationPort(wireguardPort), ipv6.toAddress(expr.NATTypeDestNAT, c.gatewayAt[0]),
		)})
		return conn.Flush()
	})
}

func TestClustersOfIPv6AloneReachEachOther(t *testing.T) {
	t.Parallel()
	w := newInternet(t, 2)
	lubeck, hamburg := w.clusters[0], w.clusters[1]
	homes := []*space{lubeck.newPod("home1", 1, 10).serve(), lubeck.newPod("home2", 2, 10).serve()}
	guests := []*space{hamburg.newPod("guest1", 1, 20).serve(), hamburg.newPod("guest2", 2, 20).serve()}
	own := hamburg.newPod("own", 2, 40).serve()
	hamburg.guests["lubeck"] = []netip.Addr{podAddress6(1, 20), podAddress6(2, 20)}
	for _, c := range w.clusters {
		c.only6()
	}
	w.apply()

	none := netip.Addr{}
	questions := []question{
		{"home to own pod of the provider", homes[0], lubeck.seen(hamburg, podAddress6(2, 40)), false, none},
		{"own pod to a home", own, hamburg.seen(lubeck, podAddress6(1, 10)), false, none},
		{"guest to own pod on its bridge", guests[1], podAddress6(2, 40), false, none},
		{"guest to another node", guests[0], hamburg.nodes[1].inner[0], false, none},
		{"node of home to guest", lubeck.nodes[0].space, lubeck.seen(hamburg, podAddress6(1, 20)), true, hamburg.seen(lubeck, gatewayAddresses[1])},
		{"other node of home to guest", lubeck.nodes[1].space, lubeck.seen(hamburg, podAddress6(2, 20)), true, hamburg.seen(lubeck, gatewayAddresses[1])},
	}
	for i, home := range homes {
		for j, guest := range guests {
			homeAddress, guestAddress := podAddress6(i+1, 10), podAddress6(j+1, 20)
			questions = append(questions,
				question{"home to guest", home, lubeck.seen(hamburg, guestAddress), true, hamburg.seen(lubeck, homeAddress)},
				question{"guest to home", guest, hamburg.seen(lubeck, homeAddress), true, lubeck.seen(hamburg, guestAddress)},
			)
		}
	}
	check(t, questions)
	if err := size(homes[0].ask("tcp", lubeck.seen(hamburg, podAddress6(2, 20)), 1<<20, patient)); err != nil {
		t.Errorf("a megabyte: %v", err)
	}
	if err := size(homes[1].ask("udp", lubeck.seen(hamburg, podAddress6(1, 20)), 9000, patient)); err != nil {
		t.Errorf("a datagram in fragments: %v", err)
	}
}
