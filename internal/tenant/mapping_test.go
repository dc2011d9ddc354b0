// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func mappingOf(home string) *v1alpha1.NamespaceMapping {
	return &v1alpha1.NamespaceMapping{
		ObjectMeta: metav1.ObjectMeta{Name: home, Namespace: "hanse-peer-lubeck", Generation: 1},
		Spec:       v1alpha1.NamespaceMappingSpec{HomeNamespace: home},
	}
}

func mapperIn(w *world) *mappingReconciler {
	return newMappingReconciler(w.config(), w.Home.Client, w.Home.Server)
}

func mappingIn(w *world, home string) *v1alpha1.NamespaceMapping {
	w.Helper()
	return testkit.Get[v1alpha1.NamespaceMapping](w.Home, "hanse-peer-lubeck", home)
}

func TestTwinName(t *testing.T) {
	long := strings.Repeat("a", 62) + "b"
	names := map[string]string{}
	for _, c := range [][2]string{
		{"lubeck", "shop"},
		{"lubeck", "shop-lubeck"},
		{"shop", "lubeck"},
		{"lubeck", long},
		{"lubeck", strings.Repeat("a", 63)},
		{strings.Repeat("p", 40), long},
		{strings.Repeat("p", 40), "a-------------b-c"},
	} {
		name := TwinName(c[0], c[1])
		if len(name) > 63 || strings.Contains(name, "--p") || name != TwinName(c[0], c[1]) {
			t.Errorf("%v: %s", c, name)
		}
		if other, taken := names[name]; taken {
			t.Errorf("%v and %s are both %s", c, other, name)
		}
		names[name] = c[0] + "/" + c[1]
	}
	if got, want := TwinName("lubeck", "shop"), "shop-lubeck-"; !strings.HasPrefix(got, want) || len(got) != len(want)+6 {
		t.Errorf("got %s", got)
	}
}

func TestMappingMakesATwin(t *testing.T) {
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"))
	w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
	w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
	w.Home.ExpectWrites("patch NamespaceMapping shop", "create Namespace "+lubeck.name(), "create RoleBinding hanse-manager-in-twin",
		"create ResourceQuota hanse", "create LimitRange hanse", "create NetworkPolicy hanse", "create RoleBinding hanse-peer-twin",
		"patch/status NamespaceMapping shop")

	twin := lubeck.name()
	ns := &corev1.Namespace{}
	if !w.Home.Find(ns, "", twin) {
		t.Fatal("there is no twin")
	}
	want := map[string]string{
		"hanse.dev/type": "twin", "hanse.dev/peer": "lubeck", "hanse.dev/cluster-id": "lubeck-id", "hanse.dev/managed": "true",
		"hanse.dev/room": "16777216", "pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/enforce-version": "latest",
		"pod-security.kubernetes.io/audit": "baseline", "pod-security.kubernetes.io/audit-version": "latest",
		"pod-security.kubernetes.io/warn": "baseline", "pod-security.kubernetes.io/warn-version": "latest",
	}
	if diff := cmp.Diff(want, ns.Labels); diff != "" {
		t.Errorf("labels: -want +got:\n%s", diff)
	}
	status := mappingIn(w, "shop").Status
	testkit.ExpectCondition(w, status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonTwinCreated)
	if status.Twin != twin {
		t.Errorf("twin is %q", status.Twin)
	}
	for role, subject := range map[string]rbacv1.Subject{
		"hanse-peer-twin":       {Kind: "ServiceAccount", Namespace: "hanse-peer-lubeck", Name: "hanse-peer"},
		"hanse-manager-in-twin": {Kind: "ServiceAccount", Namespace: "hanse-system", Name: "hanse-manager"},
	} {
		binding := &rbacv1.RoleBinding{}
		if !w.Home.Find(binding, twin, role) {
			t.Fatalf("no binding to %s", role)
		}
		if binding.RoleRef.Kind != "ClusterRole" || binding.RoleRef.Name != role || len(binding.Subjects) != 1 || binding.Subjects[0] != subject {
			t.Errorf("got binding %+v", binding)
		}
	}
}

func TestChangedBindingIsPutRight(t *testing.T) {
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"))
	w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
	binding := &rbacv1.RoleBinding{}
	w.Home.Find(binding, lubeck.name(), "hanse-peer-twin")
	binding.Subjects[0].Namespace = "elsewhere"
	w.Home.Put(binding)
	w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
	w.Home.Find(binding, lubeck.name(), "hanse-peer-twin")
	if binding.Subjects[0].Namespace != "hanse-peer-lubeck" {
		t.Errorf("got %v", binding.Subjects)
	}
}

func TestMappingThatCannotBe(t *testing.T) {
	taken := func(change func(*corev1.Namespace)) client.Object {
		ns := lubeck.namespace("")
		change(ns)
		return ns
	}
	for name, c := range map[string]struct {
		home   string
		exists client.Object
		reason string
	}{
		"kube-system is a system's":        {"kube-system", nil, v1alpha1.ReasonNamespaceForbidden},
		"default is a system's":            {"default", nil, v1alpha1.ReasonNamespaceForbidden},
		"ours is a system's":               {"hanse-system", nil, v1alpha1.ReasonNamespaceForbidden},
		"a tenant's is a system's":         {"hanse-peer-x", nil, v1alpha1.ReasonNamespaceForbidden},
		"a name that is none":              {"Shop/x", nil, v1alpha1.ReasonNamespaceForbidden},
		"an unmarked namespace is taken":   {"shop", taken(func(ns *corev1.Namespace) { ns.Labels = nil }), v1alpha1.ReasonNamespaceTaken},
		"another peer's twin is taken":     {"shop", taken(func(ns *corev1.Namespace) { ns.Labels[v1alpha1.LabelPeer] = "bremen" }), v1alpha1.ReasonNamespaceTaken},
		"a twin of another cluster's is":   {"shop", taken(func(ns *corev1.Namespace) { ns.Labels[v1alpha1.LabelClusterID] = "x" }), v1alpha1.ReasonNamespaceTaken},
		"a twin of another namespace's is": {"shop", taken(func(ns *corev1.Namespace) { ns.Annotations = nil }), v1alpha1.ReasonNamespaceTaken},
		"a twin that is being deleted goes": {"shop", taken(func(ns *corev1.Namespace) {
			ns.DeletionTimestamp, ns.Finalizers = &metav1.Time{Time: testkit.Noon}, []string{"a/b"}
		}), v1alpha1.ReasonNamespaceTerminating},
	} {
		t.Run(name, func(t *testing.T) {
			mapping := mappingOf(c.home)
			mapping.Name = "m"
			objects := []client.Object{peer(), tenantNamespace(), mapping}
			if c.exists != nil {
				objects = append(objects, c.exists)
			}
			w := newWorld(t, objects...)
			w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "m")
			w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "m")
			w.Home.ExpectWrites("patch NamespaceMapping m", "patch/status NamespaceMapping m")
			status := mappingIn(w, "m").Status
			testkit.ExpectCondition(w, status.Conditions, v1alpha1.ConditionReady, metav1.ConditionFalse, c.reason)
			if status.Twin != "" {
				t.Errorf("it has twin %q", status.Twin)
			}
		})
	}
}

func TestTwinThatIsBeingDeletedIsStillNamed(t *testing.T) {
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"))
	w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
	ns := &corev1.Namespace{}
	w.Home.Find(ns, "", lubeck.name())
	ns.Finalizers = []string{"test/pods"}
	w.Home.Put(ns)
	w.Home.Remove(ns)
	w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
	status := mappingIn(w, "shop").Status
	testkit.ExpectCondition(w, status.Conditions, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNamespaceTerminating)
	if status.Twin != lubeck.name() {
		t.Errorf("home cannot follow what ends in the twin: it is called %q", status.Twin)
	}
}

func TestMappingOutsideATenantNamespaceIsIgnored(t *testing.T) {
	other := tenantNamespace()
	other.Labels[v1alpha1.LabelPeer] = "bremen"
	provider := peer()
	provider.Spec.Roles = []v1alpha1.PeerRole{v1alpha1.RoleProvider}
	for name, objects := range map[string][]client.Object{
		"no tenant namespace":         {peer(), mappingOf("shop"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hanse-peer-lubeck"}}},
		"the label of another tenant": {peer(), mappingOf("shop"), other},
		"no Peer":                     {mappingOf("shop"), tenantNamespace()},
		"a Peer that only provides":   {provider, mappingOf("shop"), tenantNamespace()},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, objects...)
			w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
			w.Home.ExpectWrites()
		})
	}
}

func TestDeletedMappingWaitsForItsTwin(t *testing.T) {
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"))
	w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
	ns := &corev1.Namespace{}
	w.Home.Find(ns, "", lubeck.name())
	ns.Finalizers = []string{"test/pods"}
	w.Home.Put(ns)
	// The Peer goes first.
	w.Home.Remove(peer())
	w.Home.Remove(mappingIn(w, "shop"))
	w.Home.Writes()
	w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
	w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
	w.Home.ExpectWrites("delete Namespace " + lubeck.name())
	mappingIn(w, "shop")

	w.Home.Find(ns, "", lubeck.name())
	ns.Finalizers = nil
	w.Home.Put(ns)
	w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
	if w.Home.Find(&v1alpha1.NamespaceMapping{}, "hanse-peer-lubeck", "shop") {
		t.Error("the NamespaceMapping is still there")
	}
}

func TestDeletedMappingLeavesAForeignNamespace(t *testing.T) {
	foreign := lubeck.namespace("")
	foreign.Labels[v1alpha1.LabelPeer] = "bremen"
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"), foreign)
	w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
	w.Home.Remove(mappingIn(w, "shop"))
	w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
	if !w.Home.Find(&corev1.Namespace{}, "", lubeck.name()) {
		t.Error("the foreign namespace was deleted")
	}
	if w.Home.Find(&v1alpha1.NamespaceMapping{}, "hanse-peer-lubeck", "shop") {
		t.Error("the NamespaceMapping is still there")
	}
}

func TestTwinsThatNobodyAsksForAreRemoved(t *testing.T) {
	other := peer()
	other.Spec.ClusterID = "other-id"
	provider := peer()
	provider.Spec.Roles = []v1alpha1.PeerRole{v1alpha1.RoleProvider}
	going := peer()
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: testkit.Noon}, []string{v1alpha1.FinalizerPeer}
	for name, c := range map[string]struct {
		objects []client.Object
		stays   bool
	}{
		"needed":              {[]client.Object{peer(), mappingOf("shop")}, true},
		"without a Peer":      {[]client.Object{mappingOf("shop")}, false},
		"of a Peer that goes": {[]client.Object{going, mappingOf("shop")}, true},
		"of another cluster":  {[]client.Object{other, mappingOf("shop")}, false},
		"of a mere provider":  {[]client.Object{provider, mappingOf("shop")}, false},
		"without a mapping":   {[]client.Object{peer(), mappingOf("other")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(c.objects, lubeck.namespace(""))...)
			// What the cache does not show is no reason.
			w.hidden["NamespaceMapping"] = true
			w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
			if got := w.Home.Find(&corev1.Namespace{}, "", lubeck.name()); got != c.stays {
				t.Errorf("it exists: %t", got)
			}
		})
	}
}

func TestOtherNamespacesAreNotRemoved(t *testing.T) {
	disguised := lubeck.namespace("")
	disguised.Name = "kube-system"
	w := newWorld(t, disguised)
	w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
	w.Home.ExpectWrites()
}

func TestConfig(t *testing.T) {
	if err := SetupWithManager(nil, Config{}); err == nil {
		t.Error("took an empty config")
	}
}
