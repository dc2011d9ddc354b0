package peers

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// How soon a connection over which nothing comes any more is given up, so that the next request makes a new one. A cut
// that lasts longer than this is noticed here and not by the retransmissions of TCP, which take minutes.
const (
	pingAfter   = 3 * time.Second
	pingTimeout = 3 * time.Second
)

// A Link is an authenticated connection to the API server of one peer. It is safe for concurrent use. After it was
// closed, which Done tells, every request over it fails with ErrClosed.
type Link struct {
	peer            string
	tenantNamespace string
	credentials     string    // resource version of the Secret that it was made from
	checked         time.Time // when that Secret was read last; Ensure alone uses it, for one peer at a time
	links           *Links
	config          *rest.Config
	http            *http.Client
	client          client.WithWatch
	ctx             context.Context //nolint:containedctx // the life of the link itself, not that of a call
	close           context.CancelFunc
}

func newLink(ctx context.Context, links *Links, peer string, secret *corev1.Secret) (*Link, error) {
	data, ok := secret.Data[v1alpha1.LinkSecretKey]
	if !ok {
		return nil, fmt.Errorf("key %s is missing", v1alpha1.LinkSecretKey)
	}
	config, namespace, err := parseKubeconfig(data)
	if err != nil {
		return nil, err
	}
	link := &Link{
		peer: peer, tenantNamespace: namespace, credentials: secret.ResourceVersion, links: links, config: config,
	}
	// The link outlives the call that makes it.
	link.ctx, link.close = context.WithCancel(context.WithoutCancel(ctx))
	if err := link.connect(); err != nil {
		link.close()
		return nil, err
	}
	return link, nil
}

// connect makes the clients of the link. Nothing is sent yet.
func (l *Link) connect() error {
	settings := l.links.config
	server, err := url.Parse(l.config.Host)
	if err != nil {
		return fmt.Errorf("parse server: %w", err)
	}
	l.config.UserAgent = settings.UserAgent
	l.config.QPS = -1 // the peer limits us by priority and fairness, and the work is limited by our own queues
	l.config.WarningHandler = rest.NoWarnings{}
	l.config.WarningHandlerWithContext = rest.NoWarnings{}
	l.config.ContentType = runtime.ContentTypeJSON
	l.config.AcceptContentTypes = runtime.ContentTypeJSON
	l.config.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return &bounded{
			next: next, prefix: strings.TrimSuffix(server.Path, "/"), timeout: settings.Timeout, closed: l.ctx.Done(),
		}
	}
	base, err := l.transport()
	if err != nil {
		return err
	}
	wrapped, err := rest.HTTPWrappersForConfig(l.config, base)
	if err != nil {
		return fmt.Errorf("make transport: %w", err)
	}
	l.http = &http.Client{Transport: wrapped}
	l.client, err = client.NewWithWatch(l.config, client.Options{
		HTTPClient: l.http,
		Scheme:     settings.Scheme,
		Mapper:     l.links.mapper,
	})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	return nil
}

// transport returns the link's own transport, whose connections end with the link. (Those of client-go are shared and
// never end.)
func (l *Link) transport() (*http.Transport, error) {
	tlsConfig, err := rest.TLSConfigFor(l.config)
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            l.dial,
		TLSClientConfig:        tlsConfig,
		TLSHandshakeTimeout:    l.links.config.Timeout,
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        90 * time.Second,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}, nil
}

func (l *Link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{
		Timeout:         min(l.links.config.Timeout, 5*time.Second),
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: pingAfter, Interval: pingTimeout, Count: 3},
	}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(l.ctx, func() { _ = conn.Close() })
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

// namespacedMapper maps the kinds of the scheme to resources without asking the peer. All are taken for namespaced:
// nothing else is ever reached over a link.
func namespacedMapper(scheme *runtime.Scheme) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(scheme.PrioritizedVersionsAllGroups())
	for gvk := range scheme.AllKnownTypes() {
		mapper.Add(gvk, meta.RESTScopeNamespace)
	}
	return mapper
}

// Peer returns the name of the Peer that the link leads to.
func (l *Link) Peer() string { return l.peer }

// TenantNamespace returns the name of the namespace over there in which our messages live.
func (l *Link) TenantNamespace() string { return l.tenantNamespace }

// Server returns the URL of the peer's API server.
func (l *Link) Server() string { return l.config.Host }

// Client returns a client of the peer's API server. It caches nothing.
func (l *Link) Client() client.Client { return l.client }

// RESTConfig returns a copy of the link's configuration, for streams such as exec. Clients of other kinds should use it
// together with HTTPClient, so that their connections end with the link.
func (l *Link) RESTConfig() *rest.Config { return rest.CopyConfig(l.config) }

// HTTPClient returns the link's HTTP client. It sets credentials and limits answers.
func (l *Link) HTTPClient() *http.Client { return l.http }

// Done returns a channel that is closed when the link is closed: ask Links for the one that may have replaced it.
func (l *Link) Done() <-chan struct{} { return l.ctx.Done() }

// Hello is how a peer introduces itself.
type Hello struct {
	// ClusterID is the id that the cluster claims.
	ClusterID string
	// Version is the version of Hanse there.
	Version string
	// RoundTrip is how long the answer took.
	RoundTrip time.Duration
}

// Hello asks the peer to introduce itself. Besides the errors of this package it returns NotFound, as apimachinery's
// errors package tells, when the API server there knows us but Hanse has not prepared our tenant namespace.
func (l *Link) Hello(ctx context.Context) (Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, l.links.config.Timeout)
	defer cancel()
	start := l.links.config.Clock.Now()
	info := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: l.tenantNamespace, Name: v1alpha1.ClusterInfo}
	if err := l.client.Get(ctx, key, info); err != nil {
		return Hello{}, fmt.Errorf("read ConfigMap %s of the peer: %w", key, classify(err))
	}
	hello := Hello{
		ClusterID: info.Data[v1alpha1.ClusterInfoID],
		Version:   info.Data[v1alpha1.ClusterInfoVersion],
		RoundTrip: l.links.config.Clock.Since(start),
	}
	if len(validation.IsDNS1123Label(hello.ClusterID)) > 0 || hello.Version == "" || len(hello.Version) > 64 {
		return Hello{}, fmt.Errorf("%w: ConfigMap %s of the peer holds no cluster id and version", ErrMalformed, key)
	}
	return hello, nil
}
