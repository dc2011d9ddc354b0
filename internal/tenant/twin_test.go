// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestPatternsOfNames(t *testing.T) {
	grants := func(patterns []string, name string) bool {
		return twinOf{chosen: name}.granted(&v1alpha1.Peer{Spec: v1alpha1.PeerSpec{TwinNames: patterns}}, "")
	}
	for name, want := range map[string]bool{
		"shop": true, "shop-a": false, "lubeck-1": true, "lubeck-shop": true, "lubeck-": false, "xlubeck-shop": false,
		"a-team-b": true, "a-b": false, "other": false,
	} {
		if got := grants([]string{"shop", "lubeck-*", "*-team-*"}, name); got != want {
			t.Errorf("%q: got %t", name, got)
		}
	}
	if grants(nil, "shop") {
		t.Error("no pattern lets a name pass")
	}
	if !grants([]string{"*"}, "anything") {
		t.Error("* lets nothing pass")
	}
}

// choosing is a peer that may choose such names.
func choosing(patterns ...string) *v1alpha1.Peer {
	p := peer()
	p.Spec.TwinNames = patterns
	return p
}

func mappingTo(home, twin string) *v1alpha1.NamespaceMapping {
	mapping := mappingOf(home)
	mapping.Spec.Twin = twin
	return mapping
}

func TestChosenTwinNames(t *testing.T) {
	theirs := twinOf{peer: "bremen", clusterID: "bremen-id", home: "shop", chosen: "web"}
	for name, c := range map[string]struct {
		peer   *v1alpha1.Peer
		twin   string
		exists *corev1.Namespace
		reason string
	}{
		"granted":                         {choosing("we*"), "web", nil, v1alpha1.ReasonTwinCreated},
		"the same as at home":             {choosing("*"), "shop", nil, v1alpha1.ReasonTwinCreated},
		"the one that we make anyway":     {peer(), lubeck.name(), nil, v1alpha1.ReasonTwinCreated},
		"its own already":                 {choosing("web"), "web", lubeck.called("web").namespace(""), v1alpha1.ReasonTwinCreated},
		"its own, not granted any more":   {peer(), "web", lubeck.called("web").namespace(""), v1alpha1.ReasonTwinCreated},
		"nothing granted":                 {peer(), "web", nil, v1alpha1.ReasonTwinNameForbidden},
		"another name granted":            {choosing("shop", "web-*"), "web", nil, v1alpha1.ReasonTwinNameForbidden},
		"default":                         {choosing("*"), "default", nil, v1alpha1.ReasonTwinNameForbidden},
		"a system's":                      {choosing("*", "kube-system"), "kube-system", nil, v1alpha1.ReasonTwinNameForbidden},
		"one like a system's":             {choosing("*"), "kube-web", nil, v1alpha1.ReasonTwinNameForbidden},
		"Hanse's own":                     {choosing("*"), "hanse-system", nil, v1alpha1.ReasonTwinNameForbidden},
		"a tenant's":                      {choosing("*"), "hanse-peer-bremen", nil, v1alpha1.ReasonTwinNameForbidden},
		"no name":                         {choosing("*"), "Web/x", nil, v1alpha1.ReasonTwinNameForbidden},
		"an existing namespace":           {choosing("*"), "web", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, v1alpha1.ReasonNamespaceTaken},
		"another peer's twin":             {choosing("*"), "web", theirs.namespace(""), v1alpha1.ReasonNamespaceTaken},
		"its twin of another namespace":   {choosing("*"), "web", twinOf{peer: "lubeck", clusterID: "lubeck-id", home: "bank", chosen: "web"}.namespace(""), v1alpha1.ReasonNamespaceTaken},
		"one it must not know to be here": {choosing("x"), "web", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, v1alpha1.ReasonTwinNameForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{c.peer, tenantNamespace(), mappingTo("shop", c.twin)}
			if c.exists != nil {
				objects = append(objects, c.exists)
			}
			w := newWorld(t, objects...)
			w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
			status := mappingIn(w, "shop").Status
			ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
			if ready == nil || ready.Reason != c.reason {
				t.Fatalf("got condition %+v, want %s", ready, c.reason)
			}
			if c.reason == v1alpha1.ReasonTwinNameForbidden && !strings.Contains(ready.Message, "spec.twinNames") {
				t.Errorf("got message %q", ready.Message)
			}
			if c.reason == v1alpha1.ReasonTwinCreated {
				w.expectTwin(c.twin)
				return
			}
			ns := &corev1.Namespace{}
			if w.Home.Find(ns, "", c.twin) && lubeck.called(c.twin).owns(ns) || status.Twin != "" {
				t.Error("it got the namespace")
			}
		})
	}
}

// expectTwin looks whether the namespace is the peer's twin of its shop, and guarded.
func (w *world) expectTwin(name string) {
	w.Helper()
	if status := mappingIn(w, "shop").Status; status.Twin != name {
		w.Errorf("twin is %q", status.Twin)
	}
	ns := &corev1.Namespace{}
	w.Home.Find(ns, "", name)
	if got, ok := twinIn(ns); !ok || got != lubeck.called(name) {
		w.Errorf("the namespace is the twin %+v, %t", got, ok)
	}
	if !w.Home.Find(&corev1.ResourceQuota{}, name, guardName) {
		w.Error("nothing guards it")
	}
}

func TestChosenTwinGoesWithItsMapping(t *testing.T) {
	w := newWorld(t, choosing("web"), tenantNamespace(), mappingTo("shop", "web"))
	m := mapperIn(w)
	w.Reconcile(m, "hanse-peer-lubeck", "shop")
	w.Reconcile(m, "hanse-peer-lubeck", "shop")
	if !w.Home.Find(&corev1.Namespace{}, "", "web") {
		t.Fatal("a twin that is asked for was removed")
	}
	ns := &corev1.Namespace{}
	w.Home.Find(ns, "", "web")
	if got := m.mappingsOfNamespace(t.Context(), ns); len(got) != 1 || got[0].Name != "shop" {
		t.Errorf("the namespace is looked after by %v", got)
	}
	w.Home.Remove(mappingIn(w, "shop"))
	w.Reconcile(m, "hanse-peer-lubeck", "shop")
	w.Reconcile(m, "hanse-peer-lubeck", "shop")
	if w.Home.Find(&corev1.Namespace{}, "", "web") || w.Home.Find(&v1alpha1.NamespaceMapping{}, "hanse-peer-lubeck", "shop") {
		t.Error("something is left")
	}
}

func TestTwinOfAnEarlierNameIsRemoved(t *testing.T) {
	before := lubeck.called("web")
	w := newWorld(t, choosing("*"), tenantNamespace(), mappingTo("shop", "store"), before.namespace(""))
	w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
	if w.Home.Find(&corev1.Namespace{}, "", "web") {
		t.Error("it is still there")
	}
}

func TestRefusedNameTakesNobodysPlace(t *testing.T) {
	p := peer()
	one := int32(1)
	p.Spec.Limits = &v1alpha1.PeerLimits{Namespaces: &one}
	refused := mappingTo("bank", "web")
	refused.CreationTimestamp = metav1.NewTime(testkit.Noon.Add(-1))
	later := mappingOf("shop")
	later.CreationTimestamp = metav1.NewTime(testkit.Noon)
	w := newWorld(t, p, tenantNamespace(), refused, later)
	w.Reconcile(mapperIn(w), "hanse-peer-lubeck", "shop")
	testkit.ExpectCondition(w, mappingIn(w, "shop").Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonTwinCreated)
}

func TestPodsRunInAChosenTwin(t *testing.T) {
	web := lubeck.called("web")
	shadow := shadowPod()
	shadow.Namespace = "web"
	w := newWorld(t, choosing("web"), web.namespace(""), shadow)
	k := newShadowPodReconciler(w.config(), w.Home.Client, w.Home.Server, w.Home.Server)
	w.Reconcile(k, "web", "web")
	pod := &corev1.Pod{}
	if !w.Home.Find(pod, "web", "web") || pod.Labels[v1alpha1.LabelPeer] != "lubeck" {
		t.Errorf("got pod %v", pod)
	}
}
