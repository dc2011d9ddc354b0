// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OfferPhase says how long a provider wants to serve a consumer.
// +kubebuilder:validation:Enum=Open;Cordoned;Draining;Leaving
type OfferPhase string

const (
	// OfferOpen means that the consumer may run pods at the provider.
	OfferOpen OfferPhase = "Open"
	// OfferCordoned means that the consumer's pods stay, and that no more are taken.
	OfferCordoned OfferPhase = "Cordoned"
	// OfferDraining means Cordoned, and that the provider asks the consumer to move its pods away.
	OfferDraining OfferPhase = "Draining"
	// OfferLeaving means Draining, and that the provider parts from the consumer.
	OfferLeaving OfferPhase = "Leaving"
)

// AdvertisementSpec is what a provider offers to one consumer.
// +kubebuilder:validation:XValidation:rule="self.timeToLive > self.timestamp",message="timeToLive must be later than timestamp"
type AdvertisementSpec struct {
	// clusterID is the id of the cluster that makes the offer.
	// +required
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterID is immutable"
	ClusterID string `json:"clusterID"`

	// sequence grows with every change of this advertisement, also partial ones, so that the receiver can tell an
	// older message from a newer one. Behind the largest number it begins anew, and so it does with another object.
	// +required
	// +kubebuilder:validation:Minimum=0
	Sequence int64 `json:"sequence"`

	// fullSequence is the sequence of the newest full message, which said everything. Messages after it are partial: they
	// changed nothing but availability, largestPod, the times and the sequence.
	// +optional
	// +kubebuilder:validation:Minimum=0
	FullSequence int64 `json:"fullSequence,omitempty"`

	// phase says how long the provider wants to serve the consumer: Open, Cordoned (no more pods), Draining (and please
	// move those that you have), Leaving (and this is the last message: the two part). Default Open.
	// +optional
	Phase OfferPhase `json:"phase,omitempty"`

	// timestamp is when this message was made, by the clock of the sender.
	// +required
	Timestamp metav1.Time `json:"timestamp"`

	// timeToLive is the instant at which the offer ends unless it is renewed.
	// +required
	TimeToLive metav1.Time `json:"timeToLive"`

	// availability is what is free for this consumer, what its own pods already hold there included: always cpu,
	// memory, pods and ephemeral-storage, and whatever else the nodes have.
	// +required
	// +kubebuilder:validation:MaxProperties=64
	Availability corev1.ResourceList `json:"availability"`

	// largestPod is the largest single pod that fits now.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	LargestPod corev1.ResourceList `json:"largestPod,omitempty"`

	// guarantee is what the provider keeps free for this consumer, whatever others ask for. Without it, the offer is best
	// effort.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Guarantee corev1.ResourceList `json:"guarantee,omitempty"`

	// images are container images that are already on nodes of the cluster.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Images []Image `json:"images,omitempty"`

	// prices are what the provider asks. None means free.
	// +optional
	Prices *Prices `json:"prices,omitempty"`

	// network is what the consumer must know of the provider's network, and how the provider sees the consumer's.
	// +optional
	Network *Network `json:"network,omitempty"`

	// labels describe the cluster, such as its region. The receiver decides which it shows on the virtual node.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]Text `json:"labels,omitempty"`

	// architectures are the processor architectures of the cluster's nodes, such as amd64.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=32
	// +kubebuilder:validation:items:Pattern=`^[a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?$`
	Architectures []string `json:"architectures,omitempty"`

	// storageClasses are the classes of the volumes that the consumer's claims can get there, the default first. Without any,
	// pods with claims do not run there.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	StorageClasses []string `json:"storageClasses,omitempty"`

	// ingress is which Ingresses the consumer may have there. Without it there may be none.
	// +optional
	Ingress *IngressOffer `json:"ingress,omitempty"`

	// kubernetesVersion is the version of the cluster's nodes, such as v1.37.1.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^v[0-9]+(\.[0-9]+)+([-+][0-9A-Za-z.+-]*)?$`
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// flags are free keys and values. Unknown ones are kept and ignored. Known are aggregated=true (the offer contains
	// those of other clusters, see nested) and aggregatable=false (it must not become part of another offer).
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Flags map[string]Text `json:"flags,omitempty"`

	// extensions are what goes with flags and has more to say. They are kept word for word, and ignored by whoever does
	// not know them.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Extensions map[string]Extension `json:"extensions,omitempty"`

	// nested are the offers of other clusters that are part of an aggregated one.
	// +optional
	// +listType=map
	// +listMapKey=clusterID
	// +kubebuilder:validation:MaxItems=100
	Nested []NestedOffer `json:"nested,omitempty"`
}

// IngressOffer is which Ingresses a consumer may have at a provider.
type IngressOffer struct {
	// hosts are the host names that they may be for, as patterns: *.example.org stands for all names below example.org, and * for
	// all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[-a-z0-9.*]+$`
	Hosts []string `json:"hosts,omitempty"`

	// className is the IngressClass that they get there.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	ClassName string `json:"className,omitempty"`
}

// Flags of advertisements that Hanse knows.
const (
	// FlagAggregated says with the value true that the offer contains those of other clusters.
	FlagAggregated = "aggregated"
	// FlagAggregatable says with the value false that the offer must not become part of another.
	FlagAggregatable = "aggregatable"
)

// Extension is the content of an extension.
// +kubebuilder:validation:MaxLength=4096
type Extension string

// NestedOffer is the offer of another cluster as part of an aggregated one. Its prices include the share of the cluster
// that passes it on.
type NestedOffer struct {
	// clusterID is the id of the cluster that makes the offer.
	// +required
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ClusterID string `json:"clusterID"`

	// path are the ids of the clusters through which the offer came to the cluster that advertises it here, the nearest to
	// it first. It is empty if the two know each other.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=30
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Path []string `json:"path,omitempty"`

	// availability is what is free there.
	// +required
	// +kubebuilder:validation:MaxProperties=64
	Availability corev1.ResourceList `json:"availability"`

	// prices are what is asked. None means free.
	// +optional
	Prices *Prices `json:"prices,omitempty"`

	// labels describe the cluster, such as its region.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]Text `json:"labels,omitempty"`
}

// Text is a bounded string.
// +kubebuilder:validation:MaxLength=253
type Text string

// Image is a container image on a node.
type Image struct {
	// names by which the image is known there.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=500
	Names []string `json:"names"`

	// sizeBytes is the size of the image in bytes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SizeBytes int64 `json:"sizeBytes,omitempty"`
}

// Prices are what a provider asks for what it offers.
type Prices struct {
	// currency is the ISO 4217 code of the currency of all amounts.
	// +required
	// +kubebuilder:validation:Pattern=`^[A-Z]{3}$`
	// +kubebuilder:validation:MaxLength=3
	Currency string `json:"currency"`

	// perHour is the amount for one unit of a resource for an hour: one core, one Gi of memory, storage or huge pages, one
	// pod, one GPU. A resource that is not named is free.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	PerHour map[corev1.ResourceName]resource.Quantity `json:"perHour,omitempty"`

	// perPlacement is the amount for each container that is placed, by its image. An image that is not named costs nothing
	// by itself.
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	PerPlacement map[string]resource.Quantity `json:"perPlacement,omitempty"`
}

// AcknowledgementState is a receiver's answer to an advertisement.
// +kubebuilder:validation:Enum=Accepted;Pending;Refused
type AcknowledgementState string

const (
	// AcknowledgementAccepted means that the receiver uses the offer.
	AcknowledgementAccepted AcknowledgementState = "Accepted"
	// AcknowledgementPending means that an administrator of the receiver has to decide.
	AcknowledgementPending AcknowledgementState = "Pending"
	// AcknowledgementRefused means that the receiver does not use the offer.
	AcknowledgementRefused AcknowledgementState = "Refused"
)

// Acknowledgement is what a receiver answers to an advertisement.
type Acknowledgement struct {
	// state is the answer.
	// +required
	State AcknowledgementState `json:"state"`

	// reason is the answer's cause in one CamelCase word.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`

	// message explains the answer to the sender's administrator.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// corrections name, field by field, what the receiver uses instead of what the sender said.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=256
	Corrections []string `json:"corrections,omitempty"`

	// sequence is the newest sequence that the receiver had seen when it wrote this answer.
	// +optional
	Sequence int64 `json:"sequence,omitempty"`
}

// AdvertisementStatus is the receiver's answer.
type AdvertisementStatus struct {
	// conditions: Accepted (the receiver uses the offer), Ready (the same, and the offer is current) and, when the clocks of
	// the two clusters differ by too much, ClockSkew.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the answer speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// acknowledgement is the receiver's answer.
	// +optional
	Acknowledgement *Acknowledgement `json:"acknowledgement,omitempty"`

	// network is what the provider must know of the consumer's network, and how the consumer sees the provider's.
	// +optional
	Network *Network `json:"network,omitempty"`
}

// Advertisement is what a provider offers to one consumer: what is free, at what price, until when. It lives in the
// tenant namespace of that consumer at the provider, and as a copy in the provider's tenant namespace at the consumer.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=had,categories=hanse
// +kubebuilder:printcolumn:name="Cluster ID",type=string,JSONPath=`.spec.clusterID`
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.spec.availability.cpu`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.spec.availability.memory`
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.spec.availability.pods`
// +kubebuilder:printcolumn:name="Answer",type=string,JSONPath=`.status.acknowledgement.state`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.acknowledgement.reason`
// +kubebuilder:printcolumn:name="Expires",type=string,priority=1,JSONPath=`.spec.timeToLive`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Advertisement struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the offer, by the provider.
	// +required
	Spec AdvertisementSpec `json:"spec"`
	// status is the answer, by the consumer.
	// +optional
	Status AdvertisementStatus `json:"status,omitempty"`
}

// AdvertisementList is a list of advertisements.
// +kubebuilder:object:root=true
type AdvertisementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Advertisement `json:"items"`
}
