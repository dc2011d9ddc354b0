package kubelet

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/internal/peers"
)

// recoveryPoll is how soon it is noticed that a peer that did not answer does so again. A peer that answers is not polled.
const recoveryPoll = 200 * time.Millisecond

// linkState is what is known about the link to a peer.
type linkState int

const (
	// linkUnknown: the peer has not been heard of yet, or not for a moment. What was shown before is as good as ever.
	linkUnknown linkState = iota
	// linkUp: the peer answers.
	linkUp
	// linkCut: the peer has not answered for the link timeout.
	linkCut
)

// state returns what is known about the link to the peer.
func (s *sites) state(peer string) linkState {
	at := s.get(peer)
	if at == nil {
		return linkUnknown
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	switch {
	case at.isCut:
		return linkCut
	case at.mappings.HasSynced() && at.mappings.Err() == nil:
		return linkUp
	default:
		return linkUnknown
	}
}

// watchOver follows for the life of the site whether the peer answers, and has its node and its pods looked at when that
// changes. The mappings tell of their first failure by failed. One request that fails is no news: the peer is cut off when attempts to reach it again have failed too.
func (s *site) watchOver(failed <-chan struct{}) {
	answers := func(context.Context) (bool, error) {
		failed = s.mappings.Failed() // before the look, so that no failure behind it is missed
		return !s.failing(), nil
	}
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-failed:
		}
		err := wait.PollUntilContextTimeout(s.ctx, recoveryPoll, s.sites.grace(s.mappings.Err()), true, answers)
		if err != nil && s.ctx.Err() == nil {
			s.setCut(true)
			err = wait.PollUntilContextCancel(s.ctx, recoveryPoll, true, answers)
		}
		if err != nil {
			return // the site is closed
		}
		s.setCut(false)
		s.sites.wake(s.ctx, s, "")
	}
}

// grace returns for how long the peer must fail to answer, from the first failure on, until it counts as cut off. Silence
// on a connection has taken two thirds of the link timeout before it is a failure.
func (s *sites) grace(err error) time.Duration {
	if errors.Is(err, peers.ErrLost) {
		return s.linkTimeout / 6
	}
	return s.linkTimeout * 5 / 6
}

// failing says whether something that is watched there is behind because the peer does not answer. All of it must be read
// again before what is known of pods is shown again.
func (s *site) failing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mappings.Err() != nil {
		return true
	}
	for _, followed := range s.twins {
		// One that may not be read, say, is a matter of that twin alone.
		if errors.Is(followed.shadows.Err(), peers.ErrUnreachable) {
			return true
		}
	}
	return false
}

func (s *site) setCut(cut bool) {
	s.mu.Lock()
	was := s.isCut
	s.isCut = cut
	s.mu.Unlock()
	if was == cut {
		return
	}
	log := ctrl.LoggerFrom(s.ctx).WithValues("Peer", s.peer)
	if cut {
		log.Info("Peer is cut off", "cause", s.mappings.Err())
		s.sites.wake(s.ctx, s, "")
	} else {
		log.Info("Peer answers again")
	}
	s.sites.ringNode(s.peer)
}
