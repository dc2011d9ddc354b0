// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

// verdict is the answer to a message.
type verdict struct {
	state           v1alpha1.AcknowledgementState
	reason, message string
	corrections     []string
}

const (
	messageExpired = "The time to live of the advertisement has passed, or the peer has been silent for too long"
	messageStale   = "spec.sequence is lower than that of the advertisement before"
	messageLoop    = "The aggregated advertisement contains one that has passed this cluster before, or passed another twice, " +
		"or has come too far: the peer must leave that one out"
	messagePending                = "An administrator of the receiver has to decide, by kubectl hanse accept or refuse"
	messageRefusedByPolicy        = "A policy of the receiver refuses the advertisement"
	messageRefusedByAdministrator = "An administrator of the receiver refuses the advertisement"
	// Why is for the receiver's own administrator, and does not go to the provider.
	messagePolicyFailed = "The receiver's policies cannot be asked: `kubectl hanse status` there says why"
	messageMadeHere     = "The offer was made by this cluster itself, of what it can read of the peer's capacity"
	messageUnjudged     = "The advertisement was not judged yet"
	messageCorrected    = "The receiver uses the advertisement with the changes that acknowledgement.corrections names"
)

// maxMessage is the bound of messages of acknowledgements in the API.
const maxMessage = 1024

func refusal(reason, message string) verdict {
	return verdict{state: v1alpha1.AcknowledgementRefused, reason: reason, message: bounded(message)}
}

// corrected says so of an accepted message that is used with changes.
func (v verdict) corrected() verdict {
	if len(v.corrections) > 0 {
		v.reason = v1alpha1.ReasonCorrected
		v.message = bounded(withCause(messageCorrected, v.message))
	}
	return v
}

// event says it in words of an event, which the reason precedes.
func (v verdict) event() string {
	switch {
	case len(v.corrections) > 0:
		return bounded("The advertisement is used with changes: " + strings.Join(v.corrections, "; "))
	case v.state == v1alpha1.AcknowledgementAccepted:
		return bounded(withCause("The advertisement is used", v.message))
	default:
		return v.message
	}
}

func withCause(message, cause string) string {
	if cause == "" {
		return message
	}
	return message + ": " + cause
}

// bounded keeps a message within what a status can store.
func bounded(message string) string { return sanitize.Text(message, maxMessage) }

// reply is what the provider is told. It differs from what holds if it has said again what it has said before.
func (o outcome) reply() verdict {
	if o.replay != nil {
		return *o.replay
	}
	return o.verdict
}

// answered returns the status that carries the answer, for the provider's object or for the copy: the same text with the
// generation of each. A status that says it already is returned as it is, whatever messages came in meanwhile, unless
// one of them was full. How much of a resource is used instead of what was said may change with every message, which is not
// worth an answer of its own.
func answered(current v1alpha1.AdvertisementStatus, generation int64, v verdict, o outcome, now time.Time) v1alpha1.AdvertisementStatus {
	if said := current.Acknowledgement; said != nil && !exchange.SaidBefore(said.Sequence, o.fullSequence) {
		same := v
		if !o.again && slices.Equal(fieldsOf(said.Corrections), fieldsOf(v.corrections)) {
			same.corrections = said.Corrections
		}
		if equality.Semantic.DeepEqual(current, withAnswer(current, current.ObservedGeneration, said.Sequence, same, o, now)) {
			return current
		}
	}
	return withAnswer(current, generation, o.sequence, v, o, now)
}

//nolint:revive // what an answer consists of
func withAnswer(
	current v1alpha1.AdvertisementStatus, generation, sequence int64, v verdict, o outcome, now time.Time,
) v1alpha1.AdvertisementStatus {
	status := *current.DeepCopy()
	status.ObservedGeneration, status.Network = generation, o.network
	status.Acknowledgement = &v1alpha1.Acknowledgement{
		State: v.state, Reason: v.reason, Message: v.message, Corrections: v.corrections, Sequence: sequence,
	}
	for _, condition := range conditionsOf(o) {
		condition.ObservedGeneration, condition.LastTransitionTime = generation, metav1.NewTime(now)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	if o.verdict.reason != v1alpha1.ReasonClockSkew {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionClockSkew)
	}
	return status
}

// conditionsOf returns all conditions of an advertisement. ClockSkew is there only while the clocks differ.
func conditionsOf(o outcome) []metav1.Condition {
	accepted := acceptedCondition(o)
	accepted.Type = v1alpha1.ConditionAccepted
	ready := accepted
	ready.Type = v1alpha1.ConditionReady
	if o.verdict.reason != v1alpha1.ReasonClockSkew {
		return []metav1.Condition{accepted, ready}
	}
	return []metav1.Condition{accepted, ready, {
		Type: v1alpha1.ConditionClockSkew, Status: metav1.ConditionTrue, Reason: o.verdict.reason, Message: o.verdict.message,
	}}
}

// fieldsOf returns the names of the corrected fields, which stand first in each correction.
func fieldsOf(corrections []string) []string {
	fields := make([]string, 0, len(corrections))
	for _, correction := range corrections {
		field, _, _ := strings.Cut(correction, ": ")
		fields = append(fields, field)
	}
	return fields
}

// acceptedCondition says whether the spec of the copy is used, and if not, why.
func acceptedCondition(o outcome) metav1.Condition {
	status := metav1.ConditionFalse
	if o.inForce() {
		status = metav1.ConditionTrue
	} else if o.record.accepted && o.expires.IsZero() {
		return metav1.Condition{Status: status, Reason: v1alpha1.ReasonExpired, Message: messageExpired}
	}
	return metav1.Condition{Status: status, Reason: o.verdict.reason, Message: o.verdict.message}
}
