package session

import (
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

// guestProblem says why the invitation could not be used now.
func guestProblem(err error, i *trust.Invitation, now time.Time) verdict {
	servers := strings.Join(i.Servers, ", ")
	switch {
	case unauthorized(err) && !now.Before(i.Expires):
		return fails(v1alpha1.ReasonInvitationExpired, "The invitation has expired: run `kubectl hanse invite NAME --renew` at "+
			"the peer and join with what it prints")
	case unauthorized(err):
		return fails(v1alpha1.ReasonInvitationUsed, "The peer does not take this invitation any more, because it was used or a "+
			"newer one was made: run `kubectl hanse invite NAME --renew` there and join with what it prints")
	case forbidden(err):
		return fails(v1alpha1.ReasonForbidden, "The peer knows the invitation and does not let us use it: check Hanse's "+
			"installation there")
	case errors.Is(err, peers.ErrCredentialsInvalid):
		return fails(v1alpha1.ReasonCredentialsInvalid, "What answers at %s is not the API server that the invitation names, or "+
			"cannot be spoken to: check what stands between the two clusters", servers)
	case isStatus(err):
		return fails(v1alpha1.ReasonInvitationInvalid, "The peer's API server does not take our claim (%s): check the versions "+
			"of Hanse on both sides", apierrors.ReasonForError(err))
	default:
		return unanswered(err, servers)
	}
}

func unanswered(err error, servers string) verdict {
	if errors.Is(err, peers.ErrMalformed) || errors.Is(err, peers.ErrTooLarge) {
		return fails(v1alpha1.ReasonMalformed, "What answers at %s makes no sense: check that it is a Kubernetes API server with "+
			"Hanse", servers)
	}
	return fails(v1alpha1.ReasonUnreachable, "%s does not answer: check that the peer's API server runs and that this cluster "+
		"may connect to it. Hanse tries again", servers)
}

// renewalProblem says why the session could not be renewed.
func renewalProblem(err error, h *holding, now time.Time) verdict {
	const advice = "run `kubectl hanse invite NAME --renew` at the peer and join with what it prints"
	cause := "The peer could not be asked for a new session"
	switch {
	case unauthorized(err):
		return verdict{unrenewed, v1alpha1.ReasonUnauthorized, "The peer does not accept our session any more, because it ended " +
			"or was taken back: " + advice + ". Pods that run there stay"}
	case forbidden(err):
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

func unauthorized(err error) bool {
	return errors.Is(err, peers.ErrUnauthorized) || apierrors.IsUnauthorized(err)
}

func forbidden(err error) bool {
	return errors.Is(err, peers.ErrForbidden) || apierrors.IsForbidden(err)
}

// isStatus reports whether an API server has answered no in good order.
func isStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= 400 && status.Status().Code < 500 &&
		!apierrors.IsTooManyRequests(err)
}
