package local

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

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
