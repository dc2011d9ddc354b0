// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// IgnoreStale drops errors that say that the object has changed or gone since it was read: the event of that has it looked at again.
func IgnoreStale(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Later is an event handler that has a controller look after the delay: once for all that happens meanwhile.
func Later(delay time.Duration, of handler.MapFunc) handler.EventHandler {
	add := func(ctx context.Context, object client.Object, to queue) {
		for _, request := range of(ctx, object) {
			to.AddAfter(request, delay)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, ev event.CreateEvent, to queue) {
			add(ctx, ev.Object, to)
		},
		UpdateFunc: func(ctx context.Context, ev event.UpdateEvent, to queue) {
			add(ctx, ev.ObjectNew, to)
		},
		DeleteFunc: func(ctx context.Context, ev event.DeleteEvent, to queue) {
			add(ctx, ev.Object, to)
		},
	}
}

// IsEnding says whether the API server refused to create something since its namespace is being deleted.
func IsEnding(err error) bool { return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) }
