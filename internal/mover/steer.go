// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/fault"
	"github.com/hanse-dev/hanse/internal/move"
)

// askToEvict evicts the pod. If its replacement is to be steered, the eviction says so: the API server refuses it until it knows that
// the replacement is to be gated.
func (m *Mover) askToEvict(ctx context.Context, pod *corev1.Pod, steers bool, options ...client.SubResourceCreateOption) error {
	target := named(pod)
	eviction := &policyv1.Eviction{
		ObjectMeta:    target.ObjectMeta,
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	}
	if steers {
		eviction.Annotations = map[string]string{v1alpha1.AnnotationMove: string(pod.UID)}
	}
	return m.Client.SubResource("eviction").Create(ctx, target, eviction, options...)
}

// waitForBudget waits without a gate, which would hold other pods of the owner meanwhile.
func (m *Mover) waitForBudget(ctx context.Context, w *work, refused error) (time.Duration, error) {
	w.status.GateUntil = nil
	w.cause = move.Cause{Reason: v1alpha1.ReasonEvictionBlocked, Message: "The original may not go yet: " + short(refused.Error())}
	return evictAgain, m.wait(ctx, w)
}

// gate has the API server put a gate on the owner's next pod. Before the eviction that is for a moment alone, so a budget is asked first.
func (m *Mover) gate(ctx context.Context, w *work) (time.Duration, error) {
	if w.Original != nil && w.Original.DeletionTimestamp == nil {
		if err := m.askToEvict(ctx, w.Original, false, client.DryRunAll); apierrors.IsTooManyRequests(err) {
			return m.waitForBudget(ctx, w, err)
		} else if err != nil {
			return 0, err
		}
	}
	w.status.GateUntil = new(metav1.NewTime(m.now().Add(move.GateFor)))
	err := m.store(ctx, w)
	fault.Point(fault.MoveGated)
	return 0, err
}

// steer sends the replacement to the destination. That it is noted down comes first, and ends the gating of further pods.
func (m *Mover) steer(ctx context.Context, w *work) (time.Duration, error) {
	if w.Move.Status.Copy == nil {
		return 0, m.wait(ctx, w)
	}
	if err := m.patch(ctx, w.Copy, move.Steered(w.Move, w.Copy)); err != nil {
		return 0, err
	}
	w.did(v1alpha1.MoveSteered, m.now())
	fault.Point(fault.MoveSteered)
	return 0, nil
}

// evictCopy gives up a replacement that did not start, unless a budget wants it.
func (m *Mover) evictCopy(ctx context.Context, w *work) (time.Duration, error) {
	err := m.askToEvict(ctx, w.Copy, false)
	if apierrors.IsTooManyRequests(err) {
		return m.fail(ctx, w)
	}
	if err == nil {
		w.did(v1alpha1.MoveCopyEvicted, m.now())
		fault.Point(fault.MoveCopyEvicted)
	}
	return 0, err
}
