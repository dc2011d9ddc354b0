// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxQuotes is how many Quotes a consumer may have at a provider.
const MaxQuotes = 100

// MaxQuoteTime is how far ahead the expirationTime of a Quote may lie, and for how long one lives at most that was refused.
const MaxQuoteTime = time.Hour

// MaxInterest is the interest of a provider that could not be more interested.
const MaxInterest = 100

// QuoteSpec says for which application a consumer wants an offer, and until when.
// +kubebuilder:validation:XValidation:rule="self.expirationTime >= self.deadline",message="expirationTime must not be before deadline"
type QuoteSpec struct {
	// application is what the offer is for.
	// +required
	Application RequestedApplication `json:"application"`

	// components are the parts of the application. An offer speaks of each of them, and of all together.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=24
	Components []RequestedComponent `json:"components"`

	// deadline is until when an offer counts.
	// +required
	Deadline metav1.Time `json:"deadline"`

	// expirationTime is when the Quote and its offer are forgotten, by the provider's clock: at most an hour ahead. Then the provider
	// deletes the Quote.
	// +required
	ExpirationTime metav1.Time `json:"expirationTime"`

	// signed is how the consumer has signed the rest of the spec, and the name of the Quote. Each version needs another statement, with a
	// higher sequence. The provider offers nothing to a peer for a Quote without it.
	// +optional
	Signed *SignedStatement `json:"signed,omitempty"`
}

// Offer says how gladly a provider would take something, and for how much. It binds nobody.
type Offer struct {
	// interest is how gladly the provider takes it, up to 100. 0 means that it does not.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Interest int32 `json:"interest,omitempty"`

	// price is what it would cost for an hour. It is missing if that is nothing, or if interest is 0.
	// +optional
	Price *Price `json:"price,omitempty"`

	// reason says in one word why interest is 0, such as NoRoom.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Reason string `json:"reason,omitempty"`

	// message says why interest is 0.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// ComponentOffer is the offer for one component, as if there were no others.
type ComponentOffer struct {
	// name is that of the component.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	Offer `json:",inline"`
}

// QuoteStatus is the provider's offer.
type QuoteStatus struct {
	// conditions: Offered (the provider takes all of it or a part; if not, the message says why) and Ready, which is the same.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that the offer is for. Each has one offer.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// sequence is that of the statement of the consumer that was taken in last. An older one is Stale.
	// +optional
	Sequence int64 `json:"sequence,omitempty"`

	// whole is the offer for all components together.
	// +optional
	Whole *Offer `json:"whole,omitempty"`

	// components are the offers for each component.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=24
	Components []ComponentOffer `json:"components,omitempty"`

	// signed is how the provider has signed its offer to a peer, but for the messages of components.
	// +optional
	Signed *SignedStatement `json:"signed,omitempty"`
}

// Its spec has one writer, and so has its status, as those of a Request.

// Quote asks a provider what it would take an application for, and has the provider's offer. It lives in the consumer's tenant
// namespace at the provider. Nothing is reserved by it, and no Advertisement changes: who takes the offer makes a Request, which the
// provider may refuse. A Request of the name of a Quote, for the same application and components of it, costs no more than was offered.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hquote,categories=hanse
// +kubebuilder:printcolumn:name="Application",type=string,JSONPath=`.spec.application.name`
// +kubebuilder:printcolumn:name="Interest",type=integer,JSONPath=`.status.whole.interest`
// +kubebuilder:printcolumn:name="Price",type=string,JSONPath=`.status.whole.price.amount`
// +kubebuilder:printcolumn:name="Currency",type=string,JSONPath=`.status.whole.price.currency`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Offered")].reason`
// +kubebuilder:printcolumn:name="Deadline",type=string,JSONPath=`.spec.deadline`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expirationTime`
// +kubebuilder:printcolumn:name="Application UID",type=string,priority=1,JSONPath=`.spec.application.uid`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Offered")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Quote struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the consumer asks for.
	// +required
	// +structType=atomic
	Spec QuoteSpec `json:"spec"`
	// status is the provider's offer.
	// +optional
	// +structType=atomic
	Status QuoteStatus `json:"status,omitempty"`
}

// Answered reports whether the status has the offer for the spec as it is.
func (q *Quote) Answered() bool {
	return q.Status.ObservedGeneration == q.Generation && q.Status.Whole != nil
}

// QuoteList is a list of quotes.
// +kubebuilder:object:root=true
type QuoteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Quote `json:"items"`
}
