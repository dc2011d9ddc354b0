// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
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

// How a connection of the kubelet API is given up whose other side is dead, or takes nothing any more.
const (
	// stallLimit is how long what is sent may wait for the other side to take some of it.
	stallLimit = 30 * time.Second
	// socketBuffer bounds what the kernel keeps of a stream for a side that is slow.
	socketBuffer = 256 << 10
)

// keepAlive has the kernel ask the other side of a silent connection whether it is there.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// apiServer answers what the cluster's API server asks of a kubelet, for every virtual node on a port of its own.
type apiServer struct {
	config      Config
	reader      client.Reader
	live        client.Reader // for whole pods
	links       *peers.Links
	access      access
	certificate certificateSource
	clock       clock.PassiveClock
	stall       time.Duration // by default stallLimit

	requests sync.RWMutex // read-locked by each request, so that the end can wait for all
	streams  atomic.Int32

	mu      sync.Mutex
	closed  bool
	next    int                    // where the search for a free port goes on
	nodes   map[string]*servedNode // by the names of Nodes
	serving sync.WaitGroup
}

// servedNode is a virtual node while its port is open.
type servedNode struct {
	name    string
	port    int32
	end     func() // closes the port and ends all requests
	streams atomic.Int32
	usage   *meter
}

// nodeKey is the key of a request's context under which the *servedNode lies.
type nodeKey struct{}

// Start ends the service of all nodes when ctx ends. When it returns, no request is left.
func (a *apiServer) Start(ctx context.Context) error {
	<-ctx.Done()
	a.mu.Lock()
	a.closed = true
	for _, node := range a.nodes {
		node.end()
	}
	a.mu.Unlock()
	a.serving.Wait()
	a.requests.Lock() // for ever
	return nil
}

// Open implements ports.
func (a *apiServer) Open(ctx context.Context, name string, wanted int32) (endpoint, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	node := a.nodes[name]
	if node == nil {
		listener, err := a.listen(int(wanted))
		if err != nil {
			return endpoint{}, fmt.Errorf("open a port for Node %s: %w", name, err)
		}
		node = a.serve(context.WithoutCancel(ctx), name, listener)
		a.nodes[name] = node
	}
	return endpoint{address: a.config.NodeIP.String(), port: node.port}, nil
}

// Close implements ports.
func (a *apiServer) Close(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if node := a.nodes[name]; node != nil {
		node.end()
		delete(a.nodes, name)
	}
}

// count returns how many nodes are served.
func (a *apiServer) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.nodes)
}

// listen opens the wanted port, or the next free one of the range.
func (a *apiServer) listen(wanted int) (net.Listener, error) {
	if a.closed {
		return nil, net.ErrClosed
	}
	first, size := a.config.FirstPort, a.config.LastPort-a.config.FirstPort+1
	var lastErr error
	for try := range size + 1 {
		if try > 0 {
			wanted = first + a.next%size
			a.next++
		}
		if wanted < first || wanted >= first+size {
			continue
		}
		listener, err := a.listenOn(wanted)
		if err == nil {
			return listener, nil
		}
		lastErr = err
	}
	return nil, fmt.Errorf("no port from %d to %d is free: %w", first, a.config.LastPort, lastErr)
}

func (a *apiServer) listenOn(port int) (net.Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: keepAlive}
	//nolint:forbidigo // listening does not block, so there is nothing to cancel
	return config.Listen(context.Background(), "tcp", net.JoinHostPort(a.config.NodeIP.String(), strconv.Itoa(port)))
}

// serve serves one virtual node until it is ended. Which node a request is for is told by the port that it came to, and by
// nothing that the request says.
func (a *apiServer) serve(ctx context.Context, name string, listener net.Listener) *servedNode {
	ctx, cancel := context.WithCancel(ctx)
	node := &servedNode{name: name, usage: newMeter(name, a.reader, a.links, a.clock)}
	if address, ok := listener.Addr().(*net.TCPAddr); ok {
		node.port = int32(address.Port) //nolint:gosec // a port has 16 bits
	}
	server := &http.Server{
		Handler:           a.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return context.WithValue(ctx, nodeKey{}, node) },
	}
	node.end = func() {
		cancel() // ends streams, which the server does not know any more
		_, _ = server.Close(), listener.Close()
	}
	secure := tls.NewListener(stallListener{listener, cmp.Or(a.stall, stallLimit)}, &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: a.certificate,
		// The authenticator judges the certificate, since a bearer token does as well.
		ClientAuth: tls.RequestClientCert,
		// Streams are upgraded connections, which HTTP/2 does not have.
		NextProtos: []string{"http/1.1"},
	})
	a.serving.Go(func() {
		if err := server.Serve(secure); !errors.Is(err, http.ErrServerClosed) {
			logr.FromContextOrDiscard(ctx).Error(err, "Cannot serve the kubelet API", "Node", name)
		}
	})
	return node
}

// stallListener is a listener whose connections fail when the other side takes nothing for so long.
type stallListener struct {
	net.Listener
	stall time.Duration
}

// Accept implements net.Listener.
func (l stallListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return stalling(conn, l.stall), nil
}

// stallConn is a connection that fails when the other side takes nothing for so long.
type stallConn struct {
	net.Conn
	stall time.Duration
}

func stalling(conn net.Conn, stall time.Duration) stallConn {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(socketBuffer) // the kernel may refuse, and the connection works without
		_ = tcp.SetWriteBuffer(socketBuffer)
	}
	return stallConn{conn, stall}
}

// Write implements net.Conn.
func (c stallConn) Write(p []byte) (int, error) {
	// The kernel knows the machine's own clock only, whichever time ours tells.
	if err := c.SetWriteDeadline(clock.RealClock{}.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// handler routes requests as a kubelet does. Watching a log takes the verb get; what acts on a container takes create,
// also where the protocol of the stream begins with a GET.
func (a *apiServer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", a.secured(health, "get", "healthz", "proxy"))
	mux.Handle("GET /pods", a.secured(a.pods(func(*corev1.Pod) bool { return true }), "get", "pods", "proxy"))
	mux.Handle("GET /runningpods/", a.secured(a.pods(wantedRunning), "get", "pods", "proxy"))
	mux.Handle("GET /stats/summary", a.secured(a.summary, "get", "stats"))
	mux.Handle("GET /metrics/resource", a.secured(a.resourceMetrics, "get", "metrics"))
	mux.Handle("GET /containerLogs/{namespace}/{pod}/{container}", a.secured(a.streamed("logs", logs), "get", "proxy"))
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for kind, path := range map[string]string{
			"exec": "/exec/{namespace}/{pod}/{container}", "attach": "/attach/{namespace}/{pod}/{container}",
			"portForward": "/portForward/{namespace}/{pod}",
		} {
			mux.Handle(method+" "+path, a.secured(a.streamed(kind, upgraded(strings.ToLower(kind))), "create", "proxy"))
		}
	}
	return mux
}

// nodeHandler serves a request to one node, unless it returns why not.
type nodeHandler func(w http.ResponseWriter, r *http.Request, node *servedNode) error

// secured lets through requests of those who may.
func (a *apiServer) secured(next nodeHandler, verb string, subresources ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.requests.TryRLock() {
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
			return
		}
		defer a.requests.RUnlock()
		node, ok := r.Context().Value(nodeKey{}).(*servedNode)
		if !ok {
			http.NotFound(w, r)
			return
		}
		err := a.access.check(r, node.name, verb, subresources...)
		if err == nil {
			err = next(w, r, node)
		}
		if err != nil {
			refuse(w, r, err)
		}
	})
}

// streamed lets through requests about pods that are there, as many as there is room for.
func (a *apiServer) streamed(kind string, next func(w http.ResponseWriter, r *http.Request, remote remotePod) error) nodeHandler {
	return func(w http.ResponseWriter, r *http.Request, node *servedNode) error {
		ofNode, ofAll := node.streams.Add(1), a.streams.Add(1)
		defer node.streams.Add(-1)
		defer a.streams.Add(-1)
		switch {
		case ofNode > maxNodeStreams:
			return &refusal{status: http.StatusTooManyRequests, message: "too many streams of this node are open"}
		case ofAll > maxStreams:
			return &refusal{status: http.StatusServiceUnavailable, message: "too many streams of virtual nodes are open"}
		}
		remote, err := a.locate(r, node.name)
		if err != nil {
			return err
		}
		open := streamsOpen.WithLabelValues(kind)
		open.Inc()
		defer open.Dec()
		return next(w, r, remote)
	}
}

// refusal is why a request is not served.
type refusal struct {
	status  int
	message string
	err     error // for our log, nil if the message says it all
}

// Error implements error.
func (f *refusal) Error() string { return f.message }

// failure is a refusal because of what went wrong here.
func failure(message string, err error) error {
	return &refusal{status: http.StatusInternalServerError, message: message, err: err}
}

// refuse answers why the request is not served.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	told := &refusal{status: http.StatusInternalServerError, message: "Internal error", err: err}
	errors.As(err, &told)
	if told.err != nil {
		logr.FromContextOrDiscard(r.Context()).Error(told.err, "Cannot serve kubelet request", "path", r.URL.Path)
	}
	http.Error(w, told.message, told.status)
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

// check returns why whoever sends the request may not do that to any of the subresources of the node.
func (a access) check(r *http.Request, node, verb string, subresources ...string) error {
	who, known, err := a.authenticator.AuthenticateRequest(r)
	if err != nil || !known {
		return &refusal{status: http.StatusUnauthorized, message: "Unauthorized", err: err}
	}
	refused := &refusal{status: http.StatusForbidden, message: "Forbidden"}
	for _, subresource := range subresources {
		decision, reason, err := a.authorizer.Authorize(r.Context(), authorizer.AttributesRecord{
			User:            who.User,
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
			return failure("Cannot ask who may do this", err)
		}
		refused.message = fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource=%s): %s",
			who.User.GetName(), verb, subresource, reason)
	}
	return refused
}
