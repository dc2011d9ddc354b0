// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"
)

// A proxy forwards connections of peers to the API server of a cluster. Peers know only the address of the proxy. A blocked proxy
// forwards no bytes, so that connections hang as they do in a network that drops packets.
type proxy struct {
	listener net.Listener

	mu       sync.Mutex
	target   string        // address of the API server
	accepted int           // number of connections since the process has started
	open     chan struct{} // closed unless the proxy is blocked
}

// startProxy starts a proxy that runs as long as the process.
func startProxy() *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it listens as long as the process runs
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	p := &proxy{listener: listener, open: make(chan struct{})}
	close(p.open)
	go p.serve()
	return p
}

// address returns the URL at which peers reach the API server through the proxy.
func (p *proxy) address() string { return "https://" + p.listener.Addr().String() }

// forwardTo sets the URL of the API server.
func (p *proxy) forwardTo(host string) {
	server, err := url.Parse(host)
	if err != nil {
		panic(err) // it is from a kubeconfig that works
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = server.Host
}

// block stops all traffic, until the end of the test at the latest.
func (p *proxy) block(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = make(chan struct{})
	t.Cleanup(p.unblock)
}

// unblock lets traffic through again. Connections that hang continue.
func (p *proxy) unblock() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

// connections returns how many connections peers have opened.
func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

func (p *proxy) serve() {
	for {
		peer, err := p.listener.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "proxy:", err)
			return
		}
		go p.forward(peer)
	}
}

// forward copies both directions of a connection until one side ends it.
func (p *proxy) forward(peer net.Conn) {
	defer func() { _ = peer.Close() }() // it may be closed
	p.mu.Lock()
	p.accepted++
	target := p.target
	p.mu.Unlock()
	server, err := net.Dial("tcp", target) //nolint:noctx // it ends with the connection of the peer
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }() // it may be closed
	ended := make(chan struct{}, 2)
	for from, to := range map[net.Conn]net.Conn{peer: server, server: peer} {
		go func() {
			p.pipe(to, from)
			ended <- struct{}{}
		}()
	}
	<-ended
}

// pipe copies bytes while the proxy is not blocked.
func (p *proxy) pipe(to io.Writer, from io.Reader) {
	buffer := make([]byte, 32<<10)
	for {
		count, err := from.Read(buffer)
		p.mu.Lock()
		open := p.open
		p.mu.Unlock()
		<-open
		if _, writeErr := to.Write(buffer[:count]); err != nil || writeErr != nil {
			return
		}
	}
}
