// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// view is that of hamburg, which sees 10.0.x.y of home as 100.64.x.y, and nothing else.
var view = View{Node: "hanse-hamburg", Seen: func(home netip.Addr) (netip.Addr, bool) {
	bytes := home.As4()
	return netip.AddrFrom4([4]byte{100, 64, bytes[2], bytes[3]}), bytes[0] == 10 && bytes[1] == 0
}}

func service(name string) corev1.Service {
	return corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("u-" + name), Labels: map[string]string{"tier": "front"}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"app": name}, ClusterIP: "10.96.0.7"},
	}
}

func slice(name, service string, endpoints ...discoveryv1.Endpoint) discoveryv1.EndpointSlice {
	return discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("u-" + name), Labels: map[string]string{
			discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
		}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("web"), Port: new(int32(8080))}},
		Endpoints: endpoints,
	}
}

func endpoint(node, address string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses: []string{address}, NodeName: &node, Hostname: new("web-0"), Zone: new("north"),
		Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "north"}}},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: "web-0"},
	}
}

func TestPeersGetTheEndpointsThatTheyDoNotRun(t *testing.T) {
	got := Services(
		[]corev1.Service{service("web")},
		[]discoveryv1.EndpointSlice{
			slice("web-1", "web", endpoint("worker", "10.0.1.2"), endpoint("hanse-hamburg", "10.9.9.9"), endpoint("hanse-bremen", "10.0.3.4")),
			slice("web-2", "web", endpoint("hanse-hamburg", "10.9.9.8")),
		}, view)
	var want []v1alpha1.ShadowEndpoint
	for _, address := range []string{"100.64.1.2", "100.64.3.4"} {
		want = append(want, v1alpha1.ShadowEndpoint{
			Addresses: []string{address}, Ready: new(true), Serving: new(true), Terminating: new(false),
			Hostname: "web-0", Zone: "north", ForZones: []string{"north"},
		})
	}
	copied, _ := got.Slices["web-1"].Object.(*v1alpha1.ShadowEndpointSlice)
	if diff := cmp.Diff(&v1alpha1.ShadowEndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-1", Labels: map[string]string{v1alpha1.LabelReflected: "true"},
			Annotations: map[string]string{
				v1alpha1.AnnotationOriginUID: "u-web-1", v1alpha1.AnnotationOriginVersion: got.Slices["web-1"].Source.Version,
			},
		},
		Spec: v1alpha1.ShadowEndpointSliceSpec{
			Service: "web", AddressType: "IPv4", Endpoints: want,
			Ports: []v1alpha1.ShadowEndpointPort{{Name: "web", Protocol: "TCP", Port: new(int32(8080))}},
		},
	}, copied); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string][]string{"web": {"web-1"}}, got.Parts); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	if _, empty := got.Slices["web-2"]; empty || got.Services["web"].Object == nil {
		t.Errorf("services %v, slices %v", got.Services, got.Slices)
	}
}

func TestServicesThatStayAtHome(t *testing.T) {
	external, skipped, copied, going := service("web"), service("web"), service("web"), service("web")
	external.Spec.Type = corev1.ServiceTypeExternalName
	skipped.Annotations = map[string]string{v1alpha1.LabelSkipReflection: "true"}
	copied.Labels = map[string]string{v1alpha1.LabelReflected: "true"}
	copied.Annotations = map[string]string{v1alpha1.AnnotationOriginUID: "u"}
	going.DeletionTimestamp = &metav1.Time{}
	names := slice("web-1", "web", endpoint("worker", "db.example.com"))
	names.AddressType = discoveryv1.AddressTypeFQDN
	for name, test := range map[string]struct {
		service corev1.Service
		slice   discoveryv1.EndpointSlice
		told    bool
	}{
		"an external name":                      {external, slice("web-1", "web"), false},
		"by its author's will":                  {skipped, slice("web-1", "web", endpoint("worker", "10.0.1.2")), true},
		"it is a copy itself":                   {copied, slice("web-1", "web", endpoint("worker", "10.0.1.2")), false},
		"it goes":                               {going, slice("web-1", "web", endpoint("worker", "10.0.1.2")), false},
		"the peer cannot see an endpoint":       {service("web"), slice("web-1", "web", endpoint("worker", "10.0.1.2"), endpoint("worker", "192.168.1.2")), false},
		"an endpoint is a name of the Internet": {service("web"), names, false},
	} {
		got := Services([]corev1.Service{test.service}, []discoveryv1.EndpointSlice{test.slice}, view)
		if there, told := got.Services["web"]; there.Object != nil || told != test.told || (there.Source.Stays != "") != test.told || len(got.Slices) > 0 {
			t.Errorf("%s: %v, slices %v", name, there, got.Slices)
		}
	}
}

func TestAPeerHearsNothingOfWhatDoesNotConcernIt(t *testing.T) {
	before, after := service("web"), service("web")
	after.ResourceVersion, after.Status.LoadBalancer.Ingress = "7", []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	there := endpoint("hanse-hamburg", "10.9.9.9")
	there.Conditions.Ready = new(false)
	was := Services([]corev1.Service{before}, []discoveryv1.EndpointSlice{
		slice("web-1", "web", endpoint("worker", "10.0.1.2"), endpoint("hanse-hamburg", "10.9.9.9")),
	}, view)
	is := Services([]corev1.Service{after}, []discoveryv1.EndpointSlice{slice("web-1", "web", endpoint("worker", "10.0.1.2"), there)}, view)
	if diff := cmp.Diff(was, is); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	unready := endpoint("worker", "10.0.1.2")
	unready.Conditions.Ready = new(false)
	is = Services([]corev1.Service{after}, []discoveryv1.EndpointSlice{slice("web-1", "web", unready, there)}, view)
	if cmp.Equal(was.Slices, is.Slices, cmpopts.EquateEmpty()) || was.Services["web"].Source != is.Services["web"].Source {
		t.Errorf("it hears %v", is)
	}
}

func TestCopiesOfOneKindAreThoseOfBoth(t *testing.T) {
	services, slices := []corev1.Service{service("web")}, []discoveryv1.EndpointSlice{slice("web-1", "web", endpoint("worker", "10.0.1.2"))}
	want, only := Services(services, slices, view), view
	only.Only = Service
	got := Services(services, slices, only)
	only.Only = EndpointSlice
	if beside := Services(services, slices, only); len(beside.Services) > 0 || len(got.Slices) > 0 {
		t.Errorf("there are others too: %v, %v", beside.Services, got.Slices)
	} else {
		got.Slices = beside.Slices
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestASliceOfItsAuthorsOwnCanStayAtHomeAlone(t *testing.T) {
	alone := slice("web-1", "web", endpoint("worker", "192.168.1.2"))
	alone.Labels[v1alpha1.LabelSkipReflection] = "true"
	got := Services([]corev1.Service{service("web")}, []discoveryv1.EndpointSlice{alone, slice("web-2", "web", endpoint("worker", "10.0.1.2"))}, view)
	if diff := cmp.Diff(map[string][]string{"web": {"web-2"}}, got.Parts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if told, known := got.Slices["web-1"]; !known || told.Object != nil || told.Source.Stays == "" {
		t.Errorf("its author is told %v", told)
	}
}
