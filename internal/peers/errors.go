// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Kinds of errors of a link, to be told apart by errors.Is. What the other side answered stays in the chain, so that the
// functions of apimachinery's errors package work too.
var (
	// ErrCredentialsMissing: there is no Secret with credentials for the peer.
	ErrCredentialsMissing = errors.New("no credentials")
	// ErrCredentialsInvalid: the Secret with the credentials for the peer cannot be used, or does not fit the server
	// that answers.
	ErrCredentialsInvalid = errors.New("credentials cannot be used")
	// ErrUnreachable: the peer's API server does not answer, or answers that it cannot serve now.
	ErrUnreachable = errors.New("no answer")
	// ErrLost: a connection over which the peer sent was given up, since nothing came for long (see Config.LinkTimeout). It
	// is unreachable too, as far as one connection tells.
	ErrLost = fmt.Errorf("connection lost: %w", ErrUnreachable)
	// ErrCut: the way to the peer knows by itself that the peer is cut off, so that it is not tried again before that is said.
	ErrCut = fmt.Errorf("cut off: %w", ErrUnreachable)
	// ErrUnauthorized: the peer's API server does not know our credentials.
	ErrUnauthorized = errors.New("not authorized")
	// ErrForbidden: the peer's API server knows us and does not let us do this.
	ErrForbidden = errors.New("forbidden")
	// ErrMalformed: the answer cannot be understood.
	ErrMalformed = errors.New("malformed answer")
	// ErrTooLarge: the answer is larger than we take from a peer.
	ErrTooLarge = errors.New("answer too large")
	// ErrOverBudget: the peer sends more than is taken from one peer (see Budget).
	ErrOverBudget = errors.New("the peer sends too much")
	// ErrBusy: so many requests to the peer wait for an answer that this one was not sent. See BusyError for when to try again.
	ErrBusy = errors.New("too many requests to the peer wait for an answer")
	// ErrClosed: the link was closed, for example because its credentials changed.
	ErrClosed = errors.New("link closed")
)

// A BusyError is ErrBusy, and says how soon there should be room for the request.
type BusyError struct{ After time.Duration }

// Error implements error.
func (*BusyError) Error() string { return ErrBusy.Error() }

// Is has errors.Is find ErrBusy.
func (*BusyError) Is(target error) bool { return target == ErrBusy }

// Classify puts err, which a request by the client of a link returned, under one of the kinds above.
func Classify(err error) error { return classify(err) }

// classify puts err, which a request to a peer returned, under one of the kinds above.
func classify(err error) error {
	if err == nil {
		return nil
	}
	for _, kind := range []error{ErrClosed, ErrTooLarge, ErrOverBudget, ErrBusy, ErrMalformed, ErrLost, ErrCut, context.Canceled} {
		if errors.Is(err, kind) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", kindOf(err), err)
}

func kindOf(err error) error {
	var (
		untrusted *tls.CertificateVerificationError
		status    apierrors.APIStatus
		transport *url.Error
		network   net.Error
	)
	switch {
	case apierrors.IsUnauthorized(err):
		return ErrUnauthorized
	case apierrors.IsForbidden(err):
		return ErrForbidden
	case errors.As(err, &untrusted):
		return ErrCredentialsInvalid
	case errors.As(err, &status):
		return kindOfStatus(status)
	case errors.As(err, &transport), errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		return ErrUnreachable
	default:
		return ErrMalformed
	}
}

// errRefused is what is left for answers in good order that say no, such as NotFound or Invalid.
var errRefused = errors.New("refused")

func kindOfStatus(status apierrors.APIStatus) error {
	code := status.Status().Code
	if code == 0 || code == 429 || code >= 500 {
		return ErrUnreachable
	}
	return errRefused
}
