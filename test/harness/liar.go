package harness

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A Liar is a provider's API server that does not tell the truth: a server with TLS of ours in front of a real one. What it
// has no lie for, it passes on.
type Liar struct {
	server *httptest.Server
	honest http.Handler
	told   atomic.Pointer[Lie]
}

// A Lie answers a request, or returns false to have it passed on.
type Lie func(w http.ResponseWriter, r *http.Request) bool

// StartLiar starts an honest server, where the processes and pods of all clusters reach it: Tell has it lie. Close ends it.
func StartLiar(ctx context.Context, behind *Cluster) (*Liar, error) {
	target, err := url.Parse(behind.Config.Host)
	if err != nil {
		return nil, err
	}
	machine, err := behind.Machine(ctx)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(machine, "0"))
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(behind.Config.CAData)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1 // events of watches are passed on at once
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	l := &Liar{honest: proxy}
	l.server = httptest.NewUnstartedServer(l)
	err = l.server.Listener.Close()
	l.server.Listener, l.server.EnableHTTP2 = listener, true
	l.server.StartTLS()
	return l, err
}

// Close ends the server, and all that is open to it.
func (l *Liar) Close() {
	l.HangUp() // watches end no other way
	l.server.Close()
}

// HangUp closes all connections, so that whoever watches has to watch again.
func (l *Liar) HangUp() { l.server.CloseClientConnections() }

// Tell has all later requests answered by the lie; nil is the truth.
func (l *Liar) Tell(lie Lie) { l.told.Store(&lie) }

// ServeHTTP lies, or passes the request on.
func (l *Liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if told := l.told.Load(); told == nil || *told == nil || !(*told)(w, r) {
		l.honest.ServeHTTP(w, r)
	}
}

// Address is where the server is found, for a kubeconfig.
func (l *Liar) Address() *clientcmdapi.Cluster {
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.server.Certificate().Raw})
	return &clientcmdapi.Cluster{Server: l.server.URL, CertificateAuthorityData: certificate, TLSServerName: "example.com"}
}

// SlowWrites has every write hang for so long before it is done.
func SlowWrites(hang time.Duration) Lie {
	return func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			pauseFor(r.Context(), hang)
		}
		return false
	}
}

// Floods has each watch of a resource, such as shadowpods, show so many invented objects, and then change one of them after
// each pause for as long as somebody watches.
func Floods(resource string, count int, pause time.Duration, invent func(i, version int) any) Lie {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !reads(r, resource, true) {
			return false
		}
		send := startEvents(w)
		for i := range count {
			if send("ADDED", invent(i, i+1)) != nil {
				return true
			}
		}
		for version := count + 1; r.Context().Err() == nil; version++ {
			if send("MODIFIED", invent(version%count, version)) != nil {
				return true
			}
			pauseFor(r.Context(), pause)
		}
		return true
	}
}

// Expires has each watch of a resource end at once, because its resource version is too old.
func Expires(resource string) Lie {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !reads(r, resource, true) {
			return false
		}
		_ = startEvents(w)("ERROR", &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: http.StatusGone,
		})
		return true
	}
}

// ListsWithoutEnd has each page of a list of a resource promise another one.
func ListsWithoutEnd(resource string, page func(number int) []any) Lie {
	var pages atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !reads(r, resource, false) {
			return false
		}
		number := int(pages.Add(1))
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "List", "items": page(number),
			"metadata": map[string]any{"resourceVersion": "1", "continue": fmt.Sprintf("page-%d", number)},
		})
		return true
	}
}

// reads tells whether the request watches objects of the resource, or lists them.
func reads(r *http.Request, resource string, watch bool) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+resource) && (r.URL.Query().Get("watch") != "") == watch
}

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// startEvents begins the answer to a watch, and returns what sends an event.
func startEvents(w http.ResponseWriter) (send func(kind string, object any) error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	encoder, controller := json.NewEncoder(w), http.NewResponseController(w)
	return func(kind string, object any) error {
		err := encoder.Encode(map[string]any{"type": kind, "object": object})
		return errors.Join(err, controller.Flush())
	}
}
