// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/hanse-dev/hanse/internal/overlay"
)

// A Gateway makes one network namespace the gateway of its cluster. Its methods must not be called at the same time.
type Gateway struct {
	config GatewayConfig
	direct *wireGuard
	// relayed has the tunnels that lead through the gateways of others, which are other peers of direct. With one WireGuard for both,
	// a relay could send packets of its own tunnel through it, and so have that tunnel led through itself.
	relayed *wireGuard
	tried   map[wgtypes.Key]attempt // public key → when its endpoint was last changed
}

// NewGateway makes a Gateway and changes nothing.
func NewGateway(config GatewayConfig) *Gateway {
	if config.VXLANPort == 0 {
		config.VXLANPort = DefaultVXLANPort
	}
	return &Gateway{
		config: config, direct: &wireGuard{name: tunnelLink}, relayed: &wireGuard{name: relayedLink}, tried: map[wgtypes.Key]attempt{},
	}
}

// Apply makes the kernel look like the layout. It may be called again with the same one, which changes nothing. What may pass
// is changed before the ways on which it passes. After an error as much of the layout holds as could be made, and nothing for
// peers leaves but through the tunnel; call it again. Where this network has no IPv6, what the layout has of it is left
// out, and Forward6 says so.
func (g *Gateway) Apply(identity Identity, layout overlay.Layout) error {
	if err := gatewayTable(layout, identity.Port, g.config.VXLANPort).apply(); err != nil {
		return err
	}
	if !has6() {
		layout = only4(layout)
	}
	failed := []error{ensureRules(gatewayPolicies(layout), familiesOf(layout.Blackholes))}
	tunnel, err := g.direct.ensure(layout.MTU, layout.Addresses, g.config.Log)
	if err != nil {
		return errors.Join(append(failed, ensureRoutes(blackholes(layout.Blackholes)), err)...)
	}
	vxlan, err := ensureVXLAN(g.config.VXLANPort, layout.MTU, gatewayMAC, stations(layout.Nodes))
	if vxlan == nil {
		return errors.Join(append(failed, ensureRoutes(blackholes(layout.Blackholes)), err)...)
	}
	relayed, unmade := g.ensureRelayed(layout)
	failed = append(failed, err, unmade, ensureRoutes(gatewayRoutes(layout, tunnel, relayed, vxlan)), g.configure(identity, layout.Tunnels))
	return errors.Join(failed...)
}

// ensureRelayed returns the interface for tunnels that lead through others, nil if there are none.
func (g *Gateway) ensureRelayed(layout overlay.Layout) (netlink.Link, error) {
	if !slices.ContainsFunc(layout.Tunnels, overlay.Tunnel.Relayed) {
		return nil, errors.Join(g.relayed.close(), removeLink(relayedLink))
	}
	return g.relayed.ensure(layout.MTU, nil, g.config.Log)
}

// gatewayPolicies lead what is for peers into the tunnel, and what comes out of the tunnel to nodes. Nothing that is
// forwarded goes anywhere else.
func gatewayPolicies(layout overlay.Layout) []policy {
	policies := []policy{{table: peersTable}, {from: tunnelLink, table: nodesTable}, {from: relayedLink, table: nodesTable}}
	for _, a := range layout.Addresses { // answers to pods that asked for a name
		policies = append(policies, policy{src: a, table: nodesTable})
	}
	return append(policies, policy{from: tunnelLink}, policy{from: relayedLink}, policy{from: vxlanLink})
}

// Forward6 is the function of that name.
func (*Gateway) Forward6() error { return Forward6() }

// only4 returns what of a layout is made of addresses and routes, without IPv6.
func only4(layout overlay.Layout) overlay.Layout {
	layout.Blackholes, layout.Addresses = ipv4.prefixes(layout.Blackholes), ipv4.addresses(layout.Addresses)
	layout.Tunnels, layout.Nodes = slices.Clone(layout.Tunnels), slices.Clone(layout.Nodes)
	for i := range layout.Tunnels {
		layout.Tunnels[i].AllowedIPs = ipv4.prefixes(layout.Tunnels[i].AllowedIPs)
	}
	for i := range layout.Nodes {
		n := &layout.Nodes[i]
		n.Inner, n.Ranges = ipv4.addresses(n.Inner), ipv4.prefixes(n.Ranges)
	}
	return layout
}

func stations(nodes []overlay.Node) []station {
	var all []station
	for _, n := range nodes {
		all = append(all, stationOf(n))
	}
	return all
}

func stationOf(n overlay.Node) station {
	return station{mac: nodeMAC(n.Inner), outer: n.Address, inner: n.Inner}
}

func gatewayRoutes(layout overlay.Layout, direct, relayed, vxlan netlink.Link) []route {
	all := blackholes(layout.Blackholes)
	instead := tunnelsInstead(layout)
	for _, f := range families {
		for _, t := range layout.Tunnels {
			for _, p := range f.prefixes(t.AllowedIPs) {
				way := cmp.Or(instead[p], &t)
				link := direct
				if way.Relayed() {
					link = relayed
				}
				if link != nil { // else the blackhole is behind it
					all = append(all, route{table: peersTable, to: p, link: link, from: f.first(layout.Addresses), largest: way.MTU})
				}
			}
		}
		for _, n := range layout.Nodes {
			inner, hop := f.first(n.Inner), stationOf(n).hop(f)
			if !hop.IsValid() {
				continue
			}
			for _, p := range f.prefixes(slices.Concat(n.Ranges, []netip.Prefix{netip.PrefixFrom(inner, inner.BitLen())})) {
				all = append(all, route{table: nodesTable, to: p, link: vxlan, via: hop})
			}
		}
	}
	return all
}

// tunnelsInstead returns through which tunnels ranges are reached that are behind a home: range → tunnel to where its pods run. The
// routes there are for guests of the home alone, because its gateway would let nobody else through.
func tunnelsInstead(layout overlay.Layout) map[netip.Prefix]*overlay.Tunnel {
	instead := map[netip.Prefix]*overlay.Tunnel{}
	for _, d := range layout.Direct {
		at := slices.IndexFunc(layout.Tunnels, func(t overlay.Tunnel) bool { return t.Peer == d.Peer })
		if at < 0 {
			continue
		}
		for _, m := range d.Out.Destinations {
			instead[m.Own] = &layout.Tunnels[at]
		}
	}
	return instead
}

// configure changes what differs, of each peer for itself, so that no peer is in the way of another.
func (g *Gateway) configure(identity Identity, tunnels []overlay.Tunnel) error {
	tunnels, refused := distinct(identity, tunnels)
	relayed := identity
	relayed.Port = overlay.RelayedPort
	return errors.Join(
		refused,
		g.direct.configure(identity, slices.DeleteFunc(slices.Clone(tunnels), overlay.Tunnel.Relayed)),
		g.relayed.configure(relayed, slices.DeleteFunc(slices.Clone(tunnels), func(t overlay.Tunnel) bool { return !t.Relayed() })),
	)
}

// Tunnels returns what WireGuard says of each peer of the last layout.
func (g *Gateway) Tunnels() ([]TunnelState, error) {
	var all []TunnelState
	for _, w := range []*wireGuard{g.direct, g.relayed} {
		states, err := w.states()
		if err != nil {
			return nil, err
		}
		all = append(all, states...)
	}
	return all, nil
}

// Dial says hello to each peer that does not answer, at its next endpoint, and returns when to call it again: a zero time if no peer is
// awaited. Call it every second or so besides: of two clusters that can dial each other, one begins in Apply and the other one here. A
// peer that the caller knows to be dead, because probes are lost, is dialled again with Redial.
func (g *Gateway) Dial(now time.Time) (again time.Time, err error) {
	var failed []error
	for _, w := range []*wireGuard{g.direct, g.relayed} {
		due, err := g.dialAll(w, now)
		failed = append(failed, err)
		if again.IsZero() || !due.IsZero() && due.Before(again) {
			again = due
		}
	}
	return again, errors.Join(failed...)
}

func (g *Gateway) dialAll(w *wireGuard, now time.Time) (again time.Time, err error) {
	peers, err := w.peers()
	if err != nil {
		return again, err
	}
	var failed []error
	for _, t := range w.tunnels {
		p := peers[t.PublicKey]
		last, known := g.tried[t.PublicKey]
		waits := waits(w.identity, t)
		switch {
		case !known || alive(p, now):
			last = attempt{at: now}
		case len(t.Endpoints) > 0 && !now.Before(last.due(waits)):
			p.LastHandshakeTime = time.Time{} // it is made anew
			last, failed = last.next(now), append(failed, dial(w.device, t, following(t.Endpoints, endpointOf(p))))
		}
		g.tried[t.PublicKey] = last
		if due := last.due(waits); len(t.Endpoints) > 0 && !alive(p, now) && (again.IsZero() || due.Before(again)) {
			again = due
		}
	}
	return again, errors.Join(failed...)
}

// Redial gives the peer up at the endpoint in use and says hello at the next one, or at the same if there is no other. It
// ends the session, so what is on its way is lost.
func (g *Gateway) Redial(peer string, now time.Time) error {
	for _, w := range []*wireGuard{g.direct, g.relayed} {
		i := slices.IndexFunc(w.tunnels, func(t overlay.Tunnel) bool { return t.Peer == peer && len(t.Endpoints) > 0 })
		if i < 0 {
			continue
		}
		peers, err := w.peers()
		if err != nil {
			return err
		}
		t := w.tunnels[i]
		g.tried[t.PublicKey] = attempt{at: now}
		return dial(w.device, t, following(t.Endpoints, endpointOf(peers[t.PublicKey])))
	}
	return nil
}

// Close ends what runs in this process, as its end would: without WireGuard in the kernel, all tunnels end, and what is for
// peers is dropped.
func (g *Gateway) Close() error { return errors.Join(g.direct.close(), g.relayed.close()) }

// Remove takes away all that any Gateway made in this network namespace, and changes nothing if there is nothing.
func (g *Gateway) Remove() error { return errors.Join(g.Close(), removeAll(nftables.TableFamilyINet)) }

// removeAll goes from the interfaces to the rules, so that nothing goes where it should not meanwhile.
func removeAll(tables ...nftables.TableFamily) error {
	failed := []error{removeLink(relayedLink), removeLink(tunnelLink), removeLink(vxlanLink), ensureRules(nil, nil), ensureRoutes(nil)}
	for _, t := range tables {
		failed = append(failed, removeTable(t))
	}
	return errors.Join(failed...)
}
