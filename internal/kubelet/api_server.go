package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// apiServer answers what the cluster's API server asks of a kubelet, for every virtual node on a port of its own.
type apiServer struct {
	reader      client.Reader
	sites       siteFinder
	access      access
	certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	ports       *portTable

	streams gate
}

// nodeKey is the key of a request's context under which the name of the virtual node lies.
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
	node string
}

// Start serves every virtual node until ctx ends. When it returns, no stream is left.
func (a *apiServer) Start(ctx context.Context) error {
	server := a.server(ctx)
	a.ports.Run(ctx, func(listener *nodeListener) { a.serve(ctx, server, listener) })
	err := server.Close()
	a.streams.end()
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
	err := server.Serve(&secureListener{Listener: secure, node: listener.node})
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot serve the kubelet API", "Node", listener.node)
	}
}

// handler routes requests as a kubelet does. Watching a log takes the verb get; what acts on a container takes create,
// also where the protocol of the stream begins with a GET.
func (a *apiServer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /containerLogs/{namespace}/{pod}/{container}", a.secured("get", "logs", a.logs))
	for _, kind := range []string{"exec", "attach"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			mux.Handle(method+" /"+kind+"/{namespace}/{pod}/{container}", a.secured("create", kind, a.stream(kind)))
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		mux.Handle(method+" /portForward/{namespace}/{pod}", a.secured("create", "portForward", a.stream("portforward")))
	}
	return mux
}

// podHandler serves a request about one pod.
type podHandler func(w http.ResponseWriter, r *http.Request, remote remotePod)

// secured lets through requests of those who may, about pods that are there.
func (a *apiServer) secured(verb, kind string, next podHandler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.streams.enter() {
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
			return
		}
		defer a.streams.leave()
		node, _ := r.Context().Value(nodeKey{}).(string)
		if refused := a.access.check(r, node, verb); refused != nil {
			refused.write(w, r)
			return
		}
		remote, problem := a.locate(r.Context(), node, r.PathValue("namespace"), r.PathValue("pod"))
		if problem != nil {
			problem.write(w, r)
			return
		}
		streamsOpen.WithLabelValues(kind).Inc()
		defer streamsOpen.WithLabelValues(kind).Dec()
		next(w, r, remote)
	})
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
