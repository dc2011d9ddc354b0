// SPDX-License-Identifier: Apache-2.0

package netprobe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	answerTimeout = time.Second // for one datagram
	attempts      = 7           // packets may be lost, and those that are too long only make each part of the path tell
	roundTrips    = 100
	smallest      = 64 // bytes of a datagram that measures
	sockets       = 16 // of Rate, with batch datagrams on the way each
	batch         = 128
	batchTimeout  = 200 * time.Millisecond
)

// errSilence says that no answer came.
var errSilence = errors.New("no answer")

// A socket sends datagrams to one server, and takes its answers.
type socket struct {
	prober Prober
	conn   *net.UDPConn
	header int // bytes of IP and UDP before a datagram
	v6     bool
}

func (p Prober) open(ctx context.Context, target string) (*socket, error) {
	conn, v6, err := dial(ctx, target)
	if err != nil {
		return nil, err
	}
	s := &socket{prober: p, conn: conn, header: 28, v6: v6}
	if v6 {
		s.header = 48
	}
	return s, nil
}

// exchange sends a datagram and waits for its answer. What came too late for earlier ones is passed over.
func (s *socket) exchange(ctx context.Context, datagram []byte, number uint64) error {
	if ctx.Err() != nil {
		return errSilence
	}
	fill(datagram, number)
	if _, err := s.conn.Write(datagram); err != nil {
		return err
	}
	if err := s.conn.SetReadDeadline(s.prober.Clock.Now().Add(answerTimeout)); err != nil {
		return err
	}
	reply := make([]byte, answerLength+1)
	for {
		n, err := s.conn.Read(reply)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return errSilence
		}
		if err != nil {
			return err
		}
		if got, ok := numberOf(reply[:n], len(datagram)); ok && got == number {
			return nil
		}
	}
}

func (p Prober) packet(ctx context.Context, q Question) (Answer, error) {
	s, err := p.open(ctx, q.Target)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = s.conn.Close() }()
	if err := keepWhole(s.conn, s.v6); err != nil {
		return Answer{}, fmt.Errorf("forbid to split packets: %w", err)
	}
	fits, err := largest(q.Size, func(size int, number uint64) error {
		return s.exchange(ctx, make([]byte, size-s.header), number)
	}, func() (int, error) { return pathMTU(s.conn, s.v6) })
	if err != nil || fits == q.Size {
		return Answer{}, err
	}
	return Answer{Fits: fits}, nil
}

// largest sends packets of a size, or of the size that the path says that it takes, until one is answered, and returns its size.
func largest(size int, send func(size int, number uint64) error, mtu func() (int, error)) (int, error) {
	var last error
	for number := range uint64(attempts) {
		last = send(size, number)
		if last == nil {
			return size, nil
		}
		if !isTooLong(last) {
			continue
		}
		told, err := mtu()
		if err != nil {
			return 0, err
		}
		if told >= size || told < minSize {
			return 0, fmt.Errorf("packets of %d bytes are too long, and the path claims to take %d", size, told)
		}
		size = told
	}
	if errors.Is(last, errSilence) {
		return 0, fmt.Errorf("packets of %d bytes: %w", size, last)
	}
	return 0, last
}

func (p Prober) latency(ctx context.Context, q Question) (Answer, error) {
	s, err := p.open(ctx, q.Target)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = s.conn.Close() }()
	var took []time.Duration
	sent := 0
	for ; sent < roundTrips && ctx.Err() == nil; sent++ {
		begin := p.Clock.Now()
		if err := s.exchange(ctx, make([]byte, smallest), uint64(sent)); err == nil {
			took = append(took, p.Clock.Since(begin))
		}
	}
	if len(took) == 0 {
		return Answer{}, errSilence
	}
	slices.Sort(took)
	return Answer{
		Median: took[len(took)/2], P99: took[(len(took)*99-1)/100], LostPercent: float64(100*(sent-len(took))) / float64(sent),
	}, nil
}

// rate has many packets on the way at once, so that neither the round trip nor one core is what is measured.
func (p Prober) rate(ctx context.Context, q Question) (Answer, error) {
	var sent, answered atomic.Int64
	var all sync.WaitGroup
	begin := p.Clock.Now()
	end := begin.Add(time.Duration(q.Seconds) * time.Second)
	failures := make([]error, sockets)
	for i := range sockets {
		all.Go(func() {
			s, err := p.open(ctx, q.Target)
			if err != nil {
				failures[i] = err
				return
			}
			defer func() { _ = s.conn.Close() }()
			for number := uint64(0); p.Clock.Now().Before(end) && ctx.Err() == nil; number += batch {
				sent.Add(batch)
				answered.Add(s.burst(number))
			}
		})
	}
	all.Wait()
	if answered.Load() == 0 {
		return Answer{}, errors.Join(errSilence, errors.Join(failures...))
	}
	return Answer{
		PacketsPerSecond: float64(answered.Load()) / p.Clock.Since(begin).Seconds(),
		LostPercent:      100 * float64(sent.Load()-answered.Load()) / float64(sent.Load()),
	}, nil
}

// burst sends a batch of datagrams, and counts the answers.
func (s *socket) burst(first uint64) (answered int64) {
	datagram, reply := make([]byte, smallest), make([]byte, answerLength+1)
	for number := first; number < first+batch; number++ {
		fill(datagram, number)
		_, _ = s.conn.Write(datagram) // one that is lost is not answered
	}
	if s.conn.SetReadDeadline(s.prober.Clock.Now().Add(batchTimeout)) != nil {
		return 0
	}
	for answered < batch {
		n, err := s.conn.Read(reply)
		if err != nil {
			return answered
		}
		if number, ok := numberOf(reply[:n], smallest); ok && number >= first {
			answered++
		}
	}
	return answered
}
