// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/hanse-dev/hanse/internal/overlay"
)

const (
	// largest is that of all packets of UDP.
	largest = 1 << 16
	// leastBurst is how many bytes of a peer are passed on at once at least: what a connection sends before it is slowed down.
	leastBurst = 256 << 10
)

// A Relay has one socket for each peer at each of our addresses. What comes there from another peer is sent on to the peer, from the
// socket of the other one: so each of the two finds the other at one address and port, and no connection is remembered.
type Relay struct {
	now func() time.Time

	mu      sync.Mutex
	peers   map[netip.Addr]*peer // address of its gateway → peer
	ports   map[uint16]*peer
	sockets map[netip.AddrPort]*net.UDPConn // at our side
	own     []netip.Addr
	serving sync.WaitGroup
}

// A peer is one for which packets are passed on.
type peer struct {
	overlay.Relayed

	budget  *rate.Limiter // bytes that it sends
	counted counts
}

// New returns a relay that passes nothing on.
func New(now func() time.Time) *Relay {
	return &Relay{now: now, sockets: map[netip.AddrPort]*net.UDPConn{}}
}

// Update has the relay pass on packets for exactly these peers, at our addresses. After an error it does so for those for which it
// could be done.
func (r *Relay) Update(relayed []overlay.Relayed, own []netip.Addr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.peers
	r.peers, r.ports, r.own = map[netip.Addr]*peer{}, map[uint16]*peer{}, own
	wanted := map[netip.AddrPort]overlay.Relayed{}
	for _, p := range relayed {
		r.peers[p.Address] = renewed(before[p.Address], p)
		r.ports[p.Port] = r.peers[p.Address]
		for _, address := range own {
			wanted[netip.AddrPortFrom(address, p.Port)] = p
		}
	}
	for at, socket := range r.sockets {
		if _, ok := wanted[at]; !ok {
			_ = socket.Close() // which ends the serving
			delete(r.sockets, at)
		}
	}
	var failed []error
	for at, p := range wanted {
		if r.sockets[at] != nil {
			continue
		}
		socket, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		if err != nil {
			failed = append(failed, fmt.Errorf("pass on packets for peer %q: %w", p.Peer, err))
			continue
		}
		r.sockets[at] = socket
		r.serving.Go(func() { r.serve(socket, at) })
	}
	return errors.Join(failed...)
}

// renewed returns the peer with what it has used up of its budget.
func renewed(before *peer, p overlay.Relayed) *peer {
	if before != nil && before.Relayed == p {
		return before
	}
	burst := max(int(p.Bandwidth/10), leastBurst)
	return &peer{Relayed: p, budget: rate.NewLimiter(rate.Limit(p.Bandwidth), burst), counted: countsOf(p.Peer)}
}

// Stop ends all that Update began.
func (r *Relay) Stop() {
	_ = r.Update(nil, nil) // opens nothing
	r.serving.Wait()
}

// serve passes on what comes to the socket until that is closed.
func (r *Relay) serve(socket *net.UDPConn, at netip.AddrPort) {
	buffer := make([]byte, largest)
	for {
		size, from, err := socket.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // such as an error that a router sent
		}
		if out, to := r.way(from.Addr().Unmap(), at, size); out != nil {
			_, _ = out.WriteToUDPAddrPort(buffer[:size], to) // who misses it sends it again
		}
	}
}

// way returns from which socket, and to which address, a packet goes on that came to one of our sockets; no socket if it does not.
func (r *Relay) way(from netip.Addr, at netip.AddrPort, size int) (*net.UDPConn, netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sender, receiver := r.peers[from], r.ports[at.Port()]
	if sender == nil || receiver == nil || sender == receiver {
		return nil, netip.AddrPort{}
	}
	if !sender.budget.AllowN(r.now(), size) {
		sender.counted.dropped.Add(float64(size))
		return nil, netip.AddrPort{}
	}
	sender.counted.passed.Add(float64(size))
	return r.sockets[netip.AddrPortFrom(r.ownFor(receiver.Address), sender.Port)], netip.AddrPortFrom(receiver.Address, overlay.RelayedPort)
}

// ownFor returns our address of the same family.
func (r *Relay) ownFor(address netip.Addr) netip.Addr {
	for _, own := range r.own {
		if own.Is4() == address.Is4() {
			return own
		}
	}
	return netip.Addr{}
}
