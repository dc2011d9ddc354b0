// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ShadowEndpointSliceSpec are endpoints of a Service, as an EndpointSlice has them.
type ShadowEndpointSliceSpec struct {
	// service is the name of the Service, in this namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Service string `json:"service"`

	// addressType is the family of all addresses.
	// +required
	// +kubebuilder:validation:Enum=IPv4;IPv6
	AddressType string `json:"addressType"`

	// ports are those of each endpoint.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Ports []ShadowEndpointPort `json:"ports,omitempty"`

	// endpoints are those that do not run at this provider. An EndpointSlice holds no more either.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Endpoints []ShadowEndpoint `json:"endpoints,omitempty"`
}

// ShadowEndpointPort is a port of endpoints.
type ShadowEndpointPort struct {
	// name is that of the port of the Service, or empty.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// protocol of the port.
	// +optional
	// +kubebuilder:default=TCP
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol string `json:"protocol,omitempty"`

	// port is the number. Without one it is all ports, which a Service without a selector may have.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// appProtocol is what is spoken there, such as kubernetes.io/h2c.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	AppProtocol string `json:"appProtocol,omitempty"`
}

// ShadowEndpoint is one endpoint.
type ShadowEndpoint struct {
	// addresses of the endpoint, as the provider sees them: within the ranges in which it sees the consumer.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=39
	// +kubebuilder:validation:items:Pattern=`^[0-9a-f.:]+$`
	Addresses []string `json:"addresses"`

	// ready is whether it takes new connections. By default it does.
	// +optional
	Ready *bool `json:"ready,omitempty"`

	// serving is ready, but for an endpoint that terminates too.
	// +optional
	Serving *bool `json:"serving,omitempty"`

	// terminating is whether it is about to end.
	// +optional
	Terminating *bool `json:"terminating,omitempty"`

	// hostname is its name within a headless Service.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Hostname string `json:"hostname,omitempty"`

	// zone is where it runs, as the consumer calls it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`

	// forZones are the zones that should use it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=63
	ForZones []string `json:"forZones,omitempty"`
}

// ShadowEndpointSliceStatus is the provider's answer.
type ShadowEndpointSliceStatus struct {
	// conditions: Accepted, with status False and the reason, if there is no EndpointSlice of it. There is none as long as all is well.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the answer speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// events are what happened to the copy of the Service, as far as the provider shows it: the latest of each kind.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Events []RemoteEvent `json:"events,omitempty"`
}

// ShadowEndpointSlice has a provider make an EndpointSlice of endpoints that run elsewhere: at home, or at other providers. It lies in a
// twin namespace. Peers may not read EndpointSlices themselves, because these name the provider's nodes.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hslice,categories=hanse
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.service`
// +kubebuilder:printcolumn:name="Family",type=string,JSONPath=`.spec.addressType`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ShadowEndpointSlice struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the consumer asks for.
	// +required
	Spec ShadowEndpointSliceSpec `json:"spec"`
	// status is the provider's answer.
	// +optional
	Status ShadowEndpointSliceStatus `json:"status,omitempty"`
}

// ShadowEndpointSliceList is a list of ShadowEndpointSlices.
// +kubebuilder:object:root=true
type ShadowEndpointSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ShadowEndpointSlice `json:"items"`
}

// ShadowPorts returns the ports of an EndpointSlice as messages have them.
func ShadowPorts(ports []discoveryv1.EndpointPort) []ShadowEndpointPort {
	var out []ShadowEndpointPort
	for _, p := range ports {
		out = append(out, ShadowEndpointPort{
			Name: *cmp.Or(p.Name, new("")), Protocol: string(*cmp.Or(p.Protocol, new(corev1.ProtocolTCP))), Port: p.Port,
			AppProtocol: *cmp.Or(p.AppProtocol, new("")),
		})
	}
	return out
}

// EndpointPorts returns the ports of a message as an EndpointSlice has them.
func EndpointPorts(ports []ShadowEndpointPort) []discoveryv1.EndpointPort {
	var out []discoveryv1.EndpointPort
	for _, p := range ports {
		port := discoveryv1.EndpointPort{Name: &p.Name, Protocol: new(cmp.Or(corev1.Protocol(p.Protocol), corev1.ProtocolTCP)), Port: p.Port}
		if p.AppProtocol != "" {
			port.AppProtocol = &p.AppProtocol
		}
		out = append(out, port)
	}
	return out
}
