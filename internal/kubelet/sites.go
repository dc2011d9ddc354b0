package kubelet

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// sites are the providers that we have a link to, each with what is watched there.
type sites struct {
	links linker
	// wake asks the pod controller to look at the pods of that home namespace, or of all, at the peer.
	wake func(ctx context.Context, site *site, namespace string)
	// ring asks it to look at one.
	ring func(request)
	// ringNode asks the node controller to look at the node of the peer.
	ringNode func(peer string)
	// linkTimeout is how soon it is known that a peer is cut off.
	linkTimeout time.Duration

	mu     sync.Mutex
	closed bool
	open   map[string]*site // peer → its site

	waits gate // those who wait for mirrors to sync, to fail and to recover
}

// Run waits until ctx ends and ends what the sites started. The links themselves are ended by their owner.
func (s *sites) Run(ctx context.Context) error {
	<-ctx.Done()
	s.mu.Lock()
	s.closed = true
	for _, site := range s.open {
		site.close()
	}
	clear(s.open)
	s.mu.Unlock()
	s.waits.end()
	return nil
}

// Start is Run, so that a manager can run sites.
func (s *sites) Start(ctx context.Context) error { return s.Run(ctx) }

// get returns the site of the peer, or nil.
func (s *sites) get(peer string) *site {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[peer]
}

// ensure opens the site of the peer, again if its link is another one than before. Nothing is waited for.
func (s *sites) ensure(ctx context.Context, peer *v1alpha1.Peer) error {
	made, err := s.links.Ensure(ctx, peer)
	s.mu.Lock()
	defer s.mu.Unlock()
	current := s.open[peer.Name]
	if err != nil {
		if current != nil && current.ended() {
			s.forget(peer.Name)
		}
		return fmt.Errorf("link to peer %q: %w", peer.Name, err)
	}
	if s.closed || current != nil && current.link == made {
		return nil
	}
	s.forget(peer.Name)
	opened, err := newSite(ctx, s, peer.Name, made)
	if err != nil {
		return fmt.Errorf("watch peer %q: %w", peer.Name, err)
	}
	s.open[peer.Name] = opened
	return nil
}

// drop closes the site of the peer and the link to it.
func (s *sites) drop(peer string) {
	s.mu.Lock()
	s.forget(peer)
	s.mu.Unlock()
	s.links.Close(peer)
}

func (s *sites) forget(peer string) {
	if site := s.open[peer]; site != nil {
		site.close()
		delete(s.open, peer)
	}
}

// whenSynced calls then as soon as the mirror has synced, unless ctx or the link ends before.
func (s *sites) whenSynced(ctx context.Context, m mirror, then func()) {
	s.waits.run(func() {
		if m.WaitForSync(ctx) == nil {
			then()
		}
	})
}
