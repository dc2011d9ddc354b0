// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/fault"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/move"
)

// record notes down the original once more, which has changed.
func (m *Mover) record(ctx context.Context, w *work) (time.Duration, error) {
	w.status.Record = move.Record(w.Original)
	return 0, m.store(ctx, w)
}

// recreate makes the original again at its destination. The API server may refuse that for a moment.
func (m *Mover) recreate(ctx context.Context, w *work) (time.Duration, error) {
	pod, err := move.Recreated(w.Move)
	if err == nil {
		err = m.Client.Create(ctx, pod)
	}
	if err == nil {
		w.did(v1alpha1.MoveCopied, m.now())
		fault.Point(fault.MoveCopied)
		return 0, nil
	}
	if apierrors.IsAlreadyExists(err) {
		return firstRetry, nil // what is observed next says whose it is
	}
	w.cause = move.Cause{Reason: v1alpha1.ReasonCopyRefused, Message: "The pod was refused: " + short(err.Error())}
	since, isRefusal := move.RefusedSince(w.Move), apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
	switch {
	case local.IsEnding(err), isRefusal && !since.IsZero() && m.now().Sub(since.Time) >= move.RefusedFor:
		return m.abort(ctx, w)
	case isRefusal && since.IsZero():
		w.did(v1alpha1.MoveCopyRefused, m.now())
	}
	return createAgain, m.wait(ctx, w)
}

// restore makes the original again where it was, until it is there.
func (m *Mover) restore(ctx context.Context, w *work) (time.Duration, error) {
	pod, err := move.Restored(w.Move)
	if err == nil {
		err = m.Client.Create(ctx, pod)
	}
	switch {
	case err == nil:
		w.did(v1alpha1.MoveRestored, m.now())
		fault.Point(fault.MoveRestored)
		return 0, nil
	case apierrors.IsAlreadyExists(err):
		return firstRetry, nil
	}
	m.set(w, v1alpha1.ConditionRestored, metav1.ConditionFalse, move.Cause{
		Reason: v1alpha1.ReasonCopyRefused, Message: "The pod was refused: " + short(err.Error()),
	})
	if local.IsEnding(err) {
		return m.fail(ctx, w)
	}
	return lookAgain, m.store(ctx, w)
}
