// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/move"
)

// gates lifts the gates of pods that no move awaits: of a move that was aborted, is late or is gone, and of pods that the owner has made
// besides the one that is steered.
type gates struct{ *Mover }

func (g *gates) setup(mgr ctrl.Manager) error {
	isGated := predicate.NewPredicateFuncs(func(o client.Object) bool {
		pod, ok := o.(*corev1.Pod)
		return ok && move.IsGated(pod)
	})
	return ctrl.NewControllerManagedBy(mgr).Named("mover-gates").For(&corev1.Pod{}, builder.WithPredicates(isGated)).Complete(g)
}

// Reconcile looks at one gated pod, until its gate is gone.
func (g *gates) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod, err := local.Find(ctx, g.Live, req.NamespacedName, &corev1.Pod{})
	if err != nil || pod == nil || !move.IsGated(pod) {
		return reconcile.Result{}, err
	}
	moves := &v1alpha1.PodMoveList{}
	if err := g.Live.List(ctx, moves, client.InNamespace(pod.Namespace)); err != nil {
		return reconcile.Result{}, fmt.Errorf("list moves: %w", err)
	}
	for i := range moves.Items {
		if move.Awaits(&moves.Items[i], pod, g.now()) {
			return reconcile.Result{RequeueAfter: lookAgain}, nil
		}
	}
	err = g.patch(ctx, pod, move.Ungated(pod))
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return reconcile.Result{RequeueAfter: firstRetry}, nil
	case apierrors.IsForbidden(err): // somebody has put it on in a namespace in which no pods move
		ctrl.LoggerFrom(ctx).Info("May not lift the gate of a pod", "Pod", req.NamespacedName, "cause", err.Error())
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("lift the gate of pod %s: %w", req.NamespacedName, err)
	}
	ctrl.LoggerFrom(ctx).Info("Lifted the gate of a pod that no move awaits", "Pod", req.NamespacedName)
	return reconcile.Result{}, nil
}
