// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/policy"
)

// facts are what was seen of a provider's advertisement.
type facts struct {
	peer *v1alpha1.Peer
	copy *v1alpha1.Advertisement // in our own cluster, nil if there is none
	link *peers.Link             // nil if there is none

	network *v1alpha1.Network // what the provider may know of ours, nil if that is not known

	synced     bool                       // the advertisements at the peer are known
	mirrorErr  error                      // why they may not be up to date
	raw        *unstructured.Unstructured // the advertisement at the peer to answer, nil if there is none
	offer      *v1alpha1.Advertisement    // the same, decoded, nil if that failed
	heldBack   time.Duration              // for how long a newer one is not looked at yet
	malformed  error                      // why that failed, or why there is no message to look at
	unstorable error                      // why our own cluster cannot store the copy
	withdrawn  bool                       // the peer's API server says that there is none

	arrived  time.Time        // when the offer came in for the first time, by our own clock
	screened exchange.Verdict // whether the offer is sound
	terms    string           // the fingerprint of the offer's terms; empty unless it is worth asking the policies about it
	answer   answer           // what they say about it
	again    bool             // they were asked about it before, and then changed
}

// outcome is what must be.
type outcome struct {
	spec   *v1alpha1.AdvertisementSpec // of the copy, nil if there cannot be one
	record record                      // of the copy

	verdict      verdict   // on the newest message
	replay       *verdict  // what to tell of a message that is older than one before, and so changes nothing
	sequence     int64     // of the newest message
	fullSequence int64     // of the newest that wants an answer
	expires      time.Time // when the spec of the copy ends unless it is renewed; zero if it has ended
	lapsed       bool      // the administrator's decision was on other terms
	taken        bool      // the newest message is used from now on
	again        bool      // the policies were asked again about the same message

	network *v1alpha1.Network // what goes with an answer that accepts: nothing where there is no gateway here
}

// inForce says whether the spec of the copy is used: it was accepted, and nothing speaks against it since.
func (o outcome) inForce() bool {
	return o.record.accepted && o.verdict.state == v1alpha1.AcknowledgementAccepted && !o.expires.IsZero()
}

// decide says what the copy and the answer must be. The spec of the copy is the newest one; only if that is refused, it is
// the one that was accepted last, for as long as that lasts.
func (c *Config) decide(f facts, now time.Time) outcome {
	o := outcome{again: f.again}
	if f.copy != nil {
		o.spec, o.record = &f.copy.Spec, recordOf(f.copy)
		o.sequence, o.fullSequence = f.copy.Spec.Sequence, f.copy.Spec.FullSequence
		if ack := f.copy.Status.Acknowledgement; ack != nil {
			o.sequence = later(o.sequence, ack.Sequence)
		}
	}
	switch {
	case f.withdrawn:
		return outcome{} // what was offered counts no more, nor what was said of it
	case f.malformed != nil:
		o.verdict = unusable(f.malformed)
	case f.offer != nil:
		o = c.weigh(o, f, now)
	case f.copy != nil:
		o.verdict = lastVerdict(f.copy, o.record)
	}
	o = c.expire(c.keepStorable(o, f), now)
	if o.inForce() && f.network != nil && f.network.Gateway != nil {
		o.network = f.network
	}
	if o.spec == nil && o.verdict.reason != "" {
		o.spec = emptyOffer(f.peer, now)
	}
	return o
}

// noOffer is an error of whoever makes offers for a peer that does not make them itself: nothing is known to be wrong with
// the peer, but there is no offer.
type noOffer interface {
	NoOffer() (reason, message string)
}

// isUnusable reports whether the error of a mirror says that there is a message, or ought to be, that it cannot show.
func isUnusable(err error) bool {
	var none noOffer
	return errors.Is(err, peers.ErrTooLarge) || errors.As(err, &none)
}

// unusable is the verdict on a message that cannot be read.
func unusable(err error) verdict {
	var none noOffer
	if errors.As(err, &none) {
		return refusal(none.NoOffer())
	}
	return refusal(v1alpha1.ReasonMalformed, err.Error())
}

// emptyOffer is held as long as there is nothing else to hold, so that its status can say what is wrong with the newest message.
func emptyOffer(peer *v1alpha1.Peer, now time.Time) *v1alpha1.AdvertisementSpec {
	made := now.Truncate(time.Second)
	return &v1alpha1.AdvertisementSpec{
		ClusterID: peer.Spec.ClusterID, Availability: corev1.ResourceList{},
		Timestamp: metav1.NewTime(made), TimeToLive: metav1.NewTime(made.Add(time.Second)),
	}
}

// weigh enters the newest message.
func (c *Config) weigh(o outcome, f facts, now time.Time) outcome {
	offer, screened := &f.offer.Spec, f.screened
	if screened.Reason == v1alpha1.ReasonStale {
		replay := refusal(screened.Reason, screened.Message)
		o.replay, o.verdict = &replay, lastVerdict(f.copy, o.record)
		return o
	}
	o.sequence, o.fullSequence = offer.Sequence, offer.FullSequence
	if !screened.Accepted {
		o.verdict = refusal(screened.Reason, screened.Message)
		return c.keepRefused(o, f, offer, now)
	}
	return c.admit(o, f, now)
}

// admit enters a message that is sound, so that policies and administrators decide.
func (c *Config) admit(o outcome, f facts, now time.Time) outcome {
	decision := ""
	if f.copy != nil {
		decision = f.copy.Annotations[v1alpha1.AnnotationDecision]
	}
	o.lapsed = decision != "" && o.record.terms != "" && o.record.terms != f.terms
	if o.lapsed {
		decision = ""
	}
	verdict := judgement(decision, f.answer)
	if verdict.reason == v1alpha1.ReasonPolicyFailed && f.copy != nil && o.record.accepted {
		if last := lastVerdict(f.copy, o.record); last.state == v1alpha1.AcknowledgementAccepted {
			o.verdict, o.lapsed = last, false // what is in use stays as it is until the policies can be asked again
			return o
		}
	}
	spec := f.offer.Spec.DeepCopy()
	if patch := f.answer.decision.Offer; patch != nil {
		verdict.corrections = patch.Apply(spec)
	}
	o.record.terms = f.terms
	if verdict.state != v1alpha1.AcknowledgementAccepted {
		verdict.corrections = nil // nothing is used
		o.verdict = verdict
		return c.keepUnused(o, f, spec, now)
	}
	o.verdict = verdict.corrected()
	o.taken = !o.record.accepted || exchange.SaidBefore(o.spec.Sequence, spec.Sequence)
	o.record, o.spec = o.record.take(f, true, o.spec), spec
	return o
}

// keepUnused keeps a pending message, corrected as it will be if it is accepted, so that an administrator sees what there
// is to decide. What was accepted before is only remembered then; if it is too large for that it is kept as if the
// message were refused, since policies must not lose sight of it.
func (c *Config) keepUnused(o outcome, f facts, spec *v1alpha1.AdvertisementSpec, now time.Time) outcome {
	remembered := !o.record.accepted
	if !remembered {
		_, remembered = previousText(o.spec)
	}
	if o.verdict.state != v1alpha1.AcknowledgementPending || !remembered {
		return c.keepRefused(o, f, spec, now)
	}
	o.record, o.spec = o.record.take(f, false, o.spec), spec
	return o
}

// keepRefused keeps what was accepted before for as long as that lasts, and else the newest message, so that an
// administrator can see it. What another cluster says is not kept as this one's.
func (c *Config) keepRefused(o outcome, f facts, spec *v1alpha1.AdvertisementSpec, now time.Time) outcome {
	ours := spec.ClusterID == f.peer.Spec.ClusterID
	if !ours || o.record.accepted && c.end(o).After(now) {
		return o
	}
	o.record, o.spec = o.record.take(f, false, o.spec), spec
	return o
}

// keepStorable leaves the copy as it is if our own cluster refuses to store another.
func (c *Config) keepStorable(o outcome, f facts) outcome {
	if f.unstorable == nil {
		return o
	}
	o.spec, o.record, o.taken, o.lapsed = nil, record{}, false, false
	if f.copy != nil {
		o.spec, o.record = &f.copy.Spec, recordOf(f.copy)
	}
	if o.verdict.state != v1alpha1.AcknowledgementRefused {
		o.verdict = refusal(v1alpha1.ReasonMalformed, f.unstorable.Error())
	}
	return o
}

// screen says whether the message is sound. Its times are judged as of when it came in: later, they say something else.
func (c *Config) screen(f facts) exchange.Verdict {
	offer, clusterID, last := &f.offer.Spec, f.peer.Spec.ClusterID, lastSequence(f)
	unused := f.copy != nil && !recordOf(f.copy).accepted
	if unused && offer.ClusterID == clusterID && exchange.SaidBefore(offer.Sequence, last) {
		return exchange.Verdict{Reason: v1alpha1.ReasonStale, Message: messageStale}
	}
	previous := previousOf(f.copy)
	if previous != nil {
		previous = previous.DeepCopy()
		previous.Sequence = last
	}
	verdict := exchange.Judge(offer, c.Bounds, clusterID, previous, f.arrived)
	if verdict.Accepted && exchange.Loops(offer, c.ClusterID) {
		return exchange.Verdict{Reason: v1alpha1.ReasonLoop, Message: messageLoop}
	}
	return verdict
}

// lastSequence returns the sequence that the newest message must not be behind. One of an object that was made anew begins
// anew: a sequence that was far ahead, by a wrong clock or by hand, ends with the object that has it.
func lastSequence(f facts) int64 {
	if f.copy == nil || recordOf(f.copy).origin != f.offer.UID {
		return f.offer.Spec.Sequence
	}
	return f.copy.Spec.Sequence
}

// later returns the sequence that was said later.
func later(a, b int64) int64 {
	if exchange.SaidBefore(a, b) {
		return b
	}
	return a
}

// judgement is what policies and administrators say. An administrator can refuse what the policies allow, but allow only
// what they leave open.
func judgement(decision string, a answer) verdict {
	if decision == v1alpha1.DecisionRefuse {
		return refusal(v1alpha1.ReasonRefusedByAdministrator, messageRefusedByAdministrator)
	}
	if a.err != nil {
		return refusal(v1alpha1.ReasonPolicyFailed, messagePolicyFailed)
	}
	accepted := verdict{state: v1alpha1.AcknowledgementAccepted, message: bounded(a.decision.Reason)}
	switch a.decision.Outcome {
	case policy.Allow:
		accepted.reason = v1alpha1.ReasonAccepted
		return accepted
	case policy.Pend:
		if decision == v1alpha1.DecisionAccept {
			accepted.reason = v1alpha1.ReasonApproved
			return accepted
		}
		return verdict{
			state: v1alpha1.AcknowledgementPending, reason: v1alpha1.ReasonPendingApproval,
			message: bounded(withCause(messagePending, a.decision.Reason)),
		}
	case policy.Deny:
		return refusal(v1alpha1.ReasonRefusedByPolicy, withCause(messageRefusedByPolicy, a.decision.Reason))
	default:
		return refusal(v1alpha1.ReasonPolicyFailed, messagePolicyFailed)
	}
}

// lastVerdict stands while there is nothing new to judge.
func lastVerdict(held *v1alpha1.Advertisement, r record) verdict {
	ack := held.Status.Acknowledgement
	switch {
	case r.accepted && ack == nil:
		return verdict{state: v1alpha1.AcknowledgementAccepted, reason: v1alpha1.ReasonAccepted}
	case ack == nil, ack.State == v1alpha1.AcknowledgementAccepted && !r.accepted:
		// A peer that is our consumer too could write into this status, but not into the record.
		return verdict{state: v1alpha1.AcknowledgementPending, reason: v1alpha1.ReasonPending, message: messageUnjudged}
	default:
		return verdict{state: ack.State, reason: ack.Reason, message: ack.Message, corrections: ack.Corrections}
	}
}

// end is when the spec of the copy ends, by our own clock and by when we heard from the provider. Of one that is not used
// only silence counts: its own times may be what is wrong with it.
func (c *Config) end(o outcome) time.Time {
	silent := o.record.received.Add(c.SilenceTimeout)
	if ends := o.spec.TimeToLive.Time; o.record.accepted && ends.Before(silent) {
		return ends
	}
	return silent
}

func (c *Config) expire(o outcome, now time.Time) outcome {
	if !o.record.heard() {
		return o
	}
	if end := c.end(o); end.After(now) {
		o.expires = end
		return o
	}
	if o.verdict.state == v1alpha1.AcknowledgementAccepted || !o.record.accepted {
		o.verdict = refusal(v1alpha1.ReasonExpired, messageExpired)
	}
	return o
}
