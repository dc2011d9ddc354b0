// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AuctionWhen says when an auction is held.
// +kubebuilder:validation:Enum=Never;IfNeeded;Always
type AuctionWhen string

const (
	// AuctionNever holds none.
	AuctionNever AuctionWhen = "Never"
	// AuctionIfNeeded holds one when no set of clusters takes the application as they advertise, or all that were asked have refused.
	AuctionIfNeeded AuctionWhen = "IfNeeded"
	// AuctionAlways chooses among offers alone.
	AuctionAlways AuctionWhen = "Always"
)

// DefaultAuctionTime is for how long offers are awaited if the Application does not say so.
const DefaultAuctionTime = 30 * time.Second

// ApplicationAuctionSpec says when and how an auction is held.
type ApplicationAuctionSpec struct {
	// when is Never, IfNeeded or Always. By default IfNeeded: when no set of clusters takes the application as they advertise, or all that
	// were asked have refused. With Always clusters are chosen by their offers alone.
	// +optional
	// +kubebuilder:default=IfNeeded
	When AuctionWhen `json:"when,omitempty"`

	// deadline is for how long offers are awaited, such as 10s. By default 30s. The auction ends before that when all have offered.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('10m')",message="deadline must be at least 1s and at most 10m, such as 30s"
	Deadline *metav1.Duration `json:"deadline,omitempty"`
}

// AuctionTerms returns when an auction is held for the application, and for how long offers are awaited. Where components have weights
// there is none: the user has chosen the clusters.
func (a *Application) AuctionTerms() (AuctionWhen, time.Duration) {
	when, patience := AuctionIfNeeded, DefaultAuctionTime
	if asked := a.Spec.Auction; asked != nil {
		when = cmp.Or(asked.When, when)
		if asked.Deadline != nil {
			patience = asked.Deadline.Duration
		}
	}
	if slices.ContainsFunc(a.Spec.Components, func(c ApplicationComponent) bool { return len(c.Weights) > 0 }) {
		when = AuctionNever
	}
	return when, patience
}

// AuctionPhase says whether offers still count.
// +kubebuilder:validation:Enum=Open;Closed
type AuctionPhase string

const (
	// AuctionOpen means that offers count.
	AuctionOpen AuctionPhase = "Open"
	// AuctionClosed means that no further offer counts.
	AuctionClosed AuctionPhase = "Closed"
)

// ApplicationAuction is an auction: who was asked, who has offered what, and who has won.
type ApplicationAuction struct {
	// round counts the auctions of the application.
	// +required
	Round int64 `json:"round"`

	// generation is that of the spec that offers were asked for.
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// startedAt is when clusters were asked.
	// +required
	StartedAt metav1.Time `json:"startedAt"`

	// deadline is until when offers count.
	// +required
	Deadline metav1.Time `json:"deadline"`

	// expirationTime is when the offers are forgotten: until then a winner that refuses is followed by the next, and after that another
	// auction may be held.
	// +required
	ExpirationTime metav1.Time `json:"expirationTime"`

	// nextTime is when the next auction is, if this one leads to no place, the spec stays as it is, and no cluster can be asked that was
	// not. Each such auction doubles the pause after the deadline, up to 10 minutes. It is missing once the application was placed: another
	// auction may be held after expirationTime then.
	// +optional
	NextTime *metav1.Time `json:"nextTime,omitempty"`

	// phase is Open while offers count, and Closed from then on.
	// +required
	Phase AuctionPhase `json:"phase"`

	// message says who has won and why, or why nobody has.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// offers are those of the peers that were asked, and of this cluster.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=101
	Offers []AuctionOffer `json:"offers,omitempty"`
}

// AuctionOffer is what one cluster has offered.
type AuctionOffer struct {
	// peer is whose cluster it is. It is empty for this cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=40
	Peer string `json:"peer,omitempty"`

	// broker is the Peer through which it was asked, if it is a Member and no peer yet. If it wins, it becomes one.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Broker string `json:"broker,omitempty"`

	// interest is how gladly it takes all of the application, up to 100. 0 means that it does not.
	// +optional
	Interest int32 `json:"interest,omitempty"`

	// price is what all of the application would cost there for an hour. It is missing if that is nothing.
	// +optional
	Price *OfferedPrice `json:"price,omitempty"`

	// components are the offers for those components that the cluster takes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=24
	Components []AuctionComponent `json:"components,omitempty"`

	// message says why there is no offer, or why it does not count.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`

	// won are the components for which the cluster was chosen.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=24
	// +kubebuilder:validation:items:MaxLength=63
	Won []string `json:"won,omitempty"`
}

// AuctionComponent is the offer for one component.
type AuctionComponent struct {
	// name is that of the component.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// interest is how gladly the cluster takes it, up to 100.
	// +required
	Interest int32 `json:"interest"`

	// price is what it would cost for an hour. It is missing if that is nothing.
	// +optional
	Price *OfferedPrice `json:"price,omitempty"`
}

// OfferedPrice is a Price in a list so long that the API server does not check each amount: who writes it has.
type OfferedPrice struct {
	// amount is how much.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Amount string `json:"amount"`

	// currency is the ISO 4217 code of the currency.
	// +required
	// +kubebuilder:validation:MaxLength=3
	Currency string `json:"currency"`
}
