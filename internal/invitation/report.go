package invitation

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
)

// report writes what was found into the status of the Peer, if it is not there already, and tells of a change.
func (c *Controller) report(ctx context.Context, f *facts) error {
	status := statusOf(f, metav1.NewTime(c.config.Clock.Now()))
	if equality.Semantic.DeepEqual(f.peer.Status, status) {
		return nil
	}
	ours := v1alpha1.PeerStatus{Invitation: status.Invitation}
	after := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionJoined)
	if after != nil {
		ours.Conditions = []metav1.Condition{*after}
	}
	if err := local.ApplyStatus(ctx, c.client, fieldOwner, f.peer, &ours); err != nil {
		return client.IgnoreNotFound(err)
	}
	if after != nil {
		c.announce(ctx, f, after)
	}
	return nil
}

func (c *Controller) applyClaim(ctx context.Context, claim *v1alpha1.PeeringClaim, status v1alpha1.PeeringClaimStatus) error {
	return local.ApplyStatus(ctx, c.client, fieldOwner, claim, &status)
}

// announce tells of a change of Joined: by an event to the user, by a line in the log to us.
func (c *Controller) announce(ctx context.Context, f *facts, after *metav1.Condition) {
	before := meta.FindStatusCondition(f.peer.Status.Conditions, v1alpha1.ConditionJoined)
	sameSerial := f.secret == nil || f.peer.Status.Invitation != nil && f.peer.Status.Invitation.Serial == f.serial()
	if before != nil && before.Status == after.Status && before.Reason == after.Reason && sameSerial {
		return
	}
	ctrl.LoggerFrom(ctx).Info("Peer changed", "joined", after.Status, "reason", after.Reason, "message", after.Message)
	quiet := []string{v1alpha1.ReasonPending, v1alpha1.ReasonNotInvited, v1alpha1.ReasonJoining}
	if slices.Contains(quiet, after.Reason) {
		return
	}
	kind := corev1.EventTypeWarning
	if after.Status == metav1.ConditionTrue || after.Reason == v1alpha1.ReasonInvited {
		kind = corev1.EventTypeNormal
	}
	c.recorder.Eventf(f.peer, nil, kind, after.Reason, "Invite", "%s", after.Message)
}
