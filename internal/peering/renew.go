package peering

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// lookSoon is how often it is looked for an invitation while there is no session, or a bad one. Secrets cannot be
	// watched, because that needs rights in all namespaces.
	lookSoon = 5 * time.Second
	// lookAgain is the same while all is well. The client announces an invitation by an annotation.
	lookAgain = 5 * time.Minute
	// lookSettling is how soon it is looked again whether our rights in the tenant namespace are known, and for an
	// invitation that was just announced.
	lookSettling = time.Second
	// announcedWindow is for how long an invitation that the client has announced is looked for more often.
	announcedWindow = time.Minute
	// introductionWindow is over how long a manager that has started spreads telling providers its version.
	introductionWindow = time.Minute
	// minInterval is the least between two renewals.
	minInterval = time.Second
	// missedWindow is the least over which renewals are spread that came due while nobody was there.
	missedWindow = 10 * time.Second
)

// renewStep keeps our session at a provider alive, and tells the provider our version.
type renewStep struct{ *joinStep }

// Reconcile implements step. It goes on from what joinStep has read.
func (c *renewStep) Reconcile(ctx context.Context, o *observation) (result, error) {
	if o.session == nil {
		return result{again: o.contact.sessionGate.due}, nil
	}
	if err := c.renew(ctx, o); err != nil {
		return result{}, err
	}
	if err := c.introduce(ctx, o); err != nil {
		return result{}, err
	}
	o.contact.session = o.session
	o.contact.sessionGate = gate{o.sightOfCalls(), c.next(o)}
	return result{again: o.contact.sessionGate.due}, nil
}

// next returns when the session must be looked at again though nothing changes.
func (c *renewStep) next(o *observation) time.Time {
	next := o.now.Add(wait.Jitter(lookAgain, 0.1))
	if o.session.holding == nil || o.session.renewal.reason == v1alpha1.ReasonUnauthorized {
		next = o.now.Add(wait.Jitter(lookSoon, 0.1))
	}
	if announced(o) && o.now.Sub(o.known.since) < announcedWindow {
		next = sooner(next, o.now.Add(lookSettling))
	}
	if o.session.joining.stage == waiting || o.session.joining.stage == failed {
		next = sooner(next, o.contact.joining.next)
	}
	if o.session.holding.kept() {
		next = sooner(next, c.renewalDue(o))
		if !o.contact.introduced {
			next = sooner(next, introductionDue(o))
		}
	}
	return next
}

// announced reports whether the client has said of a new Peer that it is about to bring an invitation.
func announced(o *observation) bool {
	return o.peer.Annotations[v1alpha1.AnnotationJoin] != "" && o.session.offer == nil && o.session.holding == nil
}

// renew renews the session when it is time.
func (c *renewStep) renew(ctx context.Context, o *observation) error {
	h, tries := o.session.holding, &o.contact.renewing
	if !h.kept() {
		*tries = attempts{}
		return nil
	}
	ready := tries.due(h.version(), o.now)
	if !ready || o.now.Before(c.renewalDue(o)) {
		o.session.renewal = tries.last
		o.session.unsure = tries.last.stage == settled && c.config.schedule().missed(o.peer.UID, h, o.now)
		return nil
	}
	problem, err := c.extend(ctx, o)
	if err != nil {
		return err
	}
	if problem != nil {
		o.session.renewal = renewalProblem(problem, h, o.now)
		tries.record(o.session.renewal, o.now)
		renewalFailures.WithLabelValues(o.session.renewal.reason).Inc()
		return nil
	}
	*tries = attempts{}
	o.contact.introduced = false // once a day it is looked whether the peer has our version right
	o.contact.introducing = attempts{}
	renewals.Inc()
	ctrl.LoggerFrom(ctx).V(1).Info("Renewed the session", "expires", o.session.holding.expires)
	return nil
}

// extend gets a new token and stores it. What is wrong with the other side is the problem, what is wrong with ours the
// error.
func (c *renewStep) extend(ctx context.Context, o *observation) (problem, err error) {
	link, err := c.links.Ensure(ctx, o.peer)
	if err != nil {
		return err, ctx.Err()
	}
	session, err := link.Renew(ctx, c.config.SessionLife)
	if err != nil {
		return err, ctx.Err()
	}
	// The Secret's version goes along: if somebody has put other credentials there meanwhile, theirs stay.
	holding, err := c.store(ctx, o.session.holding.secret, o.session.holding.credentials, session, o.now)
	if err != nil {
		return nil, err
	}
	o.session.holding = holding
	return nil, nil
}

// renewalDue returns when the session is to be renewed or, if that has failed, when it is tried again. A session that
// the peer does not know any more is tried at once.
func (c *renewStep) renewalDue(o *observation) time.Time {
	due := c.config.schedule().due(o.peer.UID, o.session.holding, o.known.since, o.now)
	if o.contact.probe.unknownAt.After(o.session.holding.issued) {
		due = sooner(due, o.now)
	}
	return later(due, o.contact.renewing.next)
}

// introduce tells the provider our version, once after a start and after each renewal. It is no matter if that fails:
// the session is as good without, and what is wrong with the link is said elsewhere.
func (c *renewStep) introduce(ctx context.Context, o *observation) error {
	if !o.session.holding.kept() || o.contact.introduced || o.now.Before(introductionDue(o)) {
		return nil
	}
	if err := c.confirm(ctx, o); err != nil {
		o.contact.introducing.record(verdict{stage: unrenewed}, o.now)
		ctrl.LoggerFrom(ctx).V(1).Info("The provider could not be told our version", "cause", err.Error())
		return ctx.Err()
	}
	o.contact.introduced = true
	return nil
}

func introductionDue(o *observation) time.Time {
	spread := time.Duration(float64(introductionWindow) * fraction(string(o.peer.UID), "introduction"))
	return later(o.known.since.Add(spread), o.contact.introducing.next)
}

// A schedule says when sessions are renewed.
type schedule struct {
	period time.Duration // how often
	life   time.Duration // for how long they are asked for
}

func (c *Config) schedule() schedule {
	return schedule{period: c.RenewalPeriod, life: c.SessionLife}
}

// shortened reports whether the peer's API server gives clearly less than was asked for.
func (s schedule) shortened(h *holding) bool { return h.expires.Sub(h.issued) < s.life/10*9 }

// interval is how long after its making the session is renewed: the period, give or take a tenth so that not all
// sessions are renewed at the same moment, but never later than at half of its life.
func (s schedule) interval(peer types.UID, h *holding) time.Duration {
	period := time.Duration(float64(s.period) * (0.9 + 0.2*fraction(string(peer), h.version())))
	return max(min(period, h.expires.Sub(h.issued)/2), minInterval)
}

// missed reports whether the session should have been renewed before the moment.
func (s schedule) missed(peer types.UID, h *holding, moment time.Time) bool {
	return h.issued.Add(s.interval(peer, h)).Before(moment)
}

// due returns when to renew the session. What came due before since, when we began to look after it, is spread over a
// while, so that a manager that was away does not renew everything at once, but is done before the session ends.
//
// A session from the future was made when our clock was wrong, and counts as missed.
func (s schedule) due(peer types.UID, h *holding, since, now time.Time) time.Time {
	if !s.missed(peer, h, since) && !h.issued.After(now) {
		return h.issued.Add(s.interval(peer, h))
	}
	window := s.period / 10
	if !h.expires.IsZero() {
		window = max(min(window, h.expires.Sub(since)/2), min(window, missedWindow))
	}
	return since.Add(time.Duration(float64(window) * fraction(string(peer), since.String())))
}

// fraction returns a number from 0 to 1 that depends on nothing but the texts.
func fraction(texts ...string) float64 {
	hash := sha256.Sum256([]byte(strings.Join(texts, "\n")))
	return float64(binary.BigEndian.Uint64(hash[:])) / math.MaxUint64
}
