// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/hanse-dev/hanse/internal/overlay"
)

// A wireGuard is WireGuard on one interface.
type wireGuard struct {
	name     string
	device   device   // nil while there is none
	identity Identity // as last configured
	tunnels  []overlay.Tunnel
}

// ensure returns the interface with exactly those addresses, made anew if it is gone.
func (w *wireGuard) ensure(mtu int, addresses []netip.Addr, log logr.Logger) (netlink.Link, error) {
	link, err := netlink.LinkByName(w.name)
	if isNoLink(err) || w.device == nil {
		if err := w.close(); err != nil {
			return nil, err
		}
		if w.device, err = openDevice(w.name, mtu, log); err != nil {
			return nil, err
		}
		link, err = netlink.LinkByName(w.name)
	}
	if err != nil {
		return nil, fmt.Errorf("look for interface %s: %w", w.name, err)
	}
	if err := ensureUp(link, mtu); err != nil {
		return nil, fmt.Errorf("start interface %s: %w", w.name, err)
	}
	if err := ensureAddresses(link, addresses); err != nil {
		return nil, fmt.Errorf("give %s its addresses: %w", w.name, err)
	}
	return link, ensureForwarding(link)
}

// configure changes what differs. Without an interface it does nothing.
func (w *wireGuard) configure(identity Identity, tunnels []overlay.Tunnel) error {
	if w.device == nil {
		return nil
	}
	have, err := w.device.read()
	if err != nil {
		return fmt.Errorf("read WireGuard: %w", err)
	}
	var failed []error
	for _, change := range difference(have, identity, w.mark(), tunnels) {
		if err := w.device.configure(change); err != nil {
			failed = append(failed, fmt.Errorf("configure WireGuard: %w", err))
		}
	}
	w.identity, w.tunnels = identity, tunnels
	return errors.Join(failed...)
}

// mark is on what this WireGuard itself sends.
func (w *wireGuard) mark() int {
	if w.name == relayedLink {
		return 0 // it must go into the tunnel to the relay
	}
	return tunnelMark
}

func (w *wireGuard) states() ([]TunnelState, error) {
	peers, err := w.peers()
	if err != nil {
		return nil, err
	}
	var all []TunnelState
	for _, t := range w.tunnels {
		if p, ok := peers[t.PublicKey]; ok {
			all = append(all, TunnelState{
				Peer: t.Peer, Endpoint: endpointOf(p), Handshake: p.LastHandshakeTime, Received: p.ReceiveBytes, Sent: p.TransmitBytes,
			})
		}
	}
	return all, nil
}

func (w *wireGuard) peers() (map[wgtypes.Key]wgtypes.Peer, error) {
	byKey := map[wgtypes.Key]wgtypes.Peer{}
	if w.device == nil {
		return byKey, nil
	}
	have, err := w.device.read()
	if err != nil {
		return nil, fmt.Errorf("read WireGuard: %w", err)
	}
	for _, p := range have.Peers {
		byKey[p.PublicKey] = p
	}
	return byKey, nil
}

// close ends what runs in this process.
func (w *wireGuard) close() error {
	if w.device == nil {
		return nil
	}
	err := w.device.close()
	w.device, w.tunnels = nil, nil
	return err
}
