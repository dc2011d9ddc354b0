// SPDX-License-Identifier: Apache-2.0

package netprobe

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 2 * maxSeconds * time.Second
	maxConnections = 64
	socketBuffer   = 4 << 20 // so that a burst of packets is not lost for lack of room; the kernel may give less
)

// greeting is what the server says of itself, and of who asks.
type greeting struct {
	Name   string `json:"name"`
	Source string `json:"source"`
}

// A Server answers what others ask.
type Server struct {
	name string
	tcp  net.Listener
	udp  net.PacketConn
}

// Listen opens the address, over TCP and UDP. Nothing is answered before Run, which closes both.
func Listen(ctx context.Context, name, address string) (*Server, error) {
	config := &net.ListenConfig{}
	tcp, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, errors.Join(err, tcp.Close())
	}
	_, port, _ := net.SplitHostPort(tcp.Addr().String())
	udp, err := config.ListenPacket(ctx, "udp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen: %w", err), tcp.Close())
	}
	if conn, ok := udp.(*net.UDPConn); ok {
		_ = conn.SetReadBuffer(socketBuffer) // more is better, and less will do
	}
	return &Server{name: name, tcp: netutil.LimitListener(tcp, maxConnections), udp: udp}, nil
}

// Address is where the server is reached.
func (s *Server) Address() string { return s.tcp.Addr().String() }

// Run answers until the context ends.
func (s *Server) Run(ctx context.Context) error {
	web := &http.Server{Handler: s.handler(), ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout}
	failures := make(chan error, 2)
	go func() { failures <- web.Serve(s.tcp) }()
	go func() { failures <- echo(s.udp) }()
	stop := context.AfterFunc(ctx, func() { _, _ = web.Close(), s.udp.Close() })
	defer stop()
	first := <-failures
	_, _ = web.Close(), s.udp.Close() // both only say that they are closed
	second := <-failures
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(first, second)
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(greeting{Name: s.name, Source: r.RemoteAddr}) // who asked may be gone
	})
	mux.HandleFunc("POST /sink", func(w http.ResponseWriter, r *http.Request) {
		got, err := io.CopyBuffer(onlyWriter{io.Discard}, r.Body, make([]byte, blockSize))
		if err == nil {
			_ = json.NewEncoder(w).Encode(got)
		}
	})
	return mux
}

// onlyWriter hides what io.Discard has besides, so that the buffer that is given is used.
type onlyWriter struct{ io.Writer }

// A datagram begins with magic and a number. The answer repeats both, and says how long the datagram was. It is shorter than
// any datagram that is answered, so nobody can have the server send more than was sent to it.
const (
	magic        = "hnp1"
	numberEnd    = len(magic) + 8
	answerLength = numberEnd + 4
)

// echo answers datagrams until the connection is closed, and returns that it is.
func echo(conn net.PacketConn) error {
	buffer, reply := make([]byte, maxSize), make([]byte, 0, answerLength)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			continue // such as an ICMP error about an earlier answer
		}
		if reply = appendReply(reply[:0], buffer[:n]); len(reply) > 0 {
			_, _ = conn.WriteTo(reply, from) // whoever asked asks again
		}
	}
}

// appendReply appends the answer to a datagram, if it deserves one.
func appendReply(to, datagram []byte) []byte {
	if len(datagram) <= answerLength || !bytes.HasPrefix(datagram, []byte(magic)) {
		return to
	}
	to = append(to, datagram[:numberEnd]...)
	return binary.BigEndian.AppendUint32(to, uint32(len(datagram))) //nolint:gosec // of a buffer of maxSize
}

// fill writes a datagram of that number over the buffer.
func fill(buffer []byte, number uint64) {
	copy(buffer, magic)
	binary.BigEndian.PutUint64(buffer[len(magic):], number)
}

// numberOf reads an answer to a datagram of that length, and reports whether it is one.
func numberOf(reply []byte, length int) (uint64, bool) {
	if len(reply) != answerLength || !bytes.HasPrefix(reply, []byte(magic)) ||
		binary.BigEndian.Uint32(reply[numberEnd:]) != uint32(length) { //nolint:gosec // at most maxSize
		return 0, false
	}
	return binary.BigEndian.Uint64(reply[len(magic):]), true
}
