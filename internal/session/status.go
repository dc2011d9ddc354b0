package session

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// conditionOf is condition Session of the Peer, or false if nothing can be said now that was not said before.
func (s schedule) conditionOf(seen *look) (metav1.Condition, bool) {
	h := seen.holding
	switch {
	case !seen.ready:
		return session(metav1.ConditionUnknown, v1alpha1.ReasonPending, "Namespace "+
			v1alpha1.TenantNamespace(seen.peer.Name)+" is not ready: see condition Ready"), true
	case seen.joining.stage == failed, seen.joining.stage == refused:
		return session(metav1.ConditionFalse, seen.joining.reason, seen.joining.message), true
	case seen.joining.stage == waiting && (!h.kept() || seen.renewal.reason == v1alpha1.ReasonUnauthorized || h.from(seen.offer.invitation.ID)):
		return session(metav1.ConditionUnknown, seen.joining.reason, seen.joining.message), true
	case h == nil:
		return session(metav1.ConditionFalse, v1alpha1.ReasonNotInvited, "This cluster has not joined the peer: run `kubectl "+
			"hanse invite` there and `kubectl hanse join` here with what it prints"+direction(seen.peer, false)), true
	case h.byHand():
		return session(metav1.ConditionUnknown, v1alpha1.ReasonNotInvited, "The credentials in Secret "+
			v1alpha1.LinkSecret+" were made by hand: Hanse uses them and does not renew them"), true
	case h.problem != nil:
		return session(metav1.ConditionFalse, v1alpha1.ReasonCredentialsInvalid, "The session in Secret "+v1alpha1.LinkSecret+
			" cannot be used: "+h.problem.Error()+". Run `kubectl hanse invite NAME --renew` at the peer and join with it"), true
	default:
		return s.kept(seen)
	}
}

// kept is the condition where there is a session that we keep.
func (s schedule) kept(seen *look) (metav1.Condition, bool) {
	switch {
	case seen.renewal.stage != settled:
		return session(metav1.ConditionFalse, seen.renewal.reason, seen.renewal.message), true
	case seen.unsure:
		return metav1.Condition{}, false
	case s.shortened(seen.holding):
		return session(metav1.ConditionFalse, v1alpha1.ReasonSessionShortened, "The peer's API server gives sessions of a "+
			"clearly shorter life than the "+s.life.String()+" that are asked for, and an outage that is longer ends them. "+
			"Hanse renews them at half of their life"+direction(seen.peer, true)), true
	default:
		return session(metav1.ConditionTrue, v1alpha1.ReasonReady, "Our credentials at the peer are good and are renewed in time"+
			direction(seen.peer, true)), true
	}
}

// direction says that only one of two directions is agreed, if the Peer is meant for both.
func direction(peer *v1alpha1.Peer, ours bool) string {
	theirs := meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.ConditionJoined)
	switch {
	case !peer.HasRole(v1alpha1.RoleConsumer) || ours == theirs:
		return ""
	case ours:
		return ". Only this direction is agreed: the peer has not joined this cluster (see condition Joined)"
	default:
		return ". Only the other direction is agreed: the peer has joined this cluster"
	}
}

func session(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionSession, Status: status, Reason: reason, Message: message}
}

// expiryOf is when the session that we keep ends.
func expiryOf(h *holding) *metav1.Time {
	if !h.kept() || h.expires.IsZero() {
		return nil
	}
	return &metav1.Time{Time: h.expires.Truncate(time.Second)}
}
