package invitation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func isFalse(reason, message string, args ...any) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(message, args...)}
}

// joined returns condition Joined.
func joined(f *facts) metav1.Condition {
	switch {
	case f.preparing:
		return isFalse(v1alpha1.ReasonPending, "Namespace %s is not ready: see condition Ready", f.namespace())
	case f.wantsServers():
		return unmade(f)
	case f.claim != nil && f.accepted() != "":
		return answered(f)
	case f.secret != nil && f.peer.Spec.Invitation != nil && !f.over(0):
		return isFalse(v1alpha1.ReasonInvited, "The invitation waits to be used: `kubectl hanse invite %s` prints it, and "+
			"`kubectl hanse join` over there uses it", f.peer.Name)
	case f.peer.Spec.Invitation == nil:
		return isFalse(v1alpha1.ReasonNotInvited, "The peer has no invitation: run `kubectl hanse invite %s`", f.peer.Name)
	default:
		return isFalse(v1alpha1.ReasonInvitationExpired, "The invitation was not used in time: run "+
			"`kubectl hanse invite %s --renew`", f.peer.Name)
	}
}

// unmade is why there is no invitation yet though one is asked for.
func unmade(f *facts) metav1.Condition {
	if f.secret != nil && (f.peer.Spec.Invitation == nil || f.over(0)) && !f.asked() {
		return isFalse(v1alpha1.ReasonInvitationExpired, "The invitation ended before it was made: run "+
			"`kubectl hanse invite %s --renew`", f.peer.Name)
	}
	if len(f.draft.Servers) == 0 {
		return isFalse(v1alpha1.ReasonNoServerAddress, "Nothing tells where the peer reaches this cluster's API server: set "+
			"spec.invitation.servers of this Peer, such as https://203.0.113.7:6443")
	}
	if err := usable(f.draft); err != nil {
		return isFalse(v1alpha1.ReasonInvitationInvalid, "No invitation can be made: it would be %v; check "+
			"spec.invitation.servers of this Peer", err)
	}
	return isFalse(v1alpha1.ReasonPending, "The invitation is being made")
}

// answered is how a claim that was answered stands.
func answered(f *facts) metav1.Condition {
	answer := f.answer()
	switch {
	case answer.Status != metav1.ConditionTrue:
		return isFalse(answer.Reason, "%s", refusalForUs(f, answer.Reason))
	case f.claim.Spec.Phase == v1alpha1.ClaimLeaving:
		return isFalse(v1alpha1.ReasonPeerLeft, "The peer has parted from this cluster")
	case f.claim.Spec.Phase == v1alpha1.ClaimJoined:
		return metav1.Condition{
			Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonJoined, Message: "The peer has used its invitation",
		}
	case f.secret == nil || f.over(pickUpTime):
		return isFalse(v1alpha1.ReasonInvitationExpired, "The peer was accepted, but has not picked up its session in time: "+
			"run `kubectl hanse invite %s --renew`", f.peer.Name)
	default:
		return isFalse(v1alpha1.ReasonJoining, "The peer was accepted and picks up its session")
	}
}

func (f *facts) namespace() string { return v1alpha1.TenantNamespace(f.peer.Name) }

// statusOf returns the whole status of the Peer: what is ours anew, what is others' as it is. A peer that is no consumer
// has nothing of ours.
func statusOf(f *facts, now metav1.Time) v1alpha1.PeerStatus {
	status := *f.peer.Status.DeepCopy()
	if !f.peer.HasRole(v1alpha1.RoleConsumer) {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionJoined)
		status.Invitation = nil
		return status
	}
	c := joined(f)
	c.Type, c.ObservedGeneration, c.LastTransitionTime = v1alpha1.ConditionJoined, f.peer.Generation, now
	meta.SetStatusCondition(&status.Conditions, c)
	if f.secret != nil && !f.asked() {
		status.Invitation = &v1alpha1.InvitationStatus{Serial: f.serial()}
		if expires := metav1.NewTime(f.expires()); !expires.IsZero() {
			status.Invitation.Expires = &expires
		}
	}
	return status
}

// accepted is the answer to a claim that is.
func accepted(f *facts, session *v1alpha1.SealedSession) v1alpha1.PeeringClaimStatus {
	status := answerOf(f, metav1.Condition{
		Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, Message: "The provider takes this cluster as its peer",
	})
	status.Session = session
	return status
}

// refused is the answer to a claim that is.
func refused(f *facts, reason string) v1alpha1.PeeringClaimStatus {
	return answerOf(f, isFalse(reason, "%s", refusalForThem(reason)))
}

func answerOf(f *facts, c metav1.Condition) v1alpha1.PeeringClaimStatus {
	c.Type, c.ObservedGeneration = v1alpha1.ConditionAccepted, f.claim.Generation
	c.LastTransitionTime = metav1.NewTime(f.now)
	return v1alpha1.PeeringClaimStatus{Conditions: []metav1.Condition{c}, ObservedGeneration: f.claim.Generation}
}
