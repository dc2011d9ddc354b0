package reflector

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
type granter struct {
	client  client.Client
	own     string // the namespace of Hanse itself
	account string
}

// Reconcile gives the right, or takes it back.
func (g *granter) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace := &corev1.Namespace{}
	if err := g.client.Get(ctx, request.NamespacedName, namespace); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // what was in it goes with it
	}
	want := g.binding(namespace.Name)
	found := &rbacv1.RoleBinding{}
	err := g.client.Get(ctx, client.ObjectKeyFromObject(want), found)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read RoleBinding %s: %w", client.ObjectKeyFromObject(want), err)
	}
	exists, due := err == nil, g.mayRead(namespace)
	wrong := found.RoleRef != want.RoleRef || !equality.Semantic.DeepEqual(found.Subjects, want.Subjects)
	switch {
	case !namespace.DeletionTimestamp.IsZero():
		return reconcile.Result{}, nil
	case exists && (wrong || !due):
		return reconcile.Result{}, g.take(ctx, found) // if another is needed, the end of this one asks for it
	case !exists && due:
		return reconcile.Result{}, g.give(ctx, want)
	}
	return reconcile.Result{}, nil
}

// mayRead reports whether the right is due. Namespaces of the system keep their Secrets, whatever is offloaded: no
// provider makes twins of them either, and a policy of the chart holds the manager to it.
func (g *granter) mayRead(namespace *corev1.Namespace) bool {
	name := namespace.Name
	return namespace.Labels[v1alpha1.LabelOffloads] == "true" && name != "default" && name != g.own &&
		!strings.HasPrefix(name, "kube-") && !strings.HasPrefix(name, "hanse-")
}

func (g *granter) binding(namespace string) *rbacv1.RoleBinding {
	const role = v1alpha1.ClusterRoleReflectorInNamespace
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: g.own, Name: g.account}},
	}
}

func (g *granter) give(ctx context.Context, binding *rbacv1.RoleBinding) error {
	err := g.client.Create(ctx, binding)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create RoleBinding %s: %w", client.ObjectKeyFromObject(binding), err)
	}
	ctrl.LoggerFrom(ctx).Info("May read what pods refer to", "Namespace", binding.Namespace)
	return nil
}

func (g *granter) take(ctx context.Context, binding *rbacv1.RoleBinding) error {
	err := g.client.Delete(ctx, binding, client.Preconditions{UID: &binding.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete RoleBinding %s: %w", client.ObjectKeyFromObject(binding), err)
	}
	ctrl.LoggerFrom(ctx).Info("May no longer read what pods refer to", "Namespace", binding.Namespace)
	return nil
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
