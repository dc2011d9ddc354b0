// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MemberSpec says which cluster a member is.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the key of a member is pinned when it is heard first: delete the Member if its administrator tells you that the key was replaced"
type MemberSpec struct {
	// publicKey is the Ed25519 key of the cluster, in base64, as it was first heard: all that it says must be signed with it.
	// +required
	// +kubebuilder:validation:MaxLength=44
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{43}=$`
	PublicKey string `json:"publicKey"`
}

// MemberOffer is what a member says that it has to spare for members of a broker in general. What it has for this cluster it says when the
// two have become peers.
type MemberOffer struct {
	// availability is what is free.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Availability corev1.ResourceList `json:"availability,omitempty"`

	// prices are what a unit of a resource costs for an hour. What is missing is free.
	// +optional
	Prices *Prices `json:"prices,omitempty"`

	// labels are those of the cluster, such as its region.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]Text `json:"labels,omitempty"`
}

// MemberBroker is a broker that names a member.
type MemberBroker struct {
	// name is that of the broker's Peer.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// heard is when something new came from the member through this broker, by this cluster's clock.
	// +required
	Heard metav1.Time `json:"heard"`

	// sequence is the number of the last introduction that came through this broker. It may not bring an older one.
	// +optional
	Sequence int64 `json:"sequence,omitempty"`

	// marks are what the broker itself says of the member. They are its word, and nobody else's.
	// +optional
	Marks *MemberMarks `json:"marks,omitempty"`

	// marked is when other marks came than before, by this cluster's clock.
	// +optional
	Marked *metav1.Time `json:"marked,omitempty"`
}

// MaxMark bounds each count of marks.
const MaxMark = 1_000_000_000

// MemberMarks are what a broker has counted of a member, by what has passed through the broker alone: what the two say to each other as
// peers, and whether an application ran well, it does not see.
type MemberMarks struct {
	// since is from when on it was counted: when the broker's manager has begun, or the member has come, whichever is later.
	// +required
	Since metav1.Time `json:"since"`

	// longestGap is the longest time between two introductions of the member, in full minutes, rounded up. A member introduces itself
	// every 15 minutes at least. It is missing until there were two.
	// +optional
	LongestGap *metav1.Duration `json:"longestGap,omitempty"`

	// quotes is how many Quotes the member was brought for which time is over, or which it has answered.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	Quotes int32 `json:"quotes,omitempty"`

	// offers is how many of them it has answered in time, also with no.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	Offers int32 `json:"offers,omitempty"`

	// declined is how many of these offers were for nothing: the interest in every component, and in the whole, was 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	Declined int32 `json:"declined,omitempty"`

	// offerTime is how long the member took from a Quote to its offer, on average. It is missing while there are no offers.
	// +optional
	OfferTime *metav1.Duration `json:"offerTime,omitempty"`

	// requests is how many Requests for room the member was brought for which time is over, or which it has answered.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	Requests int32 `json:"requests,omitempty"`

	// acknowledged is how many of them it has acknowledged. The others it has refused, or left unanswered.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	Acknowledged int32 `json:"acknowledged,omitempty"`

	// handOvers is how many requests for an invitation the member was brought for which time is over, or which it has answered. One that is
	// made again after it was refused, and is refused again, counts once.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	HandOvers int32 `json:"handOvers,omitempty"`

	// invitations is how many of them it has answered with an invitation.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	Invitations int32 `json:"invitations,omitempty"`

	// refusals is how many of them it has refused.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	Refusals int32 `json:"refusals,omitempty"`
}

// MemberStatus is what was heard of a member.
type MemberStatus struct {
	// conditions: Current (what is known of the member is not out of date) and Ready, which is the same.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// brokers are those that name the member now.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Brokers []MemberBroker `json:"brokers,omitempty"`

	// lastBroker is the broker that has named the member last, while none does any more.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	LastBroker string `json:"lastBroker,omitempty"`

	// offer is what the member has to spare, as it said last.
	// +optional
	Offer *MemberOffer `json:"offer,omitempty"`

	// said is when the member said it, by its own clock.
	// +optional
	Said *metav1.Time `json:"said,omitempty"`

	// expires is until when it holds.
	// +optional
	Expires *metav1.Time `json:"expires,omitempty"`

	// sequence is the number of the newest introduction that was taken in, which the offer is of.
	// +optional
	Sequence int64 `json:"sequence,omitempty"`

	// handOverSequence is the number of the last request for a hand-over that was taken in. An older one is refused.
	// +optional
	HandOverSequence int64 `json:"handOverSequence,omitempty"`
}

// Member is a cluster that is known through a broker, by what it has said itself and signed. No pods go there: ask for a hand-over first
// (`kubectl hanse join --member NAME`), by which the two become peers, whatever becomes of the broker. Hanse keeps it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=hmember,categories=hanse
// +kubebuilder:printcolumn:name="Current",type=string,JSONPath=`.status.conditions[?(@.type=="Current")].status`
// +kubebuilder:printcolumn:name="Brokers",type=string,JSONPath=`.status.brokers[*].name`
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.status.offer.availability.cpu`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.status.offer.availability.memory`
// +kubebuilder:printcolumn:name="Said",type=date,JSONPath=`.status.said`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Current")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 30",message="metadata.name: it is the id of the cluster"
type Member struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which cluster it is. The name of the Member is its id.
	// +required
	Spec MemberSpec `json:"spec"`
	// status is what was heard of it.
	// +optional
	// +structType=atomic
	Status MemberStatus `json:"status,omitempty"`
}

// IsKnownThrough reports whether the broker of that name names the member now.
func (m *Member) IsKnownThrough(broker string) bool {
	return slices.ContainsFunc(m.Status.Brokers, func(b MemberBroker) bool { return b.Name == broker })
}

// MarksOf returns what the broker of that name says of the member, nil if nothing.
func (m *Member) MarksOf(broker string) *MemberMarks {
	if i := slices.IndexFunc(m.Status.Brokers, func(b MemberBroker) bool { return b.Name == broker }); i >= 0 {
		return m.Status.Brokers[i].Marks
	}
	return nil
}

// MemberList is a list of members.
// +kubebuilder:object:root=true
type MemberList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Member `json:"items"`
}
