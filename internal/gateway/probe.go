package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
)

// A protocol is ICMP of one family of addresses, by sockets that need no rights but those of net.ipv4.ping_group_range.
type protocol struct {
	network, any string
	number       int // as IP has it
	request      icmp.Type
	reply        icmp.Type
}

var protocols = []protocol{
	{"udp4", "0.0.0.0", 1, ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply},
	{"udp6", "::", 58, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply},
}

// A prober asks the gateways of peers for echoes, through the tunnels.
type prober struct {
	clock clock.WithTicker

	mu      sync.Mutex
	windows map[netip.Addr]*window // address that is asked →
}

func newProber(c clock.WithTicker) *prober {
	return &prober{clock: c, windows: map[netip.Addr]*window{}}
}

// watch makes these the addresses that are asked.
func (p *prober) watch(addresses []netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	windows := map[netip.Addr]*window{}
	for _, a := range addresses {
		if windows[a] = p.windows[a]; windows[a] == nil {
			windows[a] = &window{}
		}
	}
	p.windows = windows
}

// measure returns how the way to the address is.
func (p *prober) measure(a netip.Addr) measurement {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.windows[a]
	if w == nil {
		return measurement{}
	}
	return w.measure(p.clock.Now())
}

// Run asks until ctx ends.
func (p *prober) Run(ctx context.Context) error {
	var sockets []*icmp.PacketConn
	var reading sync.WaitGroup
	var failed []error
	for _, f := range protocols {
		socket, err := icmp.ListenPacket(f.network, f.any)
		if err != nil { // a pod need not have IPv6
			failed = append(failed, err)
			sockets = append(sockets, nil)
			continue
		}
		sockets = append(sockets, socket)
		reading.Go(func() { p.read(socket, f) })
	}
	if len(failed) == len(protocols) {
		return fmt.Errorf("open sockets for echo requests, which net.ipv4.ping_group_range must allow: %w", errors.Join(failed...))
	}
	p.ask(ctx, sockets)
	for _, socket := range sockets {
		if socket != nil {
			_ = socket.Close() // which ends the reading
		}
	}
	reading.Wait()
	return nil
}

// ask sends requests to all addresses, again and again, until ctx ends.
func (p *prober) ask(ctx context.Context, sockets []*icmp.PacketConn) {
	ticker := p.clock.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		for address, sequence := range p.requests() {
			i := 0
			if address.Is6() {
				i = 1
			}
			if err := send(sockets[i], protocols[i], address, sequence); err != nil {
				ctrl.LoggerFrom(ctx).V(2).Info("Cannot send an echo request", "to", address, "cause", err.Error())
			}
		}
	}
}

// requests returns whom to ask now, and the numbers of the requests.
func (p *prober) requests() map[netip.Addr]uint16 {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[netip.Addr]uint16{}
	for address, w := range p.windows {
		all[address] = w.send(p.clock.Now())
	}
	return all
}

func send(socket *icmp.PacketConn, f protocol, to netip.Addr, sequence uint16) error {
	if socket == nil {
		return errors.New("there is no socket of this family")
	}
	m := icmp.Message{Type: f.request, Body: &icmp.Echo{Seq: int(sequence), Data: []byte("hanse")}}
	packet, err := m.Marshal(nil)
	if err != nil {
		return err
	}
	_, err = socket.WriteTo(packet, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 0)))
	return err
}

// read notes answers until the socket is closed. The kernel passes on only those to requests of this socket.
func (p *prober) read(socket *icmp.PacketConn, f protocol) {
	buffer := make([]byte, 1500)
	for {
		size, from, err := socket.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // such as an error that a router sent
		}
		if sequence, ok := f.answer(buffer[:size]); ok {
			p.receive(from, sequence)
		}
	}
}

// answer returns the number of the request that the packet answers.
func (f protocol) answer(packet []byte) (uint16, bool) {
	m, err := icmp.ParseMessage(f.number, packet)
	if err != nil || m.Type != f.reply {
		return 0, false
	}
	body, ok := m.Body.(*icmp.Echo)
	if !ok {
		return 0, false
	}
	return uint16(body.Seq), true //nolint:gosec // it was parsed as 16 bits
}

func (p *prober) receive(from net.Addr, sequence uint16) {
	a, ok := from.(*net.UDPAddr)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.windows[a.AddrPort().Addr().Unmap().WithZone("")]; w != nil {
		w.receive(sequence, p.clock.Now())
	}
}
