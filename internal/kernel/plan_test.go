// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hanse-dev/hanse/internal/overlay"
)

// sees returns how a cluster sees the ranges of another one, and through that the pods of a third one.
func (c *cluster) sees(other *cluster) []overlay.Mapping {
	all := c.seesItself(other)
	for _, third := range c.world.clusters {
		if third == c || third == other {
			continue
		}
		n := 10*other.number + third.number
		behind := prefixes(fmt.Sprintf("25.%d.0.0/16", n), fmt.Sprintf("fd68:616e:7366:%d00::/56", n))
		for i, m := range other.seesItself(third)[:2] {
			if c.name == "lubeck" && other.name == "hamburg" {
				behind[i] = m.Seen // nobody else is seen there
			}
			all = append(all, overlay.Mapping{Own: m.Seen, Seen: behind[i]})
		}
	}
	return all
}

func (c *cluster) seesItself(other *cluster) []overlay.Mapping {
	n := 10*c.number + other.number
	own := slices.Concat(podRanges, serviceRanges)
	seen := prefixes(
		fmt.Sprintf("100.%d.0.0/16", 64+n), fmt.Sprintf("fd68:616e:7365:%d00::/56", n),
		fmt.Sprintf("%d.%d.0.0/12", 240+c.number, 16*other.number), fmt.Sprintf("fd68:616e:7365:ff%d::/112", n),
	)
	var all []overlay.Mapping
	for i := range own {
		all = append(all, overlay.Mapping{Own: own[i], Seen: seen[i]})
	}
	return all
}

// seen translates an address of the other cluster into that which this one sees.
func (c *cluster) seen(other *cluster, a netip.Addr) netip.Addr {
	for _, m := range c.sees(other) {
		if m.Own.Contains(a) {
			bytes, base := a.AsSlice(), m.Seen.Addr().AsSlice()
			for bit := range m.Seen.Bits() {
				mask := byte(0x80 >> (bit % 8))
				bytes[bit/8] = bytes[bit/8]&^mask | base[bit/8]&mask
			}
			translated, _ := netip.AddrFromSlice(bytes)
			return translated
		}
	}
	return a
}

func seenRanges(mappings []overlay.Mapping) []netip.Prefix {
	var all []netip.Prefix
	for _, m := range mappings {
		all = append(all, m.Seen)
	}
	return all
}

// theirs are the pods of a cluster that run at another one or behind it, as it sees them.
func (c *cluster) theirs(at *cluster) []netip.Addr {
	var all []netip.Addr
	for _, a := range slices.Concat(at.guests[c.name], at.sentOn[c.name]) {
		seen := c.seen(at, a)
		ofAnother := slices.Contains(slices.Concat(slices.Collect(maps.Values(c.sentOn))...), seen)
		if !ofAnother {
			all = append(all, seen)
		}
	}
	return all
}

var gatewayAddresses = []netip.Addr{addr("10.96.0.0"), addr("fd10:96::")}

func (c *cluster) layout() overlay.Layout {
	layout := overlay.Layout{MTU: innerMTU, Addresses: gatewayAddresses}
	for _, p := range c.world.clusters {
		if p == c {
			continue
		}
		from := seenRanges(c.sees(p))
		layout.Tunnels = append(layout.Tunnels, overlay.Tunnel{
			Peer: p.name, PublicKey: p.key.PublicKey(), AllowedIPs: slices.Concat(from, c.takesIn(p)), MTU: innerMTU,
			Endpoints: []netip.AddrPort{p.outer},
		})
		if c.dialsOnly && p.dialsOnly {
			layout.Tunnels[len(layout.Tunnels)-1] = c.relayedTunnel(p, from)
		}
		layout.Translations = append(layout.Translations, overlay.Translation{
			Peer: p.name, From: from, Ours: p.sees(c), Hosts: []netip.Addr{p.seen(c, gatewayAddresses[0]), p.seen(c, gatewayAddresses[1])},
		})
		layout.Permissions = append(layout.Permissions, overlay.Permissions{
			Peer: p.name, Theirs: c.theirs(p), Guests: c.guests[p.name],
			SentOn: c.sentOn[p.name], Reached: slices.Concat(podRanges, serviceRanges), Open: c.open[p.name],
		})
		layout.Blackholes = append(layout.Blackholes, from...)
	}
	for _, n := range c.nodes {
		ranges := prefixes(fmt.Sprintf("10.244.%d.0/24", n.number), fmt.Sprintf("fd10:0:0:%d::/64", n.number))
		if n.number == 1 {
			ranges = append(ranges, serviceRanges...)
		}
		layout.Nodes = append(layout.Nodes, overlay.Node{Name: n.space.name, Address: n.inner[0], Inner: n.inner, Ranges: ranges})
	}
	layout.Direct = c.directWays()
	return c.relaying(layout)
}

func (c *cluster) nodeLayout(n *node) overlay.NodeLayout {
	own := slices.Concat(podRanges, serviceRanges)
	layout := overlay.NodeLayout{
		Gateway: c.gatewayAt[0], Inner: n.inner, Through: c.gatewayAt,
		Own: own, Services: serviceRanges, MTU: innerMTU,
		Here:   prefixes(fmt.Sprintf("10.244.%d.0/24", n.number), fmt.Sprintf("fd10:0:0:%d::/64", n.number)),
		Closed: slices.Concat(own, prefixes("172.20.0.0/24", "fd20::/64", c.outer.Addr().String()+"/32", "169.254.0.0/16")),
	}
	for _, p := range c.world.clusters {
		if p == c {
			continue
		}
		home := seenRanges(c.sees(p))
		layout.Routes = append(layout.Routes, home...)
		layout.Guarded = append(layout.Guarded, overlay.Guests{Peer: p.name, Pods: slices.Concat(c.guests[p.name], c.sentOn[p.name]), Home: home, Open: c.openHere[p.name]})
	}
	return layout
}

// apply makes all gateways and nodes as they must be.
func (w *internet) apply() {
	w.t.Helper()
	for _, c := range w.clusters {
		c.apply()
	}
}

func (c *cluster) apply() {
	c.pod.t.Helper()
	c.applyGateway(c.layout())
	for _, n := range c.nodes {
		n.space.must(func() error { return n.fabric.Apply(c.nodeLayout(n)) })
	}
}

func (c *cluster) applyGateway(layout overlay.Layout) {
	c.pod.t.Helper()
	c.ask(func(g *Gateway) error { return g.Apply(Identity{PrivateKey: c.key, Port: wireguardPort}, layout) })
}

// ask calls the gateway where it lives, and not while somebody else does.
func (c *cluster) ask(f func(*Gateway) error) {
	c.pod.t.Helper()
	c.busy.Lock()
	defer c.busy.Unlock()
	c.pod.must(func() error { return f(c.gateway) })
}

// dial has all gateways dial until the test ends, as their processes do.
func (w *internet) dial() {
	clusters := w.clusters
	tick := time.NewTicker(100 * time.Millisecond)
	end := make(chan struct{})
	var dialling sync.WaitGroup
	dialling.Go(func() {
		for {
			select {
			case <-end:
				return
			case now := <-tick.C:
				for _, c := range clusters {
					c.busy.Lock()
					_ = c.pod.do(func() error { _, err := c.gateway.Dial(now); return err }) // a test may have broken the gateway
					c.busy.Unlock()
				}
			}
		}
	})
	stop := sync.OnceFunc(func() {
		tick.Stop()
		close(end)
		dialling.Wait()
	})
	w.t.Cleanup(stop)
	for _, c := range clusters {
		c.endDialling = stop
	}
}
