// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/hanse-dev/hanse/internal/overlay"
)

var (
	identity  = Identity{PrivateKey: wgtypes.Key{31: 0x40}, Port: 51820}
	lowKey    = wgtypes.Key{}
	highKey   = wgtypes.Key{0xff, 0xff}
	endpoint1 = netip.MustParseAddrPort("192.0.2.1:1")
	endpoint2 = netip.MustParseAddrPort("[2001:db8::2]:2")
	moved     = netip.MustParseAddrPort("198.51.100.9:9")
)

func tunnelTo(key wgtypes.Key, endpoints ...netip.AddrPort) overlay.Tunnel {
	return overlay.Tunnel{Peer: "turin", PublicKey: key, Endpoints: endpoints, AllowedIPs: prefixes("100.64.0.0/16", "fd68::/56")}
}

// known is what WireGuard has after that tunnel was made.
func known(t overlay.Tunnel, endpoint netip.AddrPort) wgtypes.Peer {
	c := newPeer(t, endpoint)
	return wgtypes.Peer{PublicKey: c.PublicKey, Endpoint: c.Endpoint, AllowedIPs: c.AllowedIPs, PersistentKeepaliveInterval: *c.PersistentKeepaliveInterval}
}

func deviceWith(peers ...wgtypes.Peer) *wgtypes.Device {
	return &wgtypes.Device{PrivateKey: identity.PrivateKey, ListenPort: identity.Port, FirewallMark: tunnelMark, Peers: peers}
}

func TestOnlyWhatDiffersIsConfigured(t *testing.T) {
	key, port, mark := wgtypes.Key(identity.PrivateKey), identity.Port, tunnelMark
	wider := tunnelTo(highKey, endpoint1)
	wider.AllowedIPs = append(wider.AllowedIPs, prefixes("100.65.0.0/16")...)
	update := newPeer(wider, netip.AddrPort{})
	connected := tunnelTo(lowKey, endpoint1)
	connected.Connected = true
	update.UpdateOnly = true
	for name, test := range map[string]struct {
		have *wgtypes.Device
		want []overlay.Tunnel
		diff []wgtypes.Config
	}{
		"nothing differs":                            {deviceWith(known(tunnelTo(highKey, endpoint1), endpoint1)), []overlay.Tunnel{tunnelTo(highKey, endpoint1)}, nil},
		"a peer that moved stays there":              {deviceWith(known(tunnelTo(highKey, endpoint1), moved)), []overlay.Tunnel{tunnelTo(highKey, endpoint1)}, nil},
		"endpoints of a peer change":                 {deviceWith(known(tunnelTo(highKey, endpoint1), endpoint1)), []overlay.Tunnel{tunnelTo(highKey, endpoint2, endpoint1)}, nil},
		"a new device":                               {&wgtypes.Device{}, nil, []wgtypes.Config{{PrivateKey: &key, ListenPort: &port, FirewallMark: &mark}}},
		"a new peer is greeted":                      {deviceWith(), []overlay.Tunnel{tunnelTo(highKey, endpoint1)}, []wgtypes.Config{one(newPeer(tunnelTo(highKey, endpoint1), endpoint1))}},
		"a new peer of a low key greets us":          {deviceWith(), []overlay.Tunnel{tunnelTo(lowKey, endpoint1)}, []wgtypes.Config{one(newPeer(tunnelTo(lowKey, endpoint1), netip.AddrPort{}))}},
		"a peer that was connected knows of nothing": {deviceWith(), []overlay.Tunnel{connected}, []wgtypes.Config{one(newPeer(connected, endpoint1))}},
		"a new peer that only dials":                 {deviceWith(), []overlay.Tunnel{tunnelTo(highKey)}, []wgtypes.Config{one(newPeer(tunnelTo(highKey), netip.AddrPort{}))}},
		"a peer is gone":                             {deviceWith(known(tunnelTo(highKey), moved)), nil, []wgtypes.Config{one(wgtypes.PeerConfig{PublicKey: highKey, Remove: true})}},
		"ranges of a peer change":                    {deviceWith(known(tunnelTo(highKey, endpoint1), moved)), []overlay.Tunnel{wider}, []wgtypes.Config{one(update)}},
	} {
		if diff := cmp.Diff(test.diff, difference(test.have, identity, tunnelMark, test.want)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A recorder is WireGuard that has some peers and does nothing.
type recorder struct {
	peers  []wgtypes.Peer
	dialed []netip.AddrPort
}

func (r *recorder) read() (*wgtypes.Device, error) { return &wgtypes.Device{Peers: r.peers}, nil }

func (r *recorder) close() error { return nil }

func (r *recorder) configure(c wgtypes.Config) error {
	for _, p := range c.Peers {
		if p.Endpoint != nil {
			r.dialed = append(r.dialed, endpointOf(wgtypes.Peer{Endpoint: p.Endpoint}))
		}
	}
	return nil
}

func TestEndpointsAreTriedInTurn(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	shaken := func(ago time.Duration, e netip.AddrPort) wgtypes.Peer {
		return wgtypes.Peer{Endpoint: net.UDPAddrFromAddrPort(e), LastHandshakeTime: now.Add(-ago)}
	}
	silent := func(e netip.AddrPort) wgtypes.Peer { return wgtypes.Peer{Endpoint: net.UDPAddrFromAddrPort(e)} }
	both, awaited := tunnelTo(highKey, endpoint1, endpoint2), tunnelTo(lowKey, endpoint1)
	for name, test := range map[string]struct {
		tunnel overlay.Tunnel
		peer   wgtypes.Peer
		tried  attempt
		want   netip.AddrPort // not valid: none
		again  time.Duration  // 0: not before something changes
	}{
		"the first is silent":                  {both, silent(endpoint1), attempt{at: now.Add(-firstPatience)}, endpoint2, firstPatience},
		"the last is silent":                   {both, silent(endpoint2), attempt{at: now.Add(-firstPatience)}, endpoint1, firstPatience},
		"the only one is silent":               {tunnelTo(highKey, endpoint1), silent(endpoint1), attempt{at: now.Add(-firstPatience)}, endpoint1, firstPatience},
		"one that is listed no more is silent": {both, silent(moved), attempt{at: now.Add(-firstPatience)}, endpoint1, firstPatience},
		"the first has not had its time":       {both, silent(endpoint1), attempt{at: now.Add(-time.Millisecond)}, netip.AddrPort{}, firstPatience - time.Millisecond},
		"the last quick attempt is in vain":    {both, silent(endpoint1), attempt{now.Add(-firstPatience), quickAttempts - 1}, endpoint2, 2 * firstPatience},
		"the next one has more time":           {both, silent(endpoint1), attempt{now.Add(-firstPatience), quickAttempts}, netip.AddrPort{}, firstPatience},
		"and no more time in the end":          {both, silent(endpoint1), attempt{now.Add(-lastPatience), 99}, endpoint2, lastPatience},
		"a session is there":                   {both, shaken(time.Minute, endpoint1), attempt{}, netip.AddrPort{}, 0},
		"the peer has moved and is there":      {both, shaken(time.Minute, moved), attempt{}, netip.AddrPort{}, 0},
		"a session has ended":                  {both, shaken(sessionLife, endpoint1), attempt{at: now.Add(-time.Second)}, endpoint2, firstPatience},
		"the peer was to greet us and did not": {awaited, wgtypes.Peer{}, attempt{at: now.Add(-headStart)}, endpoint1, headStart},
		"the peer is to greet us and has time": {awaited, wgtypes.Peer{}, attempt{at: now.Add(-firstPatience)}, netip.AddrPort{}, headStart - firstPatience},
		"the pace is not that of the peer":     {awaited, silent(endpoint1), attempt{now.Add(-4 * firstPatience), quickAttempts + 1}, netip.AddrPort{}, 2 * firstPatience},
		"nobody knows where the peer is":       {tunnelTo(highKey), wgtypes.Peer{}, attempt{}, netip.AddrPort{}, 0},
	} {
		test.peer.PublicKey = test.tunnel.PublicKey
		device := &recorder{peers: []wgtypes.Peer{test.peer}}
		g := NewGateway(GatewayConfig{})
		g.direct.device, g.direct.identity, g.direct.tunnels = device, identity, []overlay.Tunnel{test.tunnel}
		g.tried[test.tunnel.PublicKey] = test.tried
		again, err := g.Dial(now)
		var want []netip.AddrPort
		if test.want.IsValid() {
			want = append(want, test.want)
		}
		if err != nil || !slices.Equal(device.dialed, want) {
			t.Errorf("%s: dialed %v, want %v, %v", name, device.dialed, want, err)
		}
		if again.IsZero() != (test.again == 0) || test.again > 0 && again.Sub(now) != test.again {
			t.Errorf("%s: is to be dialled again at %s, want %s from %s", name, again, test.again, now)
		}
	}
}

func TestTunnelsWithOneKeyAreRefused(t *testing.T) {
	first, second := tunnelTo(highKey), tunnelTo(highKey)
	second.Peer = "milan"
	own := tunnelTo(wgtypes.Key(identity.PrivateKey).PublicKey())
	kept, err := distinct(identity, []overlay.Tunnel{first, second, own, tunnelTo(lowKey)})
	if err == nil {
		t.Error("nothing is refused")
	}
	if diff := cmp.Diff([]overlay.Tunnel{first, tunnelTo(lowKey)}, kept, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

func TestConfigurationIsReadAsItWasWritten(t *testing.T) {
	key, port, mark := wgtypes.Key(identity.PrivateKey), identity.Port, tunnelMark
	t1, t2 := tunnelTo(highKey, endpoint1), tunnelTo(lowKey, endpoint2)
	text := encodeUAPI(wgtypes.Config{
		PrivateKey: &key, ListenPort: &port, FirewallMark: &mark, Peers: []wgtypes.PeerConfig{newPeer(t1, endpoint1), newPeer(t2, endpoint2)},
	})
	got, err := decodeUAPI(text)
	if err != nil {
		t.Fatal(err)
	}
	want := deviceWith(known(t1, endpoint1), known(t2, endpoint2))
	want.Type = wgtypes.Userspace
	opts := cmp.Comparer(func(a, b net.IPNet) bool { return a.String() == b.String() })
	if diff := cmp.Diff(want, got, opts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzDecodeUAPI(f *testing.F) {
	f.Add("public_key=00\nendpoint=192.0.2.1:1\nlast_handshake_time_sec=1\n\nallowed_ip=::/0")
	f.Add(encodeUAPI(wgtypes.Config{Peers: []wgtypes.PeerConfig{newPeer(tunnelTo(highKey, endpoint1), endpoint1)}}))
	f.Fuzz(func(t *testing.T, text string) {
		d, err := decodeUAPI(text)
		if (d == nil) == (err == nil) {
			t.Errorf("device %v and error %v", d, err)
		}
	})
}

// An endpoint that does not answer, and then one that does, which both lead to the same peer.
func TestPeerIsFoundAtTheEndpointThatAnswers(t *testing.T) {
	t.Parallel()
	w := newInternet(t, 2)
	for i, c := range w.clusters {
		layout := c.layout()
		works := w.clusters[1-i].outer
		layout.Tunnels[0].Endpoints = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.99:1"), netip.AddrPortFrom(works.Addr(), 1), works}
		c.applyGateway(layout)
	}
	deadline := time.Now().Add(4 * patient)
	for _, c := range w.clusters {
		for !c.connected() {
			if time.Now().After(deadline) {
				t.Fatalf("%s found no endpoint that works", c.name)
			}
		}
	}
	state := w.clusters[0].state()
	if state.Peer != "hamburg" || state.Sent == 0 || state.Received == 0 || state.Endpoint.Addr() != w.clusters[1].outer.Addr() {
		t.Errorf("state is %+v", state)
	}
}

func (c *cluster) connected() bool { return !c.state().Handshake.IsZero() }

// state is that of the first tunnel.
func (c *cluster) state() (state TunnelState) {
	c.ask(func(g *Gateway) error {
		all, err := g.Tunnels()
		if len(all) > 0 {
			state = all[0]
		}
		return err
	})
	return state
}
