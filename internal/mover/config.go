// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/move"
)

const (
	workers    = 8
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
	// lookAgain is how soon a move that waits is looked at again if nothing that is watched changes: owners are not watched.
	lookAgain = 5 * time.Second
	// evictAgain is how soon an eviction is asked for again that a PodDisruptionBudget did not allow.
	evictAgain = 2 * time.Second
	// createAgain is how soon a pod whose original is gone is created again that was refused.
	createAgain = time.Second
	// gateAgain is how soon an eviction is asked for again before which the API server did not know that the next pod is to be gated.
	gateAgain = 500 * time.Millisecond
)

// Config is what the controller needs.
type Config struct {
	// Client reads our own cluster from a cache and writes to it.
	Client client.Client
	// Live reads as the API server has it now.
	Live client.Reader
	// Events tells users of their moves.
	Events events.EventRecorder
	Clock  clock.PassiveClock
}

// Validate reports what is missing.
func (c Config) Validate() error {
	if c.Client == nil || c.Live == nil || c.Events == nil || c.Clock == nil {
		return errors.New("mover: Client, Live, Events and Clock are needed")
	}
	return nil
}

// SetupWithManager adds the controller to the manager.
func SetupWithManager(mgr ctrl.Manager, c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	m := New(c)
	if err := (&gates{m}).setup(mgr); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("mover").
		For(&v1alpha1.PodMove{}).
		Watches(&v1alpha1.PodMove{}, handler.EnqueueRequestsFromMapFunc(m.waiting)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(m.concerned)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(m)
}

// waiting are the moves that may go on when another one is over.
func (m *Mover) waiting(ctx context.Context, object client.Object) []reconcile.Request {
	if over, ok := object.(*v1alpha1.PodMove); !ok || !over.Status.Phase.IsOver() {
		return nil
	}
	return m.requests(ctx, object.GetNamespace(), func(pm *v1alpha1.PodMove) bool { return pm.Status.Phase == v1alpha1.MovePending })
}

// concerned are the moves that the pod has to do with: as original, copy, or another pod of their owner.
func (m *Mover) concerned(ctx context.Context, pod client.Object) []reconcile.Request {
	return m.requests(ctx, pod.GetNamespace(), func(pm *v1alpha1.PodMove) bool {
		if pm.Status.Phase.IsOver() {
			return false
		}
		owner := pm.Status.Owner
		if pod.GetName() == pm.Spec.Pod.Name || pod.GetName() == move.CopyName(pm, owner) {
			return true
		}
		for _, of := range pod.GetOwnerReferences() {
			if of.UID == pm.UID || owner != nil && of.UID == owner.UID {
				return true
			}
		}
		return false
	})
}

func (m *Mover) requests(ctx context.Context, namespace string, are func(*v1alpha1.PodMove) bool) (found []reconcile.Request) {
	moves := &v1alpha1.PodMoveList{}
	if err := m.Client.List(ctx, moves, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list moves")
		return nil
	}
	for i := range moves.Items {
		if are(&moves.Items[i]) {
			found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&moves.Items[i])})
		}
	}
	return found
}
