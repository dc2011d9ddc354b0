// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// endReconciler keeps the rights in a twin that is being deleted for as long as they are needed. Kubernetes deletes the
// RoleBindings along with the ShadowPods: without them the manager could not end the pods, nor home read how they ended.
type endReconciler struct {
	client client.Client
	live   client.Reader
}

func (r *endReconciler) setup(mgr ctrl.Manager) error {
	deletions := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("twin-end").
		For(&corev1.Namespace{}, builder.WithPredicates(twins, turns)).
		Watches(&v1alpha1.ShadowPod{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return requestFor("", o.GetNamespace())
		}), builder.WithPredicates(deletions)).
		WithOptions(options()).
		Complete(r)
}

// Reconcile lets the RoleBindings of a twin go that is being deleted and empty.
func (r *endReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ns := &corev1.Namespace{}
	if err := r.client.Get(ctx, request.NamespacedName, ns, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	twin, ok := twinIn(ns)
	if !ok || ns.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	for _, list := range []client.ObjectList{&v1alpha1.ShadowPodList{}, &corev1.PodList{}} {
		if err := r.live.List(ctx, list, client.InNamespace(ns.Name), client.Limit(1)); err != nil {
			return reconcile.Result{}, fmt.Errorf("see what is left in namespace %s: %w", ns.Name, err)
		}
		if meta.LenList(list) > 0 {
			return reconcile.Result{RequeueAfter: lookAgain}, nil
		}
	}
	for _, role := range []string{v1alpha1.ClusterRolePeerTwin, v1alpha1.ClusterRoleManagerInTwin} {
		if err := r.letGo(ctx, client.ObjectKey{Namespace: twin.name(), Name: role}); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, nil
}

// letGo takes the finalizer off the RoleBinding, if there is one.
func (r *endReconciler) letGo(ctx context.Context, key client.ObjectKey) error {
	binding := &rbacv1.RoleBinding{}
	err := r.live.Get(ctx, key, binding)
	if err == nil && controllerutil.RemoveFinalizer(binding, v1alpha1.FinalizerRoleBinding) {
		err = r.client.Update(ctx, binding)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("let RoleBinding %s go: %w", key, err)
	}
	return nil
}
