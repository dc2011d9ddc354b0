// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/fault"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/move"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

const (
	fieldOwner = client.FieldOwner("hanse-mover")
	maxMessage = 1024
	maxListed  = 16 // steps in the status
	maxCost    = 32 // what is longer is no cost
)

// beforeHandingOver are the phases of a move whose copy has not taken over.
var beforeHandingOver = []v1alpha1.MovePhase{v1alpha1.MoveCopying, v1alpha1.MoveSteering, v1alpha1.MoveRecreating}

// taken is a step that was taken and does not stand in the status yet.
type taken = v1alpha1.MoveStep

// work is one step of a move: what was observed, and what becomes of the status.
type work struct {
	*seen
	status *v1alpha1.PodMoveStatus
	cause  move.Cause
	done   *[]taken
	// current says that what was observed shows what the step has changed, so that the next one needs no other look. In between nothing
	// is missed: what matters is written only if the pod is as it was seen, and whatever changes asks for another look.
	current bool
}

// did has the next write of the status tell of the step.
func (w *work) did(action v1alpha1.MoveAction, at time.Time) {
	*w.done = append(*w.done, taken{Action: action, Time: metav1.NewTime(at)})
}

// note puts down which pod moves, and whose it is.
func (w *work) note() {
	w.status.Method = w.Method
	if named := w.controller(); named != nil {
		w.status.Owner = noted(named)
	}
	if w.Original != nil {
		w.status.Original = party(w.Original)
		if w.Method == v1alpha1.MoveDeleteFirst {
			w.status.Record = move.Record(w.Original)
		}
		if cost := w.Original.Annotations[corev1.PodDeletionCost]; len(cost) <= maxCost {
			w.status.Original.DeletionCost = cost
		}
	}
}

func party(pod *corev1.Pod) *v1alpha1.MoveParty {
	return &v1alpha1.MoveParty{Name: pod.Name, UID: pod.UID, Node: pod.Spec.NodeName}
}

func (w *work) costBefore() string {
	if w.Move.Status.Original == nil {
		return ""
	}
	return w.Move.Status.Original.DeletionCost
}

// wait says what is waited for.
func (m *Mover) wait(ctx context.Context, w *work) error {
	if !w.hasBegun() {
		w.note()
		w.status.Phase = v1alpha1.MovePending
	}
	err := m.store(ctx, w)
	fault.Point(fault.MoveNoted)
	return err
}

// store writes the status, if it says something new, and tells users of a change of the phase.
func (m *Mover) store(ctx context.Context, w *work) error {
	status := w.status
	if w.Copy != nil {
		status.Copy = party(w.Copy)
		if w.HandedOver() && slices.Contains(beforeHandingOver, status.Phase) {
			status.Phase = v1alpha1.MoveHandingOver
		}
	}
	if status.Phase != v1alpha1.MoveSteering || status.Copy != nil {
		status.GateUntil = nil // no further pod is waited for
	}
	if status.Phase == v1alpha1.MoveSucceeded {
		status.Record = ""
	}
	status.Steps = append(status.Steps, *w.done...)
	status.Steps = status.Steps[max(0, len(status.Steps)-maxListed):]
	if status.Phase.IsOver() && status.FinishedAt == nil {
		status.FinishedAt = new(metav1.NewTime(m.now()))
	}
	m.conclude(w)
	if equality.Semantic.DeepEqual(status, &w.Move.Status) {
		return nil
	}
	if err := local.ApplyStatus(ctx, m.Client, fieldOwner, w.Move, status); err != nil {
		return err
	}
	*w.done = nil
	if status.Phase != w.Move.Status.Phase {
		m.tell(w)
	}
	w.Move.Status = *status
	return nil
}

// conclude sets the conditions by the phase and the cause.
func (m *Mover) conclude(w *work) {
	accepted, complete := metav1.ConditionTrue, metav1.ConditionFalse
	reason, message := w.cause.Reason, w.cause.Message
	if reason == "" && (w.status.Phase == v1alpha1.MoveRollingBack || w.status.Phase == v1alpha1.MoveFailed) {
		return // what stood against it was said before it was undone
	}
	switch w.status.Phase {
	case v1alpha1.MoveSucceeded:
		complete = metav1.ConditionTrue
	case v1alpha1.MovePending:
		accepted = metav1.ConditionUnknown
	case v1alpha1.MoveFailed:
		accepted = metav1.ConditionFalse
	case v1alpha1.MoveCopying, v1alpha1.MoveSteering, v1alpha1.MoveRecreating:
		if reason == "" {
			reason, message = v1alpha1.ReasonMoving, "The move begins"
		}
	case v1alpha1.MoveHandingOver, v1alpha1.MoveRollingBack: // there is a cause
	}
	m.set(w, v1alpha1.ConditionComplete, complete, move.Cause{Reason: reason, Message: message})
	if accepted == metav1.ConditionTrue {
		reason, message = v1alpha1.ReasonAccepted, "Nothing stood against the move when it began"
	}
	m.set(w, v1alpha1.ConditionAccepted, accepted, move.Cause{Reason: reason, Message: message})
}

func (m *Mover) set(w *work, kind string, status metav1.ConditionStatus, cause move.Cause) {
	meta.SetStatusCondition(&w.status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: cause.Reason, Message: short(cause.Message), ObservedGeneration: w.Move.Generation,
		LastTransitionTime: metav1.NewTime(m.now()), // that of before is kept where the status is the same
	})
}

// tell tells of what has happened, on the PodMove and on the pod that stays.
func (m *Mover) tell(w *work) {
	if w.status.Phase == v1alpha1.MoveSucceeded {
		m.event(w, corev1.EventTypeNormal, w.Copy)
	}
	if w.status.Phase == v1alpha1.MoveFailed {
		m.event(w, corev1.EventTypeWarning, cmp.Or(w.Original, w.Namesake))
	}
}

func (m *Mover) event(w *work, kind string, pod *corev1.Pod) {
	complete := meta.FindStatusCondition(w.status.Conditions, v1alpha1.ConditionComplete)
	if complete == nil {
		return
	}
	m.Events.Eventf(w.Move, nil, kind, complete.Reason, "Move", "%s", complete.Message)
	if pod != nil {
		m.Events.Eventf(pod, w.Move, kind, complete.Reason, "Move", "%s", complete.Message)
	}
}

func short(text string) string { return sanitize.Text(text, maxMessage) }
