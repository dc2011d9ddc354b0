// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestNothingPassesTheInternetInTheClear(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	guest, home := l.lubeck.seen(l.hamburg, podAddress(1, 20)), l.hamburg.seen(l.lubeck, podAddress(2, 10))
	questions := func(allowed bool) []question {
		return []question{
			{"home to guest", l.home1, guest, allowed, netip.Addr{}},
			{"node of home to guest", l.lubeck.nodes[1].space, guest, allowed, netip.Addr{}},
			{"guest to home", l.guest2, home, allowed, netip.Addr{}},
		}
	}
	packets := l.watch("br0")
	check(t, questions(true))

	l.lubeck.ask((*Gateway).Close)
	check(t, questions(false))

	for _, n := range l.lubeck.nodes {
		layout := l.lubeck.nodeLayout(n)
		layout.Gateway = netip.Addr{}
		n.space.must(func() error { return n.fabric.Apply(layout) })
	}
	check(t, questions(false))

	l.lubeck.apply()
	check(t, questions(true))

	seen := packets()
	if len(seen) < 10 {
		t.Fatalf("only %d packets were seen", len(seen))
	}
	for _, p := range seen {
		if bytes.Contains(p, []byte("qqqqqqqqqqqqqqqq")) || !between(p, prefixes("192.0.2.0/24", "2001:db8::/64", "fe80::/10", "ff00::/8", "::/128", "224.0.0.0/4", "0.0.0.0/32")) {
			t.Fatalf("in the clear: % x", p[:min(len(p), 100)])
		}
	}
}

// between reports whether an Ethernet frame of IP is from and to an address of the ranges. Other frames are.
func between(frame []byte, ranges []netip.Prefix) bool {
	const header = 14
	for _, f := range families {
		if len(frame) < header+40 || binary.BigEndian.Uint16(frame[12:]) != f.ethertype {
			continue
		}
		for _, offset := range []uint32{f.saddr, f.daddr} {
			a, _ := netip.AddrFromSlice(frame[header+offset:][:f.address.Bytes])
			if !inOne(a, ranges) {
				return false
			}
		}
	}
	return true
}

func inOne(a netip.Addr, ranges []netip.Prefix) bool {
	for _, r := range ranges {
		if r.Contains(a) {
			return true
		}
	}
	return false
}

func TestPacketsOfAHostilePeerAreDropped(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	far, home := l.lubeck.seen(l.bremen, podAddress(2, 20)), l.bremen.seen(l.lubeck, podAddress(1, 10))
	guest := l.lubeck.seen(l.hamburg, podAddress(1, 20))
	check(t, []question{{"far to home", l.far, home, true, far}}) // so there is a session

	// The gateway of bremen no longer translates, and sends whatever it likes.
	layout := l.bremen.layout()
	layout.Addresses = nil
	for i := range layout.Tunnels {
		if layout.Tunnels[i].Peer == "lubeck" {
			layout.Tunnels[i].AllowedIPs = append(layout.Tunnels[i].AllowedIPs, prefixes("10.244.0.0/16", "172.20.0.0/16", guest.String()+"/32")...)
		}
	}
	l.bremen.applyGateway(layout)
	l.bremen.pod.must(func() error { return removeTable(nftables.TableFamilyINet) })

	got := map[*space]func() [][]byte{}
	for _, s := range []*space{l.home1, l.home2, l.guest1} {
		got[s] = s.watch("eth0")
	}
	lan := l.lubeck.nodes[0].space.watch("cni0")
	send := func(payload string, from, to netip.Addr) {
		l.bremen.pod.must(func() error { return sendRaw(from, to, payload) })
	}
	send("as an address of another peer", guest, home)
	send("as one of home", podAddress(2, 10), home)
	send("as an address that nobody has", addr("198.51.100.1"), home)
	send("to an address that the peer does not see", far, podAddress(1, 10))
	send("to a node", far, addr("172.20.0.1"))
	send("to another peer", far, guest)
	send("as a pod that is not ours", l.lubeck.seen(l.bremen, podAddress(1, 99)), home)
	send("as one of ours", far, home)
	if _, err := l.far.ask("udp", home, 1, impatient); err == nil {
		t.Error("far is answered without translation")
	}
	arrived := append(got[l.home1](), append(got[l.home2](), append(got[l.guest1](), lan()...)...)...)
	if !contain(arrived, "as one of ours") {
		t.Error("what is sent as one of ours does not arrive, so this test shows nothing")
	}
	for _, payload := range []string{
		"as an address of another peer", "as one of home", "as an address that nobody has", "to an address that the peer does not see",
		"to a node", "to another peer", "as a pod that is not ours",
	} {
		if contain(arrived, payload) {
			t.Errorf("a packet sent %s arrives", payload)
		}
	}
}

// A pod of ours that may forge addresses sends as one of a peer to what it may reach itself. What the kernel does by itself
// about sources that come from the wrong side, it does for IPv4 alone.
func TestWhatOurPodsSendFromAddressesOfPeersIsDropped(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	guest, guest6 := l.lubeck.seen(l.hamburg, podAddress(1, 20)), l.lubeck.seen(l.hamburg, podAddress6(1, 20))
	through := []question{{"home to guest", l.home1, guest, true, netip.Addr{}}, {"home to guest", l.home1, guest6, true, netip.Addr{}}}
	check(t, through)
	arrived := l.guest1.watch("eth0")
	packets := []struct {
		payload  string
		from, to netip.Addr
		arrives  bool
	}{
		{"as itself", podAddress(1, 10), guest, true},
		{"as another pod at that peer", l.lubeck.seen(l.hamburg, podAddress(2, 20)), guest, false},
		{"as a pod at another peer", l.lubeck.seen(l.bremen, podAddress(2, 20)), guest, false},
		{"as itself by IPv6", podAddress6(1, 10), guest6, true},
		{"as another pod at that peer by IPv6", l.lubeck.seen(l.hamburg, podAddress6(2, 20)), guest6, false},
		{"as a pod at another peer by IPv6", l.lubeck.seen(l.bremen, podAddress6(2, 20)), guest6, false},
	}
	for _, p := range packets {
		l.home1.must(func() error { return sendRaw(p.from, p.to, p.payload) })
	}
	check(t, through) // behind which all has arrived
	all := arrived()
	for _, p := range packets {
		if got := contain(all, p.payload); got != p.arrives {
			t.Errorf("that a packet sent %s arrives is %t", p.payload, got)
		}
	}
}

func contain(packets [][]byte, payload string) bool {
	for _, p := range packets {
		if bytes.HasSuffix(p, []byte(payload)) {
			return true
		}
	}
	return false
}

// sendRaw sends an UDP packet with whatever addresses.
func sendRaw(from, to netip.Addr, payload string) error {
	udp := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(udp, talkPort)
	binary.BigEndian.PutUint16(udp[2:], talkPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(8+len(payload)))
	udp = append(udp, payload...)
	family, header := unix.AF_INET, []byte{0: 0x45, 8: 64, 9: unix.IPPROTO_UDP, 11: 0}
	var receiver unix.Sockaddr
	if to.Is4() {
		receiver = &unix.SockaddrInet4{Addr: to.As4()}
	} else {
		family, header = unix.AF_INET6, []byte{0: 0x60, 6: unix.IPPROTO_UDP, 7: 64}
		binary.BigEndian.PutUint16(header[4:], uint16(len(udp)))
		receiver = &unix.SockaddrInet6{Addr: to.As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Sendto(fd, slices.Concat(header, from.AsSlice(), to.AsSlice(), udp), 0, receiver)
}

// What gets into the VXLAN seems to come from a peer, or to be for one.
func TestPodsDoNotGetIntoTheVXLAN(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	nodes := l.lubeck.nodes
	for _, target := range []struct {
		name string
		at   *space
		mac  net.HardwareAddr
		to   netip.Addr
	}{
		{"gateway", l.lubeck.pod, gatewayMAC, podAddress(1, 2)},
		{"node of the pod", nodes[0].space, nodeMAC(nodes[0].inner), nodes[0].inner[0]},
		{"another node", nodes[1].space, nodeMAC(nodes[1].inner), nodes[1].inner[0]},
	} {
		// Several times, because on a busy machine the kernel may hand a frame on after the answer to a later ping.
		intrudes := func() (arrives bool) {
			for range 5 {
				arrived := target.at.watch(vxlanLink)
				l.home1.must(func() error { return sendVXLAN(t.Context(), target.to, target.mac, "intruder") })
				l.home1.must(func() error { return l.home1.ping(target.to, 10, patient) })
				arrives = contain(arrived(), "intruder") || arrives
			}
			return arrives
		}
		if intrudes() {
			t.Errorf("a pod sends into the VXLAN of the %s", target.name)
		}
		for _, n := range nodes {
			n.space.must(func() error {
				return errors.Join(removeTable(nftables.TableFamilyINet), removeTable(nftables.TableFamilyBridge))
			})
		}
		if !intrudes() {
			t.Errorf("nothing arrives at the %s without the guard either, so this test shows nothing", target.name)
		}
		l.lubeck.apply()
	}
}

// Where pods have routes of their own, as with point-to-point CNIs, a pod that is gone leaves none but the default route.
func TestPacketsForAGatewayThatIsGoneDoNotLeave(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	node, out := l.lubeck.nodes[0], l.lubeck.world
	node.space.must(func() error { return removeRoute("10.244.1.0/24") })
	send := func() bool {
		seen := out.watch("br0")
		node.space.must(func() error {
			_ = sendVXLAN(t.Context(), podAddress(1, 2), gatewayMAC, "secret") // which says that there is no way, if all is well
			return sendVXLAN(t.Context(), addr("192.0.2.1"), gatewayMAC, "last")
		})
		all := seen()
		if !contain(all, "last") {
			t.Fatal("nothing leaves, so this test shows nothing")
		}
		return contain(all, "secret")
	}
	if send() {
		t.Error("the VXLAN goes out by the default route")
	}
	node.space.must(func() error { return ensureRules(nil, nil) })
	if !send() {
		t.Error("it does not without the rules either, so this test shows nothing")
	}
}

func removeRoute(to string) error {
	all, err := netlink.RouteListFiltered(unix.AF_INET, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.Dst != nil && r.Dst.String() == to {
			return netlink.RouteDel(&r)
		}
	}
	return fmt.Errorf("there is no route to %s", to)
}

// sendVXLAN sends a frame of our VXLAN, as anybody can who may send UDP.
func sendVXLAN(ctx context.Context, to netip.Addr, mac net.HardwareAddr, payload string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", netip.AddrPortFrom(to, DefaultVXLANPort).String())
	if err != nil {
		return err
	}
	header := []byte{0: 0x08, 4: vxlanID >> 16, 5: vxlanID >> 8 & 0xff, 6: vxlanID & 0xff, 7: 0}
	frame := slices.Concat(header, mac, net.HardwareAddr{0x02, 5: 1}, []byte{0x08, 0x00}, []byte(strings.Repeat(".", 60)+payload))
	_, err = conn.Write(frame)
	return errors.Join(err, conn.Close())
}

func TestPeerThatHasTheKeyOfAnotherDisturbsNobody(t *testing.T) {
	t.Parallel()
	l := newLeague(t)
	layout := l.lubeck.layout()
	layout.Tunnels[1].PublicKey = layout.Tunnels[0].PublicKey
	l.lubeck.pod.t.Helper()
	l.lubeck.busy.Lock()
	err := l.lubeck.pod.do(func() error {
		return l.lubeck.gateway.Apply(Identity{PrivateKey: l.lubeck.key, Port: wireguardPort}, layout)
	})
	l.lubeck.busy.Unlock()
	if err == nil {
		t.Error("two peers with one key are taken without a word")
	}
	check(t, []question{{"home to guest", l.home1, l.lubeck.seen(l.hamburg, podAddress(1, 20)), true, netip.Addr{}}})
}
