// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/move"
)

// mostSteps is more than a move has.
const mostSteps = 16

// Mover carries out PodMoves.
type Mover struct {
	Config
	beginning sync.Mutex // one move begins at a time, so that two of one owner see each other
}

// New returns a Mover.
func New(c Config) *Mover { return &Mover{Config: c} }

// Reconcile takes all steps of one move that can be taken now.
func (m *Mover) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var done []taken
	var seen *seen
	for range mostSteps {
		if seen == nil {
			var err error
			if seen, err = m.observe(ctx, req.NamespacedName); err != nil || seen == nil {
				return reconcile.Result{}, err
			}
		}
		step := move.Next(seen.Observed, m.now())
		if step.Do == move.Nothing {
			return reconcile.Result{RequeueAfter: step.After}, nil
		}
		w := &work{seen: seen, status: seen.Move.Status.DeepCopy(), cause: step.Cause, done: &done}
		wait, err := m.take(ctx, w, step)
		switch {
		case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
			seen = nil // something has changed since we looked
		case err != nil:
			return reconcile.Result{}, fmt.Errorf("move pod %s: %s: %w", seen.Move.Spec.Pod.Name, step.Do, err)
		case wait > 0:
			return reconcile.Result{RequeueAfter: wait}, nil
		case !w.current || seen.Move.Status.Method != v1alpha1.MoveSurge: // the other methods look at more
			seen = nil
		}
	}
	return reconcile.Result{RequeueAfter: firstRetry}, nil
}

// take takes the step. It returns for how long to wait, or 0 if the next step may follow at once.
func (m *Mover) take(ctx context.Context, w *work, step move.Step) (time.Duration, error) {
	if step.Do == move.Wait {
		after := step.After
		if after <= 0 || after > lookAgain {
			after = lookAgain
		}
		return after, m.wait(ctx, w)
	}
	return m.actions()[step.Do](ctx, w)
}
