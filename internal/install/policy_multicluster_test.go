// SPDX-License-Identifier: Apache-2.0

package install

import (
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func exportedBy(t *testing.T, by string) *unstructured.Unstructured {
	t.Helper()
	object := message(t, "ExportedService", "")
	object.SetName(strings.ToLower(by) + ".shop.web.0")
	object.Object["spec"] = map[string]any{"by": by, "namespace": "shop", "name": "web", "part": "0"}
	return object
}

func TestEachSideExportsForItself(t *testing.T) {
	theirs, ours := exportedBy(t, "Consumer"), exportedBy(t, "Provider")
	const refused = "spec.by: "
	misnamed := theirs.DeepCopy()
	misnamed.SetName("provider.shop.web.0")
	expectDecisions(t, validatingPolicy(t, "hanse-guard-objects"), map[string]decision{
		"by another name":         {review: review{by: peer, object: misnamed}, want: "metadata.name: "},
		"its own":                 {review: review{by: peer, object: theirs}},
		"its own, changed":        {review: review{by: peer, old: theirs, object: theirs}},
		"ours":                    {review: review{by: peer, object: ours}, want: refused},
		"ours, changed":           {review: review{by: peer, old: ours, object: ours}, want: refused},
		"the answer to ours":      {review: review{by: peer, of: "exportedservices/status", old: ours, object: ours}},
		"the answer to its own":   {review: review{by: peer, of: "exportedservices/status", old: theirs, object: theirs}, want: refused},
		"the manager writes ours": {review: review{by: manager, object: ours}},
	})
	expectDecisions(t, validatingPolicy(t, "hanse-guard-deletions"), map[string]decision{
		"the end of its own": {review: review{by: peer, old: theirs, options: &metav1.DeleteOptions{}}},
		"the end of ours":    {review: review{by: peer, old: ours, options: &metav1.DeleteOptions{}}, want: refused},
	})
}

const importOwner = "ownerReferences: [{apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceImport, name: web, uid: u}]"

// serviceIn is the Service of a ServiceImport, with other metadata and spec.
func serviceIn(t *testing.T, namespace, metadata, spec string) *unstructured.Unstructured {
	t.Helper()
	return read(t, "apiVersion: v1\nkind: Service\nmetadata:"+indent("namespace: "+namespace+"\n"+metadata)+"\nspec:"+indent(spec))
}

func TestTheManagerWritesServicesOfTheClusterSetAlone(t *testing.T) {
	const (
		marked  = "name: hanse-abc\nlabels: {hanse.dev/cluster-set: \"true\"}\n" + importOwner
		plain   = "type: ClusterIP\nports: [{port: 80}]"
		refused = "metadata.labels: Hanse's manager writes only Services"
		badSpec = "spec: a Service of a ServiceImport"
	)
	good := serviceIn(t, "shop", marked, plain)
	users := serviceIn(t, "shop", "name: web", plain)
	by := func(old, object *unstructured.Unstructured) review {
		r := review{by: manager, in: inShop}
		if old != nil {
			r.old = old
		}
		if object != nil {
			r.object = object
		}
		return r
	}
	inPeers := by(nil, good)
	inPeers.in = inTwin
	byUser := by(users, users)
	byUser.by = admin
	expectDecisions(t, validatingPolicy(t, "hanse-own-cluster-set"), map[string]decision{
		"one that it makes":         {review: by(nil, good)},
		"one that it changes":       {review: by(good, good)},
		"one that it ends":          {review: by(good, nil)},
		"one of a user, changed":    {review: by(users, users), want: refused},
		"one of a user, taken":      {review: by(users, good), want: refused},
		"one of a user, ended":      {review: by(users, nil), want: refused},
		"in a twin":                 {review: inPeers, want: refused},
		"in the system's namespace": {review: by(nil, serviceIn(t, "kube-system", marked, plain)), want: refused},
		"with a selector":           {review: by(nil, serviceIn(t, "shop", marked, plain+"\nselector: {app: db}")), want: badSpec},
		"with an address outside":   {review: by(nil, serviceIn(t, "shop", marked, plain+"\nexternalIPs: [192.0.2.1]")), want: badSpec},
		"a load balancer":           {review: by(nil, serviceIn(t, "shop", marked, "type: LoadBalancer\nports: [{port: 80}]")), want: badSpec},
		"of nothing":                {review: by(nil, serviceIn(t, "shop", "name: hanse-abc\nlabels: {hanse.dev/cluster-set: \"true\"}", plain)), want: badSpec},
		"users do as they like":     {review: byUser},
	})
	expectDecisions(t, validatingPolicy(t, "hanse-own-writes"), map[string]decision{
		"one that it makes":      {review: by(nil, good)},
		"one of a user, changed": {review: by(users, users), want: "metadata.namespace: Hanse writes only"},
	})
}

func TestTheManagerWritesEndpointsOfTheClusterSet(t *testing.T) {
	of := func(metadata string) *discoveryv1.EndpointSlice {
		return withKind(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "hanse-abc", OwnerReferences: []metav1.OwnerReference{{Kind: "ServiceImport", Name: "web"}},
			Labels: map[string]string{discoveryv1.LabelManagedBy: metadata, v1alpha1.LabelClusterSet: "true"},
		}}, "discovery.k8s.io", "v1", "EndpointSlice")
	}
	orphan := of(v1alpha1.ClusterSetManager)
	orphan.OwnerReferences = nil
	expectDecisions(t, validatingPolicy(t, "hanse-own-endpoints"), map[string]decision{
		"of a ServiceImport":          {review: review{by: manager, in: inShop, object: of(v1alpha1.ClusterSetManager)}},
		"of nothing":                  {review: review{by: manager, in: inShop, object: orphan}, want: "Hanse's manager writes only"},
		"of the controller of others": {review: review{by: manager, in: inShop, object: of("endpointslice-controller.k8s.io")}, want: "Hanse's manager writes only"},
	})
}
