// SPDX-License-Identifier: Apache-2.0

package netprobe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
)

const (
	again     = 500 * time.Millisecond
	patience  = 8 * time.Second // with one question that measures nothing
	blockSize = 256 << 10
	maxReply  = 64 << 10
)

// A Prober asks others.
type Prober struct {
	Clock clock.PassiveClock
}

// Ask asks all questions at once, and returns an answer to each. Measurements are asked one by one, or they disturb each other.
func (p Prober) Ask(ctx context.Context, questions []Question) []Answer {
	answers := make([]Answer, len(questions))
	var all sync.WaitGroup
	for i, q := range questions {
		all.Go(func() {
			answer, err := p.ask(ctx, q)
			if err != nil {
				answer = Answer{Error: err.Error()}
			}
			answers[i] = answer
		})
	}
	all.Wait()
	return answers
}

func (p Prober) ask(ctx context.Context, q Question) (Answer, error) {
	if err := q.Validate(); err != nil {
		return Answer{}, err
	}
	ask, known := map[Kind]func(context.Context, Question) (Answer, error){
		Greet: greet, Resolve: resolve, API: askAPI, Packet: p.packet, Throughput: p.throughput, Latency: p.latency, Rate: p.rate,
	}[q.Kind]
	if !known {
		return Answer{}, fmt.Errorf("%q is no kind of question", q.Kind)
	}
	ctx, cancel := context.WithTimeout(ctx, patience+2*time.Duration(q.Seconds)*time.Second)
	defer cancel()
	return ask(ctx, q)
}

func greet(ctx context.Context, q Question) (Answer, error) {
	var said greeting
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+q.Target+"/", nil)
	if err != nil {
		return Answer{}, err
	}
	err = insist(ctx, func() error { return send(client, request, &said) })
	return Answer{Name: said.Name, Source: said.Source}, err
}

// insist tries until it works or the time is over: a Service that was made just now may take a moment.
func insist(ctx context.Context, try func() error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, again, true, func(ctx context.Context) (bool, error) {
		if err := try(); ctx.Err() == nil || last == nil { // that the time is over is no cause
			last = err
		}
		return last == nil, nil
	})
	if err == nil {
		return nil
	}
	return last
}

// send sends a request, and decodes the body of an answer that is fine.
func send(client *http.Client, request *http.Request, into any) error {
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", request.URL, response.Status)
	}
	return json.NewDecoder(io.LimitReader(response.Body, maxReply)).Decode(into)
}

func resolve(ctx context.Context, q Question) (Answer, error) {
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", q.Target)
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return Answer{Addresses: found}, err
}

// askAPI takes any answer, since nobody needs to know who asks: the certificate shows who answers.
func askAPI(ctx context.Context, q Question) (Answer, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(q.CA)) {
		return Answer{}, errors.New("there is no certificate authority to check the API server by")
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+q.Target+"/version", nil)
	if err != nil {
		return Answer{}, err
	}
	response, err := client.Do(request)
	if err != nil {
		return Answer{}, err
	}
	return Answer{Name: response.Status}, response.Body.Close()
}

// throughput counts what the server says that it got.
func (p Prober) throughput(ctx context.Context, q Question) (Answer, error) {
	transport := &http.Transport{WriteBufferSize: blockSize, MaxIdleConnsPerHost: maxStreams}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	counts := make([]int64, max(1, q.Streams))
	group, ctx := errgroup.WithContext(ctx)
	begin := p.Clock.Now()
	for i := range counts {
		group.Go(func() error {
			flow := &flow{clock: p.Clock, end: begin.Add(time.Duration(q.Seconds) * time.Second)}
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+q.Target+"/sink", flow)
			if err != nil {
				return err
			}
			return send(client, request, &counts[i])
		})
	}
	if err := group.Wait(); err != nil {
		return Answer{}, err
	}
	var bytes int64
	for _, n := range counts {
		bytes += n
	}
	return Answer{BytesPerSecond: float64(bytes) / p.Clock.Since(begin).Seconds()}, nil
}

// A flow is bytes without an end, until its time is over.
type flow struct {
	clock clock.PassiveClock
	end   time.Time
}

// Read fills the buffer. The bytes mean nothing.
func (f *flow) Read(buffer []byte) (int, error) {
	if !f.clock.Now().Before(f.end) {
		return 0, io.EOF
	}
	return len(buffer), nil
}

// dial opens a UDP socket to the target. A name is looked up first.
func dial(ctx context.Context, target string) (conn *net.UDPConn, v6 bool, err error) {
	opened, err := (&net.Dialer{}).DialContext(ctx, "udp", target)
	if err != nil {
		return nil, false, err
	}
	conn, _ = opened.(*net.UDPConn)
	address, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return nil, false, errors.Join(err, conn.Close())
	}
	return conn, address.Addr().Unmap().Is6(), nil
}
