// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A Server is a provider's API server that does not tell the truth. What an attack has no lie for is answered honestly.
type Server struct {
	server *httptest.Server
	honest http.Handler
	attack atomic.Pointer[Attack]

	requests, watches, mostWatches atomic.Int64
}

// A Lie answers a request, or returns false to have it answered honestly.
type Lie func(w http.ResponseWriter, r *http.Request) bool

// An Attack is one way to hurt a consumer.
type Attack struct {
	// Name says what is done, in a few words.
	Name string
	// Lie answers requests. It may be nil.
	Lie Lie
	// Mild says that a consumer may take the attacker for an honest peer that is slow, quiet or restless. Of all others it says
	// what is wrong.
	Mild bool
	// Certificate is shown instead of the right one, if it is not nil.
	Certificate *tls.Certificate
}

// Start starts a server at a free port of the address, in front of an honest one. Close ends it.
func Start(ctx context.Context, address string, honest http.Handler) (*Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return nil, err
	}
	s := &Server{honest: honest}
	s.server = httptest.NewUnstartedServer(s)
	err = s.server.Listener.Close()
	s.server.Listener, s.server.EnableHTTP2 = listener, true
	s.server.Config.ErrorLog = log.New(io.Discard, "", 0) // it would tell of each connection that a consumer gives up
	s.server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: s.secure}
	s.server.StartTLS()
	return s, err
}

// InFrontOf passes requests on to a real API server.
func InFrontOf(config *rest.Config) (http.Handler, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(config.CAData)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1 // events of watches are passed on at once
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	return proxy, nil
}

// Close ends the server, and all that is open to it.
func (s *Server) Close() {
	s.HangUp() // watches end no other way
	s.server.Close()
}

// HangUp closes all connections, so that whoever watches has to watch again.
func (s *Server) HangUp() { s.server.CloseClientConnections() }

// Begin has all later requests answered as the attack says.
func (s *Server) Begin(attack Attack) { s.attack.Store(&attack) }

// Tell begins an attack that is nothing but a lie.
func (s *Server) Tell(lie Lie) { s.Begin(Attack{Lie: lie}) }

// End has all later requests answered honestly.
func (s *Server) End() { s.attack.Store(nil) }

// ServeHTTP lies, or answers honestly.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	if isWatch(r) {
		s.note(s.watches.Add(1))
		defer s.watches.Add(-1)
	}
	if attack := s.attack.Load(); attack == nil || attack.Lie == nil || !attack.Lie(w, r) {
		s.honest.ServeHTTP(w, r)
	}
}

func (s *Server) note(open int64) {
	for most := s.mostWatches.Load(); open > most && !s.mostWatches.CompareAndSwap(most, open); {
		most = s.mostWatches.Load()
	}
}

// Requests returns how many requests there were.
func (s *Server) Requests() int { return int(s.requests.Load()) }

// MostWatches returns how many watches were open at once, at most.
func (s *Server) MostWatches() int { return int(s.mostWatches.Load()) }

// secure returns what is special about a connection, or nil, as tls.Config asks for.
func (s *Server) secure(*tls.ClientHelloInfo) (*tls.Config, error) {
	attack := s.attack.Load()
	if attack == nil || attack.Certificate == nil {
		return nil, nil
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*attack.Certificate}, NextProtos: []string{"h2", "http/1.1"},
	}, nil
}

// URL is where the server is.
func (s *Server) URL() string { return s.server.URL }

// CA is the certificate by which the server is known, in PEM.
func (s *Server) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
}

// Address is where the server is found, for a kubeconfig.
func (s *Server) Address() *clientcmdapi.Cluster {
	return &clientcmdapi.Cluster{Server: s.URL(), CertificateAuthorityData: s.CA(), TLSServerName: ServerName}
}

// ServerName is what the certificate of a server is for, whatever its address is.
const ServerName = "example.com"

// startEvents begins the answer to a watch, and returns what ends each event.
func startEvents(w http.ResponseWriter) (flush func() error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	controller := http.NewResponseController(w)
	return func() error {
		_, err := io.WriteString(w, "\n")
		return errors.Join(err, controller.Flush())
	}
}
