package agentless

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Links are the links to peers without Hanse. Their Run must be called to end them.
type Links struct {
	mu     sync.Mutex
	closed bool
	open   map[string]*Link // peer → its link
	crew   crew
}

// NewLinks returns links, none of which is made yet.
func NewLinks() *Links { return &Links{open: map[string]*Link{}} }

var (
	errEnded  = errors.New("links to clusters without Hanse are being closed")
	errNoHome = errors.New("the Peer has no cluster id or no namespaces yet")
)

// Of returns the link to the peer over the API: the same one as long as neither the API nor what the Peer says changes.
func (l *Links) Of(ctx context.Context, api API, peer *v1alpha1.Peer) (*Link, error) {
	if peer.Spec.ClusterID == "" || len(peer.Spec.Namespaces) == 0 {
		return nil, errNoHome
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errEnded
	}
	current := l.open[peer.Name]
	if current != nil && current.API == api && current.view.id == peer.Spec.ClusterID &&
		slices.Equal(current.view.namespaces, peer.Spec.Namespaces) {
		return current, nil
	}
	if current != nil {
		current.close()
		delete(l.open, peer.Name)
	}
	// The link outlives the call that makes it.
	made, err := newLink(context.WithoutCancel(ctx), api, peer, &l.crew)
	if err != nil {
		return nil, err
	}
	l.open[peer.Name] = made
	return made, nil
}

// Run waits until ctx ends and ends what the links have started.
func (l *Links) Run(ctx context.Context) error {
	<-ctx.Done()
	l.mu.Lock()
	l.closed = true
	for _, link := range l.open {
		link.close()
	}
	clear(l.open)
	l.mu.Unlock()
	l.crew.end()
	return nil
}

// Start is Run, so that a manager can run links.
func (l *Links) Start(ctx context.Context) error { return l.Run(ctx) }

// NeedLeaderElection reports that only the leader talks to peers.
func (*Links) NeedLeaderElection() bool { return true }
