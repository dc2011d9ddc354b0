// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

const (
	// lookSoon is how often it is looked for an invitation while there is no session, or a bad one. Secrets cannot be
	// watched, because that needs rights in all namespaces. With many peers it is less often, as with probes.
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
type sessionStep struct {
	*deps

	peers func() int // how many peers there are
}

// hasSession reports whether we are, or want to be, a consumer of the peer by an invitation.
func hasSession(peer *v1alpha1.Peer) bool {
	return peer.HasRole(v1alpha1.RoleProvider) && peer.Protocol().Sessions
}

// Reconcile implements step. Of a Peer that goes only the session matters, which stays good until the two have parted.
func (c *sessionStep) Reconcile(ctx context.Context, o *observation) (result, error) {
	if !hasSession(o.peer) || !o.uses() || o.namespace == nil {
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
		next = o.now.Add(wait.Jitter(max(lookSoon, spread(c.peers())), 0.1))
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
// the session is as good inVain, and what is wrong with the link is said elsewhere.
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

// A verdict is how an attempt to join or to renew stands. The zero verdict has nothing to say. Others are the errors that end
// an attempt for a cause that is not on our side.
type verdict struct {
	stage           stage
	reason, message string
}

// Error implements error.
func (v verdict) Error() string { return v.message }

// inVain reports whether the attempt has brought nothing.
func (v verdict) inVain() bool { return v.stage == failed || v.stage == refused }

type stage int

const (
	// settled: there is nothing to do, or it is done.
	settled stage = iota
	// waiting: the other side, or another part of Hanse, has to do something, which takes seconds.
	waiting
	// failed: it did not work and may work later.
	failed
	// unrenewed: the session could not be renewed, and lives on.
	unrenewed
	// refused: it will not work before somebody changes something.
	refused
)

func waits(message string) verdict { return verdict{waiting, v1alpha1.ReasonJoining, message} }

func fails(reason, message string, args ...any) verdict {
	return verdict{failed, reason, fmt.Sprintf(message, args...)}
}

func refuses(reason, message string, args ...any) verdict {
	return verdict{refused, reason, fmt.Sprintf(message, args...)}
}

// attempts say when something that did not work is tried again. What they remember only spares work: after a restart
// everything is tried once.
type attempts struct {
	of      string // what is attempted
	last    verdict
	next    time.Time
	backoff wait.Backoff
}

// due reports whether to try now. With something else to attempt it begins anew.
func (a *attempts) due(of string, now time.Time) bool {
	if a.of != of {
		*a = attempts{of: of}
	}
	return !now.Before(a.next)
}

// try attempts it, unless it is too early for that, and returns how that stands. An error is on our side.
func (a *attempts) try(of string, now time.Time, do func() error) (verdict, error) {
	if !a.due(of, now) {
		return a.last, nil
	}
	v := verdict{}
	if err := do(); err != nil && !errors.As(err, &v) {
		return v, err
	}
	a.record(v, now)
	return v, nil
}

// record keeps how the attempt went.
func (a *attempts) record(v verdict, now time.Time) {
	if a.last.stage != v.stage || a.backoff.Duration == 0 {
		a.backoff = backoffOf(v.stage)
	}
	a.last, a.next = v, now.Add(a.backoff.Step())
}

func backoffOf(s stage) wait.Backoff {
	b := wait.Backoff{Factor: 2, Jitter: 0.1, Steps: 100}
	switch s {
	case waiting: // somebody may be looking on, and the other side answers in a moment
		b.Duration, b.Cap, b.Factor = time.Second, 5*time.Second, 1.5
	case unrenewed: // the session lives for days
		b.Duration, b.Cap = 10*time.Second, 10*time.Minute
	default:
		b.Duration, b.Cap = 2*time.Second, time.Minute
	}
	return b
}

// trouble says what is wrong with a peer that has not done what we asked.
func trouble(err error) (reason, text string) {
	switch {
	case isForbidden(err):
		return v1alpha1.ReasonForbidden, "The peer knows us and lets us do nothing: it may have suspended us"
	case errors.Is(err, peers.ErrUnreachable) && hasNoWay(err):
		return v1alpha1.ReasonUnreachable, noWay
	case errors.Is(err, peers.ErrUnreachable):
		return v1alpha1.ReasonUnreachable, "The peer's API server does not answer: check that it runs and that this cluster may connect to it"
	case errors.Is(err, peers.ErrCredentialsInvalid):
		return v1alpha1.ReasonCredentialsInvalid, "What answers is not the peer's API server, or its certificate has changed: check " +
			"what stands between the two clusters"
	case errors.Is(err, peers.ErrMalformed), errors.Is(err, peers.ErrTooLarge):
		return v1alpha1.ReasonMalformed, "The answer makes no sense: check that a Kubernetes API server with Hanse answers"
	case isStatus(err):
		return v1alpha1.ReasonInvitationInvalid, "The peer's API server refuses what we ask for (" +
			string(apierrors.ReasonForError(err)) + "): check the versions of Hanse on both sides"
	default:
		return v1alpha1.ReasonUnreachable, "The peer could not be asked"
	}
}

// claimProblem says why the invitation could not be used now.
func claimProblem(ctx context.Context, err error, i *trust.Invitation, now time.Time) error {
	reason, text := trouble(err)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case isUnauthorized(err) && !now.Before(i.Expires):
		return fails(v1alpha1.ReasonInvitationExpired, "The invitation has expired: run `kubectl hanse invite NAME --renew` at "+
			"the peer and join with what it prints")
	case isUnauthorized(err):
		return fails(v1alpha1.ReasonInvitationUsed, "The peer does not take this invitation any more, because it was used or a "+
			"newer one was made: run `kubectl hanse invite NAME --renew` there and join with what it prints")
	default:
		return fails(reason, "%s. The peer was asked at %s; Hanse tries again", text, strings.Join(i.Servers, ", "))
	}
}

// renewalProblem says why the session could not be renewed.
func renewalProblem(ctx context.Context, err error, h *holding, now time.Time) error {
	const advice = "run `kubectl hanse invite NAME --renew` at the peer and join with what it prints"
	_, text := trouble(err)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case isUnauthorized(err):
		return verdict{unrenewed, v1alpha1.ReasonUnauthorized, "The peer does not accept our session any more, because it ended " +
			"or was taken back: " + advice + ". Pods that run there stay"}
	case !h.expires.IsZero() && !now.Before(h.expires):
		return verdict{unrenewed, v1alpha1.ReasonRenewalFailed, text + ". By now the session has ended: " + advice}
	default:
		return verdict{unrenewed, v1alpha1.ReasonRenewalFailed, text + ". The session that we have still lives; Hanse tries again"}
	}
}

func isUnauthorized(err error) bool {
	return errors.Is(err, peers.ErrUnauthorized) || apierrors.IsUnauthorized(err)
}

func isForbidden(err error) bool {
	return errors.Is(err, peers.ErrForbidden) || apierrors.IsForbidden(err)
}

// isStatus reports whether an API server has answered no in good order.
func isStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= 400 && status.Status().Code < 500 &&
		!apierrors.IsTooManyRequests(err)
}
