// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestServersHaveTheReviewedRights asks the API server for the rights of Hanse's servers. They are exactly those of the reviewed
// list that the unit tests of the chart keep: nothing is added by aggregation, or by bindings that Kubernetes has for everybody.
func TestServersHaveTheReviewedRights(t *testing.T) {
	t.Parallel()
	list := reviewedRights(t)
	all := framework.EveryResource(t, lubeck)
	for _, r := range list {
		all = append(all, r.attributes) // also of kinds that this cluster does not have
	}
	all = distinct(all)
	for _, component := range []string{"manager", "kubelet", "gateway", "fabric"} {
		account := "hanse-" + component
		namespace := v1alpha1.SystemNamespace
		if component == "gateway" || component == "fabric" {
			namespace = v1alpha1.NetworkNamespace(namespace)
		}
		client := lubeck.Impersonate(t, "system:serviceaccount:"+namespace+":"+account,
			"system:serviceaccounts", "system:serviceaccounts:"+namespace, "system:authenticated")
		for _, ns := range []string{"", "default", "kube-system", "kube-node-lease", v1alpha1.SystemNamespace, v1alpha1.NetworkNamespace(v1alpha1.SystemNamespace)} {
			t.Run(component+" in "+ns, func(t *testing.T) {
				t.Parallel()
				var want []string
				for _, r := range list {
					if r.role == "ClusterRole "+account || ns != "" && r.role == "Role "+ns+"/"+account {
						want = append(want, r.right)
					}
				}
				slices.Sort(want)
				got := slices.DeleteFunc(framework.AllowedIn(t, client, ns, all), framework.IsHarmless)
				if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
					t.Errorf("rights of %s in namespace %q (-want +got):\n%s", account, ns, diff)
				}
			})
		}
	}
}

// TestUsersSeeHanseByTheirRoles: the roles view and edit of Kubernetes contain the rights that Hanse aggregates to them.
func TestUsersSeeHanseByTheirRoles(t *testing.T) {
	t.Parallel()
	ns := lubeck.MustNamespace(t)
	all := framework.EveryResource(t, lubeck)
	all = slices.DeleteFunc(all, func(a authorizationv1.ResourceAttributes) bool { return a.Group != v1alpha1.GroupVersion.Group })
	for role, sources := range map[string][]string{"view": {"hanse-view"}, "edit": {"hanse-view", "hanse-edit"}} {
		user := "user-" + role
		lubeck.MustKubectl(t, "create", "rolebinding", user, "-n", ns, "--clusterrole="+role, "--user="+user)
		var want []string
		for _, r := range reviewedRights(t) {
			if name, found := strings.CutPrefix(r.role, "ClusterRole "); found && slices.Contains(sources, name) {
				want = append(want, r.right)
			}
		}
		slices.Sort(want)
		got := framework.AllowedIn(t, lubeck.Impersonate(t, user, "system:authenticated"), ns, all)
		if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
			t.Errorf("rights of role %s on kinds of Hanse (-want +got):\n%s", role, diff)
		}
	}
}

// A reviewedRight is a line of the reviewed list, of one that is not for single objects.
type reviewedRight struct {
	role       string // such as "Role hanse-system/hanse-manager"
	right      string // in the form of framework.AllowedIn
	attributes authorizationv1.ResourceAttributes
}

// reviewedRights reads the list. It is that of a cluster with a gateway.
func reviewedRights(t *testing.T) []reviewedRight {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(harness.Root, "internal", "install", "testdata", "rights.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var rights []reviewedRight
	for line := range strings.Lines(string(text)) {
		role, right, found := strings.Cut(strings.TrimSpace(line), ": ")
		fields := strings.Fields(right)
		if !found || len(fields) != 2 || fields[0] == "bind" {
			continue
		}
		// deployments/scale.apps is subresource scale of deployments in group apps.
		resource, group, _ := strings.Cut(fields[1], ".")
		kind, sub, _ := strings.Cut(resource, "/")
		rights = append(rights, reviewedRight{
			role, fields[0] + " " + group + "/" + kind + "/" + sub,
			authorizationv1.ResourceAttributes{Group: group, Resource: kind, Subresource: sub},
		})
	}
	if len(rights) == 0 {
		t.Fatal("the list has no rights")
	}
	return rights
}

// distinct removes attributes that are there twice.
func distinct(all []authorizationv1.ResourceAttributes) []authorizationv1.ResourceAttributes {
	type key struct{ group, resource, sub string }
	seen := map[key]bool{}
	return slices.DeleteFunc(all, func(a authorizationv1.ResourceAttributes) bool {
		k := key{a.Group, a.Resource, a.Subresource}
		twice := seen[k]
		seen[k] = true
		return twice
	})
}
