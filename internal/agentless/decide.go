package agentless

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// facts are what the offer of one peer rests on.
type facts struct {
	peer *v1alpha1.Peer
	id   string                  // that the peer must have
	held *v1alpha1.Advertisement // nil if there is none
	now  time.Time

	offer   *v1alpha1.AdvertisementSpec // what the peer has, without times; nil if that is not known
	unknown string                      // why it is not known, though the peer answers
	unread  error                       // why the peer could not be asked
}

// outcome is what to do about the offer of one peer.
type outcome struct {
	spec *v1alpha1.AdvertisementSpec // nil for no advertisement
	// accepted is the answer to it, as on a copy of what a peer has said; Advertised the condition of the Peer.
	accepted, advertised metav1.Condition
	state                v1alpha1.AcknowledgementState
	again                time.Duration
}

const (
	messageUsed       = "The offer was made by this cluster itself, of what it can read of the peer's capacity"
	messageRefused    = "An administrator refuses the offer"
	messageExpired    = "The peer has not answered for too long"
	messageUnanswered = "The peer's capacity could not be read: see the conditions Reachable and Authenticated"
	messageNamed      = "spec.clusterID is set. A cluster without Hanse has no id, and gets one from Hanse: make the Peer anew without it"
)

// decide says what the advertisement is to be.
func decide(f facts, settings Config) outcome {
	switch {
	case f.peer.Spec.ClusterID != f.id:
		// Two homes that call a cluster the same would take each other's pods there for their own.
		return nothing(v1alpha1.ReasonClusterIDMismatch, messageNamed, settings.Interval)
	case f.unknown != "":
		return nothing(v1alpha1.ReasonAgentless, f.unknown, settings.Interval)
	case f.offer == nil && f.held == nil:
		return nothing(v1alpha1.ReasonNoAdvertisement, messageUnanswered, lookSoon)
	case f.offer == nil:
		return f.silent()
	default:
		return f.answered(settings)
	}
}

func nothing(reason, message string, again time.Duration) outcome {
	return outcome{advertised: no(v1alpha1.ConditionAdvertised, reason, message), again: again}
}

// silent is about a peer that does not answer: what it has offered stays until its time is over.
func (f facts) silent() outcome {
	o := outcome{spec: &f.held.Spec, again: lookSoon}
	if f.now.Before(f.held.Spec.TimeToLive.Time) {
		return f.judged(o)
	}
	o.state = v1alpha1.AcknowledgementRefused
	o.accepted = no(v1alpha1.ConditionAccepted, v1alpha1.ReasonExpired, messageExpired)
	o.advertised = no(v1alpha1.ConditionAdvertised, v1alpha1.ReasonExpired, messageExpired)
	return o
}

// answered is about a peer that has told what it has.
func (f facts) answered(settings Config) outcome {
	o := outcome{again: settings.Interval}
	// Whoever waits for the whole interval is late: the offer would be said again one look later.
	if f.held != nil && said(&f.held.Spec, f.offer, f.now, settings.Interval/2) {
		o.spec = &f.held.Spec
		return f.judged(o)
	}
	o.spec = f.offer.DeepCopy()
	o.spec.Timestamp = metav1.NewTime(f.now.Truncate(time.Second))
	o.spec.TimeToLive = metav1.NewTime(f.now.Truncate(time.Second).Add(settings.TimeToLive))
	o.spec.Sequence = 1
	if f.held != nil {
		o.spec.Sequence = f.held.Spec.Sequence + 1
	}
	o.spec.FullSequence = o.spec.Sequence
	return f.judged(o)
}

// judged answers the offer: an administrator may refuse it.
func (f facts) judged(o outcome) outcome {
	if f.held != nil && f.held.Annotations[v1alpha1.AnnotationDecision] == v1alpha1.DecisionRefuse {
		o.state = v1alpha1.AcknowledgementRefused
		o.accepted = no(v1alpha1.ConditionAccepted, v1alpha1.ReasonRefusedByAdministrator, messageRefused)
		o.advertised = no(v1alpha1.ConditionAdvertised, v1alpha1.ReasonRefusedByAdministrator, messageRefused)
		return o
	}
	o.state = v1alpha1.AcknowledgementAccepted
	o.accepted = yes(v1alpha1.ConditionAccepted, v1alpha1.ReasonAccepted, messageUsed)
	o.advertised = yes(v1alpha1.ConditionAdvertised, v1alpha1.ReasonAccepted, messageUsed)
	return o
}

func yes(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

func no(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}
