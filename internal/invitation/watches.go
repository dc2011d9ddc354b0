package invitation

import (
	"context"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// specChanges leaves out changes of the status, which are ours or nothing to us.
var specChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() || e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
		e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
}}

// tenantNamespaces are those whose name makes them tenant namespaces, whoever made them.
var tenantNamespaces = predicate.NewPredicateFuncs(func(o client.Object) bool {
	return strings.HasPrefix(o.GetName(), v1alpha1.TenantNamespacePrefix)
})

func peerOfNamespace() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return requestFor(o.GetName())
	})
}

func peerOfNamespaced() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return requestFor(o.GetNamespace())
	})
}

func requestFor(tenantNamespace string) []reconcile.Request {
	peer, ok := strings.CutPrefix(tenantNamespace, v1alpha1.TenantNamespacePrefix)
	if !ok || peer == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: peer}}}
}
