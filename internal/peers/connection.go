// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// A connection holds clients of the API server of one peer, and whatever they have opened until it is closed.
type connection struct {
	books   *ledger // what the peer costs
	account account
	token   atomic.Pointer[string] // the bearer token, which may be renewed
	current atomic.Int32           // index of the server that was connected to last
	timeout time.Duration
	// pingAfter is how soon a connection over which nothing comes is asked whether it is alive.
	pingAfter time.Duration
	alive     liveness

	secure *tls.Config
	config *rest.Config // of the first server, without the token
	http   *http.Client
	client client.Client
	feed   func(context.Context, *Feed)
	// transport is what Config.Dial or Config.Adapt made. It is empty for a connection of our own.
	transport Transport
	// streams is the connection for streams, where the transport has none of its own.
	streams *connection
	raw     rest.Interface  // for answers that are decoded only if they are new
	ctx     context.Context //nolint:containedctx // the life of the connection itself, not that of a call
	close   context.CancelFunc
}

// A Transport is another way to a peer's API server than a connection of this package: for tests, and for peers without
// Hanse.
type Transport struct {
	// Client reads and writes at the peer.
	Client client.Client
	// Feed begins to feed a mirror, and goes on until ctx ends. It does not block. A controller that is told of a change may
	// follow something else at once, so that Feed is called while Put, Delete or Replace of another feed has not returned: it
	// must not wait for a lock that is held meanwhile.
	Feed func(ctx context.Context, feed *Feed)
	// REST and HTTP are for streams such as exec. By default those of the link that was adapted, if any.
	REST *rest.Config
	HTTP *http.Client
	// Run works for the link until ctx ends. It may be nil.
	Run func(ctx context.Context)
	// Mapping returns the NamespaceMapping of one of our namespaces, if the peer has one for each. It may be nil.
	Mapping func(home string) *v1alpha1.NamespaceMapping
	// Leftovers returns those of our namespaces of which there is something at the peer. It may be nil.
	Leftovers func() []string
	// RemotePod finds the pod of a ShadowPod, if the pod does not have the name of the ShadowPod. It may be nil.
	RemotePod func(shadow *v1alpha1.ShadowPod) (types.NamespacedName, bool)
}

// connect makes a connection that ends with ctx or when it is closed. Nothing is sent yet.
func (l *Links) connect(ctx context.Context, to account, books *ledger) (*connection, error) {
	c := &connection{
		books: books, account: to, timeout: l.config.Timeout, pingAfter: l.config.PingAfter, alive: livenessWithin(l.config.LinkTimeout),
	}
	c.token.Store(&to.token)
	c.ctx, c.close = context.WithCancel(ctx)
	if l.config.Dial != nil {
		made, err := l.config.Dial(to.servers[0])
		if err != nil {
			c.close()
			return nil, err
		}
		c.use(made)
		return c, nil
	}
	if err := c.makeClients(l.config, l.mapper, l.places()); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// use has the connection lead through the transport.
func (c *connection) use(made *Transport) {
	c.transport, c.client, c.feed = *made, made.Client, made.Feed
	c.config, c.http = made.REST, made.HTTP
}

func (c *connection) makeClients(settings Config, mapper meta.RESTMapper, places sanitize.Quantities) error {
	server, err := url.Parse(c.account.servers[0])
	if err != nil {
		return fmt.Errorf("parse server: %w", err)
	}
	c.config = &rest.Config{
		Host:                      c.account.servers[0],
		TLSClientConfig:           c.account.tls,
		UserAgent:                 settings.UserAgent,
		QPS:                       -1, // the peer limits us by priority and fairness, and the work is limited by our own queues
		WarningHandler:            rest.NoWarnings{},
		WarningHandlerWithContext: rest.NoWarnings{},
		ContentConfig: rest.ContentConfig{
			ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON,
		},
		WrapTransport: func(next http.RoundTripper) http.RoundTripper {
			return &bounded{
				next: next, prefix: strings.TrimSuffix(server.Path, "/"), timeout: settings.Timeout, closed: c.ctx.Done(),
				books: c.books, places: places, now: settings.Clock.Now,
			}
		},
	}
	base, err := c.httpTransport()
	if err != nil {
		return err
	}
	wrapped, err := rest.HTTPWrappersForConfig(c.config, base)
	if err != nil {
		return fmt.Errorf("make transport: %w", err)
	}
	c.http = &http.Client{Transport: &bearer{next: wrapped, token: &c.token}}
	reads, err := client.NewWithWatch(c.config, client.Options{
		HTTPClient: c.http,
		Scheme:     settings.Scheme,
		Mapper:     mapper,
	})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	c.client = reads
	c.feed = func(ctx context.Context, feed *Feed) { feed.readFrom(ctx, reads) }
	raw := rest.CopyConfig(c.config)
	raw.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	c.raw, err = rest.UnversionedRESTClientForConfigAndClient(raw, c.http)
	if err != nil {
		return fmt.Errorf("make raw client: %w", err)
	}
	return nil
}

// selfReview is the only kind outside of namespaces that is ever used over a link: whoever may authenticate may ask what
// else it may.
var selfReview = schema.GroupKind{Group: "authorization.k8s.io", Kind: "SelfSubjectAccessReview"}

// namespacedMapper maps the kinds of the scheme to resources without asking the peer. All but one are taken for
// namespaced.
func namespacedMapper(scheme *runtime.Scheme) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(scheme.PrioritizedVersionsAllGroups())
	for gvk := range scheme.AllKnownTypes() {
		if gvk.GroupKind() == selfReview {
			mapper.Add(gvk, meta.RESTScopeRoot)
			continue
		}
		mapper.Add(gvk, meta.RESTScopeNamespace)
	}
	return mapper
}

// Server returns the URL of the peer's API server: of several, the one that was connected to last.
func (c *connection) Server() string { return c.account.servers[c.current.Load()] }

// Client returns a client of the peer's API server. It caches nothing.
func (c *connection) Client() client.Client { return c.client }

// RESTConfig returns a copy of the configuration with the server and the token of this moment, for streams such as exec.
// Clients of other kinds should use it together with HTTPClient, so that their connections end with the link.
func (c *connection) RESTConfig() *rest.Config {
	if c.streams != nil {
		return c.streams.RESTConfig()
	}
	config := rest.CopyConfig(c.config)
	config.BearerToken = *c.token.Load()
	if c.transport.REST == nil {
		config.Host = c.Server()
	}
	return config
}

// HTTPClient returns the HTTP client. It sets credentials and limits answers.
func (c *connection) HTTPClient() *http.Client {
	if c.streams != nil {
		return c.streams.http
	}
	return c.http
}

// A bearer transport adds the token of this moment to each request.
type bearer struct {
	next  http.RoundTripper
	token *atomic.Pointer[string]
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	if token := *b.token.Load(); token != "" {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return b.next.RoundTrip(req)
}
