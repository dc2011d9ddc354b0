// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
)

func TestRightsInNamespacesOfUsersGo(t *testing.T) {
	binding := func(namespace, role string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{
			ObjectMeta: in(namespace, role),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}
	}
	c := newCluster(t, binding("shop", "hanse-reflector-in-namespace"), binding("bank", "hanse-reflector-in-namespace"),
		binding("shop", "edit"))
	if err := c.deleteAll(t.Context(), []selection{rightsInNamespaces}); err != nil {
		t.Fatal(err)
	}
	list := &rbacv1.RoleBindingList{}
	if err := c.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var left []string
	for i := range list.Items {
		left = append(left, list.Items[i].Namespace+"/"+list.Items[i].Name)
	}
	if diff := cmp.Diff([]string{"shop/edit"}, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}
