package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
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

// How long an answer of the API server about who may use the kubelet API is believed.
const (
	allowedFor = time.Minute
	deniedFor  = 10 * time.Second
)

// access says who may use the kubelet API: those whom the cluster itself lets use the virtual Node, by the same
// subresources as at a kubelet. Nobody is anonymous.
type access struct {
	authenticator authenticator.Request
	authorizer    authorizer.UnconditionalAuthorizer
}

// newAccess asks the API server about tokens and rights, and takes client certificates of those authorities.
func newAccess(clients kubernetes.Interface, authorities dynamiccertificates.CAContentProvider) (access, error) {
	retries := &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 4}
	authentication, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                          &apiserver.AnonymousAuthConfig{Enabled: false},
		CacheTTL:                           deniedFor,
		ClientCertificateCAContentProvider: authorities,
		TokenAccessReviewClient:            clients.AuthenticationV1(),
		TokenAccessReviewTimeout:           10 * time.Second,
		WebhookRetryBackoff:                retries,
	}.New()
	if err != nil {
		return access{}, fmt.Errorf("make authenticator: %w", err)
	}
	authorization, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: clients.AuthorizationV1(),
		AllowCacheTTL:             allowedFor,
		DenyCacheTTL:              deniedFor,
		WebhookRetryBackoff:       retries,
	}.New()
	if err != nil {
		return access{}, fmt.Errorf("make authorizer: %w", err)
	}
	return access{authenticator: authentication, authorizer: authorization}, nil
}

// check returns nil if whoever sends the request may do that to one of the subresources of the node.
func (a access) check(r *http.Request, node, verb string, subresources ...string) *refusal {
	who, known, err := a.authenticator.AuthenticateRequest(r)
	if err != nil || !known {
		return &refusal{status: http.StatusUnauthorized, message: "Unauthorized", err: err}
	}
	refused := &refusal{status: http.StatusForbidden, message: "Forbidden"}
	for _, subresource := range subresources {
		refused = a.authorize(r, who.User, node, verb, subresource)
		if refused == nil {
			return nil
		}
	}
	return refused
}

func (a access) authorize(r *http.Request, who user.Info, node, verb, subresource string) *refusal {
	decision, reason, err := a.authorizer.Authorize(r.Context(), authorizer.AttributesRecord{
		User:            who,
		Verb:            verb,
		APIVersion:      "v1",
		Resource:        "nodes",
		Subresource:     subresource,
		Name:            node,
		ResourceRequest: true,
		Path:            r.URL.Path,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return &refusal{status: http.StatusInternalServerError, message: "Cannot ask who may do this", err: err}
	}
	return &refusal{status: http.StatusForbidden, message: fmt.Sprintf(
		"Forbidden (user=%s, verb=%s, resource=nodes, subresource=%s): %s", who.GetName(), verb, subresource, reason)}
}
