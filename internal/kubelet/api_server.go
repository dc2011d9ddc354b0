package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/internal/peers"
)

// How many streams are open at most: of one virtual node, and of all together. Each may keep up to a megabyte in buffers
// while one of its sides is slow.
const (
	maxNodeStreams = 200
	maxStreams     = 1000
)

// apiServer answers what the cluster's API server asks of a kubelet, for every virtual node on a port of its own.
type apiServer struct {
	reader      client.Reader
	live        client.Reader // for whole pods
	links       *peers.Links
	access      access
	certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	ports       *portTable
	clock       clock.PassiveClock

	requests gate
	streams  atomic.Int32
}

// servedNode is a virtual node while its port is open.
type servedNode struct {
	name    string
	streams atomic.Int32
	usage   *meter
}

// nodeKey is the key of a request's context under which the *servedNode lies.
type nodeKey struct{}

// server returns the HTTP server that serves the listeners of all virtual nodes. Which node a request is for is told by
// the port that it came to, and by nothing that the request says.
func (a *apiServer) server(ctx context.Context) *http.Server {
	return &http.Server{
		Handler:           a.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    64 << 10,
		BaseContext: func(listener net.Listener) context.Context {
			if secure, ok := listener.(*secureListener); ok {
				return context.WithValue(ctx, nodeKey{}, secure.node)
			}
			return ctx
		},
	}
}

// secureListener is the listener of a node with TLS on it.
type secureListener struct {
	net.Listener
	node *servedNode
}

// Start serves every virtual node until ctx ends. When it returns, no stream is left.
func (a *apiServer) Start(ctx context.Context) error {
	server := a.server(ctx)
	a.ports.Run(ctx, func(listener *nodeListener) { a.serve(ctx, server, listener) })
	err := server.Close()
	a.requests.end()
	return err
}

// serve serves one virtual node until its listener is closed.
func (a *apiServer) serve(ctx context.Context, server *http.Server, listener *nodeListener) {
	secure := tls.NewListener(listener, &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: a.certificate,
		// The authenticator judges the certificate, since a bearer token does as well.
		ClientAuth: tls.RequestClientCert,
		// Streams are upgraded connections, which HTTP/2 does not have.
		NextProtos: []string{"http/1.1"},
	})
	node := &servedNode{name: listener.node, usage: newMeter(listener.node, a.reader, a.links, a.clock)}
	err := server.Serve(&secureListener{Listener: secure, node: node})
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot serve the kubelet API", "Node", listener.node)
	}
}

// handler routes requests as a kubelet does. Watching a log takes the verb get; what acts on a container takes create,
// also where the protocol of the stream begins with a GET.
func (a *apiServer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", a.secured("get", []string{"healthz", "proxy"}, a.health))
	mux.Handle("GET /pods", a.secured("get", []string{"pods", "proxy"}, a.pods))
	mux.Handle("GET /runningpods/", a.secured("get", []string{"pods", "proxy"}, a.runningPods))
	mux.Handle("GET /stats/summary", a.secured("get", []string{"stats"}, a.summary))
	mux.Handle("GET /metrics/resource", a.secured("get", []string{"metrics"}, a.resourceMetrics))
	mux.Handle("GET /containerLogs/{namespace}/{pod}/{container}", a.secured("get", []string{"proxy"}, a.streamed("logs", a.logs)))
	for path, kind := range map[string]string{
		"/exec/{namespace}/{pod}/{container}":   "exec",
		"/attach/{namespace}/{pod}/{container}": "attach",
		"/portForward/{namespace}/{pod}":        "portForward",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			mux.Handle(method+" "+path, a.secured("create", []string{"proxy"}, a.streamed(kind, a.upgrade(kind))))
		}
	}
	return mux
}

// nodeHandler serves a request to one node.
type nodeHandler func(w http.ResponseWriter, r *http.Request, node *servedNode)

// secured lets through requests of those who may.
func (a *apiServer) secured(verb string, subresources []string, next nodeHandler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.requests.enter() {
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
			return
		}
		defer a.requests.leave()
		node, ok := r.Context().Value(nodeKey{}).(*servedNode)
		if !ok {
			http.NotFound(w, r)
			return
		}
		if refused := a.access.check(r, node.name, verb, subresources...); refused != nil {
			refused.write(w, r)
			return
		}
		next(w, r, node)
	})
}

// podHandler serves a request about one pod.
type podHandler func(w http.ResponseWriter, r *http.Request, remote remotePod)

// streamed lets through requests about pods that are there, as many as there is room for.
func (a *apiServer) streamed(kind string, next podHandler) nodeHandler {
	return func(w http.ResponseWriter, r *http.Request, node *servedNode) {
		leave, refused := a.admit(node)
		if refused != nil {
			refused.write(w, r)
			return
		}
		defer leave()
		remote, refused := a.locate(r, node.name)
		if refused != nil {
			refused.write(w, r)
			return
		}
		open := streamsOpen.WithLabelValues(kind)
		open.Inc()
		defer open.Dec()
		next(w, r, remote)
	}
}

// admit makes room for a stream, which it must leave again.
func (a *apiServer) admit(node *servedNode) (leave func(), refused *refusal) {
	leave = func() {
		node.streams.Add(-1)
		a.streams.Add(-1)
	}
	ofNode, ofAll := node.streams.Add(1), a.streams.Add(1)
	switch {
	case ofNode > maxNodeStreams:
		refused = &refusal{status: http.StatusTooManyRequests, message: "too many streams of this node are open"}
	case ofAll > maxStreams:
		refused = &refusal{status: http.StatusServiceUnavailable, message: "too many streams of virtual nodes are open"}
	default:
		return leave, nil
	}
	leave()
	return nil, refused
}

// refusal is why a request is not served.
type refusal struct {
	status  int
	message string
	err     error // for our log, nil if the message says it all
}

func (f *refusal) write(w http.ResponseWriter, r *http.Request) {
	if f.err != nil {
		logr.FromContextOrDiscard(r.Context()).Error(f.err, "Cannot serve kubelet request", "path", r.URL.Path)
	}
	http.Error(w, f.message, f.status)
}
