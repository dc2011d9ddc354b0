package session

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
)

// fieldOwner is who writes condition Session and status.session of Peers.
const fieldOwner = client.FieldOwner("hanse-session")

// maxMessage keeps a message, which may hold the words of others, within what the API takes comfortably.
const maxMessage = 1024

// report writes what was found into the status of the Peer, if it is not there already, and tells of a change.
func (c *Controller) report(ctx context.Context, seen *look) error {
	if !seen.peer.DeletionTimestamp.IsZero() && seen.holding == nil {
		return nil
	}
	want, sure := c.schedule.conditionOf(seen)
	if !sure {
		return nil
	}
	peer := seen.peer
	want.ObservedGeneration = peer.Generation
	want.LastTransitionTime = metav1.NewTime(seen.now)
	if len(want.Message) > maxMessage {
		want.Message = strings.ToValidUTF8(want.Message[:maxMessage], "")
	}
	said := meta.FindStatusCondition(peer.Status.Conditions, want.Type)
	expires := expiryOf(seen.holding)
	if said != nil && same(*said, want) && expires.Equal(expiresSaid(peer)) {
		return nil
	}
	if said != nil && said.Status == want.Status {
		want.LastTransitionTime = said.LastTransitionTime
	}
	ours := &v1alpha1.PeerStatus{Conditions: []metav1.Condition{want}, Session: statusOf(expires)}
	if err := local.ApplyStatus(ctx, c.client, fieldOwner, peer, ours); err != nil {
		return client.IgnoreNotFound(err)
	}
	c.announce(ctx, peer, said, want)
	return nil
}

// withdraw takes away what we have said of a peer that is no provider any more.
func (c *Controller) withdraw(ctx context.Context, peer *v1alpha1.Peer) error {
	if meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionSession) == nil && peer.Status.Session == nil {
		return nil
	}
	return client.IgnoreNotFound(local.ApplyStatus(ctx, c.client, fieldOwner, peer, &v1alpha1.PeerStatus{}))
}

func same(a, b metav1.Condition) bool {
	a.LastTransitionTime = b.LastTransitionTime
	return a == b
}

func statusOf(expires *metav1.Time) *v1alpha1.SessionStatus {
	if expires == nil {
		return nil
	}
	return &v1alpha1.SessionStatus{Expires: expires}
}

func expiresSaid(peer *v1alpha1.Peer) *metav1.Time {
	if peer.Status.Session == nil {
		return nil
	}
	return peer.Status.Session.Expires
}

// announce tells of a change: by an event to the user if something is amiss, by a line in the log to us.
func (c *Controller) announce(ctx context.Context, peer *v1alpha1.Peer, before *metav1.Condition, after metav1.Condition) {
	if before != nil && before.Status == after.Status && before.Reason == after.Reason {
		return
	}
	if after.Status == metav1.ConditionFalse && after.Reason != v1alpha1.ReasonNotInvited {
		c.recorder.Eventf(peer, nil, corev1.EventTypeWarning, after.Reason, "KeepSession", "%s", after.Message)
	}
	ctrl.LoggerFrom(ctx).Info("Session changed", "status", after.Status, "reason", after.Reason, "message", after.Message)
}
