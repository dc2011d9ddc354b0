// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestTheManagerReadsWhereItIsMarked(t *testing.T) {
	marked := map[string]string{v1alpha1.LabelOffloads: "true"}
	toManager := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "hanse-system", Name: "hanse-manager"}}
	binding := func(subjects []rbacv1.Subject) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "hanse-reflector-in-namespace"},
			RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "hanse-reflector-in-namespace"},
			Subjects:   subjects,
		}
	}
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		found     *rbacv1.RoleBinding
		want      bool
	}{
		"it is marked":             {namespace: testkit.Namespace("shop", marked), want: true},
		"it was marked before":     {namespace: testkit.Namespace("shop", marked), found: binding(toManager), want: true},
		"it is not marked":         {namespace: testkit.Namespace("shop", nil)},
		"it is no longer marked":   {namespace: testkit.Namespace("shop", nil), found: binding(toManager)},
		"it has another mark":      {namespace: testkit.Namespace("shop", map[string]string{v1alpha1.LabelOffloads: "false"})},
		"the right is another's":   {namespace: testkit.Namespace("shop", marked), found: binding([]rbacv1.Subject{{Kind: "User", Name: "eve"}}), want: true},
		"it is one of the system":  {namespace: testkit.Namespace("kube-system", marked)},
		"it is the default one":    {namespace: testkit.Namespace("default", marked)},
		"it is one of a peer":      {namespace: testkit.Namespace("hanse-peer-turin", marked)},
		"it is where Hanse itself": {namespace: testkit.Namespace("hanse-system", marked)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Home.Put(test.namespace)
			if test.found != nil {
				w.Home.Put(test.found)
			}
			for range 2 { // a binding that is wrong goes first, and its end asks for the right one
				w.Reconcile(w.granter, "", test.namespace.Name)
			}
			list := &rbacv1.RoleBindingList{}
			if err := w.Home.Server.List(t.Context(), list, client.InNamespace(test.namespace.Name)); err != nil {
				t.Fatal(err)
			}
			if !test.want {
				if len(list.Items) > 0 {
					t.Errorf("got %v, want no right", list.Items)
				}
				return
			}
			if len(list.Items) != 1 {
				t.Fatalf("got %d bindings", len(list.Items))
			}
			got := list.Items[0]
			if diff := cmp.Diff(binding(toManager).RoleRef, got.RoleRef); diff != "" {
				t.Errorf("role (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(toManager, got.Subjects); diff != "" {
				t.Errorf("subjects (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheRightsOfANamespaceThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.Reconcile(w.granter, "", "shop")
}
