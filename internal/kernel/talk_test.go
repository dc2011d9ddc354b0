// SPDX-License-Identifier: Apache-2.0

//go:build linux

package kernel

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const talkPort = 8080

// What is allowed may take a handshake. What is not is never answered.
const (
	patient   = 8 * time.Second
	impatient = 300 * time.Millisecond
)

// serve answers whoever asks by TCP or UDP with the address that the question came from, and then with what was asked.
func (s *space) serve() *space {
	return s.serveAt(netip.AddrPortFrom(netip.IPv6Unspecified(), talkPort))
}

func (s *space) serveAt(at netip.AddrPort) *space {
	s.t.Helper()
	s.must(func() error {
		tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		var running sync.WaitGroup
		running.Go(func() { serveTCP(tcp) })
		running.Go(func() { serveUDP(udp) })
		s.t.Cleanup(func() {
			_ = errors.Join(tcp.Close(), udp.Close())
			running.Wait()
		})
		return nil
	})
	return s
}

func serveTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			_, _ = fmt.Fprintf(c, "%s\n", c.RemoteAddr())
			repeat(c)
		}()
	}
}

// repeat sends back what comes, for as long as something comes before patience ends.
func repeat(c net.Conn) {
	part := make([]byte, 1<<16)
	for {
		_ = c.SetDeadline(time.Now().Add(patient))
		n, err := c.Read(part)
		if _, writing := c.Write(part[:n]); err != nil || writing != nil {
			return
		}
	}
}

func serveUDP(c *net.UDPConn) {
	packet := make([]byte, 1<<16)
	for {
		n, from, err := c.ReadFromUDPAddrPort(packet)
		if err != nil {
			return
		}
		_, _ = c.WriteToUDPAddrPort(fmt.Appendf(nil, "%s\n%s", from, packet[:n]), from)
	}
}

// ask asks a server so many bytes and returns the address that the server saw.
func (s *space) ask(network string, to netip.Addr, size int, limit time.Duration) (netip.Addr, error) {
	return s.askAt(network, netip.AddrPortFrom(to, talkPort), size, limit)
}

func (s *space) askAt(network string, to netip.AddrPort, size int, limit time.Duration) (seen netip.Addr, err error) {
	err = s.do(func() error {
		c, err := net.DialTimeout(network, to.String(), limit) //nolint:noctx // has a timeout
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(limit))
		question := bytes.Repeat([]byte("q"), size)
		if network == "tcp" {
			seen, err = askTCP(c.(*net.TCPConn), question)
		} else {
			seen, err = askUDP(c, question, time.Now().Add(limit))
		}
		return err
	})
	return seen, err
}

func askTCP(c *net.TCPConn, question []byte) (netip.Addr, error) {
	go func() {
		_, _ = c.Write(question)
		_ = c.CloseWrite()
	}()
	return readAnswer(bufio.NewReader(c), question)
}

// askUDP asks again until the time is over, since packets may be lost.
func askUDP(c net.Conn, question []byte, end time.Time) (netip.Addr, error) {
	packet := make([]byte, 1<<16)
	for {
		if _, err := c.Write(question); err != nil {
			return netip.Addr{}, err
		}
		_ = c.SetReadDeadline(time.Now().Add(impatient))
		n, err := c.Read(packet)
		if err == nil {
			return readAnswer(bufio.NewReader(bytes.NewReader(packet[:n])), question)
		}
		if time.Now().After(end) {
			return netip.Addr{}, err
		}
	}
}

func readAnswer(r *bufio.Reader, question []byte) (netip.Addr, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return netip.Addr{}, err
	}
	rest, err := io.ReadAll(r)
	if err != nil {
		return netip.Addr{}, err
	}
	if !bytes.Equal(rest, question) {
		return netip.Addr{}, fmt.Errorf("asked %d bytes, got %d back", len(question), len(rest))
	}
	seen, err := netip.ParseAddrPort(strings.TrimSpace(line))
	return seen.Addr().Unmap(), err
}

// ping sends an echo request of IPv4 again and again, and waits for its answer.
func (s *space) ping(to netip.Addr, size int, limit time.Duration) error {
	return s.do(func() error {
		c, err := net.DialIP("ip4:icmp", nil, &net.IPAddr{IP: to.AsSlice()})
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		request := append([]byte{8, 0, 0, 0, 'h', 'a', 0, 1}, make([]byte, size)...)
		binary.BigEndian.PutUint16(request[2:], checksum(request))
		for end := time.Now().Add(limit); time.Now().Before(end); {
			if _, err := c.Write(request); err != nil {
				return err
			}
			if answered(c, len(request)) {
				return nil
			}
		}
		return os.ErrDeadlineExceeded
	})
}

func answered(c *net.IPConn, size int) bool {
	_ = c.SetReadDeadline(time.Now().Add(impatient))
	answer := make([]byte, 1<<16)
	for {
		n, _, err := c.ReadFromIP(answer)
		if err != nil {
			return false
		}
		if n == size && answer[0] == 0 {
			return true
		}
	}
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// A question is one that is answered, or must not be.
type question struct {
	name    string
	from    *space
	to      netip.Addr
	allowed bool
	seen    netip.Addr // the source that the server sees; not valid if it does not matter
}

// check asks all questions at the same time, each by TCP and by UDP.
func check(t *testing.T, questions []question) {
	t.Helper()
	var asking sync.WaitGroup
	for _, q := range questions {
		for _, network := range []string{"tcp", "udp"} {
			asking.Go(func() { q.check(t, network) })
		}
	}
	asking.Wait()
}

func (q question) check(t testing.TB, network string) {
	t.Helper()
	limit := impatient
	if q.allowed {
		limit = patient
	}
	seen, err := q.from.ask(network, q.to, 100, limit)
	switch {
	case q.allowed && err != nil:
		t.Errorf("%s by %s: %s gets no answer of %s: %v", q.name, network, q.from.name, q.to, err)
	case q.allowed && q.seen.IsValid() && seen != q.seen:
		t.Errorf("%s by %s: %s is seen as %s, want %s", q.name, network, q.from.name, seen, q.seen)
	case !q.allowed && err == nil:
		t.Errorf("%s by %s: %s gets an answer of %s", q.name, network, q.from.name, q.to)
	case !q.allowed && !isSilence(err):
		t.Errorf("%s by %s: %s asks %s: %v, want silence", q.name, network, q.from.name, q.to, err)
	}
}

// isSilence tells a timeout, and what a blackhole says to its own machine, from an answer that refuses.
func isSilence(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, unix.EINVAL)
}
