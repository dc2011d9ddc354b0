package peering

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

// A verdict is how an attempt to join or to renew stands. The zero verdict has nothing to say. Others are the errors that end
// an attempt for a cause that is not on our side.
type verdict struct {
	stage           stage
	reason, message string
}

// Error implements error.
func (v verdict) Error() string { return v.message }

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

// claimProblem says why the invitation could not be used now.
func claimProblem(ctx context.Context, err error, i *trust.Invitation, now time.Time) error {
	servers := strings.Join(i.Servers, ", ")
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case isUnauthorized(err) && !now.Before(i.Expires):
		return fails(v1alpha1.ReasonInvitationExpired, "The invitation has expired: run `kubectl hanse invite NAME --renew` at "+
			"the peer and join with what it prints")
	case isUnauthorized(err):
		return fails(v1alpha1.ReasonInvitationUsed, "The peer does not take this invitation any more, because it was used or a "+
			"newer one was made: run `kubectl hanse invite NAME --renew` there and join with what it prints")
	case isForbidden(err):
		return fails(v1alpha1.ReasonForbidden, "The peer knows the invitation and does not let us use it: check Hanse's "+
			"installation there")
	case errors.Is(err, peers.ErrCredentialsInvalid):
		return fails(v1alpha1.ReasonCredentialsInvalid, "What answers at %s is not the API server that the invitation names, or "+
			"cannot be spoken to: check what stands between the two clusters", servers)
	case isStatus(err):
		return fails(v1alpha1.ReasonInvitationInvalid, "The peer's API server does not take our claim (%s): check the versions "+
			"of Hanse on both sides", apierrors.ReasonForError(err))
	case errors.Is(err, peers.ErrMalformed), errors.Is(err, peers.ErrTooLarge):
		return fails(v1alpha1.ReasonMalformed, "What answers at %s makes no sense: check that it is a Kubernetes API server with "+
			"Hanse", servers)
	default:
		return fails(v1alpha1.ReasonUnreachable, "%s does not answer: check that the peer's API server runs and that this cluster "+
			"may connect to it. Hanse tries again", servers)
	}
}

// renewalProblem says why the session could not be renewed.
func renewalProblem(ctx context.Context, err error, h *holding, now time.Time) error {
	const advice = "run `kubectl hanse invite NAME --renew` at the peer and join with what it prints"
	cause := "The peer could not be asked for a new session"
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case isUnauthorized(err):
		return verdict{unrenewed, v1alpha1.ReasonUnauthorized, "The peer does not accept our session any more, because it ended " +
			"or was taken back: " + advice + ". Pods that run there stay"}
	case isForbidden(err):
		cause = "The peer knows us and lets us do nothing (it may have suspended us)"
	case errors.Is(err, peers.ErrUnreachable):
		cause = "The peer's API server does not answer"
	case errors.Is(err, peers.ErrCredentialsInvalid):
		cause = "What answers is not the peer's API server, or its certificate has changed"
	case errors.Is(err, peers.ErrMalformed), errors.Is(err, peers.ErrTooLarge):
		cause = "The peer's answer makes no sense"
	case isStatus(err):
		cause = "The peer's API server does not renew the session (" + string(apierrors.ReasonForError(err)) + ")"
	}
	if !h.expires.IsZero() && !now.Before(h.expires) {
		return verdict{unrenewed, v1alpha1.ReasonRenewalFailed, cause + ", and by now the session has ended: " + advice}
	}
	return verdict{unrenewed, v1alpha1.ReasonRenewalFailed, cause + ". The session that we have still lives; Hanse tries again"}
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
