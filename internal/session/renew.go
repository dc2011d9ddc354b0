package session

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// renew renews the session when it is time.
func (c *Controller) renew(ctx context.Context, seen *look, known *state) error {
	h, tries := seen.holding, &known.renewing
	if !h.kept() {
		*tries = attempts{}
		return nil
	}
	ready := tries.due(h.version(), seen.now)
	if !ready || seen.now.Before(c.renewalDue(seen, known)) {
		seen.renewal = tries.last
		seen.unsure = tries.last.stage == settled && c.schedule.missed(seen.peer.UID, h, seen.now)
		return nil
	}
	problem, err := c.extend(ctx, seen)
	if err != nil {
		return err
	}
	if problem != nil {
		seen.renewal = renewalProblem(problem, h, seen.now)
		tries.record(seen.renewal, seen.now)
		renewalFailures.WithLabelValues(seen.renewal.reason).Inc()
		return nil
	}
	*tries = attempts{}
	known.introduced = false // once a day it is looked whether the peer has our version right
	known.presenting = attempts{}
	renewals.Inc()
	ctrl.LoggerFrom(ctx).V(1).Info("Renewed the session", "expires", seen.holding.expires)
	return nil
}

// extend gets a new token and stores it. What is wrong with the other side is the problem, what is wrong with ours the
// error.
func (c *Controller) extend(ctx context.Context, seen *look) (problem, err error) {
	link, err := c.links.Ensure(ctx, seen.peer)
	if err != nil {
		return err, ctx.Err()
	}
	session, err := link.Renew(ctx, c.config.SessionLife)
	if err != nil {
		return err, ctx.Err()
	}
	// The Secret's version goes along: if somebody has put other credentials there meanwhile, theirs stay.
	holding, err := c.secrets.store(ctx, seen.holding.secret, seen.holding.credentials, session, seen.now)
	if err != nil {
		return nil, err
	}
	seen.holding = holding
	return nil, nil
}

// renewalDue returns when the session is to be renewed or, if that has failed, when it is tried again. A session that
// the peer does not know any more is tried at once.
func (c *Controller) renewalDue(seen *look, known *state) time.Time {
	due := c.schedule.due(seen.peer.UID, seen.holding, known.since, seen.now)
	if unknownSince(seen.peer, seen.holding) {
		due = earlier(due, seen.now)
	}
	return later(due, known.renewing.next)
}

// introduce tells the provider our version, once after a start and after each renewal. It is no matter if that fails:
// the session is as good without, and what is amiss with the link is said elsewhere.
func (c *Controller) introduce(ctx context.Context, seen *look, known *state) error {
	if !seen.holding.kept() || known.introduced || seen.now.Before(introductionDue(seen, known)) {
		return nil
	}
	if err := c.confirm(ctx, seen); err != nil {
		known.presenting.record(verdict{stage: unrenewed}, seen.now)
		ctrl.LoggerFrom(ctx).V(1).Info("The provider could not be told our version", "cause", err.Error())
		return ctx.Err()
	}
	known.introduced = true
	return nil
}

func introductionDue(seen *look, known *state) time.Time {
	spread := time.Duration(float64(introductionWindow) * fraction(string(seen.peer.UID), "introduction"))
	return later(known.since.Add(spread), known.presenting.next)
}
