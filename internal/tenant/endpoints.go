// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// slicePrefix begins the names of EndpointSlices of ShadowEndpointSlices.
const slicePrefix = "hanse-"

// sliceName returns the name of the EndpointSlice of a ShadowEndpointSlice, which none that Kubernetes makes for a Service has.
func sliceName(shadow string) string {
	name := slicePrefix + shadow
	return name[:min(len(name), validation.DNS1123SubdomainMaxLength)]
}

// sliceFor returns the EndpointSlice that the peer asks for, or why there is none. Its endpoints must lie in the ranges in which this
// cluster sees the peer. If the tunnel to the peer does not work they are not ready.
func sliceFor(shadow *v1alpha1.ShadowEndpointSlice, seen ranges, connected bool) (*discoveryv1.EndpointSlice, string) {
	if why := foreign(shadow, seen); why != "" {
		return nil, why
	}
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shadow.Namespace, Name: sliceName(shadow.Name),
			Labels: map[string]string{
				v1alpha1.LabelReflected: "true", discoveryv1.LabelServiceName: shadow.Spec.Service,
				discoveryv1.LabelManagedBy: v1alpha1.EndpointSliceManager,
			},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(shadow, v1alpha1.GroupVersion.WithKind("ShadowEndpointSlice")),
			},
		},
		AddressType: discoveryv1.AddressType(shadow.Spec.AddressType), Ports: v1alpha1.EndpointPorts(shadow.Spec.Ports),
	}
	for i := range shadow.Spec.Endpoints {
		out.Endpoints = append(out.Endpoints, endpointFor(&shadow.Spec.Endpoints[i], connected))
	}
	return out, ""
}

func endpointFor(shadow *v1alpha1.ShadowEndpoint, connected bool) discoveryv1.Endpoint {
	out := discoveryv1.Endpoint{
		Addresses:  shadow.Addresses,
		Conditions: discoveryv1.EndpointConditions{Ready: shadow.Ready, Serving: shadow.Serving, Terminating: shadow.Terminating},
	}
	if !connected {
		out.Conditions.Ready, out.Conditions.Serving = new(false), new(false)
	}
	if shadow.Hostname != "" {
		out.Hostname = new(shadow.Hostname)
	}
	if shadow.Zone != "" {
		out.Zone = new(shadow.Zone)
	}
	for _, zone := range shadow.ForZones {
		if out.Hints == nil {
			out.Hints = &discoveryv1.EndpointHints{}
		}
		out.Hints.ForZones = append(out.Hints.ForZones, discoveryv1.ForZone{Name: zone})
	}
	return out
}

// foreign says which endpoint is not where this cluster sees the peer, or is not of the family, and nothing if there is none.
func foreign(shadow *v1alpha1.ShadowEndpointSlice, seen ranges) string {
	ipv4 := shadow.Spec.AddressType == string(discoveryv1.AddressTypeIPv4)
	for i := range shadow.Spec.Endpoints {
		for _, text := range shadow.Spec.Endpoints[i].Addresses {
			address, err := netip.ParseAddr(text)
			inside := func(p netip.Prefix) bool { return p.Contains(address) }
			if err != nil || address.Is4() != ipv4 || !slices.ContainsFunc(seen, inside) {
				return fmt.Sprintf("spec.endpoints[%d]: %q is no %s address within the ranges in which this cluster sees the peer: %s",
					i, text, shadow.Spec.AddressType, fmt.Sprint(seen))
			}
		}
	}
	return ""
}
