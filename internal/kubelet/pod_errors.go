package kubelet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// peerError is what a peer answered to a request about a pod.
type peerError struct {
	attempt string
	err     error
}

func (e *peerError) Error() string { return e.attempt + " at peer: " + e.err.Error() }

func (e *peerError) Unwrap() error { return e.err }

// tooSoonError says that something is to be done a little later.
type tooSoonError struct{ after time.Duration }

func (e *tooSoonError) Error() string { return "too soon: again in " + e.after.String() }

// explain tells the author of a pod why it could not be taken out, and returns err, so that it is tried again.
func (c *podController) explain(ctx context.Context, seen podFacts, err error) error {
	var failed *peerError
	if !errors.As(err, &failed) {
		return err
	}
	if apierrors.IsUnauthorized(failed) {
		// The credentials may have been replaced since the link was made.
		err = errors.Join(err, c.renew(ctx, seen.peer))
	}
	unborn := seen.home != nil && seen.shadow == nil && seen.home.DeletionTimestamp.IsZero() && !started(seen.home)
	if !unborn || seen.patient && !definite(failed) {
		return err
	}
	return errors.Join(err, c.hold(ctx, seen.home, failed.forAuthor(seen.peer)))
}

// definite says whether the peer will answer the same again.
func definite(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err)
}

// forAuthor says what happened in words that are the same each time as long as the cause is.
func (e *peerError) forAuthor(peer string) string {
	if definite(e.err) {
		return fmt.Sprintf("peer %q refuses it: %s", peer, bounded(e.err.Error()))
	}
	return fmt.Sprintf("peer %q cannot be asked now: see the conditions of the Peer", peer)
}

// bounded cuts what a peer says to what fits into a status.
func bounded(text string) string {
	const limit = 512
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "..."
}

func (c *podController) renew(ctx context.Context, name string) error {
	peer := &v1alpha1.Peer{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, peer); err != nil {
		return client.IgnoreNotFound(err)
	}
	_, err := c.links.Ensure(ctx, peer)
	return err
}
