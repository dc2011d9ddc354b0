// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// MaxAccountEntries is how many entries a count has at most: those of further applications are added up, see OtherApplications.
	MaxAccountEntries = 32
	// MaxAccountResources is how many resources are counted for each application.
	MaxAccountResources = 8
	// OtherApplications is the application of the entry that sums up those that have none of their own.
	OtherApplications = "*"
	// AccountRetention is for how long an Account is kept.
	AccountRetention = 90 * 24 * time.Hour
)

// AccountDirection says who used whose resources. It is how the name of an Account begins.
type AccountDirection string

const (
	// AccountLent is of what the peer has used here.
	AccountLent AccountDirection = "lent"
	// AccountBorrowed is of what this cluster has used at the peer.
	AccountBorrowed AccountDirection = "borrowed"
)

// Decimal is a number that is not negative, as plain decimal digits, such as 12.75.
// +kubebuilder:validation:MaxLength=22
// +kubebuilder:validation:Pattern=`^(0|[1-9][0-9]{0,11})(\.[0-9]{1,9})?$`
type Decimal string

// AccountSpec is what the consumer has used by its own count.
type AccountSpec struct {
	AccountCount `json:",inline"`
}

// AccountCount is what one side has counted of a day.
type AccountCount struct {
	// countedUntil is the end of what is counted. What is used after it is added later.
	// +optional
	CountedUntil *metav1.Time `json:"countedUntil,omitempty"`

	// entries are what was used, for each application and currency. What is in more than 28 is added up in one of application "*" for each currency.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Entries []AccountEntry `json:"entries,omitempty"`

	// signed is how the cluster that has counted has signed countedUntil and entries, for the other one. Without it, or if it is signed
	// by another key than the one that is pinned for that cluster, the other one does not take this for its count.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.statement.size() <= 1024",message="the statement has at most 1024 characters"
	Signed *SignedStatement `json:"signed,omitempty"`
}

// AccountEntry is what one application has used.
type AccountEntry struct {
	// application is the name of the application in the Request by which room was reserved, such as shop/web. It is empty for pods that
	// name no Request, and "*" for all applications that have no entry of their own.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-./a-z0-9]*[a-z0-9])?|[*])?$`
	Application string `json:"application,omitempty"`

	// currency is the ISO 4217 code of the currency of cost. It is empty for what was free.
	// +optional
	// +kubebuilder:validation:MaxLength=3
	// +kubebuilder:validation:Pattern=`^([A-Z]{3})?$`
	Currency string `json:"currency,omitempty"`

	// used is what the pods have held, in unit hours: core hours of cpu, hours of one Gi of what is counted in bytes such as memory,
	// and hours of one of anything else, such as pods. A pod holds what it requests, from its status.startTime until it has ended.
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.size() <= 100)",message="the name of a resource has at most 100 characters"
	Used map[corev1.ResourceName]Decimal `json:"used,omitempty"`

	// reserved is what was reserved, be it used or not, in the same units.
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.size() <= 100)",message="the name of a resource has at most 100 characters"
	Reserved map[corev1.ResourceName]Decimal `json:"reserved,omitempty"`

	// cost is what it costs: what is reserved at the price that was agreed, used or not, and what is used beyond that at the price of
	// the advertisement at that time. It is empty if it costs nothing. The prices of images are not in it.
	// +optional
	Cost Decimal `json:"cost,omitempty"`
}

// AccountStatus is what the provider has counted, and whether the two agree.
type AccountStatus struct {
	// conditions: Agreed (consumer and provider have counted the same, but for 2 % or 0.02 unit hours of each resource, and for 2 % or
	// 0.01 of the cost; Unknown while one of them has not counted, or has not signed its count) and Ready (the same).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	AccountCount `json:",inline"`
}

// Account is what one cluster has used of another on one day (UTC), as each of the two has counted it: the consumer in the spec, the
// provider in the status. Its name is lent-DATE for what the peer, whose tenant namespace it lies in, has used here, and borrowed-DATE
// for what this cluster has used at the peer. The provider's own one is lent-DATE, into whose spec the consumer writes its claim; the
// consumer's is a borrowed-DATE with a copy of what the provider says. Nobody pays anything by it, and it is removed after 90 days.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hacc,categories=hanse
// +kubebuilder:printcolumn:name="Agreed",type=string,JSONPath=`.status.conditions[?(@.type=="Agreed")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Agreed")].reason`
// +kubebuilder:printcolumn:name="Consumer Until",type=string,JSONPath=`.spec.countedUntil`
// +kubebuilder:printcolumn:name="Provider Until",type=string,JSONPath=`.status.countedUntil`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^(lent|borrowed)-[0-9]{4}-[0-9]{2}-[0-9]{2}$')",message="the name of an Account is lent or borrowed, and the day, such as lent-2026-11-26"
type Account struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the consumer has counted.
	// +optional
	// +structType=atomic
	Spec AccountSpec `json:"spec,omitempty"`
	// status is what the provider has counted, and whether they agree.
	// +optional
	// +structType=atomic
	Status AccountStatus `json:"status,omitempty"`
}

// AccountName is the name of the Account of the day that the moment is in.
func AccountName(direction AccountDirection, at time.Time) string {
	return string(direction) + "-" + at.UTC().Format(time.DateOnly)
}

// Direction says who used whose resources.
func (a *Account) Direction() AccountDirection {
	for _, direction := range []AccountDirection{AccountLent, AccountBorrowed} {
		if _, err := time.Parse(string(direction)+"-"+time.DateOnly, a.Name); err == nil {
			return direction
		}
	}
	return ""
}

// Day is when the day of the Account begins, and zero if its name tells of none.
func (a *Account) Day() time.Time {
	day, err := time.Parse(string(a.Direction())+"-"+time.DateOnly, a.Name)
	if err != nil {
		return time.Time{}
	}
	return day
}

// Own is what this cluster has counted.
func (a *Account) Own() *AccountCount {
	if a.Direction() == AccountLent {
		return &a.Status.AccountCount
	}
	return &a.Spec.AccountCount
}

// Peers is what the peer says that it has counted.
func (a *Account) Peers() *AccountCount {
	if a.Direction() == AccountLent {
		return &a.Spec.AccountCount
	}
	return &a.Status.AccountCount
}

// AccountList is a list of accounts.
// +kubebuilder:object:root=true
type AccountList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Account `json:"items"`
}
