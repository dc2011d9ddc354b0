package advertisement

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// facts are what was seen of a provider's advertisement.
type facts struct {
	peer *v1alpha1.Peer
	copy *v1alpha1.Advertisement // in our own cluster, nil if there is none
	self bool                    // the peer has the id of this very cluster
	link Link                    // nil if there is none

	synced    bool                       // the advertisements over there are known
	mirrorErr error                      // why they may not be up to date
	raw       *unstructured.Unstructured // the advertisement over there, nil if there is none
	offer     *v1alpha1.Advertisement    // the same, decoded, nil if that failed
	malformed error                      // why it failed, or why our own cluster cannot store it
	withdrawn bool                       // the API server over there says that there is none
}

// outcome is what must be.
type outcome struct {
	spec     *v1alpha1.AdvertisementSpec // of the copy, nil if there cannot be one
	record   record                      // of the copy
	verdict  exchange.Verdict            // on the newest message
	inForce  bool                        // the spec was accepted and is current
	expires  time.Time                   // when it ends unless it is renewed; zero if it is not in force
	sequence int64                       // of the newest message
	accepted bool                        // the newest message was accepted, and was not before
}

// decide says what the copy and the answer must be. The spec of the copy is the one that was accepted last, or the
// refused one if there never was another.
func (s settings) decide(f facts, now time.Time) outcome {
	o := outcome{}
	if f.copy != nil {
		o.spec, o.record, o.sequence = &f.copy.Spec, recordOf(f.copy), f.copy.Spec.Sequence
	}
	switch {
	case f.withdrawn:
		o.record = record{}
		o.verdict = exchange.Verdict{Reason: v1alpha1.ReasonNoAdvertisement, Message: "The peer has withdrawn its advertisement"}
		return o
	case f.malformed != nil:
		o.verdict = exchange.Verdict{Reason: v1alpha1.ReasonMalformed, Message: bounded(f.malformed.Error())}
	case f.offer != nil:
		o = s.judge(o, &f.offer.Spec, f.peer.Spec.ClusterID, now)
	case f.copy != nil:
		o.verdict = lastVerdict(f.copy, o.record)
	}
	return s.expire(o, now)
}

func (s settings) judge(o outcome, offer *v1alpha1.AdvertisementSpec, clusterID string, now time.Time) outcome {
	var previous *v1alpha1.AdvertisementSpec
	if o.record.accepted() {
		previous = o.spec
	}
	o.sequence = offer.Sequence
	o.verdict = exchange.Judge(offer, s.bounds, clusterID, previous, now)
	switch {
	case o.verdict.Accepted:
		o.accepted = previous == nil || offer.Sequence > previous.Sequence
		o.record = o.record.take(previous, offer, now)
		o.spec = offer
	case previous == nil && offer.ClusterID == clusterID:
		o.spec = offer // what another cluster says is not kept as this one's
	}
	return o
}

// lastVerdict stands while the peer cannot be heard.
func lastVerdict(held *v1alpha1.Advertisement, r record) exchange.Verdict {
	ack := held.Status.Acknowledgement
	if ack != nil {
		return exchange.Verdict{
			Accepted: ack.State == v1alpha1.AcknowledgementAccepted, Reason: ack.Reason, Message: ack.Message,
		}
	}
	if r.accepted() {
		return exchange.Verdict{Accepted: true, Reason: v1alpha1.ReasonAccepted}
	}
	return exchange.Verdict{Reason: v1alpha1.ReasonPending, Message: "The advertisement was not judged yet"}
}

// expire judges by our own clock, and by when we heard from the provider.
func (s settings) expire(o outcome, now time.Time) outcome {
	if !o.record.accepted() {
		return o
	}
	expires := o.spec.TimeToLive.Time
	if silent := o.record.received.Add(s.helloTimeout); silent.Before(expires) {
		expires = silent
	}
	if expires.After(now) {
		o.inForce, o.expires = true, expires
		return o
	}
	if o.verdict.Accepted {
		o.verdict = exchange.Verdict{Reason: v1alpha1.ReasonExpired, Message: messageExpired}
	}
	return o
}

// settings are those of decide.
type settings struct {
	bounds       exchange.Bounds
	helloTimeout time.Duration
}

const (
	messageExpired = "The time to live of the advertisement has passed, or the peer has been silent for too long"
	maxMessage     = 1024
)

// bounded keeps a message within what a status can store.
func bounded(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return message[:maxMessage-3] + "..."
}
