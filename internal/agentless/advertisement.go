package agentless

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
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
	// accepted is the answer to it, as on a copy of what a peer has said.
	accepted metav1.Condition
	state    v1alpha1.AcknowledgementState
	again    time.Duration
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
		return f.nothing(v1alpha1.ReasonClusterIDMismatch, messageNamed, settings.Interval)
	case f.unknown != "":
		return f.nothing(v1alpha1.ReasonAgentless, f.unknown, settings.Interval)
	case f.offer == nil && f.held == nil:
		return f.nothing(v1alpha1.ReasonNoAdvertisement, messageUnanswered, lookSoon)
	case f.offer == nil && len(f.held.Spec.Availability) == 0:
		return f.nothing(v1alpha1.ReasonNoAdvertisement, messageUnanswered, lookSoon)
	case f.offer == nil:
		return f.silent()
	default:
		return f.answered(settings)
	}
}

// nothing has an empty advertisement say why there is no other.
func (f facts) nothing(reason, message string, again time.Duration) outcome {
	empty := &v1alpha1.AdvertisementSpec{
		ClusterID: f.peer.Spec.ClusterID, Availability: corev1.ResourceList{},
		Timestamp: metav1.NewTime(f.now.Truncate(time.Second)), TimeToLive: metav1.NewTime(f.now.Truncate(time.Second).Add(time.Second)),
	}
	if f.held != nil && len(f.held.Spec.Availability) == 0 {
		empty = &f.held.Spec
	}
	return outcome{
		spec: empty, accepted: no(v1alpha1.ConditionAccepted, reason, message), state: v1alpha1.AcknowledgementRefused, again: again,
	}
}

// silent is about a peer that does not answer: what it has offered stays until its time is over.
func (f facts) silent() outcome {
	o := outcome{spec: &f.held.Spec, again: lookSoon}
	if f.now.Before(f.held.Spec.TimeToLive.Time) {
		return f.judged(o)
	}
	o.state = v1alpha1.AcknowledgementRefused
	o.accepted = no(v1alpha1.ConditionAccepted, v1alpha1.ReasonExpired, messageExpired)
	return o
}

// answered is about a peer that has told what it has.
func (f facts) answered(settings Config) outcome {
	o := outcome{again: settings.Interval}
	// An offer is renewed after half the interval: after the whole one, it would be renewed one look later.
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
		return o
	}
	o.state = v1alpha1.AcknowledgementAccepted
	o.accepted = yes(v1alpha1.ConditionAccepted, v1alpha1.ReasonAccepted, messageUsed)
	return o
}

func yes(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

func no(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// annotationAccepted marks with "true" a copy of an advertisement whose spec was accepted.
const annotationAccepted = v1alpha1.AnnotationAccepted

// report writes what is not yet as it must be: the advertisement, and the answer to it.
func (o *Offerer) report(ctx context.Context, f facts, next outcome) error {
	ad, err := o.store(ctx, f, next)
	if err != nil {
		return err
	}
	return o.answer(ctx, ad, f, next)
}

// store makes the advertisement, or changes or deletes it if it must, and returns it as it now is; nil if there is none.
func (o *Offerer) store(ctx context.Context, f facts, next outcome) (*v1alpha1.Advertisement, error) {
	if next.spec == nil {
		if f.held == nil {
			return nil, nil
		}
		return nil, client.IgnoreNotFound(o.client.Delete(ctx, f.held))
	}
	ad := &v1alpha1.Advertisement{}
	if f.held != nil {
		ad = f.held.DeepCopy()
	}
	key := adKey(f.peer)
	ad.Namespace, ad.Name = key.Namespace, key.Name
	ad.Spec = *next.spec.DeepCopy()
	metav1.SetMetaDataLabel(&ad.ObjectMeta, v1alpha1.LabelPeer, f.peer.Name)
	metav1.SetMetaDataLabel(&ad.ObjectMeta, v1alpha1.LabelClusterID, f.peer.Spec.ClusterID)
	metav1.SetMetaDataAnnotation(&ad.ObjectMeta, exchange.AnnotationReceived, ad.Spec.Timestamp.UTC().Format(time.RFC3339))
	metav1.SetMetaDataAnnotation(&ad.ObjectMeta, annotationAccepted, "true")
	if err := controllerutil.SetOwnerReference(f.peer, ad, o.client.Scheme()); err != nil {
		return nil, fmt.Errorf("make Peer %s own its Advertisement: %w", f.peer.Name, err)
	}
	if f.held == nil {
		if err := o.client.Create(ctx, ad); err != nil {
			return nil, fmt.Errorf("create Advertisement %s: %w", key, err)
		}
		return ad, nil
	}
	if equality.Semantic.DeepEqual(f.held, ad) {
		return ad, nil
	}
	if err := o.client.Update(ctx, ad); err != nil {
		return nil, fmt.Errorf("update Advertisement %s: %w", key, err)
	}
	return ad, nil
}

// answer writes into the status what a receiver of the advertisement would.
func (o *Offerer) answer(ctx context.Context, ad *v1alpha1.Advertisement, f facts, next outcome) error {
	if ad == nil {
		return nil
	}
	status := ad.Status.DeepCopy()
	// How often the peer was looked at is worth no write of its own.
	ack := &v1alpha1.Acknowledgement{State: next.state, Reason: next.accepted.Reason, Message: next.accepted.Message}
	if known := status.Acknowledgement; known != nil {
		ack.Sequence = known.Sequence
	}
	ready := next.accepted
	ready.Type = v1alpha1.ConditionReady
	for _, c := range []metav1.Condition{next.accepted, ready} {
		c.LastTransitionTime = metav1.NewTime(f.now)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	status.Acknowledgement = ack
	if equality.Semantic.DeepEqual(ad.Status, *status) {
		return nil
	}
	ack.Sequence, status.ObservedGeneration = ad.Spec.Sequence, ad.Generation
	answered := ad.DeepCopy()
	answered.Status = *status
	if err := o.client.Status().Update(ctx, answered); err != nil {
		return fmt.Errorf("answer Advertisement %s: %w", client.ObjectKeyFromObject(ad), err)
	}
	return nil
}
