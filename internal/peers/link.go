// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

// A Link is an authenticated connection to the API server of one peer. It is safe for concurrent use. After it was
// closed, which Done tells, every request over it fails with ErrClosed.
type Link struct {
	*connection
	peer        string
	lastInfo    atomic.Pointer[parsedInfo] // nil before the first
	credentials string                     // resource version of the Secret that its token is from; Ensure alone uses it
	checked     time.Time                  // when that Secret was read last; Ensure alone uses it, for one peer at a time
	checkedFor  string                     // resource version of the Peer for which it was; Ensure alone uses it
	links       *Links

	cut      atomic.Bool   // the peer has not answered for the link timeout
	failures chan struct{} // holds a token when something that is followed could not be read

	mu      sync.Mutex
	mirrors map[place]*Mirror               // in namespaces whose names are known
	twins   map[string]map[*Subject]*Mirror // our namespace → what is followed in its twin
}

func newLink(ctx context.Context, links *Links, peer string, secret *corev1.Secret) (*Link, error) {
	to, err := parseAccount(secret.Data)
	if err != nil {
		return nil, err
	}
	// The link outlives the call that makes it.
	conn, err := links.connect(context.WithoutCancel(ctx), to, links.ledger(peer))
	if err != nil {
		return nil, err
	}
	link := links.linkOver(conn, peer)
	link.credentials = secret.ResourceVersion
	return link, nil
}

func (l *Links) linkOver(conn *connection, peer string) *Link {
	return &Link{
		connection: conn, peer: peer, links: l, failures: make(chan struct{}, 1),
		mirrors: map[place]*Mirror{}, twins: map[string]map[*Subject]*Mirror{},
	}
}

// keeps reports whether the link is what the Secret describes. If another token is all that is new, the link takes it,
// so that streams and watches go on when a session is renewed.
func (l *Link) keeps(secret *corev1.Secret) bool {
	if l.credentials == secret.ResourceVersion {
		return true
	}
	to, err := parseAccount(secret.Data)
	if err != nil || !l.account.sameBut(to) {
		return false
	}
	l.token.Store(&to.token)
	return true
}

// Peer returns the name of the Peer that the link leads to.
func (l *Link) Peer() string { return l.peer }

// TenantNamespace returns the name of the namespace at the peer in which our messages live.
func (l *Link) TenantNamespace() string { return l.account.namespace }

// Invitation returns the id of the invitation by which we joined the peer, or nothing if the link was made by hand.
func (l *Link) Invitation() string { return l.account.invitation }

// Done returns a channel that is closed when the link is closed: ask Links for the one that may have replaced it.
func (l *Link) Done() <-chan struct{} { return l.ctx.Done() }

// OnClose has then called in a goroutine of its own when the link is closed, unless stop is called before.
func (l *Link) OnClose(then func()) (stop func() bool) { return context.AfterFunc(l.ctx, then) }

// Busy returns a BusyError where a request would fail with it. Ask before work that is done for a request alone.
func (l *Link) Busy() error { return l.books.calls.busy(l.links.config.Clock.Now()) }

// Aside makes room for work that nobody at home waits for, such as to take back what the peer has and home did not ask for. It
// ends when end is called. While as many workers as may are at such work for this peer, it returns a BusyError.
func (l *Link) Aside() (end func(), err error) { return l.books.aside.begin(l.links.config.Clock.Now) }

// Renew asks the peer for a new token of our identity there, which lives for the given time or as long as the peer's API
// server allows, and ends with our session. The link goes on with the token that it has until Ensure finds another one in
// the Secret.
func (l *Link) Renew(ctx context.Context, life time.Duration) (trust.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: l.TenantNamespace(), Name: v1alpha1.PeerServiceAccount,
	}}
	seconds := int64(life.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Secret", Name: v1alpha1.SessionSecret,
		},
	}}
	if err := l.client.SubResource("token").Create(ctx, account, request); err != nil {
		return trust.Session{}, fmt.Errorf("request a token of the peer: %w", classify(err))
	}
	session := trust.Session{Token: request.Status.Token, Expires: request.Status.ExpirationTimestamp.Time}
	if err := session.Check(); err != nil {
		return trust.Session{}, fmt.Errorf("request a token of the peer: %w: %w", ErrMalformed, err)
	}
	return session, nil
}
