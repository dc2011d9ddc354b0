// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/internal/overlay"
)

const (
	dnsPort = 53
	// answerTimeout is how long the name servers of a home may take, and how long a connection of a pod may be silent.
	answerTimeout = 5 * time.Second
	// ownTimeout is how long our own name servers may take before home is asked instead.
	ownTimeout = time.Second
	// mostQuestions is how many questions of the pods of one peer are open at a time, connections included.
	mostQuestions = 64
	// smallAnswer is how large an answer by UDP may be unless the pod says that it takes more, and largest is of all.
	smallAnswer, largestAnswer = 512, 65535
)

var errNobody = errors.New("the pod is of no peer that has name servers")

// A home is where the names of a peer's pods are asked for.
type home struct {
	peer    string
	servers []netip.Addr   // as we see them
	views   []overlay.View // from home to here, and on to where the pod was sent
	open    chan struct{}  // has room for mostQuestions

	answers bool           // whether the tunnel to it works
	copies  overlay.Copies // its Services of which there is a copy here
	here    []netip.Addr   // our own name servers, which know these
}

// A forwarder answers what pods of peers that run here ask the name servers of their home.
type forwarder struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu        sync.Mutex
	guests    map[netip.Addr]*home // pod here → its home
	listening map[netip.Addr]context.CancelFunc
	serving   sync.WaitGroup
}

func newForwarder() *forwarder {
	return &forwarder{dial: (&net.Dialer{}).DialContext, listening: map[netip.Addr]context.CancelFunc{}}
}

// update makes these the peers whose pods are answered, by our own name servers where these know the name.
func (f *forwarder) update(layout overlay.Layout, peers []overlay.Peer, own []netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := map[string]*home{}
	for _, h := range f.guests {
		before[h.peer] = h
	}
	byName := map[string]overlay.Peer{}
	for _, p := range peers {
		byName[p.Name] = p
	}
	f.guests = map[netip.Addr]*home{}
	for _, permitted := range layout.Permissions {
		p := byName[permitted.Peer]
		h := &home{
			peer: p.Name, servers: p.Resolvers, views: []overlay.View{{Theirs: p.Theirs, Ours: p.Ours}}, open: make(chan struct{}, mostQuestions),
			answers: p.Answers, copies: overlay.CopiesOf(&p), here: own,
		}
		if old := before[p.Name]; old != nil {
			h.open = old.open
		}
		for _, pod := range permitted.Guests {
			f.guests[pod] = h
		}
		for _, pod := range permitted.SentOn {
			f.guests[pod] = h.behind(peers, pod)
		}
	}
}

// behind returns the home for the pod that was sent on to one of the peers. Addresses that we know are none there.
func (h *home) behind(peers []overlay.Peer, pod netip.Addr) *home {
	sent := *h
	sent.copies = nil
	for _, p := range peers {
		if _, there := overlay.Own(p.Theirs, pod); there {
			sent.views = append(slices.Clone(h.views), overlay.View{Theirs: p.Ours, Ours: p.Theirs})
		}
	}
	return &sent
}

// listen answers at exactly these addresses, until ctx ends.
func (f *forwarder) listen(ctx context.Context, addresses []netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	wanted := map[netip.Addr]bool{}
	var failed []error
	for _, a := range addresses {
		wanted[a] = true
		if f.listening[a] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // a gateway that is to end serves on until the next one does
		if err := f.serve(ctx, a); err != nil {
			cancel()
			failed = append(failed, fmt.Errorf("answer DNS at %s: %w", a, err))
			continue
		}
		f.listening[a] = cancel
	}
	for a, cancel := range f.listening {
		if !wanted[a] {
			cancel()
			delete(f.listening, a)
		}
	}
	return errors.Join(failed...)
}

// stop ends all that listen began.
func (f *forwarder) stop() {
	f.mu.Lock()
	for a, cancel := range f.listening {
		cancel()
		delete(f.listening, a)
	}
	f.mu.Unlock()
	f.serving.Wait()
}

func (f *forwarder) serve(ctx context.Context, a netip.Addr) error {
	at := netip.AddrPortFrom(a, dnsPort).String()
	packets, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", at)
	if err != nil {
		return err
	}
	streams, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if err != nil {
		return errors.Join(err, packets.Close())
	}
	context.AfterFunc(ctx, func() {
		_, _ = packets.Close(), streams.Close() // which ends the serving
	})
	f.serving.Go(func() { f.servePackets(ctx, packets) })
	f.serving.Go(func() { f.serveStreams(ctx, streams) })
	return nil
}

// servePackets answers questions by UDP until the socket is closed.
func (f *forwarder) servePackets(ctx context.Context, socket net.PacketConn) {
	buffer := make([]byte, largestAnswer)
	for {
		size, from, err := socket.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		h := f.homeOf(from)
		if err != nil || h == nil || !h.enter() {
			continue
		}
		query := append([]byte(nil), buffer[:size]...)
		f.serving.Go(func() {
			defer h.leave()
			ctx, cancel := context.WithTimeout(ctx, answerTimeout)
			defer cancel()
			answer, err := f.ask(ctx, h, "udp", query)
			if err == nil {
				answer, err = fit(query, answer)
			}
			if err == nil {
				_, err = socket.WriteTo(answer, from)
			}
			tell(ctx, h, err)
		})
	}
}

// serveStreams answers questions by TCP until the listener is closed.
func (f *forwarder) serveStreams(ctx context.Context, listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		h := f.homeOf(conn.RemoteAddr())
		if h == nil || !h.enter() {
			_ = conn.Close() // nobody reads an answer
			continue
		}
		f.serving.Go(func() {
			defer h.leave()
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			tell(ctx, h, errors.Join(f.serveStream(ctx, h, conn), conn.Close()))
		})
	}
}

// serveStream answers one question after the other until the pod asks no more.
func (f *forwarder) serveStream(ctx context.Context, h *home, conn net.Conn) error {
	for {
		ctx, cancel := context.WithTimeout(ctx, 2*answerTimeout)
		err := f.exchange(ctx, h, conn)
		cancel()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (f *forwarder) exchange(ctx context.Context, h *home, conn net.Conn) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	query, err := readFrame(conn)
	if err != nil {
		return err
	}
	answer, err := f.ask(ctx, h, "tcp", query)
	if err != nil {
		return err
	}
	return writeFrame(conn, answer)
}

// homeOf returns the home of the pod that asks, nil if it is of no peer.
func (f *forwarder) homeOf(from net.Addr) *home {
	if from == nil {
		return nil
	}
	at, err := netip.ParseAddrPort(from.String())
	if err != nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.guests[at.Addr().Unmap()]
}

// enter reports whether the pods of the peer may ask one more question now.
func (h *home) enter() bool {
	select {
	case h.open <- struct{}{}:
		return true
	default:
		return false
	}
}

func (h *home) leave() { <-h.open }

// ask returns the answer to what a pod here asks: that of our own name servers if they know the name, else that of home.
func (f *forwarder) ask(ctx context.Context, h *home, network string, query []byte) ([]byte, error) {
	if answer, err := f.askHere(ctx, h, network, query); err == nil {
		return answer, nil // whatever is wrong here, home is asked
	}
	if denial, ok := h.copies.Denial(query); ok && !h.answers {
		return denial, nil
	}
	return f.askHome(ctx, h, network, query)
}

// askHere asks our own name servers for a Service of home that has a copy here.
func (f *forwarder) askHere(ctx context.Context, h *home, network string, query []byte) ([]byte, error) {
	sent, ok := h.copies.Query(query)
	if !ok || len(h.here) == 0 {
		return nil, errNobody
	}
	ctx, cancel := context.WithTimeout(ctx, ownTimeout)
	defer cancel()
	answer, err := f.converse(ctx, h.here[0], network, sent)
	if err != nil {
		return nil, err
	}
	return h.copies.Answer(query, answer)
}

// askHome asks the home what a pod here asks, and returns the answer as it is here.
func (f *forwarder) askHome(ctx context.Context, h *home, network string, query []byte) ([]byte, error) {
	if len(h.servers) == 0 {
		return nil, errNobody
	}
	asked := [][]byte{query} // as the pod asks, and then as each cluster on the way home would
	for _, view := range slices.Backward(h.views) {
		next, err := view.Query(asked[len(asked)-1])
		if err != nil {
			return nil, err
		}
		asked = append(asked, next)
	}
	last := len(asked) - 1
	answer, err := f.converse(ctx, h.servers[0], network, asked[last])
	for i, view := range h.views {
		if err == nil {
			answer, err = view.Answer(asked[last-1-i], answer)
		}
	}
	return answer, err
}

// converse says one thing to the name server and returns what is answered.
func (f *forwarder) converse(ctx context.Context, server netip.Addr, network string, query []byte) ([]byte, error) {
	conn, err := f.dial(ctx, network, netip.AddrPortFrom(server, dnsPort).String())
	if err != nil {
		return nil, err
	}
	answer, err := converseOver(ctx, conn, network, query)
	return answer, errors.Join(err, conn.Close())
}

func converseOver(ctx context.Context, conn net.Conn, network string, query []byte) ([]byte, error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	if network == "tcp" {
		if err := writeFrame(conn, query); err != nil {
			return nil, err
		}
		return readFrame(conn)
	}
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	buffer := make([]byte, largestAnswer)
	size, err := conn.Read(buffer)
	return buffer[:size], err
}

// tell logs what went wrong, for us alone: pods ask again.
func tell(ctx context.Context, h *home, err error) {
	if err != nil && ctx.Err() == nil {
		ctrl.LoggerFrom(ctx).V(1).Info("Cannot answer a pod's question for a name", "Peer", h.peer, "cause", err.Error())
	}
}

func readFrame(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(r, message)
	return message, err
}

func writeFrame(w io.Writer, message []byte) error {
	if len(message) > largestAnswer {
		return fmt.Errorf("a DNS message of %d bytes is too large", len(message))
	}
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)) //nolint:gosec // checked above
	return err
}

// fit returns the answer, or, if the pod takes no packet so large, one that says nothing but to ask again by TCP.
func fit(query, answer []byte) ([]byte, error) {
	var asked dnsmessage.Message
	if err := asked.Unpack(query); err != nil {
		return nil, fmt.Errorf("read a DNS query: %w", err)
	}
	most := smallAnswer
	for _, extra := range asked.Additionals {
		if extra.Header.Type == dnsmessage.TypeOPT {
			most = max(most, int(extra.Header.Class)) // which is a size there
		}
	}
	if len(answer) <= most {
		return answer, nil
	}
	var parser dnsmessage.Parser
	header, err := parser.Start(answer)
	if err != nil {
		return nil, fmt.Errorf("read a DNS answer: %w", err)
	}
	header.Truncated = true
	short := dnsmessage.Message{Header: header, Questions: asked.Questions}
	return short.Pack()
}
