package advertisement

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/peers"
)

// answered returns the status that carries the answer, for the provider's object or for the copy: the same text with the
// generation of each. A status that says it already is returned as it is, whatever messages came in meanwhile, unless
// one of them was full.
func answered(current v1alpha1.AdvertisementStatus, generation int64, o outcome, now time.Time) v1alpha1.AdvertisementStatus {
	ack := acknowledgement(o)
	condition := acceptedCondition(o)
	if says(current, ack, condition, o) {
		return current
	}
	status := *current.DeepCopy()
	status.Acknowledgement = ack
	status.ObservedGeneration = generation
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady} {
		condition.Type, condition.ObservedGeneration, condition.LastTransitionTime = kind, generation, metav1.NewTime(now)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

func says(status v1alpha1.AdvertisementStatus, ack *v1alpha1.Acknowledgement, condition metav1.Condition, o outcome) bool {
	said := status.Acknowledgement
	if said == nil || said.State != ack.State || said.Reason != ack.Reason || said.Message != ack.Message {
		return false
	}
	if o.verdict.Accepted && said.Sequence < o.record.fullSequence {
		return false
	}
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady} {
		if !saysCondition(meta.FindStatusCondition(status.Conditions, kind), condition) {
			return false
		}
	}
	return true
}

func saysCondition(said *metav1.Condition, want metav1.Condition) bool {
	return said != nil && said.Status == want.Status && said.Reason == want.Reason && said.Message == want.Message
}

// acknowledgement is the answer to the newest message.
func acknowledgement(o outcome) *v1alpha1.Acknowledgement {
	ack := &v1alpha1.Acknowledgement{
		State:    v1alpha1.AcknowledgementRefused,
		Reason:   o.verdict.Reason,
		Message:  o.verdict.Message,
		Sequence: o.sequence,
	}
	if o.verdict.Accepted {
		ack.State = v1alpha1.AcknowledgementAccepted
	}
	return ack
}

// acceptedCondition says whether the spec that is kept is used. It may be while a newer message was refused.
func acceptedCondition(o outcome) metav1.Condition {
	switch {
	case o.inForce && !o.verdict.Accepted:
		return metav1.Condition{
			Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted,
			Message: bounded("The newest message was refused, the one before stays in use: " + o.verdict.Message),
		}
	case o.inForce:
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted}
	case o.record.accepted():
		return metav1.Condition{
			Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonExpired,
			Message: messageExpired,
		}
	default:
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: o.verdict.Reason, Message: o.verdict.Message}
	}
}

// closedMessages say why an offer in force is for no more pods.
var closedMessages = map[v1alpha1.OfferPhase]string{
	v1alpha1.OfferCordoned: "The peer takes no more pods",
	v1alpha1.OfferDraining: "The peer takes no more pods and asks us to move away those that it has",
	v1alpha1.OfferLeaving:  "The peer parts from us",
}

// advertised is the condition of the Peer.
func advertised(f facts, o outcome) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionAdvertised, Status: metav1.ConditionFalse, ObservedGeneration: f.peer.Generation,
		Reason: v1alpha1.ReasonNoAdvertisement,
	}
	unreadable := errors.Is(f.mirrorErr, peers.ErrTooLarge) || errors.Is(f.mirrorErr, peers.ErrMalformed)
	switch {
	case f.self:
		c.Reason, c.Message = v1alpha1.ReasonClusterIDMismatch, "The peer has the id of this very cluster"
	case o.verdict.Reason == v1alpha1.ReasonMalformed:
		c.Reason, c.Message = v1alpha1.ReasonMalformed, o.verdict.Message
	case unreadable:
		c.Reason, c.Message = v1alpha1.ReasonMalformed, bounded(f.mirrorErr.Error())
	case o.verdict.Reason != "":
		of := acceptedCondition(o)
		c.Status, c.Reason, c.Message = of.Status, of.Reason, of.Message
		if o.inForce && c.Message == "" {
			c.Message = closedMessages[exchange.Phase(o.spec)]
		}
	case f.link == nil:
		c.Message = "There is no link to the peer: see condition Reachable"
	case !f.synced:
		c.Message = "The peer's advertisement was not read yet"
	default:
		c.Message = "The peer does not advertise anything to this cluster"
	}
	return c
}
