// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// open says whether something is to be decided.
func (f *requestFacts) open() bool { return f.unanswered() || f.ends() }

// unanswered says whether there is a version of the Request that has no answer yet.
func (f *requestFacts) unanswered() bool {
	status := &f.asked.Status
	return status.ObservedGeneration != f.asked.Generation || status.Phase == "" || status.Phase == v1alpha1.RequestPending
}

// ends says whether what was acknowledged is to be given back: its time is over, or the peer is no consumer any more.
func (f *requestFacts) ends() bool {
	status := &f.asked.Status
	over := status.ValidUntil == nil || !status.ValidUntil.After(f.now)
	return status.Phase == v1alpha1.RequestAcknowledged && (over || f.parted())
}

func (f *requestFacts) parted() bool {
	return f.who.parted()
}

// requestAnswer is the status that a Request is to have.
type requestAnswer struct {
	*requestFacts

	status  v1alpha1.RequestStatus
	decided bool          // whether something was decided that is to be signed
	retry   time.Duration // when to try again to find an answer
}

func answerTo(seen *requestFacts) *requestAnswer {
	return &requestAnswer{requestFacts: seen, status: *seen.asked.Status.DeepCopy()}
}

// acknowledge puts on record what is reserved.
func (a *requestAnswer) acknowledge(reserved corev1.ResourceList, price *v1alpha1.Price) {
	a.status.Phase, a.status.ObservedGeneration, a.decided = v1alpha1.RequestAcknowledged, a.asked.Generation, true
	a.status.Reserved, a.status.Price = reserved, price
	a.status.ValidUntil = a.asked.Spec.ExpirationTime.DeepCopy()
	const message = "What the Request asks for is reserved until status.validUntil, for pods that name it"
	a.set(v1alpha1.ConditionAcknowledged, metav1.ConditionTrue, v1alpha1.ReasonReserved, message)
	a.set(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReserved, message)
}

// refuse puts on record what stands against the Request. What was acknowledged before stays. A refusal that is not for good is no
// answer yet.
func (a *requestAnswer) refuse(left *refusal) {
	message := left.message
	reserved := a.status.Phase == v1alpha1.RequestAcknowledged
	switch {
	case reserved:
		message += ". What was acknowledged before stays reserved"
	case left.again > 0:
		a.status.Phase = v1alpha1.RequestPending
	default:
		a.status.Phase = v1alpha1.RequestRefused
	}
	if left.again == 0 {
		a.status.ObservedGeneration, a.decided = a.asked.Generation, true
	}
	a.retry = left.again
	a.set(v1alpha1.ConditionAcknowledged, metav1.ConditionFalse, left.reason, message)
	if !reserved {
		a.empty(left.reason, message)
	}
}

// expire puts on record that the reservation has ended.
func (a *requestAnswer) expire() {
	a.status.Phase, a.decided = v1alpha1.RequestExpired, true
	reason, message := v1alpha1.ReasonExpired, "The time of the reservation is over: its pods run on, and others may take what they leave. "+
		"To reserve the room again, move spec.expirationTime on"
	if a.parted() {
		reason, message = v1alpha1.ReasonParting, "The provider is parting from this cluster"
	}
	a.set(v1alpha1.ConditionAcknowledged, metav1.ConditionFalse, reason, message)
	a.empty(reason, message)
}

func (a *requestAnswer) empty(reason, message string) {
	a.status.Reserved, a.status.Price = nil, nil
	a.set(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message)
}

func (a *requestAnswer) set(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&a.status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: a.asked.Generation, LastTransitionTime: metav1.NewTime(a.now),
	})
}

// again is when to look at the Request again: when its time is over, or when to look for an answer.
func (a *requestAnswer) again() time.Duration {
	if a.status.Phase != v1alpha1.RequestAcknowledged {
		return a.retry
	}
	return sooner(a.retry, a.status.ValidUntil.Sub(a.now))
}
