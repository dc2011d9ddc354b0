// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// granter binds the role by which the manager reads what pods refer to, in each namespace with the mark that pods leave
// from it, and in no other. A request names a namespace.
type granter struct{ Config }

// Reconcile gives the right, or takes it back.
func (g *granter) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace := &corev1.Namespace{}
	if err := g.Client.Get(ctx, request.NamespacedName, namespace); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // what was in it goes with it
	}
	want, found := g.binding(namespace.Name), &rbacv1.RoleBinding{}
	err := g.Client.Get(ctx, client.ObjectKeyFromObject(want), found)
	exists, due := err == nil, g.mayRead(namespace)
	wrong := found.RoleRef != want.RoleRef || !equality.Semantic.DeepEqual(found.Subjects, want.Subjects)
	verb := ""
	switch {
	case client.IgnoreNotFound(err) != nil:
		verb = "read"
	case !namespace.DeletionTimestamp.IsZero():
		return reconcile.Result{}, nil
	case exists && (wrong || !due): // if another is needed, the end of this one asks for it
		verb, err = "delete", client.IgnoreNotFound(g.Client.Delete(ctx, found, client.Preconditions{UID: &found.UID}))
	case !exists && due:
		verb, err = "create", client.IgnoreAlreadyExists(g.Client.Create(ctx, want))
	default:
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("%s RoleBinding %s: %w", verb, client.ObjectKeyFromObject(want), err)
	}
	ctrl.LoggerFrom(ctx).Info("Changed whether the manager may read what pods refer to", "Namespace", namespace.Name, "may", due)
	return reconcile.Result{}, nil
}

// mayRead reports whether the right is due. Namespaces of the system keep their Secrets, whatever is offloaded: no
// provider makes twins of them either, and a policy of the chart holds the manager to it.
func (g *granter) mayRead(namespace *corev1.Namespace) bool {
	return namespace.Labels[v1alpha1.LabelOffloads] == "true" && !v1alpha1.IsSystemNamespace(namespace.Name, g.Namespace)
}

func (g *granter) binding(namespace string) *rbacv1.RoleBinding {
	const role = v1alpha1.ClusterRoleReflectorInNamespace
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: g.Namespace, Name: g.ServiceAccount}},
	}
}

// markMoved lets through new namespaces, and those whose mark changes.
var markMoved = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetLabels()[v1alpha1.LabelOffloads] != e.ObjectNew.GetLabels()[v1alpha1.LabelOffloads]
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// namespaceOf is a request to the granter.
func namespaceOf(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: object.GetNamespace()}}}
}
