// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// MaxExportedEndpoints is how many endpoints one ExportedService has.
	MaxExportedEndpoints = 100
	// MaxExportedServices is how many ExportedServices a cluster writes for a peer, and takes from it.
	MaxExportedServices = 500
)

// ExportedBy says which of two clusters has written an ExportedService, by its role.
// +kubebuilder:validation:Enum=Provider;Consumer
// +kubebuilder:validation:MaxLength=8
type ExportedBy string

const (
	// ExportedByProvider means that the cluster in which the object lies has written it.
	ExportedByProvider ExportedBy = "Provider"
	// ExportedByConsumer means that the peer has written it, over its link.
	ExportedByConsumer ExportedBy = "Consumer"
)

// ExportedServiceSpec is a Service that one cluster exports to another, as the other one sees it.
type ExportedServiceSpec struct {
	// by is which of the two clusters exports: Provider, the one in which this object lies, or Consumer.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="by is immutable"
	By ExportedBy `json:"by"`

	// namespace is that of the Service, in both clusters.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`

	// name is that of the Service, and of the ServiceExport.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// part is the number of this object among those of the Service, from 0. Each has some of the endpoints; the first one says
	// what the Service is.
	// +required
	// +kubebuilder:validation:MaxLength=3
	// +kubebuilder:validation:Pattern=`^[0-9]+$`
	Part string `json:"part"`

	// type is ClusterSetIP, or Headless for a Service without a cluster IP.
	// +required
	// +kubebuilder:validation:Enum=ClusterSetIP;Headless
	Type string `json:"type"`

	// ports are those of the Service.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Ports []ExportedPort `json:"ports,omitempty"`

	// sessionAffinity is that of the Service.
	// +optional
	// +kubebuilder:validation:Enum=None;ClientIP
	SessionAffinity corev1.ServiceAffinity `json:"sessionAffinity,omitempty"`

	// affinitySeconds is for how long a client keeps its endpoint, with session affinity ClientIP.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	AffinitySeconds *int32 `json:"affinitySeconds,omitempty"`

	// exportedAt is when the ServiceExport was made. Where clusters differ about a Service, the oldest export decides.
	// +required
	ExportedAt metav1.Time `json:"exportedAt"`

	// labels are those that the ServiceExport gives to ServiceImports.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Labels map[string]Text `json:"labels,omitempty"`

	// annotations are those that the ServiceExport gives to ServiceImports.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Annotations map[string]Text `json:"annotations,omitempty"`

	// addressType is the family of all addresses.
	// +required
	// +kubebuilder:validation:Enum=IPv4;IPv6
	AddressType string `json:"addressType"`

	// endpointPorts are the ports of each endpoint.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	EndpointPorts []ShadowEndpointPort `json:"endpointPorts,omitempty"`

	// endpoints are those of this part.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Endpoints []ExportedEndpoint `json:"endpoints,omitempty"`
}

// ExportedPort is a port of a Service.
type ExportedPort struct {
	// name of the port, or empty if it is the only one.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// protocol of the port.
	// +optional
	// +kubebuilder:default=TCP
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol string `json:"protocol,omitempty"`

	// port is the number.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// appProtocol is what is spoken there, such as kubernetes.io/h2c.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	AppProtocol string `json:"appProtocol,omitempty"`
}

// ExportedEndpoint is one endpoint of an exported Service.
type ExportedEndpoint struct {
	// address of the endpoint as the cluster sees it that this is told: within the ranges in which it sees the other one, or that of
	// a pod of the other one that runs there.
	// +required
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:Pattern=`^[0-9a-f.:]+$`
	Address string `json:"address"`

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

	// zone is where it runs, as its cluster calls it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`
}

// ExportedServiceStatus is the answer of the cluster that this is told.
type ExportedServiceStatus struct {
	// conditions: Accepted, with status False and the reason, if the Service is not imported. There is none as long as all is well.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the answer speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// ExportedService tells a peer of a Service that a cluster exports, and of some of its endpoints. It lies in the consumer's tenant
// namespace at the provider, whichever of the two exports. Its name is made of by, namespace, name and part, such as provider.shop.web.0.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hexp,categories=hanse
// +kubebuilder:printcolumn:name="By",type=string,JSONPath=`.spec.by`
// +kubebuilder:printcolumn:name="Service namespace",type=string,JSONPath=`.spec.namespace`
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.name`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ExportedService struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is exported.
	// +required
	Spec ExportedServiceSpec `json:"spec"`
	// status is the answer.
	// +optional
	Status ExportedServiceStatus `json:"status,omitempty"`
}

// ExportedServiceName returns the name of a part of a Service that is exported.
func ExportedServiceName(by ExportedBy, namespace, name string, part int) string {
	prefix := "provider."
	if by == ExportedByConsumer {
		prefix = "consumer."
	}
	return prefix + namespace + "." + name + "." + strconv.Itoa(part)
}

// ExportedServiceList is a list of ExportedServices.
// +kubebuilder:object:root=true
type ExportedServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ExportedService `json:"items"`
}
