// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Members write what they say, and do not say who else has said it.
func TestMessagesOfMembersAreGuarded(t *testing.T) {
	says := func(metadata, to string) *unstructured.Unstructured {
		object := read(t, "apiVersion: hanse.dev/v1alpha1\nkind: Message\nmetadata: {namespace: hanse-peer-turin, "+metadata+"}\nspec: {statement: x}")
		if to != "" {
			if err := unstructured.SetNestedField(object.Object, to, "spec", "to"); err != nil {
				t.Fatal(err)
			}
		}
		return object
	}
	const (
		name   = "metadata.name: a statement for all"
		copied = "name: milan.x, labels: {hanse.dev/from: milan}, annotations: {hanse.dev/message: hanse-peer-milan/x}"
	)
	expectDecisions(t, validatingPolicy(t, "hanse-guard-objects"), map[string]decision{
		"to one":                       {review: review{by: peer, object: says("name: x", "milan")}},
		"to all":                       {review: review{by: peer, object: says("name: introduction", "")}},
		"to all by another name":       {review: review{by: peer, object: says("name: x", "")}, want: name},
		"to all, later":                {review: review{by: peer, old: says("name: x", "milan"), object: says("name: x", "")}, want: name},
		"as a copy":                    {review: review{by: peer, object: says("name: x, labels: {hanse.dev/from: milan}", "milan")}, want: "metadata.labels"},
		"as a copy of another":         {review: review{by: peer, object: says("name: x, annotations: {hanse.dev/message: a/b}", "milan")}, want: "metadata.annotations"},
		"a copy, which it spoils":      {review: review{by: peer, old: says(copied, "turin"), object: says(copied, "rome")}},
		"a copy, of somebody else now": {review: review{by: peer, old: says(copied, "turin"), object: says("name: milan.x, labels: {hanse.dev/from: rome}", "turin")}, want: "metadata.labels"},
		"one that stays":               {review: review{by: peer, object: says("name: x, finalizers: [a/b]", "milan")}, want: "metadata.finalizers"},
		"the manager copies":           {review: review{by: manager, object: says(copied, "turin")}},
	})
}

// Hanse makes Peers of members alone, as consumers or as providers that are asked for an invitation: it cannot make anybody a broker or a
// member.
func TestHanseMakesPeersOfMembersAlone(t *testing.T) {
	makes := func(by, text string) review {
		return review{by: by, object: read(t, "apiVersion: hanse.dev/v1alpha1\nkind: Peer\n"+text)}
	}
	asked := func(name, spec string) review {
		return makes(manager, "metadata: {name: "+name+", annotations: {hanse.dev/introduced-by: hamburg}}\nspec: {"+spec+"}")
	}
	const refused = "Hanse makes Peers of members of a broker alone"
	changed := makes(manager, "metadata: {name: turin}\nspec: {roles: [Provider]}")
	changed.old = changed.object
	expectDecisions(t, validatingPolicy(t, "hanse-own-peers"), map[string]decision{
		"a member":                  {review: asked("turin", "clusterID: turin, publicKey: k, roles: [Consumer], invitation: {}")},
		"one that has won":          {review: makes(manager, "metadata: {name: turin}\nspec: {clusterID: turin, publicKey: k, roles: [Provider], introducer: hamburg}")},
		"one that is a broker":      {review: makes(manager, "metadata: {name: turin}\nspec: {clusterID: turin, publicKey: k, roles: [Provider, Broker], introducer: hamburg}"), want: refused},
		"a provider":                {review: asked("turin", "clusterID: turin, publicKey: k, roles: [Provider]"), want: refused},
		"one that is both":          {review: asked("turin", "clusterID: turin, publicKey: k, roles: [Consumer, Provider]"), want: refused},
		"a member of its own":       {review: asked("turin", "clusterID: turin, publicKey: k, roles: [Consumer, Member]"), want: refused},
		"one without a role":        {review: asked("turin", "clusterID: turin, publicKey: k"), want: refused},
		"one without a key":         {review: asked("turin", "clusterID: turin, roles: [Consumer]"), want: refused},
		"one by another name":       {review: asked("milan", "clusterID: turin, publicKey: k, roles: [Consumer]"), want: refused},
		"one of an unknown cluster": {review: asked("turin", "publicKey: k, roles: [Consumer]"), want: refused},
		"one that nobody has asked": {review: makes(manager, "metadata: {name: turin}\nspec: {clusterID: turin, publicKey: k, roles: [Consumer]}"), want: refused},
		"a change of one":           {review: changed},
		"an administrator's":        {review: makes(admin, "metadata: {name: turin}\nspec: {roles: [Provider]}")},
	})
}

func TestMembersAreLetIntoTheirNamespaceAlone(t *testing.T) {
	binds := func(namespace, name, subjects string) review {
		binding := withKind(&rbacv1.RoleBinding{ObjectMeta: in(namespace, name)}, "rbac.authorization.k8s.io", "v1", "RoleBinding")
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: v1alpha1.ClusterRolePeerMembers}
		if err := yaml.UnmarshalStrict([]byte(subjects), &binding.Subjects); err != nil {
			t.Fatal(err)
		}
		return review{by: manager, in: inHanse, object: binding}
	}
	const (
		toPeer   = "[{kind: ServiceAccount, namespace: hanse-peer-turin, name: hanse-peer}]"
		refused  = "metadata.namespace: Hanse binds roles"
		subjects = "subjects: "
	)
	inTheirs := binds("hanse-peer-turin", "hanse-peer-turin", toPeer)
	inTheirs.in = inTenant
	expectDecisions(t, validatingPolicy(t, "hanse-own-bindings"), map[string]decision{
		"a member":                      {review: binds("hanse-members", "hanse-peer-turin", toPeer)},
		"in its own":                    {review: inTheirs, want: refused},
		"in the system's":               {review: binds("kube-system", "hanse-peer-turin", toPeer), want: refused},
		"by the name of another member": {review: binds("hanse-members", "hanse-peer-milan", toPeer), want: subjects},
		"everybody":                     {review: binds("hanse-members", "hanse-peer-turin", "[{kind: Group, name: system:authenticated}]"), want: subjects},
		"one who is only invited":       {review: binds("hanse-members", "hanse-peer-turin", "[{kind: ServiceAccount, namespace: hanse-peer-turin, name: hanse-invitation}]"), want: subjects},
		"what is no peer":               {review: binds("hanse-members", "kube-system", "[{kind: ServiceAccount, namespace: kube-system, name: hanse-peer}]"), want: refused},
	})
	var copied runtime.Object = read(t, "apiVersion: hanse.dev/v1alpha1\nkind: Message\nmetadata: {namespace: hanse-members, name: turin}\nspec: {statement: x}")
	secret := withKind(&metav1.PartialObjectMetadata{ObjectMeta: in("hanse-members-2", "x")}, "", "v1", "Secret")
	expectDecisions(t, validatingPolicy(t, "hanse-own-writes"), map[string]decision{
		"what is said to all":            {review: review{by: manager, in: inHanse, object: copied}},
		"the end of it":                  {review: review{by: manager, in: inHanse, old: copied}},
		"in one that only looks like it": {review: review{by: manager, in: inHanse, object: secret}, want: "metadata.namespace: Hanse writes only"},
		"users write where they like":    {review: review{by: admin, object: copied}},
	})
}
