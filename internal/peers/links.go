// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// Config says what links are made of.
type Config struct {
	// Local reads Secrets of our own cluster. It should not cache, since Hanse may read few of them.
	Local client.Reader
	// Scheme knows the kinds that are read and written over links.
	Scheme *runtime.Scheme
	// UserAgent names us to peers, such as hanse-manager/v0.1.0.
	UserAgent string
	// Timeout bounds every request that is no stream. By default 10 s.
	Timeout time.Duration
	// LinkTimeout is how soon it is known that a peer is cut off: the kernel gives a connection up, and what watches over
	// it fails with ErrLost, early enough for an attempt to connect again before. By default 3 s, and at least that.
	LinkTimeout time.Duration
	// PingAfter is how soon a connection over which nothing comes is asked whether it is alive, so that a cut is noticed
	// also where no request fails. Each such ping takes as much as a request: who sends requests itself from time to time
	// can do with fewer. By default 3 s.
	PingAfter time.Duration
	// Fresh is for how long a Secret that was read counts as current while the Peer is the same, so that what asks for a
	// link often costs no read of its own. By default no time at all.
	Fresh time.Duration
	// Dial returns the way to a server instead of a connection of this package. It is for tests.
	Dial func(server string) (*Transport, error)
	// Adapt returns a way by which a peer without Hanse looks as if Hanse ran there. It is called again when the link is
	// another one, or the Peer has another id, other namespaces or another Protocol. By default the link is used as it is.
	Adapt func(link *Link, peer *v1alpha1.Peer) (*Transport, error)
	// Budget bounds what each peer may cost this process. By default DefaultBudget.
	Budget Budget
	// Pods says how many pods of ours the peer of that name runs, which decides how much it may have within the Budget. By
	// default each runs none. It is called seldom.
	Pods func(peer string) int
	// Clock measures round-trip times, and what is fresh. By default the real one.
	Clock clock.PassiveClock
}

// Links are the connections of this cluster to its peers, one for each peer with credentials.
type Links struct {
	config Config
	mapper meta.RESTMapper
	places func() sanitize.Quantities // in what peers answer

	mu      sync.Mutex
	closed  bool
	links   map[string]*Link       // peer → its link
	adapted map[string]*adapted    // peer → its link as Adapt has it
	ledgers map[string]*ledger     // peer → what it costs
	ensures map[string]*sync.Mutex // peer → held while its Secret is compared with its link
	// unlinked are the peers of which the last Ensure found no credentials, or none that can be used.
	unlinked map[string]bool
	running  sync.WaitGroup // goroutines of all mirrors

	subscribing   sync.RWMutex
	subscriptions map[*subscription]struct{}
}

// adapted is a link that leads through another transport than the link that it was made of.
type adapted struct {
	*Link
	base       *Link
	clusterID  string
	namespaces []string
	protocol   v1alpha1.Protocol
}

// NewLinks returns the links of a cluster, none of which is made yet. Its Run must be called to end them.
func NewLinks(config Config) *Links {
	if config.Timeout == 0 {
		config.Timeout = 10 * time.Second
	}
	if config.Dial == nil || config.LinkTimeout == 0 {
		config.LinkTimeout = max(config.LinkTimeout, DefaultLinkTimeout)
	}
	if config.PingAfter == 0 {
		config.PingAfter = pingAfter
	}
	if config.Budget == (Budget{}) {
		config.Budget = DefaultBudget
	}
	if config.Pods == nil {
		config.Pods = func(string) int { return 0 }
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	return &Links{
		config:  config,
		mapper:  namespacedMapper(config.Scheme),
		places:  sync.OnceValue(func() sanitize.Quantities { return quantitiesOf(config.Scheme) }),
		links:   map[string]*Link{},
		adapted: map[string]*adapted{},
		ledgers: map[string]*ledger{},
		ensures: map[string]*sync.Mutex{}, unlinked: map[string]bool{},

		subscriptions: map[*subscription]struct{}{},
	}
}

// Run waits until ctx ends and closes all links. When it returns, nothing that they started is alive.
func (l *Links) Run(ctx context.Context) error {
	<-ctx.Done()
	l.mu.Lock()
	l.closed = true
	open := slices.Collect(maps.Values(l.links))
	clear(l.links)
	clear(l.adapted)
	l.mu.Unlock()
	for _, link := range open {
		link.close()
	}
	l.running.Wait()
	return nil
}

// Start is Run, so that a manager can run links.
func (l *Links) Start(ctx context.Context) error { return l.Run(ctx) }

// NeedLeaderElection reports that only the leader talks to peers.
func (*Links) NeedLeaderElection() bool { return true }

// Ensure returns the link to the peer, made of what the Secret with its credentials holds now, or held a moment ago (see
// Config.Fresh): the same link as long as nothing in the Secret but the token changes, which the link then uses from now
// on. Otherwise the link that was is closed first, also if no new one can be made, and the error is then
// ErrCredentialsMissing or ErrCredentialsInvalid. No request is sent to the peer.
func (l *Links) Ensure(ctx context.Context, peer *v1alpha1.Peer) (*Link, error) {
	return l.EnsureWithin(ctx, peer, l.config.Fresh)
}

// EnsureWithin is Ensure for a caller to whom a Secret that was read within the given time, for the same version of the
// Peer, is good enough. A Peer whose session begins anew changes after the Secret has.
func (l *Links) EnsureWithin(ctx context.Context, peer *v1alpha1.Peer, age time.Duration) (*Link, error) {
	var (
		link *Link
		err  error
	)
	l.change(peer.Name, func() { link, err = l.ensureAdapted(ctx, peer, age) })
	return link, err
}

// change has the link to the peer made or closed by one caller at a time. Sources are called afterwards, without the lock,
// because they may ask for the link themselves.
func (l *Links) change(peer string, do func()) {
	if l.changeLocked(peer, do) {
		l.publishLink(peer)
	}
}

func (l *Links) changeLocked(peer string, do func()) (changed bool) {
	lock := l.ensureLock(peer)
	lock.Lock()
	defer lock.Unlock()
	before, _ := l.Get(peer)
	was := l.State(peer) == Unlinked
	do()
	after, _ := l.Get(peer)
	return before != after || was != (l.State(peer) == Unlinked)
}

func (l *Links) ensureAdapted(ctx context.Context, peer *v1alpha1.Peer, age time.Duration) (*Link, error) {
	link, err := l.ensure(ctx, peer, age)
	l.noteUnlinked(peer.Name, errors.Is(err, ErrCredentialsMissing) || errors.Is(err, ErrCredentialsInvalid))
	if err != nil || l.config.Adapt == nil || peer.Protocol().ShadowPods {
		return link, err
	}
	return l.adapt(link, peer)
}

func (l *Links) noteUnlinked(peer string, is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if is {
		l.unlinked[peer] = true
	} else {
		delete(l.unlinked, peer)
	}
}

// adapt returns the link as Adapt has it.
func (l *Links) adapt(base *Link, peer *v1alpha1.Peer) (*Link, error) {
	l.mu.Lock()
	current := l.adapted[peer.Name]
	l.mu.Unlock()
	if current != nil && current.base == base && current.clusterID == peer.Spec.ClusterID &&
		slices.Equal(current.namespaces, peer.Spec.Namespaces) && current.protocol == peer.Protocol() {
		return current.Link, nil
	}
	made, err := l.config.Adapt(base, peer)
	if err != nil {
		return nil, err
	}
	conn := &connection{books: base.books, account: base.account, timeout: base.timeout}
	conn.token.Store(base.token.Load())
	conn.ctx, conn.close = context.WithCancel(base.ctx)
	conn.use(made)
	if made.REST == nil {
		conn.streams = base.connection
	}
	link := l.linkOver(conn, peer.Name)
	if current != nil {
		current.close()
	}
	l.mu.Lock()
	l.adapted[peer.Name] = &adapted{link, base, peer.Spec.ClusterID, slices.Clone(peer.Spec.Namespaces), peer.Protocol()}
	l.mu.Unlock()
	if made.Run != nil {
		l.run(func() { made.Run(conn.ctx) })
	}
	l.run(link.watchOver)
	return link, nil
}

func (l *Links) ensure(ctx context.Context, peer *v1alpha1.Peer, age time.Duration) (*Link, error) {
	current, open := l.made(peer.Name)
	if open && current.checkedFor == peer.ResourceVersion && l.config.Clock.Since(current.checked) < age {
		return current, nil
	}
	checked := l.config.Clock.Now()
	secret, err := l.readSecret(ctx, peer.Name)
	if apierrors.IsNotFound(err) {
		l.swap(peer.Name, nil)
		return nil, fmt.Errorf("%w: there is no Secret %s", ErrCredentialsMissing, secretName(peer.Name))
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", secretName(peer.Name), err)
	}
	if open && current.keeps(secret) {
		current.credentials, current.checked, current.checkedFor = secret.ResourceVersion, checked, peer.ResourceVersion
		return current, nil
	}
	link, err := newLink(ctx, l, peer.Name, secret)
	if err != nil {
		l.swap(peer.Name, nil)
		return nil, fmt.Errorf("%w: Secret %s: %w", ErrCredentialsInvalid, secretName(peer.Name), err)
	}
	link.checked, link.checkedFor = checked, peer.ResourceVersion
	if !l.swap(peer.Name, link) {
		link.close()
		return nil, ErrClosed
	}
	l.run(link.watchOver)
	return link, nil
}

// made returns the link to the peer over the connection that ensure made, if it is still open.
func (l *Links) made(peer string) (*Link, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	link, ok := l.links[peer]
	return link, ok
}

// Get returns the link to the peer that the last Ensure made, if it is still open.
func (l *Links) Get(peer string) (*Link, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if shown := l.adapted[peer]; shown != nil {
		return shown.Link, true
	}
	link, ok := l.links[peer]
	return link, ok
}

// all returns the links that are open.
func (l *Links) all() []*Link {
	l.mu.Lock()
	defer l.mu.Unlock()
	var open []*Link
	for peer, link := range l.links {
		if shown := l.adapted[peer]; shown != nil {
			link = shown.Link
		}
		open = append(open, link)
	}
	return open
}

// Close closes the link to the peer, if there is one. The next Ensure makes a new one.
func (l *Links) Close(peer string) {
	l.change(peer, func() {
		l.swap(peer, nil)
		l.noteUnlinked(peer, false)
	})
}

func (l *Links) readSecret(ctx context.Context, peer string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer), Name: v1alpha1.LinkSecret}
	return secret, l.config.Local.Get(ctx, key, secret)
}

func secretName(peer string) string {
	return v1alpha1.TenantNamespace(peer) + "/" + v1alpha1.LinkSecret
}

// swap puts link in the place of the peer's link, which it closes. Without a link, what the peer costs is forgotten with it.
// It reports whether links are still made at all.
func (l *Links) swap(peer string, link *Link) bool {
	l.mu.Lock()
	old := l.links[peer]
	delete(l.links, peer)
	delete(l.adapted, peer) // it ends with the link that it was made of
	open := !l.closed
	switch {
	case link == nil:
		delete(l.ledgers, peer)
	case open:
		l.links[peer] = link
	}
	l.mu.Unlock()
	if old != nil {
		old.close()
	}
	return open
}

func (l *Links) ensureLock(peer string) *sync.Mutex {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ensures[peer] == nil {
		l.ensures[peer] = &sync.Mutex{}
	}
	return l.ensures[peer]
}

// run starts f in a goroutine that Run waits for, unless Run has begun to end everything.
func (l *Links) run(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.running.Go(f)
	}
}
