// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/fault"
	"github.com/hanse-dev/hanse/internal/move"
)

// actions are what each step does.
func (m *Mover) actions() map[move.Do]func(context.Context, *work) (time.Duration, error) {
	return map[move.Do]func(context.Context, *work) (time.Duration, error){
		move.Begin: m.begin, move.CreateCopy: m.createCopy, move.LowerCost: m.lowerCost, move.HandOver: m.handOver,
		move.Evict: m.evict, move.Settle: m.settle, move.Succeed: m.succeed, move.Abort: m.abort,
		move.Gate: m.gate, move.Steer: m.steer, move.EvictCopy: m.evictCopy,
		move.Note: m.record, move.Recreate: m.recreate, move.Restore: m.restore,
		move.RestoreCost: m.restoreCost, move.DeleteCopy: m.deleteCopy, move.Fail: m.fail, move.Release: m.release, move.Remove: m.remove,
	}
}

// firstPhases are those of moves that have begun.
var firstPhases = map[v1alpha1.MoveMethod]v1alpha1.MovePhase{
	v1alpha1.MoveSurge: v1alpha1.MoveCopying, v1alpha1.MoveSteer: v1alpha1.MoveSteering, v1alpha1.MoveDeleteFirst: v1alpha1.MoveRecreating,
}

// begin notes down what there is. Of two moves of one owner one sees the other here.
func (m *Mover) begin(ctx context.Context, w *work) (time.Duration, error) {
	m.beginning.Lock()
	defer m.beginning.Unlock()
	if waits, err := m.waits(ctx, w.seen); err != nil || waits {
		return 0, err // what is observed next says it
	}
	w.note()
	w.status.Phase = firstPhases[w.Method]
	err := m.store(ctx, w)
	fault.Point(fault.MoveBegun)
	w.current = true
	return 0, err
}

func (m *Mover) createCopy(ctx context.Context, w *work) (time.Duration, error) {
	var services []corev1.Service
	if w.Owner != nil {
		list := &corev1.ServiceList{}
		if err := m.Live.List(ctx, list, client.InNamespace(w.Move.Namespace)); err != nil {
			return 0, err
		}
		services = list.Items
	}
	made := move.Copy(w.Move, w.Original, w.Owner, services)
	err := m.Client.Create(ctx, made)
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsAlreadyExists(err):
		w.cause = move.Cause{Reason: v1alpha1.ReasonCopyRefused, Message: "The copy was refused: " + short(err.Error())}
		return m.abort(ctx, w)
	case err != nil:
		return 0, err
	}
	w.did(v1alpha1.MoveCopied, m.now())
	w.Copy, w.current = made, true
	fault.Point(fault.MoveCopied)
	return 0, nil
}

func (m *Mover) lowerCost(ctx context.Context, w *work) (time.Duration, error) {
	lowered, err := m.setCost(ctx, w.Original, move.LowestCost)
	if err == nil {
		w.did(v1alpha1.MoveCostLowered, m.now())
		w.Original, w.current = lowered, true
		for i := range w.Owner.Pods {
			if w.Owner.Pods[i].UID == lowered.UID {
				w.Owner.Pods[i] = *lowered
			}
		}
		fault.Point(fault.MoveCostLowered)
	}
	return 0, err
}

func (m *Mover) restoreCost(ctx context.Context, w *work) (time.Duration, error) {
	_, err := m.setCost(ctx, w.Original, w.costBefore())
	if err == nil {
		w.did(v1alpha1.MoveCostRestored, m.now())
		fault.Point(fault.MoveCostRestored)
	}
	return 0, err
}

// setCost returns the pod with the cost, and takes the annotation off where there is none. A pod of another UID is left alone.
func (m *Mover) setCost(ctx context.Context, pod *corev1.Pod, cost string) (*corev1.Pod, error) {
	var value any
	if cost != "" {
		value = cost
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "annotations": map[string]any{corev1.PodDeletionCost: value},
	}})
	if err != nil {
		return nil, err
	}
	changed := named(pod)
	return changed, m.Client.Patch(ctx, changed, client.RawPatch(types.MergePatchType, patch))
}

// named is a pod of which only the name is known.
func named(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
}

// handOver is the moment from which there is no way back. That the copy is noted down comes first.
func (m *Mover) handOver(ctx context.Context, w *work) (time.Duration, error) {
	if w.Move.Status.Copy == nil {
		w.current = true
		return 0, m.wait(ctx, w)
	}
	pod := w.Copy.DeepCopy()
	w.letGo(pod)
	if w.Owner != nil {
		for key, value := range w.Owner.Template.Labels {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, key, value)
		}
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, corev1.PodDeletionCost, move.HighestCost)
	}
	if err := m.patch(ctx, w.Copy, pod); err != nil {
		return 0, err
	}
	w.did(v1alpha1.MoveHandedOver, m.now())
	w.Copy, w.current = pod, true
	fault.Point(fault.MoveHandedOver)
	return 0, nil
}

// letGo has the pod be the PodMove's no more.
func (w *work) letGo(pod *corev1.Pod) {
	pod.OwnerReferences = slices.DeleteFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == w.Move.UID })
}

// patch changes the pod if nobody else has changed it meanwhile.
func (m *Mover) patch(ctx context.Context, before, after *corev1.Pod) error {
	return m.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// evict evicts the original. To steer its replacement, the API server must have seen that the replacement is to be gated.
func (m *Mover) evict(ctx context.Context, w *work) (time.Duration, error) {
	steers := w.Move.Status.Method == v1alpha1.MoveSteer
	err := m.askToEvict(ctx, w.Original, steers)
	switch {
	case apierrors.IsTooManyRequests(err):
		return m.waitForBudget(ctx, w, err)
	case apierrors.IsForbidden(err) && steers:
		w.cause = move.Cause{Reason: v1alpha1.ReasonMoving, Message: "The original is not evicted yet: " + short(err.Error())}
		return gateAgain, m.wait(ctx, w)
	case err == nil:
		w.did(v1alpha1.MoveEvicted, m.now())
		fault.Point(fault.MoveEvicted)
	}
	return 0, err
}

func (m *Mover) settle(ctx context.Context, w *work) (time.Duration, error) {
	made := cmp.Or(w.Copy, w.Namesake)
	pod := made.DeepCopy()
	w.letGo(pod)
	pod.Annotations = maps.Clone(pod.Annotations)
	delete(pod.Annotations, v1alpha1.AnnotationMove)
	delete(pod.Annotations, corev1.PodDeletionCost)
	if cost := w.costBefore(); cost != "" {
		pod.Annotations[corev1.PodDeletionCost] = cost
	}
	if err := m.patch(ctx, made, pod); err != nil {
		return 0, err
	}
	w.did(v1alpha1.MoveSettled, m.now())
	w.Copy, w.current = pod, true
	fault.Point(fault.MoveSettled)
	return 0, nil
}

func (m *Mover) deleteCopy(ctx context.Context, w *work) (time.Duration, error) {
	err := m.Client.Delete(ctx, named(w.Copy), client.Preconditions{UID: &w.Copy.UID})
	if err == nil {
		w.did(v1alpha1.MoveCopyDeleted, m.now())
		fault.Point(fault.MoveCopyDeleted)
	}
	return 0, err
}

func (m *Mover) succeed(ctx context.Context, w *work) (time.Duration, error) {
	w.status.Phase = v1alpha1.MoveSucceeded
	err := m.store(ctx, w)
	fault.Point(fault.MoveSucceeded)
	return 0, err
}

func (m *Mover) abort(ctx context.Context, w *work) (time.Duration, error) {
	w.status.Phase = v1alpha1.MoveRollingBack
	err := m.store(ctx, w)
	fault.Point(fault.MoveAborted)
	return 0, err
}

func (m *Mover) fail(ctx context.Context, w *work) (time.Duration, error) {
	if !w.hasBegun() {
		w.note()
	}
	w.status.Phase = v1alpha1.MoveFailed
	if w.Namesake != nil {
		m.set(w, v1alpha1.ConditionRestored, metav1.ConditionTrue, move.Cause{Reason: v1alpha1.ReasonRestored, Message: "There is a pod " + w.Namesake.Name + " again"})
	}
	err := m.store(ctx, w)
	fault.Point(fault.MoveFailed)
	return 0, err
}

// remove deletes the PodMove.
func (m *Mover) remove(ctx context.Context, w *work) (time.Duration, error) {
	return 0, m.Client.Delete(ctx, w.Move, client.Preconditions{UID: &w.Move.UID})
}

// release takes off our finalizer.
func (m *Mover) release(ctx context.Context, w *work) (time.Duration, error) {
	after := w.Move.DeepCopy()
	after.Finalizers = slices.DeleteFunc(after.Finalizers, func(f string) bool { return f == v1alpha1.FinalizerPodMove })
	return 0, m.Client.Patch(ctx, after, client.MergeFromWithOptions(w.Move, client.MergeFromWithOptimisticLock{}))
}
