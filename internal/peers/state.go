// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
)

// recoveryPoll is how soon it is noticed that a peer that did not answer does so again. A peer that answers is not polled.
const recoveryPoll = 200 * time.Millisecond

// State is what is known about the link to a peer.
type State int

const (
	// Unknown means that the peer has not been heard of yet, or not for a moment. What was shown before is as good as ever.
	Unknown State = iota
	// Up means that the peer answers.
	Up
	// Cut means that the peer has not answered for the link timeout (see Config.LinkTimeout).
	Cut
	// Unlinked means that there are no credentials by which the peer could be asked.
	Unlinked
)

// State returns what is known about the link to the peer.
func (l *Links) State(peer string) State {
	if link, open := l.Get(peer); open {
		return link.State()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unlinked[peer] {
		return Unlinked
	}
	return Unknown
}

// State returns what is known about the link, as far as our mappings are followed over it.
func (l *Link) State() State {
	mappings := l.followedMappings()
	switch {
	case l.cut.Load():
		return Cut
	case mappings != nil && mappings.HasSynced() && mappings.Err() == nil:
		return Up
	default:
		return Unknown
	}
}

// Err says why the peer does not answer, as far as the mirror of our mappings knows. Whoever finds an error should ask the
// peer for nothing: requests to a peer that is down keep workers from others. A change of the link tells when it is over.
func (l *Link) Err() error {
	if mappings := l.followedMappings(); mappings != nil {
		return mappings.Err()
	}
	return nil
}

func (l *Link) followedMappings() *Mirror {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mirrors[place{subject: Mappings, namespace: l.TenantNamespace()}]
}

// hasFailed is called when something that is followed cannot be read.
func (l *Link) hasFailed() {
	select {
	case l.failures <- struct{}{}:
	default: // it is known already
	}
}

// watchOver follows for the life of the link whether the peer answers, and publishes changes. One request that fails is no
// news: the peer is cut off when attempts to reach it again have failed too.
func (l *Link) watchOver() {
	cuts := steadiness{}
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.failures:
		}
		err := l.failure()
		if err == nil {
			continue // the failure was of one mirror alone, or is over
		}
		err = wait.PollUntilContextTimeout(l.ctx, recoveryPoll, l.grace(err), true, l.answersFor(0))
		if err != nil && l.ctx.Err() == nil {
			l.setCut(true)
			err = wait.PollUntilContextCancel(l.ctx, recoveryPoll, true, l.answersFor(cuts.next(l.links.config.Clock.Now())))
		}
		if err != nil {
			return // the link is closed
		}
		l.setCut(false)
		l.links.publishLink(l.peer)
	}
}

// answersFor returns whether the peer has answered for so long whenever it was looked at.
func (l *Link) answersFor(long time.Duration) wait.ConditionWithContextFunc {
	well := -recoveryPoll
	return func(context.Context) (bool, error) {
		if l.answers() {
			well += recoveryPoll
		} else {
			well = -recoveryPoll
		}
		return well >= long, nil
	}
}

// A steadiness says for how long a peer that was cut off must answer before it counts as back. A link that comes and goes
// must do so for longer each time, because each turn writes the status of the node and of all its pods.
type steadiness struct {
	cuts int
	last time.Time
}

const (
	// cutsForFree is how many cuts in a row cost nothing, and inARow how close they must be for that.
	cutsForFree = 2
	inARow      = 10 * time.Minute
	// mostSteady is for how long a peer must answer at most.
	mostSteady = time.Minute
)

func (s *steadiness) next(now time.Time) time.Duration {
	if now.Sub(s.last) > inARow {
		s.cuts = 0
	}
	s.cuts, s.last = s.cuts+1, now
	if s.cuts <= cutsForFree {
		return 0
	}
	return min(time.Second<<min(s.cuts-cutsForFree-1, 10), mostSteady)
}

// grace returns for how long the peer must fail to answer, from the first failure on, until it counts as cut off. Silence
// on a connection has taken two thirds of the link timeout before it is a failure.
func (l *Link) grace(err error) time.Duration {
	limit := l.links.config.LinkTimeout
	switch {
	case errors.Is(err, ErrCut):
		return 0
	case errors.Is(err, ErrLost):
		return limit / 6
	default:
		return limit * 5 / 6
	}
}

// answers says whether all that is followed can be read.
func (l *Link) answers() bool { return l.failure() == nil }

// failure returns why something that is followed is behind because the peer does not answer. All of it must be read again
// before what is known is shown again. What may not be read, say, is a matter of that mirror alone.
func (l *Link) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, m := range l.mirrors {
		if err := m.Err(); err != nil && (at.subject == Mappings || isDown(err)) {
			return err
		}
	}
	for _, mirrors := range l.twins {
		for _, m := range mirrors {
			if err := m.Err(); isDown(err) {
				return err
			}
		}
	}
	return nil
}

// isDown says whether an error of one mirror means that nothing can be had from the peer. A peer that sends too much is cut
// off like one that is down.
func isDown(err error) bool { return errors.Is(err, ErrUnreachable) || tooMuch(err) }

func (l *Link) setCut(cut bool) {
	if was := l.cut.Swap(cut); was == cut {
		return
	}
	log := ctrl.LoggerFrom(l.ctx).WithValues("Peer", l.peer)
	if cut {
		log.Info("Peer is cut off", "cause", l.failure())
		l.links.publishLink(l.peer)
	} else {
		log.Info("Peer answers again")
	}
}
