// SPDX-License-Identifier: Apache-2.0

package install

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func service(change func(*corev1.Service)) *corev1.Service {
	made := withKind(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop-turin", Name: "web", Labels: map[string]string{v1alpha1.LabelReflected: "true", "app": "web"},
			Annotations: map[string]string{v1alpha1.AnnotationOriginUID: "u", v1alpha1.AnnotationOriginVersion: "1"},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
		},
	}, "", "v1", "Service")
	change(made)
	return made
}

// slice is one of which the manager makes an EndpointSlice.
func slice(change func(*v1alpha1.ShadowEndpointSlice)) *v1alpha1.ShadowEndpointSlice {
	made := withKind(&v1alpha1.ShadowEndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop-turin", Name: "web-1", Labels: map[string]string{v1alpha1.LabelReflected: "true", "app": "web"},
			Annotations: map[string]string{v1alpha1.AnnotationOriginUID: "u", v1alpha1.AnnotationOriginVersion: "1"},
		},
		Spec: v1alpha1.ShadowEndpointSliceSpec{
			Service: "web", AddressType: "IPv4", Ports: []v1alpha1.ShadowEndpointPort{{Name: "http", Protocol: "TCP", Port: ptr.To[int32](80)}},
			Endpoints: []v1alpha1.ShadowEndpoint{{Addresses: []string{"100.64.1.5"}, Ready: ptr.To(true), Hostname: "web-0", Zone: "a", ForZones: []string{"a"}}},
		},
	}, "hanse.dev", "v1alpha1", "ShadowEndpointSlice")
	change(made)
	return made
}

func asItIs[T any](T) {}

func TestMetadataOfCopiedServicesIsGuarded(t *testing.T) {
	by := func(old, object runtime.Object) review { return review{by: peer, in: inTwin, old: old, object: object} }
	makes := func(object runtime.Object) review { return review{by: peer, in: inTwin, object: object} }
	copied := service(asItIs)
	const (
		onlyCopies = "metadata.labels: a peer makes"
		reserved   = "metadata.labels: a peer may not set"
		notes      = "metadata.annotations"
	)
	expectDecisions(t, validatingPolicy(t, "hanse-guard-copies"), map[string]decision{
		"a Service":                        {review: makes(copied)},
		"a change of it":                   {review: by(copied, copied)},
		"its end":                          {review: review{by: peer, in: inTwin, old: copied}},
		"a Service that is no copy":        {review: makes(service(func(s *corev1.Service) { s.Labels = nil })), want: onlyCopies},
		"a change of another's Service":    {review: by(service(func(s *corev1.Service) { s.Labels = nil }), copied), want: onlyCopies},
		"a Service for another proxy":      {review: makes(service(func(s *corev1.Service) { s.Labels["service.kubernetes.io/service-proxy-name"] = "x" })), want: reserved},
		"a Service that speaks to a cloud": {review: makes(service(func(s *corev1.Service) { s.Annotations["service.kubernetes.io/topology-mode"] = "Auto" })), want: notes},
	})
}

func TestServicesOfPeersAreOfThisClusterAlone(t *testing.T) {
	with := func(change func(*corev1.ServiceSpec)) review {
		return review{by: peer, in: inTwin, object: service(func(s *corev1.Service) { change(&s.Spec) })}
	}
	byAdmin := with(func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer })
	byAdmin.by = admin
	changed := with(func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{"192.0.2.1"} })
	changed.old = service(asItIs)
	const balancers = "spec: a peer's Service has nothing of load balancers"
	expectDecisions(t, validatingPolicy(t, "hanse-guard-services"), map[string]decision{
		"a Service":                 {review: with(asItIs)},
		"one with a node port":      {review: with(func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort })},
		"a headless one":            {review: with(func(s *corev1.ServiceSpec) { s.ClusterIP = "None" })},
		"a load balancer":           {review: with(func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer }), want: "spec.type"},
		"another name":              {review: with(func(s *corev1.ServiceSpec) { s.ExternalName = "example.com" }), want: "spec.externalName"},
		"one that is nothing else":  {review: with(func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeExternalName }), want: "spec.type"},
		"the address of a node":     {review: with(func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{"192.0.2.1"} }), want: "spec.externalIPs"},
		"one that it gets later":    {review: changed, want: "spec.externalIPs"},
		"an address at a balancer":  {review: with(func(s *corev1.ServiceSpec) { s.LoadBalancerIP = "192.0.2.1" }), want: balancers},
		"a class of balancers":      {review: with(func(s *corev1.ServiceSpec) { s.LoadBalancerClass = ptr.To("x.com/a") }), want: balancers},
		"who reaches the balancer":  {review: with(func(s *corev1.ServiceSpec) { s.LoadBalancerSourceRanges = []string{"0.0.0.0/0"} }), want: balancers},
		"whatever others have here": {review: byAdmin},
	})
}

func TestTheProviderChoosesClusterIPs(t *testing.T) {
	policy := mutatingPolicy(t, "hanse-choose-cluster-ips")
	tests := map[string]struct {
		by         string
		asked      string
		all        []string
		want       string
		wantAll    []string
		wantChange bool
	}{
		"none asked for":                       {by: peer},
		"that of the DNS":                      {by: peer, asked: "10.96.0.10", all: []string{"10.96.0.10"}},
		"one of both families":                 {by: peer, asked: "10.96.0.10", all: []string{"10.96.0.10", "fd00::a"}},
		"one in the list alone":                {by: peer, all: []string{"10.96.0.10"}},
		"one behind a headless Service":        {by: peer, asked: "None", all: []string{"10.96.0.10"}},
		"a headless Service":                   {by: peer, asked: "None", all: []string{"None"}, want: "None", wantAll: []string{"None"}},
		"a headless Service without a list":    {by: peer, asked: "None", want: "None"},
		"others choose as they like":           {by: admin, asked: "10.96.0.10", want: "10.96.0.10"},
		"a Service without any, by its author": {by: admin},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			policy.t = t
			asked := service(func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = test.asked, test.all })
			got := policy.mutate(review{by: test.by, in: inTwin, object: asked}).(*corev1.Service)
			want := service(func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = test.want, test.wantAll })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestMetadataOfShadowEndpointSlicesIsGuarded(t *testing.T) {
	makes := func(change func(*v1alpha1.ShadowEndpointSlice)) review {
		return review{by: peer, in: inTwin, object: slice(change)}
	}
	changed := makes(func(s *v1alpha1.ShadowEndpointSlice) { s.Annotations[v1alpha1.AnnotationOriginVersion] = "2" })
	changed.old = slice(asItIs)
	pod := message(t, "ShadowPod", "labels: {hanse.dev/reflected: 'true'}")
	expectDecisions(t, validatingPolicy(t, "hanse-guard-objects"), map[string]decision{
		"one that says of what it is a copy": {review: makes(asItIs)},
		"a later version":                    {review: changed},
		"of another peer":                    {review: makes(func(s *v1alpha1.ShadowEndpointSlice) { s.Labels[v1alpha1.LabelPeer] = "milan" }), want: "metadata.labels"},
		"of a Service by its label": {review: makes(func(s *v1alpha1.ShadowEndpointSlice) {
			s.Labels[discoveryv1.LabelServiceName] = "web"
		}), want: "metadata.labels"},
		"one that expires":       {review: makes(func(s *v1alpha1.ShadowEndpointSlice) { s.Annotations[v1alpha1.AnnotationExpires] = "x" }), want: "metadata.annotations"},
		"a ShadowPod is no copy": {review: review{by: peer, in: inTwin, object: pod}, want: "metadata.labels"},
	})
}

// The API server gives a policy a budget, and refuses what exceeds it.
func TestTheLargestShadowEndpointSliceIsWithinTheBudget(t *testing.T) {
	full := slice(func(s *v1alpha1.ShadowEndpointSlice) {
		e := s.Spec.Endpoints[0]
		e.Hostname, e.Zone, e.ForZones = strings.Repeat("h", 63), strings.Repeat("z", 63), slices.Repeat([]string{strings.Repeat("z", 63)}, 8)
		s.Spec.Endpoints = slices.Repeat([]v1alpha1.ShadowEndpoint{e}, 1000)
	})
	by := func(room string) review {
		return review{
			by: peer, in: twinWithRoom(room), old: slice(asItIs), object: full,
			params: holding(map[corev1.ResourceName]string{"count/shadowendpointslices.hanse.dev": "1"}),
		}
	}
	expectDecisions(t, validatingPolicy(t, "hanse-guard-bytes"), map[string]decision{
		"one with room": {review: by("4194304")}, "one without": {review: by("1048576"), want: "the provider has no room"},
	})
}
