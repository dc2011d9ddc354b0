// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A View is how one peer sees what is in a namespace at home.
type View struct {
	// Node is the peer's virtual node. What runs there the peer sees by itself.
	Node string
	// Reach is which Services have copies.
	Reach Reach
	// Only is the kind, Service or EndpointSlice, of which the copies are worked out, if it is not both.
	Only Kind
	// Seen returns the address at which the peer sees one of home's, and false if there is none.
	Seen func(home netip.Addr) (netip.Addr, bool)
}

// A Copy is an object that a twin gets, without its namespace, and of what it is one.
type Copy struct {
	Source Source
	Object Object // nil if its author wants no copy
}

// Copies are what a twin gets of Services and EndpointSlices, by the names that both have at home.
type Copies struct {
	Services, Slices map[string]Copy // the latter are ShadowEndpointSlices
	// Parts are the names of the slices of each Service.
	Parts map[string][]string
}

// Services returns what the twin gets of the Services of a namespace. A Service goes with its EndpointSlices or not at all: one
// of which the peer cannot see an endpoint is reached at home, where its name is known anyway, as are external names and
// Services that others have reflected here.
func Services(services []corev1.Service, slices []discoveryv1.EndpointSlice, view View) Copies {
	all := Copies{Services: map[string]Copy{}, Slices: map[string]Copy{}, Parts: map[string][]string{}}
	parts := map[string][]*discoveryv1.EndpointSlice{}
	for i := range slices {
		name := slices[i].Labels[discoveryv1.LabelServiceName]
		parts[name] = append(parts[name], &slices[i])
	}
	for i := range services {
		service := &services[i]
		if service.Spec.Type == corev1.ServiceTypeExternalName || service.DeletionTimestamp != nil || IsCopy(service) ||
			service.Labels[v1alpha1.LabelClusterSet] == "true" { // which pods find under the name of its ServiceImport
			continue
		}
		if stays := view.Reach.Stays(service); stays != "" {
			if isSkipped(service) {
				all.Services[service.Name] = Copy{Source: *SourceOf(service, view.Reach)}
			}
			continue
		}
		all.add(service, parts[service.Name], view)
	}
	return all
}

// add adds the copies of a Service and of its slices, if the peer sees all that is in them.
func (all *Copies) add(service *corev1.Service, slices []*discoveryv1.EndpointSlice, view View) {
	parts, whole := partsOf(slices, view)
	if !whole {
		return
	}
	for _, p := range parts {
		all.Parts[service.Name] = append(all.Parts[service.Name], p.Name)
	}
	if view.Only != EndpointSlice {
		all.Services[service.Name] = signed(service, serviceOf(service))
	}
	if view.Only == Service {
		return
	}
	for _, p := range parts {
		all.Slices[p.Name] = signed(p, sliceOf(p.EndpointSlice, p.endpoints))
	}
	for _, slice := range slices {
		if isSkipped(slice) {
			all.Slices[slice.Name] = Copy{Source: *SourceOf(slice, view.Reach)}
		}
	}
}

// A part is a slice of a Service, and those of its endpoints that do not run at the peer, as the peer sees them.
type part struct {
	*discoveryv1.EndpointSlice
	endpoints []v1alpha1.ShadowEndpoint
}

// partsOf returns the slices of a Service of which there are copies, without those that would be empty, and whether the peer sees
// all that is in them.
func partsOf(slices []*discoveryv1.EndpointSlice, view View) (parts []part, whole bool) {
	for _, slice := range slices {
		if isSkipped(slice) || slice.DeletionTimestamp != nil {
			continue
		}
		endpoints, whole := endpointsOf(slice, view)
		if !whole {
			return nil, false
		}
		if len(endpoints) > 0 {
			parts = append(parts, part{slice, endpoints})
		}
	}
	return parts, true
}

// endpointsOf returns the endpoints that do not run at the peer, as the peer sees them, and whether it can see them all.
func endpointsOf(slice *discoveryv1.EndpointSlice, view View) (kept []v1alpha1.ShadowEndpoint, whole bool) {
	for _, e := range slice.Endpoints {
		if ptr.Deref(e.NodeName, "") == view.Node {
			continue
		}
		out := v1alpha1.ShadowEndpoint{
			Ready: e.Conditions.Ready, Serving: e.Conditions.Serving, Terminating: e.Conditions.Terminating,
			Hostname: ptr.Deref(e.Hostname, ""), Zone: ptr.Deref(e.Zone, ""),
		}
		for _, zone := range ptr.Deref(e.Hints, discoveryv1.EndpointHints{}).ForZones {
			out.ForZones = append(out.ForZones, zone.Name)
		}
		for _, text := range e.Addresses {
			home, err := netip.ParseAddr(text)
			if err != nil {
				return nil, false // a name of the Internet is one that the peer may see as another
			}
			seen, ok := view.Seen(home)
			if !ok {
				return nil, false
			}
			out.Addresses = append(out.Addresses, seen.String())
		}
		kept = append(kept, out)
	}
	return kept, true
}

func sliceOf(source *discoveryv1.EndpointSlice, endpoints []v1alpha1.ShadowEndpoint) *v1alpha1.ShadowEndpointSlice {
	return &v1alpha1.ShadowEndpointSlice{ObjectMeta: metadata(source, ""), Spec: v1alpha1.ShadowEndpointSliceSpec{
		Service: source.Labels[discoveryv1.LabelServiceName], AddressType: string(source.AddressType),
		Ports: v1alpha1.ShadowPorts(source.Ports), Endpoints: endpoints,
	}}
}

// serviceOf returns the copy of a Service. A table in the tests says what becomes of each field, and why.
func serviceOf(source *corev1.Service) *corev1.Service {
	from := source.Spec
	out := &corev1.Service{ObjectMeta: metadata(source, ""), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, Selector: from.Selector, PublishNotReadyAddresses: from.PublishNotReadyAddresses,
		SessionAffinity: from.SessionAffinity, SessionAffinityConfig: from.SessionAffinityConfig,
		IPFamilies: from.IPFamilies, IPFamilyPolicy: from.IPFamilyPolicy,
		InternalTrafficPolicy: from.InternalTrafficPolicy, TrafficDistribution: from.TrafficDistribution,
	}}
	if from.ClusterIP == corev1.ClusterIPNone {
		out.Spec.ClusterIP = corev1.ClusterIPNone
	}
	if ptr.Deref(from.IPFamilyPolicy, "") == corev1.IPFamilyPolicyRequireDualStack {
		out.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
	}
	keepsNodePorts := source.Annotations[v1alpha1.AnnotationForceRemoteNodePort] == "true" && from.Type != corev1.ServiceTypeClusterIP
	if keepsNodePorts {
		out.Spec.Type, out.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, from.ExternalTrafficPolicy
	}
	for _, port := range from.Ports {
		if !keepsNodePorts {
			port.NodePort = 0
		}
		out.Spec.Ports = append(out.Spec.Ports, port)
	}
	return out
}

// signed signs the copy with a version that depends on nothing but what is in it: most changes of a Service or of its endpoints
// mean nothing to most peers.
func signed(source metav1.Object, out Object) Copy {
	out.GetAnnotations()[v1alpha1.AnnotationOriginVersion] = ""
	version := Fingerprint(out)
	out.GetAnnotations()[v1alpha1.AnnotationOriginVersion] = version
	return Copy{Source: Source{UID: source.GetUID(), Version: version}, Object: out}
}

// Fingerprint is another one for each other value.
func Fingerprint(of any) string {
	sum := fnv.New64a()
	_ = json.NewEncoder(sum).Encode(of) // objects of Kubernetes are JSON, and a hash never fails
	return fmt.Sprintf("%x", sum.Sum64())
}
