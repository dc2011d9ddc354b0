package peering

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
)

// ownConditions are those of a Peer that this package writes.
var ownConditions = []string{
	v1alpha1.ConditionReachable, v1alpha1.ConditionAuthenticated, v1alpha1.ConditionCompatible, v1alpha1.ConditionConnected,
	v1alpha1.ConditionReady,
}

// report writes what was found into the status of the Peer, if it is not there already, and tells of a change of Ready.
func (c *Controller) report(ctx context.Context, peer *v1alpha1.Peer, f *facts) error {
	status := statusOf(peer, f, metav1.NewTime(c.config.Clock.Now()))
	if equality.Semantic.DeepEqual(peer.Status, status) {
		return nil
	}
	if err := c.apply(ctx, peer, status); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionReady)
	c.announce(ctx, peer, before, meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady))
	return nil
}

// statusOf returns the whole status of the Peer: what is ours anew, what is others' as it is.
func statusOf(peer *v1alpha1.Peer, f *facts, now metav1.Time) v1alpha1.PeerStatus {
	status := *peer.Status.DeepCopy()
	status.ObservedGeneration = peer.Generation
	for _, found := range conditionsOf(peer, f) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: found.kind, Status: found.status, Reason: found.reason, Message: shorten(found.message),
			ObservedGeneration: peer.Generation, LastTransitionTime: now,
		})
	}
	if f.waitsFor.stands() {
		return status
	}
	status.RemappedPodCIDR = ""
	if f.addresses.cidr.IsValid() {
		status.RemappedPodCIDR = f.addresses.cidr.String()
	}
	if theirs, known := theirSoftware(peer, f); known {
		status.Version = theirs.version
	}
	f.probe.show(&status)
	f.probe.bandwidth.show(&status)
	return status
}

// shorten keeps a message, which may hold the words of others, within what the API takes comfortably.
func shorten(message string) string {
	const limit = 1024
	if len(message) <= limit {
		return message
	}
	return strings.ToValidUTF8(message[:limit], "")
}

// apply writes the part of the status that is ours.
func (c *Controller) apply(ctx context.Context, peer *v1alpha1.Peer, status v1alpha1.PeerStatus) error {
	ours := v1alpha1.PeerStatus{
		ObservedGeneration: status.ObservedGeneration,
		Version:            status.Version,
		RemappedPodCIDR:    status.RemappedPodCIDR,
		RoundTripTime:      status.RoundTripTime,
		RoundTripDeviation: status.RoundTripDeviation,
		Bandwidth:          status.Bandwidth,
	}
	for _, found := range status.Conditions {
		if slices.Contains(ownConditions, found.Type) {
			ours.Conditions = append(ours.Conditions, found)
		}
	}
	return local.ApplyStatus(ctx, c.client, fieldOwner, peer, &ours)
}

// announce tells of a change of Ready: by an event to the user, by a line in the log to us.
func (c *Controller) announce(ctx context.Context, peer *v1alpha1.Peer, before, after *metav1.Condition) {
	if before != nil && before.Status == after.Status && before.Reason == after.Reason {
		return
	}
	kind := corev1.EventTypeWarning
	if after.Status == metav1.ConditionTrue || after.Reason == v1alpha1.ReasonPending {
		kind = corev1.EventTypeNormal
	}
	c.recorder.Eventf(peer, nil, kind, after.Reason, "CheckPeer", "%s", after.Message)
	ctrl.LoggerFrom(ctx).Info("Peer changed", "ready", after.Status, "reason", after.Reason, "message", after.Message)
}
