// SPDX-License-Identifier: Apache-2.0

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
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
)

// A protocol is ICMP of one family of addresses, by sockets that need no rights but those of net.ipv4.ping_group_range.
type protocol struct {
	family  int
	number  int // as IP has it
	header  int // bytes of a packet before the data of an echo
	request icmp.Type
	reply   icmp.Type
}

var protocols = []protocol{
	{unix.AF_INET, unix.IPPROTO_ICMP, ipv4.HeaderLen + 8, ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply},
	{unix.AF_INET6, unix.IPPROTO_ICMPV6, ipv6.HeaderLen + 8, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply},
}

// A prober asks the gateways of peers for echoes, through the tunnels.
type prober struct {
	clock clock.WithTicker

	mu      sync.Mutex
	ways    map[netip.Addr]*way // address that is asked →
	largest int                 // packet that the tunnel itself takes
}

// A way is what is known of the way to one address.
type way struct {
	window
	sizes *sizes
}

// A request is one echo request that is to be sent.
type request struct {
	to       netip.Addr
	sequence uint16
	size     int // of the whole packet; 0 for a small one
}

func newProber(c clock.WithTicker) *prober {
	return &prober{clock: c, ways: map[netip.Addr]*way{}}
}

// watch makes these the addresses that are asked, through tunnels that take packets of at most that size.
func (p *prober) watch(addresses []netip.Addr, largest int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ways := map[netip.Addr]*way{}
	for _, a := range addresses {
		w := p.ways[a]
		if w == nil {
			w = &way{}
		}
		if w.sizes == nil || p.largest != largest {
			w.sizes = newSizes(largest)
		}
		ways[a] = w
	}
	p.ways, p.largest = ways, largest
}

// fits returns the largest packet that gets to one of the addresses and back; 0 if that is not known.
func (p *prober) fits(addresses []netip.Addr) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := 0
	for _, a := range addresses {
		if w := p.ways[a]; w != nil {
			most = max(most, w.sizes.fits)
		}
	}
	return most
}

// measure returns how the way to the address is.
func (p *prober) measure(a netip.Addr) measurement {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.ways[a]
	if w == nil {
		return measurement{}
	}
	return w.measure(p.clock.Now())
}

// Run asks until ctx ends.
func (p *prober) Run(ctx context.Context) error {
	var sockets []net.PacketConn
	var reading sync.WaitGroup
	var failed []error
	for _, f := range protocols {
		socket, err := f.listen()
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
func (p *prober) ask(ctx context.Context, sockets []net.PacketConn) {
	ticker := p.clock.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		for _, r := range p.requests() {
			i := 0
			if r.to.Is6() {
				i = 1
			}
			if err := send(sockets[i], protocols[i], r); err != nil {
				ctrl.LoggerFrom(ctx).V(2).Info("Cannot send an echo request", "to", r.to, "size", r.size, "cause", err.Error())
			}
		}
	}
}

// requests returns what to ask now.
func (p *prober) requests() []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []request
	now := p.clock.Now()
	for address, w := range p.ways {
		all = append(all, request{to: address, sequence: w.send(now)})
		for _, size := range w.sizes.round(now) {
			all = append(all, request{to: address, size: size})
		}
	}
	return all
}

// mark is what small requests carry.
const mark = "hanse"

func send(socket net.PacketConn, f protocol, r request) error {
	if socket == nil {
		return errors.New("there is no socket of this family")
	}
	data := []byte(mark)
	if r.size > 0 {
		data = make([]byte, r.size-f.header)
	}
	m := icmp.Message{Type: f.request, Body: &icmp.Echo{Seq: int(r.sequence), Data: data}}
	packet, err := m.Marshal(nil)
	if err != nil {
		return err
	}
	_, err = socket.WriteTo(packet, net.UDPAddrFromAddrPort(netip.AddrPortFrom(r.to, 0)))
	return err
}

// read notes answers until the socket is closed. The kernel passes on only those to requests of this socket.
func (p *prober) read(socket net.PacketConn, f protocol) {
	buffer := make([]byte, 1<<16)
	for {
		size, from, err := socket.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // such as an error that a router sent
		}
		if echo, ok := f.answer(buffer[:size]); ok {
			p.receive(from, echo, len(echo.Data)+f.header)
		}
	}
}

// answer returns what the packet answers.
func (f protocol) answer(packet []byte) (*icmp.Echo, bool) {
	m, err := icmp.ParseMessage(f.number, packet)
	if err != nil || m.Type != f.reply {
		return nil, false
	}
	body, ok := m.Body.(*icmp.Echo)
	return body, ok
}

// receive notes an answer, which was a packet of that size.
func (p *prober) receive(from net.Addr, answer *icmp.Echo, size int) {
	a, ok := from.(*net.UDPAddr)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch w := p.ways[a.AddrPort().Addr().Unmap().WithZone("")]; {
	case w == nil:
	case string(answer.Data) == mark:
		w.receive(uint16(answer.Seq), p.clock.Now()) //nolint:gosec // it was parsed as 16 bits
	default:
		w.sizes.answer(size)
	}
}
