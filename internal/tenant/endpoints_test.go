// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// webAtHome is what lubeck tells of its Service web.
func webAtHome(endpoints ...v1alpha1.ShadowEndpoint) *v1alpha1.ShadowEndpointSlice {
	return &v1alpha1.ShadowEndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: lubeck.name(), Name: "web-1", UID: "u-1", Generation: 1},
		Spec: v1alpha1.ShadowEndpointSliceSpec{
			Service: "web", AddressType: "IPv4", Endpoints: endpoints,
			Ports: []v1alpha1.ShadowEndpointPort{{Name: "http", Protocol: "TCP", Port: new(int32(8080))}},
		},
	}
}

var (
	serves = v1alpha1.ShadowEndpoint{
		Addresses: []string{"100.64.1.1"}, Ready: new(true), Serving: new(true), Terminating: new(false),
		Hostname: "web-0", Zone: "a", ForZones: []string{"a"},
	}
	ending = v1alpha1.ShadowEndpoint{Addresses: []string{"100.64.1.2"}, Ready: new(false), Serving: new(true), Terminating: new(true)}
	unsaid = v1alpha1.ShadowEndpoint{Addresses: []string{"100.64.1.3"}}
)

// aWorldOf has the object in the twin of lubeck's namespace shop, and a tunnel to lubeck that works.
func aWorldOf(t *testing.T, objects ...client.Object) *world {
	w := newWorld(t, append(objects, peer(), tenantNamespace(), lubeck.namespace(""), connected())...)
	w.tunnel(metav1.ConditionTrue)
	w.peerSays(metav1.ConditionTrue)
	return w
}

// tunnel has the gateway say how the tunnel to lubeck is.
func (w *world) tunnel(status metav1.ConditionStatus) {
	w.Helper()
	testkit.Change(w.Home, "hanse-peer-lubeck", "hanse", func(c *v1alpha1.Connection) {
		testkit.SetCondition(&c.Status.Conditions, v1alpha1.ConditionConnected, status, v1alpha1.ReasonTunnelDown)
	})
}

// peerSays has the Peer say so, which also knows whether there is a gateway at all.
func (w *world) peerSays(status metav1.ConditionStatus) {
	w.Helper()
	testkit.Change(w.Home, "", "lubeck", func(p *v1alpha1.Peer) {
		testkit.SetCondition(&p.Status.Conditions, v1alpha1.ConditionConnected, status, v1alpha1.ReasonNoGateway)
	})
}

// look has a new process look, and then once more, which must write nothing.
func (w *world) look() {
	w.Helper()
	w.Reconcile(newEndpointsReconciler(w.Home.Client, newEventFeed(w.Home.Client, nil, w.Clock)), lubeck.name(), "web-1")
	w.Home.Wrote()
	w.Reconcile(newEndpointsReconciler(w.Home.Client, newEventFeed(w.Home.Client, nil, w.Clock)), lubeck.name(), "web-1")
	w.Home.ExpectWrites()
}

func (w *world) slice() *discoveryv1.EndpointSlice {
	w.Helper()
	found := &discoveryv1.EndpointSlice{}
	if !w.Home.Find(found, lubeck.name(), "hanse-web-1") {
		return nil
	}
	return found
}

// expectReady looks, and checks which endpoints are ready: + is, - is not, ? does not say.
func (w *world) expectReady(want string) {
	w.Helper()
	w.look()
	got := ""
	for _, e := range w.slice().Endpoints {
		switch {
		case e.Conditions.Ready == nil:
			got += "?"
		case *e.Conditions.Ready:
			got += "+"
		default:
			got += "-"
		}
	}
	if got != want {
		w.Errorf("endpoints are %s, want %s", got, want)
	}
}

func TestEndpointsOfAPeerAreThoseOfItsService(t *testing.T) {
	w := aWorldOf(t, webAtHome(serves, unsaid))
	w.look()
	want := []discoveryv1.Endpoint{
		{
			Addresses: []string{"100.64.1.1"}, Hostname: new("web-0"), Zone: new("a"),
			Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		},
		{Addresses: []string{"100.64.1.3"}},
	}
	got := w.slice()
	if diff := cmp.Diff(want, got.Endpoints); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	labels := map[string]string{
		v1alpha1.LabelReflected: "true", discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: v1alpha1.EndpointSliceManager,
	}
	if diff := cmp.Diff(labels, got.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	ports := []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}}
	if diff := cmp.Diff(ports, got.Ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	if owner := metav1.GetControllerOf(got); owner == nil || owner.UID != "u-1" || owner.Kind != "ShadowEndpointSlice" {
		t.Errorf("it is owned by %v", owner)
	}
	if status := testkit.Get[v1alpha1.ShadowEndpointSlice](w.Home, lubeck.name(), "web-1").Status; len(status.Conditions) > 0 {
		t.Errorf("the status says %v", status)
	}
}

func TestEndpointsOfAPeerAreNotReadyWhileItsTunnelIsDown(t *testing.T) {
	w := aWorldOf(t, webAtHome(serves, ending, unsaid))
	w.expectReady("+-?")
	for range 2 {
		w.tunnel(metav1.ConditionFalse)
		w.expectReady("---")
		for _, e := range w.slice().Endpoints {
			if *e.Conditions.Serving {
				t.Errorf("%v serves", e.Addresses)
			}
		}
		w.tunnel(metav1.ConditionTrue)
		w.expectReady("+-?")
	}
	w.peerSays(metav1.ConditionFalse) // there is no gateway, and nobody to say so in the Connection
	w.expectReady("---")
	w.peerSays(metav1.ConditionTrue)
	w.expectReady("+-?")
}

func TestWhatHomeTellsMeanwhileIsNotReadyEither(t *testing.T) {
	w := aWorldOf(t, webAtHome(serves))
	w.tunnel(metav1.ConditionFalse)
	w.expectReady("-")
	testkit.Change(w.Home, lubeck.name(), "web-1", func(s *v1alpha1.ShadowEndpointSlice) {
		s.Spec.Endpoints = []v1alpha1.ShadowEndpoint{serves, unsaid}
	})
	w.expectReady("--")
	w.tunnel(metav1.ConditionTrue)
	w.expectReady("+?")
}

func TestEndpointsThatAreRefused(t *testing.T) {
	at := func(addresses ...string) *v1alpha1.ShadowEndpointSlice {
		return webAtHome(serves, v1alpha1.ShadowEndpoint{Addresses: addresses})
	}
	v6 := webAtHome(serves)
	v6.Spec.AddressType = "IPv6"
	theirs := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: lubeck.name(), Name: "web"}}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: lubeck.name(), Name: "hanse-web-1"}}
	for name, test := range map[string]struct {
		shadow *v1alpha1.ShadowEndpointSlice
		other  client.Object
		why    string
	}{
		"at a node of ours":                 {shadow: at("192.168.1.1"), why: `spec.endpoints[1]: "192.168.1.1"`},
		"where clouds keep credentials":     {shadow: at("169.254.169.254"), why: "169.254.169.254"},
		"at ourselves":                      {shadow: at("127.0.0.1"), why: "127.0.0.1"},
		"at a pod of ours":                  {shadow: at("10.244.0.5"), why: "10.244.0.5"},
		"of another peer":                   {shadow: at("100.65.0.1"), why: "100.65.0.1"},
		"the second address alone":          {shadow: at("100.64.1.2", "10.244.0.5"), why: "10.244.0.5"},
		"no address":                        {shadow: at("..."), why: "..."},
		"of another family":                 {shadow: v6, why: "no IPv6 address"},
		"an address in IPv6's clothes":      {shadow: at("::ffff:100.64.1.2"), why: "::ffff:100.64.1.2"},
		"of a Service of this cluster":      {shadow: at("100.64.1.2"), other: theirs, why: `a Service "web" of its own`},
		"where an EndpointSlice is already": {shadow: at("100.64.1.2"), other: slice, why: `an EndpointSlice "hanse-web-1" of its own`},
	} {
		t.Run(name, func(t *testing.T) {
			w := aWorldOf(t, webAtHome(serves))
			if test.other == slice {
				w = aWorldOf(t, slice.DeepCopy())
			} else {
				w.look()
			}
			if test.other == theirs {
				w.Home.Put(theirs.DeepCopy())
			}
			test.shadow.ResourceVersion = ""
			w.Home.Put(test.shadow)
			w.look()
			if found := w.slice(); found != nil && len(found.OwnerReferences) > 0 || (test.other == slice) != (found != nil) {
				t.Errorf("there is %v", found)
			}
			w.expectRefused(test.why)
		})
	}
}

// The API server has rules of its own, such as that a host name is a label of DNS. What it refuses is said, not tried over and over.
func TestEndpointsThatTheAPIServerRefuses(t *testing.T) {
	invalid := apierrors.NewInvalid(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice").GroupKind(), "hanse-web-1", field.ErrorList{
		field.Invalid(field.NewPath("endpoints[0].hostname"), "UPPER", "must be a DNS label"),
	})
	full := apierrors.NewForbidden(schema.GroupResource{Resource: "endpointslices"}, "hanse-web-1", errors.New("exceeded quota: hanse"))
	for name, test := range map[string]struct {
		refusal error
		why     string
		retries bool
	}{
		"by its rules": {invalid, "must be a DNS label", false},
		"by a quota":   {full, "exceeded quota", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := aWorldOf(t, webAtHome(serves))
			w.look()
			for _, verb := range []string{"create", "update"} {
				w.Home.Refuse(verb+" EndpointSlice", test.refusal)
			}
			w.Home.Put(webAtHome(v1alpha1.ShadowEndpoint{Addresses: []string{"100.64.1.9"}, Hostname: "UPPER"}))
			r := newEndpointsReconciler(w.Home.Client, newEventFeed(w.Home.Client, nil, w.Clock))
			_, err := r.Reconcile(t.Context(), testkit.Request(lubeck.name(), "web-1"))
			if found := w.slice(); found != nil {
				t.Errorf("what was told before is still there: %v", found.Endpoints)
			}
			w.expectRefused(test.why)
			if retries := err != nil; retries != test.retries {
				t.Errorf("it is tried again: %t", retries)
			}
		})
	}
}

func TestEndpointsComeWhenOnesOfTheProviderHaveGone(t *testing.T) {
	theirs := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: lubeck.name(), Name: "hanse-web-1"}}
	w := aWorldOf(t, webAtHome(serves), theirs)
	w.look()
	w.expectRefused("of its own")
	w.Home.Remove(theirs)
	if !ends.Delete(event.DeleteEvent{Object: theirs}) {
		t.Error("nobody hears of the end")
	}
	if diff := cmp.Diff(requestFor(lubeck.name(), "web-1"), sliceInPlaceOf(t.Context(), theirs)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w.expectReady("+")
	theirs.Name = "web-x7k2p"
	if asked := sliceInPlaceOf(t.Context(), theirs); asked != nil {
		t.Errorf("another one asks for %v", asked)
	}
}

func (w *world) expectRefused(why string) {
	w.Helper()
	status := testkit.Get[v1alpha1.ShadowEndpointSlice](w.Home, lubeck.name(), "web-1").Status
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAccepted)
	if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, why) {
		w.Fatalf("the status says %v, want %q", c, why)
	}
}

func TestGoodEndpointsAreTakenAfterBadOnes(t *testing.T) {
	w := aWorldOf(t, webAtHome(v1alpha1.ShadowEndpoint{Addresses: []string{"10.244.0.5"}}))
	w.look()
	w.expectRefused("10.244.0.5")
	w.Home.Put(webAtHome(serves))
	w.expectReady("+")
	if status := testkit.Get[v1alpha1.ShadowEndpointSlice](w.Home, lubeck.name(), "web-1").Status; len(status.Conditions) > 0 {
		t.Errorf("the status says %v", status)
	}
}

func TestATurnOfTheTunnelConcernsAllEndpointsOfThePeer(t *testing.T) {
	elsewhere := webAtHome(serves)
	elsewhere.Namespace = "shop-of-kiel"
	w := newWorld(t, peer(), lubeck.namespace(""), testkit.TwinNamespace("shop-of-kiel", "kiel"), webAtHome(serves), elsewhere)
	r := newEndpointsReconciler(w.Home.Client, newEventFeed(w.Home.Client, nil, w.Clock))
	want := requestFor(lubeck.name(), "web-1")
	if diff := cmp.Diff(want, r.slicesBeside(t.Context(), connected())); diff != "" {
		t.Errorf("of the Connection (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, r.slicesOf(t.Context(), peer())); diff != "" {
		t.Errorf("of the Peer (-want +got):\n%s", diff)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: lubeck.name(), Name: "web"}}
	if diff := cmp.Diff(want, r.slicesOfService(t.Context(), service)); diff != "" {
		t.Errorf("of the Service (-want +got):\n%s", diff)
	}
	works := connected()
	testkit.SetCondition(&works.Status.Conditions, v1alpha1.ConditionConnected, metav1.ConditionTrue, v1alpha1.ReasonReady)
	measured := works.DeepCopy()
	measured.Status.MTU = 1400
	for name, test := range map[string]struct {
		before, after client.Object
		want          bool
	}{
		"it comes up":   {connected(), works, true},
		"it goes down":  {works, connected(), true},
		"it is slower":  {works, measured, false},
		"it stays down": {connected(), connected(), false},
	} {
		if got := local.Connects.Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after}); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
