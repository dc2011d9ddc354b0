// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// How soon a connection over which nothing comes any more is given up by HTTP/2 (see Config.PingAfter), so that the next
// request makes a new one. Most cuts are noticed before that, by the kernel (see liveness).
const (
	pingAfter   = 3 * time.Second
	pingTimeout = 3 * time.Second
	// maxUnread is how much of one answer may come before it is read: there are as many answers as watches. A peer that is
	// 100 ms away sends 5 MB a second with it.
	maxUnread = 512 << 10
)

// httpTransport returns a transport of our own, whose connections end with c. (Those of client-go are shared and never end.)
func (c *connection) httpTransport() (*http.Transport, error) {
	secure, err := rest.TLSConfigFor(c.config)
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	if secure == nil {
		secure = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	secure.NextProtos = []string{"h2", "http/1.1"}
	c.secure = secure
	return &http.Transport{
		// Behind a proxy the first server alone is used: it is the proxy that connects to it.
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            c.dial,
		DialTLSContext:         c.dialServers,
		TLSClientConfig:        secure.Clone(),
		TLSHandshakeTimeout:    c.timeout,
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        90 * time.Second,
		ForceAttemptHTTP2:      true,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: c.pingAfter, PingTimeout: pingTimeout, MaxReceiveBufferPerStream: maxUnread,
		},
	}, nil
}

// dialServers connects to the first of the servers that can be connected to, beginning with the last that could.
func (c *connection) dialServers(ctx context.Context, network, _ string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	servers := c.account.servers
	first := int(c.current.Load())
	errs := make([]error, 0, len(servers))
	for i := range servers {
		at := (first + i) % len(servers)
		conn, err := c.dialServer(ctx, network, servers[at])
		if err == nil {
			c.current.Store(int32(at)) //nolint:gosec // there are at most maxServers
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, mostTelling(errs)
}

// dialServer connects to the server and checks that it is the one of that name, so that no token goes to another that
// has its address where we are. All servers together take no longer than a request may.
func (c *connection) dialServer(ctx context.Context, network, server string) (net.Conn, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("parse server: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout/time.Duration(len(c.account.servers)))
	defer cancel()
	conn, err := c.dial(ctx, network, address(u))
	if err != nil {
		return nil, err
	}
	secure := c.secure
	if secure.ServerName == "" {
		secure = secure.Clone()
		secure.ServerName = u.Hostname()
	}
	secured := tls.Client(conn, secure)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secured, nil
}

func address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// mostTelling returns the error to show when no server could be connected to. A foreign certificate says nothing as long
// as another server just does not answer: an address may belong to somebody else in our network.
func mostTelling(errs []error) error {
	isOther := func(err error) bool {
		var untrusted *tls.CertificateVerificationError
		return !errors.As(err, &untrusted)
	}
	return errs[max(slices.IndexFunc(errs, isOther), 0)]
}

func (c *connection) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{
		Timeout:         min(c.timeout, c.alive.dial),
		KeepAliveConfig: c.alive.keepAlive,
		Control:         c.alive.control,
	}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	return &linkConn{Conn: conn, forget: sync.OnceFunc(func() { stop() })}, nil
}

// A linkConn is closed with its link, which forgets it when it is closed before.
type linkConn struct {
	net.Conn
	forget func()
}

// Close implements net.Conn.
func (c *linkConn) Close() error {
	c.forget()
	return c.Conn.Close()
}
