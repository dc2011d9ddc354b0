// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/reflection"
	"github.com/hanse-dev/hanse/internal/testkit"
)

var (
	servicesOfShop = request{Peer: "turin", place: place{Namespace: "shop", Kind: reflection.Service}}
	slicesOfShop   = request{Peer: "turin", place: place{Namespace: "shop", Kind: reflection.EndpointSlice}}
)

// connection is the one with turin, which sees home's 10.0.0.0/16 as 100.64.0.0/16.
func connection() *v1alpha1.Connection {
	return &v1alpha1.Connection{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("turin"), Name: v1alpha1.ConnectionName},
		Spec:       v1alpha1.ConnectionSpec{Ours: []v1alpha1.RangeMapping{{Own: "10.0.0.0/16", Seen: "100.64.0.0/16"}}},
	}
}

func service(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("u-" + name)},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.7", Selector: map[string]string{"app": name}},
	}
}

func sliceOf(service string, addresses ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: service + "-1", UID: types.UID("u-" + service), Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: new("worker")})
	}
	return slice
}

// withService is a world in which the Service web is at the peer, which has a pod of its namespace.
func withService(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, testkit.Pod("shop", "web", "hanse-turin"), connection(), service("web"), sliceOf("web", "10.0.1.2"))
	w.connect()
	w.settle(func() bool { return w.serviceThere("web") != nil })
	return w
}

func (w *world) serviceThere(name string) *corev1.Service {
	w.Helper()
	found := &corev1.Service{}
	if !w.Away.Find(found, twinName, name) {
		return nil
	}
	return found
}

// addressesThere are those of the endpoints that the peer is told of.
func (w *world) addressesThere(slice string) []string {
	w.Helper()
	found := &v1alpha1.ShadowEndpointSlice{}
	w.Away.Find(found, twinName, slice)
	var all []string
	for _, e := range found.Spec.Endpoints {
		all = append(all, e.Addresses...)
	}
	return all
}

// lookAtServices is what a change of a Service or of its endpoints asks for.
func (w *world) lookAtServices() {
	w.Helper()
	w.mustReconcile(slicesOfShop)
	w.mustReconcile(servicesOfShop)
}

func TestServicesGoWithTheirEndpoints(t *testing.T) {
	w := withService(t)
	if got := w.serviceThere("web"); got.Spec.ClusterIP != "" || !cmp.Equal(got.Spec.Selector, map[string]string{"app": "web"}) {
		t.Errorf("got %v", got.Spec)
	}
	if diff := cmp.Diff([]string{"100.64.1.2"}, w.addressesThere("web-1")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w.Away.Writes()
	w.lookAtServices()
	w.Away.ExpectWrites() // nothing changed
	w.Home.Put(sliceOf("web", "10.0.1.2", "10.0.1.3"))
	w.lookAtServices()
	if diff := cmp.Diff([]string{"100.64.1.2", "100.64.1.3"}, w.addressesThere("web-1")); diff != "" {
		t.Errorf("after a change (-want +got):\n%s", diff)
	}
	w.ExpectEvents()
}

func TestEndpointsAreThereBeforeTheirService(t *testing.T) {
	w := newWorld(t, testkit.Pod("shop", "web", "hanse-turin"), connection(), service("web"), sliceOf("web", "10.0.1.2"))
	w.connect()
	w.mustReconcile(servicesOfShop)
	w.mustReconcile(servicesOfShop)
	if w.serviceThere("web") != nil {
		t.Error("the Service is there without endpoints")
	}
	w.settle(func() bool { return w.serviceThere("web") != nil })
	if len(w.addressesThere("web-1")) == 0 {
		t.Error("and has none")
	}
}

func TestServicesGoAwayAgain(t *testing.T) {
	for name, end := range map[string]func(*world){
		"with the Service":                func(w *world) { w.Home.Remove(service("web")) },
		"with the last pod":               func(w *world) { w.Home.Remove(testkit.Pod("shop", "web", "hanse-turin")) },
		"without a connection":            func(w *world) { w.Home.Remove(connection()) },
		"when an endpoint cannot be seen": func(w *world) { w.Home.Put(sliceOf("web", "10.0.1.2", "192.168.1.2")) },
		"when the author says so": func(w *world) {
			testkit.Change(w.Home, "shop", "web", func(s *corev1.Service) {
				s.Annotations = map[string]string{v1alpha1.LabelSkipReflection: "true"}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := withService(t)
			end(w)
			w.lookAtServices()
			if w.serviceThere("web") != nil || len(w.addressesThere("web-1")) > 0 {
				t.Error("it is still there")
			}
		})
	}
}

func TestAuthorsAreToldOfServicesThatDoNotGo(t *testing.T) {
	skipped, theirs := service("web"), service("web")
	skipped.Annotations = map[string]string{v1alpha1.LabelSkipReflection: "true"}
	theirs.Namespace = twinName
	full := apierrors.NewForbidden(schema.GroupResource{Resource: "shadowendpointslices"}, "web-1", nil)
	for name, test := range map[string]struct {
		service      *corev1.Service
		there        client.Object
		refused      error
		kind, reason string
		want         string
	}{
		"by its author's will": {service: skipped, kind: "Normal", reason: v1alpha1.ReasonReflectionRefused, want: "skip-reflection keeps it at home"},
		"by one that is there": {service: service("web"), there: theirs, kind: "Warning", reason: v1alpha1.ReasonReflectionConflict, want: "reach this one at home"},
		"by the peer":          {service: service("web"), refused: full, kind: "Warning", reason: v1alpha1.ReasonReflectionRefused, want: "the peer does not take it"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, testkit.Pod("shop", "web", "hanse-turin"), connection(), test.service, sliceOf("web", "10.0.1.2"))
			if test.there != nil {
				w.put(test.there)
			}
			if test.refused != nil {
				w.Away.Refuse("create ShadowEndpointSlice", test.refused)
			}
			w.connect()
			for range 3 { // until both kinds are seen as they are
				_, _ = w.copier.Reconcile(t.Context(), slicesOfShop)
				w.mustReconcile(servicesOfShop)
			}
			w.ExpectEventWith(test.kind, test.reason, test.want)
		})
	}
}

func TestAuthorsAreToldOfEndpointsThatDoNotGo(t *testing.T) {
	w := withService(t)
	testkit.Change(w.Home, "shop", "web-1", func(s *discoveryv1.EndpointSlice) {
		s.Annotations = map[string]string{v1alpha1.LabelSkipReflection: "true"}
	})
	w.lookAtServices()
	w.mustReconcile(slicesOfShop)
	if left := w.addressesThere("web-1"); len(left) > 0 || w.serviceThere("web") == nil {
		t.Errorf("endpoints %v, Service %v", left, w.serviceThere("web"))
	}
	w.ExpectEventWith("Normal", v1alpha1.ReasonReflectionRefused, "goes without these endpoints")
}

func TestChangesOfServicesAskForThemAtEachPeer(t *testing.T) {
	w := withService(t)
	w.Home.Put(testkit.Namespace("kept", nil))
	w.put(mapping("kept", "kept-lubeck-abc123"))
	link, _ := w.copier.Links.Get("turin")
	w.settle(func() bool { return link.Twin("kept") != "" })
	requests := map[string][]request{}
	for name, handle := range map[string]func(queue){
		"a Service": func(q queue) {
			w.copier.namespaceHandler(ofServices...).Create(t.Context(), arrived(service("web")), q)
		},
		"of a namespace that is nowhere": func(q queue) {
			elsewhere := service("web")
			elsewhere.Namespace = "elsewhere"
			w.copier.namespaceHandler(ofServices...).Create(t.Context(), arrived(elsewhere), q)
		},
		"of a namespace that no pods leave": func(q queue) {
			kept := service("web")
			kept.Namespace = "kept"
			w.copier.namespaceHandler().Create(t.Context(), arrived(kept), q)
		},
		"the connection": func(q queue) { w.copier.connectionHandler().Create(t.Context(), arrived(connection()), q) },
	} {
		for w.queue.Len() > 0 {
			req, _ := w.queue.Get()
			w.queue.Done(req)
		}
		handle(w.queue)
		for w.queue.Len() > 0 {
			req, _ := w.queue.Get()
			w.queue.Done(req)
			requests[name] = append(requests[name], req)
		}
	}
	both := []request{slicesOfShop, servicesOfShop}
	secrets := request{Peer: "turin", place: place{Namespace: "shop", Kind: reflection.Secret}}
	want := map[string][]request{"a Service": both, "the connection": append(slices.Clone(both), ingressesOfShop, secrets)}
	if diff := cmp.Diff(want, requests, cmp.AllowUnexported(request{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func arrived(object client.Object) event.TypedCreateEvent[client.Object] {
	return event.TypedCreateEvent[client.Object]{Object: object}
}

func TestWhatThePeerSaysOfEndpointsIsToldOfTheirService(t *testing.T) {
	w := withService(t)
	happened := v1alpha1.RemoteEvent{
		Type: "Warning", Reason: "FailedToUpdateEndpointSlices", Message: "quota", Source: v1alpha1.SourceKubernetes, Count: 1,
		First: metav1.NewTime(testkit.Noon), Last: metav1.NewTime(testkit.Noon),
	}
	answer := testkit.Get[v1alpha1.ShadowEndpointSlice](w.Away, twinName, "web-1")
	answer.Status.Events = []v1alpha1.RemoteEvent{happened}
	answer.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonEndpointsRefused,
		Message: "10.1.1.1 is not where this cluster sees the peer", ObservedGeneration: answer.Generation,
	}}
	if err := w.turin.Client.Status().Update(w.Context(), answer); err != nil {
		t.Fatal(err)
	}
	w.settle(func() bool { w.mustReconcile(slicesOfShop); return len(w.told) > 0 })
	w.ExpectEventWith(v1alpha1.ReasonReflectionRefused, "10.1.1.1 is not", `peer "turin"`, v1alpha1.LabelSkipReflection)
	if got := w.told[0]; got.Home.GetUID() != "u-web" || got.Peer != "turin" || len(got.Events) != 1 {
		t.Errorf("told %v", got)
	}
	w.mustReconcile(slicesOfShop)
	w.ExpectEvents() // it is said once
	link, _ := w.copier.Links.Get("turin")
	found, _ := link.Followed(copies[reflection.EndpointSlice], "shop").Named("web-1")
	if slice := found.(*v1alpha1.ShadowEndpointSlice); len(slice.Spec.Endpoints) > 0 {
		t.Errorf("keeps %v", slice.Spec)
	}
}
