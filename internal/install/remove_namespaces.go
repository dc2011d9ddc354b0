package install

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// removeMarks takes Hanse's mark off the namespaces of users that still have it, since nobody keeps it any more.
func (c Cluster) removeMarks(ctx context.Context) error {
	marked := &corev1.NamespaceList{}
	if err := c.Client.List(ctx, marked, client.HasLabels{v1alpha1.LabelOffloads}); err != nil {
		return fmt.Errorf("list marked namespaces: %w", err)
	}
	patch := client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, v1alpha1.LabelOffloads))
	for i := range marked.Items {
		namespace := &marked.Items[i]
		// The policy that keeps others from this takes a moment to go.
		err := c.until(ctx, "the mark of namespace "+namespace.Name+" to go", func(ctx context.Context) (bool, error) {
			err := client.IgnoreNotFound(c.Client.Patch(ctx, namespace.DeepCopy(), patch))
			return err == nil, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// removeRights removes what let the manager read in namespaces of users. It does so itself while it runs, but it may have
// been stopped before.
func (c Cluster) removeRights(ctx context.Context) error {
	bindings := &rbacv1.RoleBindingList{}
	if err := c.Client.List(ctx, bindings); err != nil {
		return fmt.Errorf("list role bindings: %w", err)
	}
	for i := range bindings.Items {
		if bindings.Items[i].RoleRef.Name != v1alpha1.ClusterRoleReflectorInNamespace {
			continue
		}
		if err := c.delete(ctx, &bindings.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// typesOfNamespaces are the values of v1alpha1.LabelType of the namespaces of peers.
var typesOfNamespaces = []string{v1alpha1.TypeTenant, v1alpha1.TypeTwin, v1alpha1.TypeTombstone}

// removeNamespaces removes the namespaces of peers that Hanse could not remove itself.
func (c Cluster) removeNamespaces(ctx context.Context) error {
	if err := c.releaseObjects(ctx); err != nil {
		return err
	}
	left := func(ctx context.Context) ([]corev1.Namespace, error) {
		list := &corev1.NamespaceList{}
		err := c.Client.List(ctx, list, client.MatchingLabels{v1alpha1.LabelManaged: "true"})
		return slices.DeleteFunc(list.Items, func(n corev1.Namespace) bool {
			return !slices.Contains(typesOfNamespaces, n.Labels[v1alpha1.LabelType])
		}), err
	}
	namespaces, err := left(ctx)
	if err != nil {
		return fmt.Errorf("list namespaces of peers: %w", err)
	}
	for i := range namespaces {
		if err := c.delete(ctx, &namespaces[i]); err != nil {
			return err
		}
	}
	return c.until(ctx, "namespaces of peers to go", func(ctx context.Context) (bool, error) {
		namespaces, err := left(ctx)
		return len(namespaces) == 0, err
	})
}
