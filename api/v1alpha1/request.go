// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MaxRequests is how many Requests a consumer may have at a provider.
const MaxRequests = 100

// MaxReservation is how far ahead the expirationTime of a Request may lie. Who needs the room for longer moves it on in time.
const MaxReservation = 24 * time.Hour

// MaxRelayedReservation is how far ahead that may lie in a Request of a member of a broker: until it is a peer, and asks itself.
const MaxRelayedReservation = 15 * time.Minute

// RequestPhase says in one word how a Request stands.
// +kubebuilder:validation:Enum=Pending;Acknowledged;Refused;Expired
type RequestPhase string

const (
	// RequestPending means that the provider has not answered yet.
	RequestPending RequestPhase = "Pending"
	// RequestAcknowledged means that the room in status.reserved is locked until status.validUntil.
	RequestAcknowledged RequestPhase = "Acknowledged"
	// RequestRefused means that nothing is locked.
	RequestRefused RequestPhase = "Refused"
	// RequestExpired means that nothing is locked any more.
	RequestExpired RequestPhase = "Expired"
)

// RequestSpec says what a consumer wants to have reserved at a provider, and until when.
type RequestSpec struct {
	// application is what the room is for.
	// +required
	Application RequestedApplication `json:"application"`

	// components are the parts of the application. What all replicas of all of them ask for is reserved together, or not at all.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Components []RequestedComponent `json:"components"`

	// maxPrice is the most that all of it together may cost for an hour. By default any price is taken.
	// +optional
	// +kubebuilder:validation:XValidation:rule="string(self.amount).size() <= 32 && string(self.amount).matches('^[0-9.]+([numkMGTPE]|[KMGTPE]i|[eE]-?[0-9]{1,2})?$')",message="amount must be a quantity of at most 32 characters, without a sign and with an exponent of at most two digits, such as 0.25"
	MaxPrice *Price `json:"maxPrice,omitempty"`

	// expirationTime is until when the room is asked for, by the provider's clock: at most 24 hours ahead. To keep the room for
	// longer, move it on in time.
	// +required
	ExpirationTime metav1.Time `json:"expirationTime"`

	// signed is how the consumer has signed the rest of the spec, and the name of the Request. Each version needs another statement, with
	// a higher sequence. The provider refuses a Request without it.
	// +optional
	Signed *SignedStatement `json:"signed,omitempty"`
}

// RequestedApplication names the application that room is reserved for.
type RequestedApplication struct {
	// uid is the UID of the application at the consumer. It cannot change: another application needs another Request.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="uid is immutable: another application needs another Request"
	UID types.UID `json:"uid"`

	// name is what people call the application.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-./a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
}

// How amounts are written is in the policy hanse-guard-objects: a rule here would have no bound for its cost, since quantities have
// none for their length.

// RequestedComponent is a part of an application: a number of pods that ask for the same.
type RequestedComponent struct {
	// name tells the component from others.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// replicas is how many pods it has.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Replicas int32 `json:"replicas"`

	// resources are what one of its pods asks for, such as cpu: "2". That it is a pod counts by itself. Each amount is above 0 and has
	// at most 20 characters, no sign, and an exponent of at most two digits: to decode a larger one takes minutes.
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.size() <= 100 && name != 'pods' && !name.startsWith('requests.') && !name.startsWith('limits.'))",message="name what a pod asks for, such as cpu, in at most 100 characters: pods are counted by replicas"
	Resources corev1.ResourceList `json:"resources,omitempty"`
}

// RequestStatus is the provider's answer.
type RequestStatus struct {
	// conditions: Acknowledged (the provider has reserved what the spec asks for; if not, the message says what is short) and
	// Ready (it is reserved now).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the answer speaks of. Each is answered once.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// sequence is that of the statement of the consumer that was taken in last. An older one is Stale.
	// +optional
	Sequence int64 `json:"sequence,omitempty"`

	// phase is Pending, Acknowledged, Refused or Expired. While what was acknowledged is reserved it is Acknowledged, also if
	// a later change of the spec was refused: condition Acknowledged says so.
	// +optional
	Phase RequestPhase `json:"phase,omitempty"`

	// reserved is what is locked for pods that name this Request, in all. What these hold already is part of it.
	// +optional
	// +kubebuilder:validation:MaxProperties=257
	Reserved corev1.ResourceList `json:"reserved,omitempty"`

	// validUntil is when the room is free for others again. What runs in it then goes on running.
	// +optional
	ValidUntil *metav1.Time `json:"validUntil,omitempty"`

	// price is what the reserved room costs for an hour, as agreed when it was acknowledged. It is missing if it costs nothing.
	// +optional
	Price *Price `json:"price,omitempty"`

	// used is what the pods that name this Request hold, be it more than is reserved.
	// +optional
	// +kubebuilder:validation:MaxProperties=257
	Used corev1.ResourceList `json:"used,omitempty"`

	// signed is how the provider has signed its answer: all of the status that the consumer relies on.
	// +optional
	Signed *SignedStatement `json:"signed,omitempty"`
}

// Its spec has one writer, and so has its status, as those of a ShadowPod: who wrote their fields would be longer than they are.

// Request asks a provider to reserve room for an application, and has the provider's answer. It lives in the consumer's
// tenant namespace at the provider. What is acknowledged is locked: pods of others find no room there, nor do pods of the same
// consumer that do not name the Request (spec.request of their ShadowPods). Deleting the Request gives the room back. The end
// of a reservation never ends a pod. A member of a broker asks through that one: its Request lies in the tenant namespace of the broker,
// has its id before the name, and gives way to the one that it makes itself when the two are peers.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hreq,categories=hanse
// +kubebuilder:printcolumn:name="Application",type=string,JSONPath=`.spec.application.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Acknowledged")].reason`
// +kubebuilder:printcolumn:name="Price",type=string,JSONPath=`.status.price.amount`
// +kubebuilder:printcolumn:name="Currency",type=string,JSONPath=`.status.price.currency`
// +kubebuilder:printcolumn:name="Valid Until",type=string,JSONPath=`.status.validUntil`
// +kubebuilder:printcolumn:name="Application UID",type=string,priority=1,JSONPath=`.spec.application.uid`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Member",type=string,priority=1,JSONPath=`.metadata.labels.hanse\.dev/from`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 || self.metadata.name.matches('^[-a-z0-9]{1,30}[.][-a-z0-9]{1,63}$')",message="the name of a Request must have at most 63 characters: it is a label of its pods. Before that of a member of a broker its id may stand"
type Request struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the consumer asks for.
	// +required
	// +structType=atomic
	Spec RequestSpec `json:"spec"`
	// status is the provider's answer.
	// +optional
	// +structType=atomic
	Status RequestStatus `json:"status,omitempty"`
}

// Locked returns what the provider has acknowledged and not ended, as the status says.
func (r *Request) Locked() corev1.ResourceList {
	if r.Status.Phase != RequestAcknowledged || !r.DeletionTimestamp.IsZero() {
		return nil
	}
	return r.Status.Reserved
}

// RequestList is a list of requests.
// +kubebuilder:object:root=true
type RequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Request `json:"items"`
}
