//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/hanse-dev/hanse/internal/overlay"
)

const (
	// keepalive is short enough for the common NAT, which forgets UDP after 30 seconds.
	keepalive = 25 * time.Second
	// sessionLife is for how long WireGuard uses a session. Both ends renew it after two minutes.
	sessionLife = 180 * time.Second
	// patience is how long an endpoint may take to answer a handshake before the next one is tried.
	patience = 2 * time.Second
)

// A device is WireGuard on the interface hanse-wg.
type device interface {
	// configure changes what the configuration names and leaves all else as it is.
	configure(c wgtypes.Config) error
	// read returns the configuration and the state.
	read() (*wgtypes.Device, error)
	// close ends what runs in this process. What the kernel runs goes on.
	close() error
}

// difference returns one configuration for each thing that must change, so that what cannot be changed for one peer is
// changed for all others. A peer about which nothing changes is not touched. A peer that is there keeps its endpoint, since
// it may be one that the peer has moved to.
func difference(have *wgtypes.Device, identity Identity, tunnels []overlay.Tunnel) []wgtypes.Config {
	var changes []wgtypes.Config
	if c, differs := identityDifference(have, identity); differs {
		changes = append(changes, c)
	}
	wanted := map[wgtypes.Key]bool{}
	for _, t := range tunnels {
		wanted[t.PublicKey] = true
	}
	peers := map[wgtypes.Key]wgtypes.Peer{}
	for _, p := range have.Peers {
		peers[p.PublicKey] = p
		if !wanted[p.PublicKey] {
			changes = append(changes, one(wgtypes.PeerConfig{PublicKey: p.PublicKey, Remove: true}))
		}
	}
	for _, t := range tunnels {
		p, known := peers[t.PublicKey]
		switch {
		case !known:
			changes = append(changes, one(newPeer(t, first(t.Endpoints))))
		case !sameRanges(p.AllowedIPs, t.AllowedIPs) || p.PersistentKeepaliveInterval != keepaliveOf(t):
			change := newPeer(t, netip.AddrPort{})
			change.UpdateOnly = true
			changes = append(changes, one(change))
		}
	}
	return changes
}

func one(p wgtypes.PeerConfig) wgtypes.Config { return wgtypes.Config{Peers: []wgtypes.PeerConfig{p}} }

func identityDifference(have *wgtypes.Device, identity Identity) (wgtypes.Config, bool) {
	var c wgtypes.Config
	key, mark := wgtypes.Key(identity.PrivateKey), tunnelMark
	if have.PrivateKey != key {
		c.PrivateKey = &key
	}
	if have.ListenPort != identity.Port {
		c.ListenPort = &identity.Port
	}
	if have.FirewallMark != mark {
		c.FirewallMark = &mark
	}
	return c, c.PrivateKey != nil || c.ListenPort != nil || c.FirewallMark != nil
}

// newPeer is the whole configuration of a peer, with an endpoint if that is valid.
func newPeer(t overlay.Tunnel, endpoint netip.AddrPort) wgtypes.PeerConfig {
	interval := keepaliveOf(t)
	p := wgtypes.PeerConfig{PublicKey: t.PublicKey, ReplaceAllowedIPs: true, PersistentKeepaliveInterval: &interval}
	if endpoint.IsValid() {
		p.Endpoint = net.UDPAddrFromAddrPort(endpoint)
	}
	for _, r := range t.AllowedIPs {
		p.AllowedIPs = append(p.AllowedIPs, net.IPNet{IP: r.Masked().Addr().AsSlice(), Mask: net.CIDRMask(r.Bits(), r.Addr().BitLen())})
	}
	return p
}

// keepaliveOf sends something from time to time also where there are several endpoints: otherwise nobody would notice that
// the one in use is dead.
func keepaliveOf(t overlay.Tunnel) time.Duration {
	if t.Keepalive || len(t.Endpoints) > 1 {
		return keepalive
	}
	return 0
}

func first(endpoints []netip.AddrPort) netip.AddrPort {
	if len(endpoints) == 0 {
		return netip.AddrPort{}
	}
	return endpoints[0]
}

func sameRanges(have []net.IPNet, wanted []netip.Prefix) bool {
	var one, other []string
	for _, r := range have {
		one = append(one, r.String())
	}
	for _, r := range wanted {
		other = append(other, r.Masked().String())
	}
	slices.Sort(one)
	slices.Sort(other)
	return slices.Equal(one, other)
}

// nextEndpoint returns the endpoint to try next, or none if the one in use works, has not had its time, or is the only one.
func nextEndpoint(t overlay.Tunnel, p wgtypes.Peer, tried, now time.Time) (netip.AddrPort, bool) {
	alive := !p.LastHandshakeTime.IsZero() && now.Sub(p.LastHandshakeTime) < sessionLife
	if len(t.Endpoints) == 0 || alive || now.Sub(tried) < patience {
		return netip.AddrPort{}, false
	}
	next := following(t.Endpoints, endpointOf(p))
	return next, next != endpointOf(p)
}

// following returns the endpoint behind that one, the first behind the last and behind one that is not in the list.
func following(endpoints []netip.AddrPort, e netip.AddrPort) netip.AddrPort {
	return endpoints[(slices.Index(endpoints, e)+1)%len(endpoints)]
}

func endpointOf(p wgtypes.Peer) netip.AddrPort {
	if p.Endpoint == nil {
		return netip.AddrPort{}
	}
	e := p.Endpoint.AddrPort()
	return netip.AddrPortFrom(e.Addr().Unmap(), e.Port())
}

// dial makes a peer anew with another endpoint, so that it says hello there at once and does not wait for the last attempt
// to time out. It had no session to lose.
func dial(d device, t overlay.Tunnel, endpoint netip.AddrPort) error {
	fresh := newPeer(t, endpoint)
	if *fresh.PersistentKeepaliveInterval == 0 {
		interval := keepalive
		fresh.PersistentKeepaliveInterval = &interval // the next Apply takes it off again
	}
	err := d.configure(wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: t.PublicKey, Remove: true}, fresh}})
	if err != nil {
		return fmt.Errorf("dial %s of peer %q: %w", endpoint, t.Peer, err)
	}
	return nil
}

// checkTunnels refuses what WireGuard would silently take for something else.
func checkTunnels(identity Identity, tunnels []overlay.Tunnel) error {
	seen := map[wgtypes.Key]string{wgtypes.Key(identity.PrivateKey).PublicKey(): "this cluster"}
	var found []error
	for _, t := range tunnels {
		if other, ok := seen[t.PublicKey]; ok {
			found = append(found, fmt.Errorf("peer %q has the key of %s", t.Peer, other))
		}
		seen[t.PublicKey] = fmt.Sprintf("peer %q", t.Peer)
	}
	return errors.Join(found...)
}
