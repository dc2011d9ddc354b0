// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"bytes"
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
	// firstPatience and lastPatience are how long an endpoint may take to answer a handshake before the next one is tried: little for
	// the first quickAttempts, because a new peer may come to know us meanwhile, and from then on twice as long each time, because
	// the path may be slow.
	firstPatience, lastPatience = 500 * time.Millisecond, 4 * time.Second
	quickAttempts               = 4
	// headStart is how long the cluster with the higher key leaves it to the other one to say hello first. Two that do so at
	// once take each other's hello for the newer one, and WireGuard tries again after five seconds only. For the same reason
	// it is more patient by half later, and this is no multiple of firstPatience: two with the same pace would meet each time.
	headStart = 1200 * time.Millisecond
)

// A device is WireGuard on one interface.
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
func difference(have *wgtypes.Device, identity Identity, mark int, tunnels []overlay.Tunnel) []wgtypes.Config {
	var changes []wgtypes.Config
	if c, differs := identityDifference(have, identity, mark); differs {
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
			changes = append(changes, one(newPeer(t, firstDial(identity, t))))
		case !sameRanges(p.AllowedIPs, t.AllowedIPs) || p.PersistentKeepaliveInterval != keepaliveOf(t):
			change := newPeer(t, netip.AddrPort{})
			change.UpdateOnly = true
			changes = append(changes, one(change))
		}
	}
	return changes
}

func one(p wgtypes.PeerConfig) wgtypes.Config { return wgtypes.Config{Peers: []wgtypes.PeerConfig{p}} }

func identityDifference(have *wgtypes.Device, identity Identity, mark int) (wgtypes.Config, bool) {
	var c wgtypes.Config
	key := wgtypes.Key(identity.PrivateKey)
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

// keepaliveOf has whoever can dial say something from time to time. So sessions are renewed also while there is nothing to
// say, and a dead endpoint is noticed.
func keepaliveOf(t overlay.Tunnel) time.Duration {
	if t.Keepalive || len(t.Endpoints) > 0 {
		return keepalive
	}
	return 0
}

// firstDial returns the endpoint at which a new peer is greeted, or none if the peer is to greet us. One that was connected with the
// gateway before this one does not know that it is to.
func firstDial(identity Identity, t overlay.Tunnel) netip.AddrPort {
	if len(t.Endpoints) == 0 || waits(identity, t) && !t.Connected {
		return netip.AddrPort{}
	}
	return t.Endpoints[0]
}

// waits reports whether the other cluster is the one to say hello first. Both come to opposite results.
func waits(identity Identity, t overlay.Tunnel) bool {
	own := wgtypes.Key(identity.PrivateKey).PublicKey()
	return bytes.Compare(own[:], t.PublicKey[:]) > 0
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

// An attempt is the last one to reach a peer.
type attempt struct {
	at   time.Time
	vain int // how many before it were in vain
}

// next returns the one behind it.
func (a attempt) next(now time.Time) attempt { return attempt{at: now, vain: a.vain + 1} }

// due returns when the next endpoint of a peer that does not answer until then is to be dialled by who waits for it, or not.
func (a attempt) due(waits bool) time.Time {
	patience := firstPatience
	for n := quickAttempts; n <= a.vain && patience < lastPatience; n++ {
		patience *= 2
	}
	if waits {
		patience = max(patience*3/2, headStart)
	}
	return a.at.Add(patience)
}

// alive says whether there is a session with the peer.
func alive(p wgtypes.Peer, now time.Time) bool {
	return !p.LastHandshakeTime.IsZero() && now.Sub(p.LastHandshakeTime) < sessionLife
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
// to time out. Whatever session it had ends.
func dial(d device, t overlay.Tunnel, endpoint netip.AddrPort) error {
	err := d.configure(wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: t.PublicKey, Remove: true}, newPeer(t, endpoint)}})
	if err != nil {
		return fmt.Errorf("dial %s of peer %q: %w", endpoint, t.Peer, err)
	}
	return nil
}

// distinct leaves out the tunnels that WireGuard would take for another one, and says which.
func distinct(identity Identity, tunnels []overlay.Tunnel) ([]overlay.Tunnel, error) {
	holders := map[wgtypes.Key]string{wgtypes.Key(identity.PrivateKey).PublicKey(): "this cluster"}
	var kept []overlay.Tunnel
	var refused []error
	for _, t := range tunnels {
		if holder, taken := holders[t.PublicKey]; taken {
			refused = append(refused, fmt.Errorf("peer %q has the key of %s", t.Peer, holder))
			continue
		}
		holders[t.PublicKey] = fmt.Sprintf("peer %q", t.Peer)
		kept = append(kept, t)
	}
	return kept, errors.Join(refused...)
}
