// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// change changes the Peer as its administrator does.
func (w *world) change(to func(*v1alpha1.PeerSpec)) {
	w.Helper()
	testkit.Change(w.Home, "", "lubeck", func(p *v1alpha1.Peer) { to(&p.Spec) })
}

func (w *world) expectMapping(home string, status metav1.ConditionStatus, reason string) {
	w.Helper()
	testkit.ExpectCondition(w, mappingIn(w, home).Status.Conditions, v1alpha1.ConditionReady, status, reason)
}

func TestTwinHasTheLevelOfThePeer(t *testing.T) {
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"))
	m := mapperIn(w)
	w.Reconcile(m, "hanse-peer-lubeck", "shop")
	for name, change := range map[string]func(*corev1.Namespace){
		"somebody lowers it":  func(ns *corev1.Namespace) { ns.Labels["pod-security.kubernetes.io/enforce"] = "privileged" },
		"somebody pins it":    func(ns *corev1.Namespace) { ns.Labels["pod-security.kubernetes.io/enforce-version"] = "v1.20" },
		"somebody removes it": func(ns *corev1.Namespace) { delete(ns.Labels, "pod-security.kubernetes.io/warn") },
		"the Peer raises it": func(*corev1.Namespace) {
			w.change(func(spec *v1alpha1.PeerSpec) { spec.PodSecurity = v1alpha1.PodSecurityRestricted })
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := &corev1.Namespace{}
			w.Home.Find(ns, "", lubeck.name())
			change(ns)
			w.Home.Put(ns)
			w.Reconcile(m, "hanse-peer-lubeck", "shop")
			p := &v1alpha1.Peer{}
			w.Home.Find(p, "", "lubeck")
			w.Home.Find(ns, "", lubeck.name())
			delete(ns.Labels, v1alpha1.LabelRoom)
			if diff := cmp.Diff(lubeck.namespace(p.Spec.PodSecurity).Labels, ns.Labels); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestSuspendedPeerIsShutOutOfItsTwins(t *testing.T) {
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"))
	m := mapperIn(w)
	for access, want := range map[v1alpha1.PeerAccess]int{
		v1alpha1.AccessOpen: 1, v1alpha1.AccessSuspended: 0, v1alpha1.AccessDraining: 1, v1alpha1.AccessCordoned: 1,
	} {
		w.change(func(spec *v1alpha1.PeerSpec) { spec.Access = access })
		w.Reconcile(m, "hanse-peer-lubeck", "shop")
		binding := &rbacv1.RoleBinding{}
		if !w.Home.Find(binding, lubeck.name(), "hanse-peer-twin") || len(binding.Subjects) != want {
			t.Errorf("%s: it binds %v", access, binding.Subjects)
		}
	}
}

func TestBindingThatSomebodyDeletesIsMadeAgain(t *testing.T) {
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"))
	m := mapperIn(w)
	again := w.Reconcile(m, "hanse-peer-lubeck", "shop").RequeueAfter
	w.Home.Remove(testkit.Get[rbacv1.RoleBinding](w.Home, lubeck.name(), "hanse-peer-twin"))
	w.Clock.Step(again)
	w.Reconcile(m, "hanse-peer-lubeck", "shop")
	binding := testkit.Get[rbacv1.RoleBinding](w.Home, lubeck.name(), "hanse-peer-twin")
	if !binding.DeletionTimestamp.IsZero() || len(binding.Subjects) != 1 || len(binding.Finalizers) != 1 {
		t.Errorf("got %v", binding)
	}
}

func TestQuotaOfATwinFollowsTheLimits(t *testing.T) {
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"))
	m := mapperIn(w)
	w.Reconcile(m, "hanse-peer-lubeck", "shop")
	expect := func(want map[string]string, least map[string]string) {
		t.Helper()
		quota, defaults := &corev1.ResourceQuota{}, &corev1.LimitRange{}
		if !w.Home.Find(quota, lubeck.name(), "hanse") || !w.Home.Find(defaults, lubeck.name(), "hanse") {
			t.Fatal("the twin is not guarded")
		}
		if diff := cmp.Diff(want, texts(quota.Spec.Hard)); diff != "" {
			t.Errorf("quota: -want +got:\n%s", diff)
		}
		if diff := cmp.Diff(least, texts(defaults.Spec.Limits[0].DefaultRequest)); diff != "" {
			t.Errorf("defaults: -want +got:\n%s", diff)
		}
	}
	objects := func(number string, more map[string]string) map[string]string {
		want := map[string]string{}
		kinds := []string{
			"shadowpods.hanse.dev", "shadowclaims.hanse.dev", "shadowendpointslices.hanse.dev", "shadowobjects.hanse.dev", "services", "endpointslices.discovery.k8s.io", "configmaps", "secrets", "persistentvolumeclaims",
		}
		for _, kind := range kinds {
			want["count/"+kind] = number
		}
		want["services.nodeports"], want["services.loadbalancers"] = "0", "0"
		for name, limit := range more {
			want[name] = limit
		}
		return want
	}
	expect(objects("10k", nil), map[string]string{})

	w.change(func(spec *v1alpha1.PeerSpec) {
		spec.Limits = &v1alpha1.PeerLimits{Objects: ptr.To[int32](50), NodePorts: ptr.To[int32](3), Resources: corev1.ResourceList{
			"cpu": resource.MustParse("4"), "pods": resource.MustParse("9"), "nvidia.com/gpu": resource.MustParse("1"),
			"hugepages-2Mi": resource.MustParse("4Mi"), "ephemeral-storage": resource.MustParse("1Gi"), "nonsense": resource.MustParse("1"),
		}}
	})
	w.Reconcile(m, "hanse-peer-lubeck", "shop")
	expect(objects("50", map[string]string{
		"requests.cpu": "4", "pods": "9", "requests.nvidia.com/gpu": "1", "requests.hugepages-2Mi": "4Mi",
		"requests.ephemeral-storage": "1Gi", "services.nodeports": "3",
	}), map[string]string{"cpu": "100m"})

	w.change(func(spec *v1alpha1.PeerSpec) { spec.Limits = nil })
	w.Reconcile(m, "hanse-peer-lubeck", "shop")
	expect(objects("10k", nil), map[string]string{})
}

func texts(list corev1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, quantity := range list {
		out[string(name)] = quantity.String()
	}
	return out
}

func TestTwinIsReadyWhenItsQuotaIsCounted(t *testing.T) {
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"))
	m := mapperIn(w)
	w.uncounted = true
	if again := w.Reconcile(m, "hanse-peer-lubeck", "shop").RequeueAfter; again != countingRecheck {
		t.Errorf("looks again in %s", again)
	}
	w.expectMapping("shop", metav1.ConditionFalse, v1alpha1.ReasonPending)
	if twin := mappingIn(w, "shop").Status.Twin; twin != "" {
		t.Errorf("home may use %q", twin)
	}
	w.Clock.Step(3 * time.Second)
	if again := w.Reconcile(m, "hanse-peer-lubeck", "shop").RequeueAfter; again != 3*time.Second/4 {
		t.Errorf("looks again in %s", again)
	}

	// Kubernetes counts one kind after the other.
	w.count("count/shadowpods.hanse.dev")
	w.Home.Writes()
	w.Reconcile(m, "hanse-peer-lubeck", "shop")
	w.Home.ExpectWrites()
	w.count()
	expectRepair(t, w.Reconcile(m, "hanse-peer-lubeck", "shop").RequeueAfter)
	w.Home.ExpectWrites("patch/status NamespaceMapping shop")
	w.expectMapping("shop", metav1.ConditionTrue, v1alpha1.ReasonTwinCreated)
}

// count is what Kubernetes does with a quota sooner or later, here but for some names.
func (w *world) count(but ...corev1.ResourceName) {
	w.Helper()
	quota := w.quota()
	quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, quota.Spec.Hard.DeepCopy()
	for _, name := range but {
		delete(quota.Status.Used, name)
	}
	w.Home.Put(quota)
}

func (w *world) quota() *corev1.ResourceQuota {
	w.Helper()
	return testkit.Get[corev1.ResourceQuota](w.Home, lubeck.name(), "hanse")
}

func (w *world) expectShadowPodsCounted(want bool) {
	w.Helper()
	if _, counted := w.quota().Spec.Hard["count/shadowpods.hanse.dev"]; counted != want {
		w.Errorf("ShadowPods are counted: %t", counted)
	}
}

// installedAt makes the installation as old as it has to be.
func (w *world) installedAt(at time.Time) {
	w.Helper()
	testkit.Change(w.Home, "", "hanse-system", func(ns *corev1.Namespace) { ns.CreationTimestamp = metav1.NewTime(at) })
}

func TestYoungInstallationDoesNotCountItsOwnKinds(t *testing.T) {
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"))
	m := mapperIn(w)
	w.installedAt(testkit.Noon.Add(-20 * time.Second))
	again := w.Reconcile(m, "hanse-peer-lubeck", "shop").RequeueAfter
	if again != 40*time.Second {
		t.Errorf("looks again in %s", again)
	}
	w.expectShadowPodsCounted(false)
	w.expectMapping("shop", metav1.ConditionTrue, v1alpha1.ReasonTwinCreated)

	w.Clock.Step(again - time.Millisecond)
	w.Home.Writes()
	if again := w.Reconcile(m, "hanse-peer-lubeck", "shop").RequeueAfter; again != time.Millisecond {
		t.Errorf("looks again in %s", again)
	}
	w.Home.ExpectWrites()

	w.Clock.Step(time.Millisecond)
	if again := w.Reconcile(m, "hanse-peer-lubeck", "shop").RequeueAfter; again != countingRecheck {
		t.Errorf("looks again in %s", again)
	}
	w.Home.ExpectWrites("update ResourceQuota hanse", "patch/status NamespaceMapping shop")
	w.expectShadowPodsCounted(true)
	if twin := mappingIn(w, "shop").Status.Twin; twin != lubeck.name() {
		t.Errorf("home may use %q while the quota is counted anew", twin)
	}
	w.count()
	expectRepair(t, w.Reconcile(m, "hanse-peer-lubeck", "shop").RequeueAfter)
	w.Home.ExpectWrites("patch/status NamespaceMapping shop")
	w.expectMapping("shop", metav1.ConditionTrue, v1alpha1.ReasonTwinCreated)
}

// Only the API server knows how long it has known our kinds.
func TestClockOfTheInstallationIsTheAPIServers(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"ours is ahead": 10 * time.Minute, "ours is behind": -10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"))
			m := mapperIn(w)
			w.Home.ClockBehind = metav1.Duration{Duration: ahead}
			w.installedAt(testkit.Noon.Add(-ahead - 20*time.Second))
			again := w.Reconcile(m, "hanse-peer-lubeck", "shop").RequeueAfter
			if again != 40*time.Second {
				t.Errorf("looks again in %s", again)
			}
			w.expectShadowPodsCounted(false)
			w.expectMapping("shop", metav1.ConditionTrue, v1alpha1.ReasonTwinCreated)

			w.Clock.Step(again)
			w.Reconcile(m, "hanse-peer-lubeck", "shop")
			w.expectShadowPodsCounted(true)
			w.count()
			restarted := mapperIn(w)
			expectRepair(t, w.Reconcile(restarted, "hanse-peer-lubeck", "shop").RequeueAfter)
			w.expectShadowPodsCounted(true)
		})
	}
}

func TestQuotaIsNotForgottenWhenTheInstallationComesOfAgeMeanwhile(t *testing.T) {
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"))
	m := mapperIn(w)
	w.installedAt(testkit.Noon.Add(-local.CountingDelay + 5*time.Second))
	w.latency = time.Second
	again := w.Reconcile(m, "hanse-peer-lubeck", "shop").RequeueAfter
	if old := w.Clock.Since(testkit.Noon) >= 5*time.Second; !old || again == 0 {
		t.Fatalf("old: %t, looks again in %s", old, again)
	}
	w.expectShadowPodsCounted(false)
	w.Clock.Step(again)
	w.Reconcile(m, "hanse-peer-lubeck", "shop")
	w.expectShadowPodsCounted(true)
}

func TestSuspendedPeerIsShutOutThoughTheAgeIsNotKnown(t *testing.T) {
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"))
	w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
	m := mapperIn(w) // one that has not asked yet
	w.Home.Remove(testkit.Namespace("hanse-system", nil))
	w.change(func(spec *v1alpha1.PeerSpec) { spec.Access = v1alpha1.AccessSuspended })
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(mappingOf("shop"))}
	if _, err := m.Reconcile(t.Context(), request); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	binding := &rbacv1.RoleBinding{}
	if !w.Home.Find(binding, lubeck.name(), "hanse-peer-twin") || len(binding.Subjects) != 0 {
		t.Errorf("it binds %v", binding.Subjects)
	}
}

func TestPeerGetsOnlySoManyNamespaces(t *testing.T) {
	p := peer()
	p.Spec.Limits = &v1alpha1.PeerLimits{Namespaces: ptr.To[int32](1)}
	aged := func(home string, age time.Duration) *v1alpha1.NamespaceMapping {
		mapping := mappingOf(home)
		mapping.CreationTimestamp = metav1.NewTime(testkit.Noon.Add(-age))
		return mapping
	}
	w := newWorld(t, p, tenantNamespace(), aged("kube-system", time.Hour), aged("old", time.Minute), aged("new", 0), aged("newer", -time.Minute))
	m := mapperIn(w)
	for _, home := range []string{"new", "kube-system", "old", "new", "newer"} {
		w.Reconcile(m, "hanse-peer-lubeck", home)
	}
	w.expectMapping("old", metav1.ConditionTrue, v1alpha1.ReasonTwinCreated)
	w.expectMapping("new", metav1.ConditionFalse, v1alpha1.ReasonLimitExceeded)
	w.expectMapping("newer", metav1.ConditionFalse, v1alpha1.ReasonLimitExceeded)

	w.change(func(spec *v1alpha1.PeerSpec) { spec.Limits.Namespaces = ptr.To[int32](2) })
	if again := w.Reconcile(m, "hanse-peer-lubeck", "newer").RequeueAfter; again != roomRecheck {
		t.Errorf("looks again in %s", again)
	}
	w.Reconcile(m, "hanse-peer-lubeck", "new")
	w.expectMapping("newer", metav1.ConditionFalse, v1alpha1.ReasonLimitExceeded)
	w.expectMapping("new", metav1.ConditionTrue, v1alpha1.ReasonTwinCreated)

	// A lower limit takes nothing away.
	w.change(func(spec *v1alpha1.PeerSpec) { spec.Limits.Namespaces = ptr.To[int32](0) })
	w.Reconcile(m, "hanse-peer-lubeck", "old")
	w.expectMapping("old", metav1.ConditionTrue, v1alpha1.ReasonTwinCreated)
}

func TestNetworkPolicyKeepsPeersPodsAmongThemselves(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Spec:       corev1.NodeSpec{PodCIDR: "10.244.1.0/24", PodCIDRs: []string{"10.244.1.0/24", "2001:db8:1::/64"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "203.0.113.7"}, {Type: corev1.NodeHostName, Address: "n"},
		}},
	}
	services := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"198.18.0.0/16", "fd00::/108"}},
	}
	virtual := node.DeepCopy()
	virtual.Name, virtual.Labels = "v", map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}
	virtual.Status.Addresses[0].Address = "198.51.100.1"
	w := newWorld(t, peer(), tenantNamespace(), mappingOf("shop"), node, virtual, services)
	m := mapperIn(w)
	m.config.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("203.0.112.0/22")}
	w.Reconcile(m, "hanse-peer-lubeck", "shop")

	siblings := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
		"hanse.dev/type": "twin", "hanse.dev/peer": "lubeck",
	}}}
	udp, tcp := corev1.ProtocolUDP, corev1.ProtocolTCP
	port := dnsPorts()[0].Port
	want := networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{"Ingress", "Egress"},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{siblings}}},
		Egress: []networkingv1.NetworkPolicyEgressRule{
			{To: []networkingv1.NetworkPolicyPeer{siblings}},
			{
				To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
					"kubernetes.io/metadata.name": "kube-system",
				}}}},
				Ports: []networkingv1.NetworkPolicyPort{{Protocol: &udp, Port: port}, {Protocol: &tcp, Port: port}},
			},
			{To: []networkingv1.NetworkPolicyPeer{
				{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{
					"10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16", "172.16.0.0/12",
					"192.168.0.0/16", "198.18.0.0/16", "203.0.112.0/22", "240.0.0.0/4",
				}}},
				{IPBlock: &networkingv1.IPBlock{CIDR: "::/0", Except: []string{"::1/128", "2001:db8:1::/64", "fc00::/7", "fe80::/10"}}},
			}},
		},
	}
	policy := &networkingv1.NetworkPolicy{}
	if !w.Home.Find(policy, lubeck.name(), "hanse") {
		t.Fatal("there is no NetworkPolicy")
	}
	if diff := cmp.Diff(want, policy.Spec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if port.IntValue() != 53 {
		t.Errorf("DNS is at port %s", port)
	}
}

func TestWhichNodesChangeThePolicy(t *testing.T) {
	at := func(address string) client.Object {
		return &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}}}
	}
	if publicRanges.Create(event.CreateEvent{Object: at("10.0.0.1")}) || !publicRanges.Create(event.CreateEvent{Object: at("203.0.113.7")}) {
		t.Error("not those with public addresses")
	}
	if publicRanges.Update(event.UpdateEvent{ObjectOld: at("203.0.113.7"), ObjectNew: at("203.0.113.7")}) ||
		!publicRanges.Update(event.UpdateEvent{ObjectOld: at("203.0.113.7"), ObjectNew: at("203.0.113.8")}) {
		t.Error("not those whose addresses changed")
	}
}
