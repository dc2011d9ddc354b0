// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"bufio"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// Another gateway, in a pod on another node, takes over in the middle of a connection. It has no record of the connection,
// and comes to the same translation.
func TestConnectionsSurviveAnotherGateway(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	var talks []*talk
	for _, w := range []struct {
		from *space
		to   netip.Addr
	}{
		{l.home1, l.lubeck.seen(l.hamburg, podAddress(2, 20))},
		{l.home2, l.lubeck.seen(l.hamburg, podAddress6(1, 20))},
		{l.guest1, l.hamburg.seen(l.lubeck, podAddress(1, 10))},
		{l.lubeck.nodes[1].space, l.lubeck.seen(l.hamburg, podAddress(1, 20))},
	} {
		talks = append(talks, newTalk(t, w.from, w.to))
	}
	l.lubeck.replaceGateway()
	for i, talk := range talks {
		if err := talk.say("after"); err != nil {
			t.Errorf("talk %d: %v", i, err)
		}
	}
}

func TestConnectionsSurviveAnotherKey(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	there := newTalk(t, l.home1, l.lubeck.seen(l.hamburg, podAddress(2, 20)))
	back := newTalk(t, l.guest1, l.hamburg.seen(l.lubeck, podAddress(1, 10)))
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	l.lubeck.key = key
	l.apply()
	for _, talk := range []*talk{there, back} {
		if err := talk.say("after"); err != nil {
			t.Error(err)
		}
	}
}

// A gateway that is cut off from its API server alone does not know that another one has taken over. Its tunnels tell it, because a peer
// answers the gateway with which it has agreed on keys last. Tunnels between others do not notice.
func TestOfTwoActiveGatewaysTheFirstGetsNoAnswers(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	l.bremen.newPod("own", 1, 10).serve()
	others := newTalk(t, l.foreign, l.hamburg.seen(l.bremen, podAddress(1, 10)))
	talk := newTalk(t, l.home1, l.lubeck.seen(l.hamburg, podAddress(2, 20)))
	first, firstPod := l.lubeck.gateway, l.lubeck.pod
	l.lubeck.busy.Lock()
	l.lubeck.gateway = NewGateway(GatewayConfig{Log: logr.Discard()})
	l.lubeck.busy.Unlock()
	l.lubeck.startGateway()
	if err := talk.say("after another one has taken over"); err != nil {
		t.Error(err)
	}
	if err := firstPod.ping(l.lubeck.seen(l.hamburg, gatewayAddresses[0]), 56, impatient); err == nil {
		t.Error("the first gateway is still answered")
	}
	if err := others.say("meanwhile"); err != nil {
		t.Error(err)
	}
	firstPod.must(first.Remove)
	if err := talk.say("after the first one has given up"); err != nil {
		t.Error(err)
	}
}

// replaceGateway ends the gateway and starts one with another address on the second node.
func (c *cluster) replaceGateway() {
	c.pod.t.Helper()
	c.ask((*Gateway).Remove)
	c.startGateway()
}

// startGateway starts the gateway with another address on the second node.
func (c *cluster) startGateway() {
	c.pod.t.Helper()
	pod := c.newPod("gateway2", 2, 3)
	c.pod.t.Cleanup(c.endDialling) // before the pod goes
	pod.sysctl("net/ipv4/ip_forward", "0")
	pod.sysctl("net/ipv6/conf/all/forwarding", "1")
	c.busy.Lock()
	c.pod, c.gatewayAt = pod, []netip.Addr{podAddress(2, 3), podAddress6(2, 3)}
	c.busy.Unlock()
	layout := c.layout()
	layout.Nodes[0].Ranges, layout.Nodes[1].Ranges = layout.Nodes[0].Ranges[:2], append(layout.Nodes[1].Ranges, serviceRanges...)
	c.applyGateway(layout)
	for _, n := range c.nodes {
		n.space.must(func() error { return n.fabric.Apply(c.nodeLayout(n)) })
	}
}

// A talk is a TCP connection to a server that repeats what it is told.
type talk struct {
	net.Conn
	*bufio.Reader
}

func newTalk(t *testing.T, from *space, to netip.Addr) *talk {
	t.Helper()
	c := from.connect(netip.AddrPortFrom(to, talkPort))
	t.Cleanup(func() { _ = c.Close() })
	k := &talk{c, bufio.NewReader(c)}
	if _, err := k.ReadString('\n'); err != nil { // what the server says first
		t.Fatal(err)
	}
	if err := k.say("before"); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *talk) say(word string) error {
	if err := k.SetDeadline(time.Now().Add(patient)); err != nil {
		return err
	}
	if _, err := k.Write([]byte(word + "\n")); err != nil {
		return err
	}
	_, err := k.ReadString('\n')
	return err
}
