// SPDX-License-Identifier: Apache-2.0

// Package peerstest has peers for tests: links as package peers makes them, which lead to API servers in memory. Mirrors
// show a write to such a peer before the write returns, so that tests never wait.
package peerstest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
)

// World is the links of one cluster, and the peers that they lead to.
type World struct {
	// Links are open, and closed when the test ends.
	Links *peers.Links

	t       testing.TB
	scheme  *runtime.Scheme
	secrets client.Client // what our cluster knows of links
	reads   atomic.Int64  // how often that was read for links
	mu      sync.Mutex
	byURL   map[string]*Peer // URL of the API server → the peer
}

// New returns links that lead nowhere yet. The configuration may be empty: what it must have is filled in. If it has Local,
// links find their credentials there, and those that Peers store count for nothing.
func New(t testing.TB, scheme *runtime.Scheme, config peers.Config) *World {
	t.Helper()
	// Secrets need no schemas, which take long to read.
	secrets := fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).Build()
	w := &World{t: t, scheme: scheme, secrets: secrets, byURL: map[string]*Peer{}}
	if config.Local == nil {
		config.Local = w.secrets
	}
	config.Local, config.Scheme = &countingReader{config.Local, &w.reads}, scheme
	config.Dial = func(server string) (*peers.Transport, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		peer, known := w.byURL[server]
		if !known {
			return nil, fmt.Errorf("%w: no peer at %s", peers.ErrUnreachable, server)
		}
		return peer.transport(), nil
	}
	w.Links = peers.NewLinks(config)
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // it ends after the test's own
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Links.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return w
}

// CredentialReads returns how often links have looked at credentials.
func (w *World) CredentialReads() int { return int(w.reads.Load()) }

// A countingReader counts what is read.
type countingReader struct {
	client.Reader
	reads *atomic.Int64
}

// Get implements client.Reader.
func (c *countingReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	c.reads.Add(1)
	return c.Reader.Get(ctx, key, o, opts...)
}

// A Peer is a cluster at the other end of a link. Its Client must be used for all writes that mirrors are to show.
type Peer struct {
	// Client reads and writes at the peer, as links to it do.
	Client client.WithWatch
	// REST and HTTP are what links use for streams. What they point to may be replaced.
	REST *rest.Config
	HTTP *http.Client

	world   *World
	name    string
	cluster client.WithWatch
	joined  int

	invitation string // by which we joined last

	mu     sync.Mutex
	asked  map[string]int // request, as text → how often there was one
	hooks  []func(Request) error
	refuse []refusal
	tokens func(*authenticationv1.TokenRequest) error
	feeds  []openFeed
	err    error // why nothing can be read
	silent bool  // nothing is answered, so that mirrors do not sync
	frozen bool  // mirrors go on to show what they show now
}

// openFeed is a feed that is to be fed until ctx ends.
type openFeed struct {
	*peers.Feed
	ctx context.Context //nolint:containedctx // the life of the feed itself
}

// open returns the feeds that have not ended.
func (p *Peer) open() []openFeed {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.feeds = slices.DeleteFunc(p.feeds, func(f openFeed) bool { return f.ctx.Err() != nil })
	return slices.Clone(p.feeds)
}

// Add makes the cluster the peer of that name. Links.Ensure finds credentials for it, by which our messages live in the
// tenant namespace there.
func (w *World) Add(name, tenantNamespace string, cluster client.WithWatch) *Peer {
	w.t.Helper()
	p := w.Serve(name, cluster)
	p.Rejoin(tenantNamespace)
	return p
}

// Serve is Add of a cluster for which we have no credentials yet.
func (w *World) Serve(name string, cluster client.WithWatch) *Peer {
	p := &Peer{
		world: w, name: name, cluster: cluster, REST: &rest.Config{}, HTTP: &http.Client{}, asked: map[string]int{},
	}
	p.Client = interceptor.NewClient(cluster, p.mirrored(p.ask))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byURL[p.URL()] = p
	return p
}

// Mirrored returns a client that writes by the given one, and whose writes mirrors show. It is for what the test itself
// writes at the peer, which is never refused.
func (p *Peer) Mirrored(cluster client.WithWatch) client.WithWatch {
	return interceptor.NewClient(cluster, p.mirrored(func(Request) error { return nil }))
}

// Link returns the link to the peer, which it makes if need be.
func (w *World) Link(peer *v1alpha1.Peer) *peers.Link {
	w.t.Helper()
	link, err := w.Links.Ensure(w.t.Context(), peer)
	if err != nil {
		w.t.Fatalf("link to peer %s: %v", peer.Name, err)
	}
	return link
}

// URL is where the API server is.
func (p *Peer) URL() string { return "https://" + p.name + ".example" }

func (p *Peer) secret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(p.name), Name: v1alpha1.LinkSecret}}
}

// Rejoin replaces our credentials, so that the next Ensure makes another link.
func (p *Peer) Rejoin(tenantNamespace string) {
	p.world.t.Helper()
	p.joined++
	p.JoinBy(tenantNamespace, fmt.Sprintf("%08d", p.joined))
}

// JoinBy replaces our credentials by those that the invitation of that id gave us.
func (p *Peer) JoinBy(tenantNamespace, invitation string) {
	p.world.t.Helper()
	p.invitation = invitation
	p.store(tenantNamespace, Token)
}

// Renew replaces our token, which the link takes at the next Ensure.
func (p *Peer) Renew(tenantNamespace, token string) {
	p.world.t.Helper()
	p.store(tenantNamespace, token)
}

// Token is what links say who we are by.
const Token = "ours"

// store gives us credentials for the peer.
func (p *Peer) store(tenantNamespace, token string) {
	p.world.t.Helper()
	data, err := peers.Credentials{
		Servers: []string{p.URL()}, Namespace: tenantNamespace, Token: token, Invitation: p.invitation,
	}.SecretData()
	if err != nil {
		p.world.t.Fatal(err)
	}
	p.Store(data)
}

// Store puts the data into the Secret with our credentials, whatever it is.
func (p *Peer) Store(data map[string][]byte) {
	p.world.t.Helper()
	secret := p.secret()
	_, err := controllerutil.CreateOrUpdate(p.world.t.Context(), p.world.secrets, secret, func() error {
		secret.Data = data
		return nil
	})
	if err != nil {
		p.world.t.Fatal(err)
	}
}

// RemoveCredentials takes our credentials away, so that the next Ensure fails.
func (p *Peer) RemoveCredentials() {
	p.world.t.Helper()
	if err := p.world.secrets.Delete(p.world.t.Context(), p.secret()); client.IgnoreNotFound(err) != nil {
		p.world.t.Fatal(err)
	}
}

// Fail has all mirrors of the peer fail with the error until Heal. What they have shown they still show.
func (p *Peer) Fail(err error) {
	p.mu.Lock()
	p.err = err
	p.mu.Unlock()
	for _, feed := range p.open() {
		feed.Fail(err)
	}
}

// Cut cuts the peer off, and returns when the link knows.
func (p *Peer) Cut() {
	p.world.t.Helper()
	p.Fail(fmt.Errorf("%w: no answer", peers.ErrCut))
	p.expect("cut off", func(state peers.State) bool { return state == peers.Cut })
}

// Freeze has mirrors show from now on what they show now, as if what is written were still on its way.
func (p *Peer) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = true
}

// Heal ends what Fail, Cut, Freeze or Silence began, and returns when the link knows.
func (p *Peer) Heal() {
	p.world.t.Helper()
	p.mu.Lock()
	p.err, p.silent, p.frozen = nil, false, false
	p.mu.Unlock()
	for _, feed := range p.open() {
		p.fill(feed.Feed)
	}
	p.expect("back", func(state peers.State) bool { return state != peers.Cut })
}

// Silence has the peer answer nothing from now on: mirrors that are made then do not sync.
func (p *Peer) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
}

// Follows returns what is followed at the peer, as kind and namespace, sorted.
func (p *Peer) Follows() []string {
	var followed []string
	for _, feed := range p.open() {
		followed = append(followed, p.kind(feed.Subject().Example)+" in "+feed.Namespace())
	}
	slices.Sort(followed)
	return followed
}

func (p *Peer) expect(what string, holds func(peers.State) bool) {
	p.world.t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(p.world.Links.State(p.name)); time.Sleep(time.Millisecond) { //nolint:forbidigo // the link looks in a goroutine
		if time.Now().After(deadline) { //nolint:forbidigo // as above
			p.world.t.Fatalf("peer %s is not %s", p.name, what)
		}
	}
}

// transport is the way to the peer.
func (p *Peer) transport() *peers.Transport {
	return &peers.Transport{Client: p.Client, Feed: p.feed, REST: p.REST, HTTP: p.HTTP}
}

// feed shows what there is, and from now on what is written.
func (p *Peer) feed(ctx context.Context, feed *peers.Feed) {
	p.mu.Lock()
	p.feeds = append(p.feeds, openFeed{feed, ctx})
	p.mu.Unlock()
	p.fill(feed)
}

// fill shows all that there is.
func (p *Peer) fill(feed *peers.Feed) {
	p.mu.Lock()
	err, silent := p.err, p.silent
	p.mu.Unlock()
	if err != nil || silent {
		feed.Fail(err)
		return
	}
	gvk := p.gvk(feed.Subject().Example)
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	options := &client.ListOptions{Namespace: feed.Namespace(), LabelSelector: feed.Subject().Labels}
	if err := p.cluster.List(context.Background(), list, options); err != nil { //nolint:forbidigo // nothing is waited for
		p.world.t.Errorf("list %s at peer %s: %v", gvk.Kind, p.name, err)
	}
	var objects []client.Object
	for i := range list.Items {
		if object, found := p.read(feed, client.ObjectKeyFromObject(&list.Items[i])); found {
			objects = append(objects, object)
		}
	}
	feed.Fail(nil)
	feed.Replace(objects)
}

// read returns the object as the feed takes it.
func (p *Peer) read(feed *peers.Feed, key types.NamespacedName) (client.Object, bool) {
	object, ok := feed.Subject().Example.DeepCopyObject().(client.Object)
	if !ok {
		return nil, false
	}
	if err := p.cluster.Get(context.Background(), key, object); err != nil { //nolint:forbidigo // nothing is waited for
		return nil, false
	}
	selected := feed.Subject().Labels
	return object, selected == nil || selected.Matches(labels.Set(object.GetLabels()))
}

// refilled shows everything again after a write that may have changed several objects.
func (p *Peer) refilled(err error) error {
	for _, feed := range p.open() {
		p.fill(feed.Feed)
	}
	return err
}

// written shows what has become of an object.
func (p *Peer) written(object client.Object) {
	kind := p.kind(object)
	p.mu.Lock()
	hidden := p.err != nil || p.silent || p.frozen
	p.mu.Unlock()
	for _, feed := range p.open() {
		if hidden || feed.Namespace() != object.GetNamespace() || p.kind(feed.Subject().Example) != kind {
			continue
		}
		key := client.ObjectKeyFromObject(object)
		if now, found := p.read(feed.Feed, key); found {
			feed.Put(now)
		} else {
			feed.Delete(key)
		}
	}
}

func (p *Peer) gvk(object client.Object) schema.GroupVersionKind {
	p.world.t.Helper()
	gvk, err := apiutil.GVKForObject(object, p.world.scheme)
	if err != nil {
		p.world.t.Errorf("kind of %T: %v", object, err)
	}
	return gvk
}

func (p *Peer) kind(object client.Object) string { return p.gvk(object).Kind }

// FillAside has as many workers as may be at work that nobody waits for (see peers.Link.Aside), until end is called.
func FillAside(link *peers.Link) (end func()) {
	var ends []func()
	for {
		end, err := link.Aside()
		if err != nil {
			return func() {
				for _, end := range ends {
					end()
				}
			}
		}
		ends = append(ends, end)
	}
}
