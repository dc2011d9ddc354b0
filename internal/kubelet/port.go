package kubelet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// How a connection of the kubelet API is given up whose other side is dead, or takes nothing any more.
const (
	// stallLimit is how long what is sent may wait for the other side to take some of it.
	stallLimit = 30 * time.Second
	// socketBuffer bounds what the kernel keeps of a stream for a side that is slow.
	socketBuffer = 256 << 10
)

// keepAlive has the kernel ask the other side of a silent connection whether it is there.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// portTable holds the listeners of the virtual nodes, one port each.
type portTable struct {
	address     netip.Addr
	first, last int
	stall       time.Duration // by default stallLimit

	mu        sync.Mutex
	closed    bool
	serve     func(*nodeListener)      // serves a listener until it is closed; nil before Run
	next      int                      // where the search for a free port goes on
	listeners map[string]*nodeListener // node → its listener
	serving   sync.WaitGroup
}

// Open implements ports.
func (t *portTable) Open(node string, wanted int32) (endpoint, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	listener := t.listeners[node]
	if listener == nil {
		opened, err := t.listen(int(wanted))
		if err != nil {
			return endpoint{}, fmt.Errorf("open a port for Node %s: %w", node, err)
		}
		listener = newNodeListener(opened, node)
		listener.stall = orDefault(t.stall, stallLimit)
		t.listeners[node] = listener
		t.start(listener)
	}
	return endpoint{address: t.address.String(), port: listener.port()}, nil
}

// Close implements ports.
func (t *portTable) Close(node string) {
	t.mu.Lock()
	listener := t.listeners[node]
	delete(t.listeners, node)
	t.mu.Unlock()
	if listener != nil {
		listener.end()
	}
}

// Run has every node served until ctx ends, and ends all connections then.
func (t *portTable) Run(ctx context.Context, serve func(*nodeListener)) {
	t.mu.Lock()
	t.serve = serve
	for _, listener := range t.listeners {
		t.start(listener)
	}
	t.mu.Unlock()

	<-ctx.Done()

	t.mu.Lock()
	t.closed = true
	for _, listener := range t.listeners {
		listener.end()
	}
	clear(t.listeners)
	t.mu.Unlock()
	t.serving.Wait()
}

func (t *portTable) start(listener *nodeListener) {
	if serve := t.serve; serve != nil {
		t.serving.Go(func() { serve(listener) })
	}
}

// listen opens the wanted port, or the next free one of the range.
func (t *portTable) listen(wanted int) (net.Listener, error) {
	if t.closed {
		return nil, net.ErrClosed
	}
	if wanted >= t.first && wanted <= t.last {
		if listener, err := t.listenOn(wanted); err == nil {
			return listener, nil
		}
	}
	size := t.last - t.first + 1
	var lastErr error
	for range size {
		port := t.first + t.next%size
		t.next++
		listener, err := t.listenOn(port)
		if err == nil {
			return listener, nil
		}
		lastErr = err
	}
	return nil, fmt.Errorf("no port from %d to %d is free: %w", t.first, t.last, lastErr)
}

func (t *portTable) listenOn(port int) (net.Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: keepAlive}
	//nolint:forbidigo // listening does not block, so there is nothing to cancel
	return config.Listen(context.Background(), "tcp", net.JoinHostPort(t.address.String(), strconv.Itoa(port)))
}

// nodeListener accepts connections to one virtual node.
type nodeListener struct {
	net.Listener
	node  string
	stall time.Duration

	mu    sync.Mutex
	ended bool
	conns map[*nodeConn]struct{}
}

func newNodeListener(listener net.Listener, node string) *nodeListener {
	return &nodeListener{Listener: listener, node: node, conns: map[*nodeConn]struct{}{}}
}

func (l *nodeListener) port() int32 {
	address, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0
	}
	return int32(address.Port) //nolint:gosec // a port has 16 bits
}

// Accept implements net.Listener. It keeps the connections, since a server forgets those that carry streams.
func (l *nodeListener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := accepted.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(socketBuffer) // the kernel may refuse, and the connection works without
	}
	conn := &nodeConn{Conn: stallConn{accepted, l.stall}, of: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		_ = accepted.Close()
		return nil, net.ErrClosed
	}
	l.conns[conn] = struct{}{}
	return conn, nil
}

// end closes the listener and every connection that it accepted.
func (l *nodeListener) end() {
	_ = l.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for conn := range l.conns {
		_ = conn.Conn.Close()
	}
	clear(l.conns)
}

// nodeConn is a connection that its listener forgets when it is closed.
type nodeConn struct {
	net.Conn
	of *nodeListener
}

// Close implements net.Conn.
func (c *nodeConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// stallConn is a connection that fails when the other side takes nothing for so long.
type stallConn struct {
	net.Conn
	stall time.Duration
}

// Write implements net.Conn.
func (c stallConn) Write(p []byte) (int, error) {
	// The kernel knows the machine's own clock only, whichever time ours tells.
	if err := c.SetWriteDeadline(clock.RealClock{}.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
