// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hanse-dev/hanse/internal/overlay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Gateways of peers, and ours, on addresses of this machine.
var (
	ours    = netip.MustParseAddr("127.0.6.1")
	lubeck  = overlay.Relayed{Peer: "lubeck", Address: netip.MustParseAddr("127.0.6.2"), Port: 17001, Bandwidth: 1000}
	hamburg = overlay.Relayed{Peer: "hamburg", Address: netip.MustParseAddr("127.0.6.3"), Port: 17002, Bandwidth: 1000}
	bremen  = overlay.Relayed{Peer: "bremen", Address: netip.MustParseAddr("127.0.6.4"), Port: 17003, Bandwidth: 1000}
)

// A harbour is a relay for lubeck and hamburg, and the gateways of all three.
type harbour struct {
	t     *testing.T
	relay *Relay
	clock *clocktesting.FakePassiveClock
	at    map[string]*net.UDPConn
}

func newHarbour(t *testing.T) *harbour {
	t.Helper()
	clk := clocktesting.NewFakePassiveClock(time.Date(2031, 5, 7, 12, 0, 0, 0, time.UTC))
	h := &harbour{t: t, clock: clk, relay: New(clk.Now), at: map[string]*net.UDPConn{}}
	t.Cleanup(h.relay.Stop)
	for _, p := range []overlay.Relayed{lubeck, hamburg, bremen} {
		socket, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.Address, overlay.RelayedPort)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = socket.Close() })
		h.at[p.Peer] = socket
	}
	h.update(lubeck, hamburg)
	return h
}

func (h *harbour) update(relayed ...overlay.Relayed) {
	h.t.Helper()
	if err := h.relay.Update(relayed, []netip.Addr{ours}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harbour) send(from, to overlay.Relayed, payload string) {
	h.t.Helper()
	if _, err := h.at[from.Peer].WriteToUDPAddrPort([]byte(payload), netip.AddrPortFrom(ours, to.Port)); err != nil {
		h.t.Fatal(err)
	}
}

// arrives expects that this is the next that arrives.
func (h *harbour) arrives(at, from overlay.Relayed, payload string) {
	h.t.Helper()
	socket, buffer := h.at[at.Peer], make([]byte, largest)
	if err := socket.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		h.t.Fatal(err)
	}
	size, sender, err := socket.ReadFromUDPAddrPort(buffer)
	if err != nil {
		h.t.Fatal(err)
	}
	if got := string(buffer[:min(size, 32)]); got != payload || sender != netip.AddrPortFrom(ours, from.Port) {
		h.t.Errorf("%s gets %q from %s, want %q from the port of %s", at.Peer, got, sender, payload, from.Peer)
	}
}

// talk expects that what each of the two sends is the next that the other one gets.
func (h *harbour) talk(a, b overlay.Relayed) {
	h.t.Helper()
	h.send(a, b, "hello")
	h.arrives(b, a, "hello")
	h.send(b, a, "welcome")
	h.arrives(a, b, "welcome")
}

func TestEachPeerFindsTheOtherAtOnePort(t *testing.T) {
	h := newHarbour(t)
	h.talk(lubeck, hamburg)
}

func TestNothingIsPassedOnForOthers(t *testing.T) {
	h := newHarbour(t)
	h.send(bremen, hamburg, "from one that is not relayed")
	h.send(lubeck, lubeck, "to itself")
	h.talk(lubeck, hamburg)

	h.update(lubeck, bremen)
	h.send(lubeck, bremen, "hello")
	h.arrives(bremen, lubeck, "hello")
	h.send(hamburg, lubeck, "from one that is no longer relayed")
	h.send(bremen, lubeck, "welcome")
	h.arrives(lubeck, bremen, "welcome")
}

func TestWhatExceedsTheBandwidthIsDropped(t *testing.T) {
	h := newHarbour(t)
	h.update(lubeck, hamburg, bremen)
	const large = 1 << 15
	for range leastBurst / large {
		h.send(lubeck, hamburg, string(make([]byte, large)))
		h.arrives(hamburg, lubeck, string(make([]byte, 32)))
	}
	h.send(lubeck, hamburg, "too much")
	h.send(bremen, hamburg, "of another")
	h.arrives(hamburg, bremen, "of another")

	h.update(lubeck, hamburg) // which changes nothing for lubeck
	h.update(lubeck, hamburg, bremen)
	h.send(lubeck, hamburg, "still too much")
	h.send(bremen, hamburg, "behind it") // so that it has been looked at before the clock goes on
	h.arrives(hamburg, bremen, "behind it")
	h.send(hamburg, lubeck, "not the receiver's fault")
	h.arrives(lubeck, hamburg, "not the receiver's fault")
	h.clock.SetTime(h.clock.Now().Add(time.Second))
	h.send(lubeck, hamburg, "later")
	h.arrives(hamburg, lubeck, "later")
}

func TestPortsAreFreeAgainWhenARelayStops(t *testing.T) {
	h := newHarbour(t)
	at := net.UDPAddrFromAddrPort(netip.AddrPortFrom(ours, lubeck.Port))
	if socket, err := net.ListenUDP("udp", at); err == nil {
		_ = socket.Close()
		t.Error("nobody listens at the port, so this test shows nothing")
	}
	h.relay.Stop()
	socket, err := net.ListenUDP("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.relay.Update([]overlay.Relayed{lubeck, hamburg}, []netip.Addr{ours}); err == nil {
		t.Error("nothing is said of a port that is taken")
	}
	if err := socket.Close(); err != nil {
		t.Error(err)
	}
	h.send(hamburg, lubeck, "lost")
	h.update(lubeck, hamburg)
	h.send(lubeck, hamburg, "hello")
	h.arrives(hamburg, lubeck, "hello")
}
