// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/testkit"
)

var (
	ingressesOfShop = request{Peer: "turin", place: place{Namespace: "shop", Kind: reflection.Ingress}}
	widgetKind      = reflection.ListedKind{Group: "example.org", Version: "v1", Kind: "Widget", Omit: []string{"spec.secret"}, Status: true}
	widgetsOfShop   = request{Peer: "turin", place: place{Namespace: "shop", Kind: widgetKind.Name()}}
)

func ingress(name string) *networkingv1.Ingress {
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("u-" + name)},
		Spec: networkingv1.IngressSpec{
			TLS:   []networkingv1.IngressTLS{{SecretName: "password"}},
			Rules: []networkingv1.IngressRule{{Host: "www.example.org"}},
		},
	}
}

func widget(name string, size int64) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Widget", "spec": map[string]any{"size": size, "secret": "x"},
	}}
	object.SetNamespace("shop")
	object.SetName(name)
	object.SetUID(types.UID("u-" + name))
	return object
}

// shadowThere is the ShadowObject of an object of the kind at the peer, or nil.
func (w *world) shadowThere(kind reflection.Kind, name string) *v1alpha1.ShadowObject {
	w.Helper()
	found := &v1alpha1.ShadowObject{}
	if !w.Away.Find(found, twinName, reflection.ShadowName(kind, name)) {
		return nil
	}
	return found
}

// answers has the provider say how it stands with the ShadowObject, and waits until home knows.
func (w *world) answers(req request, name string, change func(*v1alpha1.ShadowObjectStatus)) {
	w.Helper()
	shadow := w.shadowThere(req.Kind, name)
	change(&shadow.Status)
	if err := w.turin.Client.Status().Update(w.Context(), shadow); err != nil {
		w.Fatal(err)
	}
	link, _ := w.peers.Links.Get("turin")
	w.settle(func() bool {
		mirror := link.Followed(w.copier.copies[req.Kind], "shop")
		seen, ok := mirror.Named(shadow.Name)
		return ok && seen.GetResourceVersion() == w.shadowThere(req.Kind, name).ResourceVersion
	})
	w.mustReconcile(req)
}

func applied(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
	return []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: status, Reason: reason, Message: message}}
}

// withIngress is a world in which the Ingress web is asked for at the peer, which has a pod of its namespace.
func withIngress(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, testkit.Pod("shop", "web", "hanse-turin"), connection(), ingress("web"))
	w.connect()
	w.settle(func() bool { return w.shadowThere(reflection.Ingress, "web") != nil })
	return w
}

func (w *world) addressAtTurin() string {
	w.Helper()
	return testkit.Get[networkingv1.Ingress](w.Home, "shop", "web").Annotations[v1alpha1.AnnotationAddressAt+"turin"]
}

func TestIngressesGoAndShowWhereTheyAreReached(t *testing.T) {
	w := withIngress(t)
	spec := w.shadowThere(reflection.Ingress, "web").Spec
	if spec.Kind != "Ingress" || spec.Name != "web" || !strings.Contains(spec.Object, "www.example.org") {
		t.Errorf("got %v", spec)
	}
	w.answers(ingressesOfShop, "web", func(s *v1alpha1.ShadowObjectStatus) {
		s.Conditions, s.Addresses = applied(metav1.ConditionTrue, v1alpha1.ReasonApplied, ""), []string{"192.0.2.1"}
	})
	if got := w.addressAtTurin(); got != "192.0.2.1" {
		t.Errorf("it is reached at %q", got)
	}
	w.Home.Writes()
	w.mustReconcile(ingressesOfShop)
	w.Home.ExpectWrites() // nothing has changed

	w.Home.Remove(testkit.Pod("shop", "web", "hanse-turin"))
	w.settle(func() bool {
		w.mustReconcile(ingressesOfShop)
		return w.shadowThere(reflection.Ingress, "web") == nil && w.addressAtTurin() == ""
	})
}

func TestIngressesOfAPeerThatIsGoneSaySoNoMore(t *testing.T) {
	web := ingress("web")
	web.Annotations = map[string]string{v1alpha1.AnnotationAddressAt + "turin": "192.0.2.1", v1alpha1.AnnotationAddressAt + "milan": "192.0.2.2"}
	w := newWorld(t, web)
	if diff := cmp.Diff([]request{ingressesOfShop}, w.copier.addressedAt(t.Context(), "turin"), cmp.AllowUnexported(request{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	reflected := reflection.AddressedAt(web)
	if diff := cmp.Diff([]string{"milan", "turin"}, reflected); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSecretsOfIngressesGo(t *testing.T) {
	w := newWorld(t, testkit.Pod("shop", "web", "hanse-turin"), connection(), ingress("web"))
	w.save(password("secret"))
	w.connect()
	there := func() bool { return w.Away.Find(password("").DeepCopy(), twinName, "password") }
	w.settle(there)
	w.Home.Remove(ingress("web"))
	w.mustReconcile(ingressesOfShop)
	w.settle(func() bool { return !there() })
}

func TestAuthorsAreToldWhatAProviderDoesNotMake(t *testing.T) {
	w := withIngress(t)
	w.answers(ingressesOfShop, "web", func(s *v1alpha1.ShadowObjectStatus) {
		s.Conditions = applied(metav1.ConditionFalse, v1alpha1.ReasonHostNotAllowed, "ask its administrator")
	})
	w.ExpectEventWith("Warning", v1alpha1.ReasonReflectionRefused, `Peer "turin" does not make it: HostNotAllowed: ask its administrator`)
	w.mustReconcile(ingressesOfShop)
	w.ExpectEvents() // that is said once
}

func TestObjectsOfListedKinds(t *testing.T) {
	w := newWorld(t, testkit.Pod("shop", "web", "hanse-turin"), widget("one", 3))
	w.connect()
	w.settle(func() bool { return w.shadowThere(widgetKind.Name(), "one") != nil })
	if got := w.shadowThere(widgetKind.Name(), "one").Spec.Object; got != `{"spec":{"size":3}}` {
		t.Errorf("got %s", got)
	}
	w.Home.Put(widget("one", 4))
	w.mustReconcile(widgetsOfShop)
	if got := w.shadowThere(widgetKind.Name(), "one").Spec.Object; got != `{"spec":{"size":4}}` {
		t.Errorf("after a change: %s", got)
	}
	w.Home.Remove(widget("one", 4))
	w.mustReconcile(widgetsOfShop)
	if w.shadowThere(widgetKind.Name(), "one") != nil {
		t.Error("it is still there")
	}
}

func TestTheStatusOfListedKindsComesBackFromTheFirstPeer(t *testing.T) {
	w := newWorld(t, testkit.Pod("shop", "web", "hanse-turin"), widget("one", 3))
	w.connect()
	w.settle(func() bool { return w.shadowThere(widgetKind.Name(), "one") != nil })
	// The fake API server knows no status of widgets.
	w.Home.Refuse("apply/status Widget", apierrors.NewConflict(schema.GroupResource{Resource: "widgets"}, "one", nil))
	w.Home.Writes()
	says := func(phase string) {
		t.Helper()
		w.answers(widgetsOfShop, "one", func(s *v1alpha1.ShadowObjectStatus) {
			s.Conditions, s.Object = applied(metav1.ConditionTrue, v1alpha1.ReasonApplied, ""), `{"phase": "`+phase+`"}`
		})
	}
	says("Running")
	const written = "apply/status Widget one"
	w.Home.ExpectWrites(written)
	w.mustReconcile(widgetsOfShop)
	w.Home.ExpectWrites() // that is written once
	says("Failed")
	w.Home.ExpectWrites(written)

	w.peers.Add("milan", "hanse-peer-milan", w.Away.Client)
	w.peers.Link(testkit.Peer("milan", v1alpha1.RoleProvider))
	w.Home.Put(testkit.Pod("shop", "other", "hanse-milan"))
	says("Running")
	w.Home.ExpectWrites() // milan has the word
}
