package policy

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// An Outcome is the answer to a question in one word.
type Outcome string

// The outcomes.
const (
	// Allow means yes.
	Allow Outcome = "Allow"
	// Deny means no.
	Deny Outcome = "Deny"
	// Pend means that an administrator has to decide.
	Pend Outcome = "Pend"
)

// A Decision is the answer of the policies to one question.
type Decision struct {
	Outcome Outcome
	// Reason says why, for people: the reasons of all rules that led to the outcome, sorted and joined; bounded. It may
	// be empty if the outcome is Allow.
	Reason string
	// Offer is what to change, if the question is Incoming or Outgoing; nil is nothing.
	Offer *OfferPatch
	// Pod is what to change, if the question is ShadowPod; nil is nothing.
	Pod *PodPatch
	// Ranking is the answer to Placement; nil for other questions.
	Ranking *Ranking
}

// An OfferPatch changes fields of an advertisement. A nil field is not changed.
type OfferPatch struct {
	// Availability and LargestPod replace the amounts of the resources that they name; a zero takes the resource away, but
	// of those that every advertisement names, which become zero.
	Availability, LargestPod corev1.ResourceList
	// Prices replaces the prices as a whole; one without a currency makes the offer free.
	Prices *v1alpha1.Prices
	// Labels and Flags replace the values of the keys that they name; an empty value takes the key away.
	Labels, Flags map[string]string
	// HideImages takes all images away.
	HideImages bool
}

// A PodPatch changes fields of a pod that is made for a consumer.
type PodPatch struct {
	// Labels, Annotations and NodeSelector are added; keys that the pod has are replaced, but for those of Hanse.
	Labels, Annotations, NodeSelector map[string]string
	// PriorityClassName and RuntimeClassName are set unless they are empty.
	PriorityClassName, RuntimeClassName string
}

// A Ranking says how clusters compare for the pods of a namespace.
type Ranking struct {
	// Exclude names peers that must not be used, and why.
	Exclude map[string]string
	// Scores says of peers how good they are: the higher the better. It is nil if the policies do not compare.
	Scores map[string]float64
	// Strict lets only the best one be used that fits.
	Strict bool
}
