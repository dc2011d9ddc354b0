//go:build linux

package kernel

import (
	"errors"
	"fmt"
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
	config  GatewayConfig
	device  device
	tunnels []overlay.Tunnel          // as last applied
	tried   map[wgtypes.Key]time.Time // public key → when its endpoint was last changed
}

// NewGateway makes a Gateway and changes nothing.
func NewGateway(config GatewayConfig) *Gateway {
	if config.VXLANPort == 0 {
		config.VXLANPort = DefaultVXLANPort
	}
	return &Gateway{config: config, tried: map[wgtypes.Key]time.Time{}}
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
	tunnel, err := g.ensureTunnel(layout)
	if err != nil {
		return errors.Join(append(failed, ensureRoutes(blackholes(layout.Blackholes)), err)...)
	}
	vxlan, err := ensureVXLAN(g.config.VXLANPort, layout.MTU, gatewayMAC, stations(layout.Nodes))
	if vxlan == nil {
		return errors.Join(append(failed, ensureRoutes(blackholes(layout.Blackholes)), err)...)
	}
	failed = append(failed, err, ensureRoutes(gatewayRoutes(layout, tunnel, vxlan)), g.configure(identity, layout.Tunnels))
	return errors.Join(failed...)
}

// gatewayPolicies lead what is for peers into the tunnel, and what comes out of the tunnel to nodes. Nothing that is
// forwarded goes anywhere else.
func gatewayPolicies(layout overlay.Layout) []policy {
	policies := []policy{{table: peersTable}, {from: tunnelLink, table: nodesTable}}
	for _, a := range layout.Addresses { // answers to pods that asked for a name
		policies = append(policies, policy{src: a, table: nodesTable})
	}
	return append(policies, policy{from: tunnelLink}, policy{from: vxlanLink})
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

// ensureTunnel returns the interface of WireGuard, made anew if it is gone.
func (g *Gateway) ensureTunnel(layout overlay.Layout) (netlink.Link, error) {
	link, err := netlink.LinkByName(tunnelLink)
	if isNoLink(err) || g.device == nil {
		if err := g.Close(); err != nil {
			return nil, err
		}
		if g.device, err = openDevice(layout.MTU, g.config.Log); err != nil {
			return nil, err
		}
		link, err = netlink.LinkByName(tunnelLink)
	}
	if err != nil {
		return nil, fmt.Errorf("look for interface %s: %w", tunnelLink, err)
	}
	if err := ensureUp(link, layout.MTU); err != nil {
		return nil, fmt.Errorf("start interface %s: %w", tunnelLink, err)
	}
	if err := ensureAddresses(link, layout.Addresses); err != nil {
		return nil, fmt.Errorf("give %s its addresses: %w", tunnelLink, err)
	}
	return link, ensureForwarding(link)
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

func gatewayRoutes(layout overlay.Layout, tunnel, vxlan netlink.Link) []route {
	all := blackholes(layout.Blackholes)
	for _, f := range families {
		for _, t := range layout.Tunnels {
			for _, p := range f.prefixes(t.AllowedIPs) {
				all = append(all, route{table: peersTable, to: p, link: tunnel, from: f.first(layout.Addresses), largest: t.MTU})
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

// configure changes what differs, of each peer for itself, so that no peer is in the way of another.
func (g *Gateway) configure(identity Identity, tunnels []overlay.Tunnel) error {
	have, err := g.device.read()
	if err != nil {
		return fmt.Errorf("read WireGuard: %w", err)
	}
	tunnels, err = distinct(identity, tunnels)
	failed := []error{err}
	for _, change := range difference(have, identity, tunnels) {
		if err := g.device.configure(change); err != nil {
			failed = append(failed, fmt.Errorf("configure WireGuard: %w", err))
		}
	}
	g.tunnels = tunnels
	return errors.Join(failed...)
}

// Tunnels returns what WireGuard says of each peer of the last layout.
func (g *Gateway) Tunnels() ([]TunnelState, error) {
	peers, err := g.peers()
	if err != nil {
		return nil, err
	}
	var all []TunnelState
	for _, t := range g.tunnels {
		if p, ok := peers[t.PublicKey]; ok {
			all = append(all, TunnelState{
				Peer: t.Peer, Endpoint: endpointOf(p), Handshake: p.LastHandshakeTime, Received: p.ReceiveBytes, Sent: p.TransmitBytes,
			})
		}
	}
	return all, nil
}

func (g *Gateway) peers() (map[wgtypes.Key]wgtypes.Peer, error) {
	byKey := map[wgtypes.Key]wgtypes.Peer{}
	if g.device == nil {
		return byKey, nil
	}
	have, err := g.device.read()
	if err != nil {
		return nil, fmt.Errorf("read WireGuard: %w", err)
	}
	for _, p := range have.Peers {
		byKey[p.PublicKey] = p
	}
	return byKey, nil
}

// Dial says hello to each peer that does not answer, at its next endpoint. Call it every second or so: of two clusters that
// can dial each other, one begins in Apply and the other one here. A peer that the caller knows to be dead, because probes
// are lost, is dialled again with Redial.
func (g *Gateway) Dial(now time.Time) error {
	peers, err := g.peers()
	if err != nil {
		return err
	}
	var failed []error
	for _, t := range g.tunnels {
		tried, known := g.tried[t.PublicKey]
		if !known {
			g.tried[t.PublicKey] = now
			continue
		}
		if next, ok := nextEndpoint(t, peers[t.PublicKey], tried, now); ok {
			g.tried[t.PublicKey] = now
			failed = append(failed, dial(g.device, t, next))
		}
	}
	return errors.Join(failed...)
}

// Redial gives the peer up at the endpoint in use and says hello at the next one, or at the same if there is no other. It
// ends the session, so what is on its way is lost.
func (g *Gateway) Redial(peer string, now time.Time) error {
	i := slices.IndexFunc(g.tunnels, func(t overlay.Tunnel) bool { return t.Peer == peer })
	if i < 0 || len(g.tunnels[i].Endpoints) == 0 {
		return nil
	}
	peers, err := g.peers()
	if err != nil {
		return err
	}
	t := g.tunnels[i]
	g.tried[t.PublicKey] = now
	return dial(g.device, t, following(t.Endpoints, endpointOf(peers[t.PublicKey])))
}

// Close ends what runs in this process, as its end would: without WireGuard in the kernel, all tunnels end, and what is for
// peers is dropped.
func (g *Gateway) Close() error {
	if g.device == nil {
		return nil
	}
	err := g.device.close()
	g.device, g.tunnels = nil, nil
	return err
}

// Remove takes away all that any Gateway made in this network namespace, and changes nothing if there is nothing.
func (g *Gateway) Remove() error { return errors.Join(g.Close(), removeAll(nftables.TableFamilyINet)) }

// removeAll goes from the interfaces to the rules, so that nothing goes where it should not meanwhile.
func removeAll(tables ...nftables.TableFamily) error {
	failed := []error{removeLink(tunnelLink), removeLink(vxlanLink), ensureRules(nil, nil), ensureRoutes(nil)}
	for _, t := range tables {
		failed = append(failed, removeTable(t))
	}
	return errors.Join(failed...)
}
