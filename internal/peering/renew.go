package peering

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
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

// sessionStep uses the invitation that a provider gave us, keeps our session there alive, and tells the provider our version.
type sessionStep struct{ *deps }

// hasSession reports whether we are, or want to be, a consumer of the peer by an invitation.
func hasSession(peer *v1alpha1.Peer) bool {
	return peer.HasRole(v1alpha1.RoleProvider) && peer.Protocol().Sessions
}

// Reconcile implements step. Of a Peer that goes only the session matters, which stays good until the two have parted.
func (c *sessionStep) Reconcile(ctx context.Context, o *observation) (result, error) {
	if !hasSession(o.peer) || o.namespace == nil {
		o.contact.session, o.contact.sessionGate = nil, gate{}
		return result{}, nil
	}
	if !o.contact.sessionGate.open(o.sightOfCalls(), o.now) {
		return result{again: o.contact.sessionGate.due}, nil
	}
	s, err := c.look(ctx, o)
	if apierrors.IsForbidden(err) {
		o.contact.sessionGate = gate{o.sightOfCalls(), o.now.Add(lookSettling)} // our rights in there were just bound
		return result{again: o.contact.sessionGate.due}, nil
	}
	for _, do := range []func(context.Context, *observation, *session) error{c.join, c.renew, c.introduce} {
		if err == nil {
			err = do(ctx, o, s)
		}
	}
	if err != nil {
		return result{}, err
	}
	o.contact.session, o.contact.sessionGate = s, gate{o.sightOfCalls(), c.next(o, s)}
	return result{again: o.contact.sessionGate.due}, nil
}

// next returns when the session must be looked at again though nothing changes.
func (c *sessionStep) next(o *observation, s *session) time.Time {
	next := o.now.Add(wait.Jitter(lookAgain, 0.1))
	if s.holding == nil || s.renewal.reason == v1alpha1.ReasonUnauthorized {
		next = o.now.Add(wait.Jitter(lookSoon, 0.1))
	}
	// The client says of a new Peer that it is about to bring an invitation.
	announced := o.peer.Annotations[v1alpha1.AnnotationJoin] != "" && s.offer == nil && s.holding == nil
	if announced && o.now.Sub(o.known.since) < announcedWindow {
		next = sooner(next, o.now.Add(lookSettling))
	}
	if s.joining.stage == waiting || s.joining.stage == failed {
		next = sooner(next, o.contact.joining.next)
	}
	if s.holding.kept() {
		next = sooner(next, c.renewalDue(o, s.holding))
		if !o.contact.introduced {
			next = sooner(next, introductionDue(o))
		}
	}
	return next
}

// renew renews the session when it is time.
func (c *sessionStep) renew(ctx context.Context, o *observation, s *session) error {
	h, tries := s.holding, &o.contact.renewing
	if !h.kept() {
		*tries = attempts{}
		return nil
	}
	if !tries.due(h.version(), o.now) || o.now.Before(c.renewalDue(o, h)) {
		s.renewal = tries.last
		s.unsure = tries.last.stage == settled && c.config.schedule().missed(o.peer.UID, h, o.now)
		return nil
	}
	var err error
	s.renewal, err = tries.try(h.version(), o.now, func() error { return c.extend(ctx, o, s) })
	switch {
	case err != nil:
		return err
	case s.renewal.stage != settled:
		renewalFailures.WithLabelValues(s.renewal.reason).Inc()
		return nil
	}
	*tries = attempts{}
	// Once a day it is looked whether the peer has our version right.
	o.contact.introduced, o.contact.introducing = false, attempts{}
	renewals.Inc()
	ctrl.LoggerFrom(ctx).V(1).Info("Renewed the session", "expires", s.holding.expires)
	return nil
}

// extend gets a new token and stores it. What is wrong with the other side is a verdict.
func (c *sessionStep) extend(ctx context.Context, o *observation, s *session) error {
	given := trust.Session{}
	link, err := c.links.Ensure(ctx, o.peer)
	if err == nil {
		given, err = link.Renew(ctx, c.config.SessionLife)
	}
	if err != nil {
		return renewalProblem(ctx, err, s.holding, o.now)
	}
	return c.store(ctx, o, s, s.holding.credentials, given)
}

// renewalDue returns when the session is to be renewed or, if that has failed, when it is tried again. A session that
// the peer does not know any more is tried at once.
func (c *sessionStep) renewalDue(o *observation, h *holding) time.Time {
	due := c.config.schedule().due(o.peer.UID, h, o.known.since, o.now)
	if o.contact.probe.unknownAt.After(h.issued) {
		due = sooner(due, o.now)
	}
	return later(due, o.contact.renewing.next)
}

// introduce tells the provider our version, once after a start and after each renewal. It is no matter if that fails:
// the session is as good without, and what is wrong with the link is said elsewhere.
func (c *sessionStep) introduce(ctx context.Context, o *observation, s *session) error {
	if !s.holding.kept() || o.contact.introduced || o.now.Before(introductionDue(o)) {
		return nil
	}
	if err := c.confirm(ctx, o, s); err != nil {
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
