package policy

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// Facts are what a question is about. What is nil is not known, and is not in the input.
type Facts struct {
	// Time is when the question is asked.
	Time time.Time
	// Peer is the other side.
	Peer *v1alpha1.Peer
	// Advertisement is what is offered, to us (Incoming) or by us (Outgoing, ShadowPod).
	Advertisement *v1alpha1.AdvertisementSpec
	// Previous is the advertisement that was accepted last.
	Previous *v1alpha1.AdvertisementSpec
	// Table is what all providers offer, made by NewTable.
	Table *Value
	// Load is how busy this cluster is.
	Load *Load
	// Namespace is the one whose pods are placed, or the twin of the shadow pod's.
	Namespace *corev1.Namespace
	// Class is the name of the class of its pods that is placed; empty if it is the namespace itself.
	Class string
	// Wish is what the user of the namespace has asked for, for the class if there is one.
	Wish *v1alpha1.Placement
	// Request is what one of its pods asks for.
	Request corev1.ResourceList
	// Pod is the pod that is made for a consumer.
	Pod *corev1.Pod
}

// A Load is how busy a cluster is.
type Load struct {
	// Allocatable is what its nodes have, Free what of it is not in use.
	Allocatable, Free corev1.ResourceList
}

// A TableRow is what one provider offers.
type TableRow struct {
	// Peer is the name of the provider's Peer.
	Peer string
	// Open says whether the offer is for new pods.
	Open bool
	// Offer is what the provider says.
	Offer *v1alpha1.AdvertisementSpec
	// RoundTrip is how long a request to the provider takes; 0 is unknown.
	RoundTrip time.Duration
}
