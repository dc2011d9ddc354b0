// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// joined is whether the peer has used our invitation.
func joined(o *observation) *condition {
	f := o.invited
	switch {
	case !o.peer.HasRole(v1alpha1.RoleConsumer) || o.deleted() || !o.peer.Protocol().Sessions:
		return nil
	case o.namespace == nil:
		return isFalse(v1alpha1.ReasonPending, "Namespace %s is not ready: see condition Ready", v1alpha1.TenantNamespace(o.peer.Name))
	case f == nil:
		return nil
	case f.wantsServers():
		return unmade(f)
	case f.claim != nil && f.accepted() != "":
		return answered(f)
	default:
		return unclaimed(f)
	}
}

// unclaimed is the condition while nobody has used the invitation.
func unclaimed(f *invitation) *condition {
	switch {
	case f.secret != nil && f.peer.Spec.Invitation != nil && !f.over(0):
		return isFalse(v1alpha1.ReasonInvited, "The invitation waits to be used: `kubectl hanse invite %s` prints it, and "+
			"`kubectl hanse join` in the peer uses it", f.peer.Name)
	case f.peer.Spec.Invitation == nil:
		return isFalse(v1alpha1.ReasonNotInvited, "The peer has no invitation: run `kubectl hanse invite %s`", f.peer.Name)
	default:
		return isFalse(v1alpha1.ReasonInvitationExpired, "The invitation was not used in time: run "+
			"`kubectl hanse invite %s --renew`", f.peer.Name)
	}
}

// show puts into the status which invitation was made.
func (f *invitation) show(status *v1alpha1.PeerStatus) {
	if f == nil || f.secret == nil || f.asked() || f.serial() < 0 {
		return
	}
	status.Invitation = &v1alpha1.InvitationStatus{Serial: f.serial()}
	if expires := metav1.NewTime(f.expires()); !expires.IsZero() {
		status.Invitation.Expires = &expires
	}
}

// unmade is why there is no invitation yet though one is asked for.
func unmade(f *invitation) *condition {
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
func answered(f *invitation) *condition {
	answer := f.answer()
	switch {
	case answer.Status != metav1.ConditionTrue:
		return isFalse(answer.Reason, cmp.Or(refusals[answer.Reason], refusals[v1alpha1.ReasonClusterIDTaken]).us, f.claim.Spec.ClusterID,
			fmt.Sprintf("`kubectl hanse invite %s --renew`", f.peer.Name), f.claim.Spec.PublicKey)
	case f.claim.Spec.Phase == v1alpha1.ClaimLeaving:
		return isFalse(v1alpha1.ReasonPeerLeft, "The peer has parted from this cluster")
	case f.claim.Spec.Phase == v1alpha1.ClaimJoined:
		return &condition{metav1.ConditionTrue, v1alpha1.ReasonJoined, "The peer has used its invitation"}
	case f.secret == nil || f.over(pickUpTime):
		return isFalse(v1alpha1.ReasonInvitationExpired, "The peer was accepted, but has not picked up its session in time: "+
			"run `kubectl hanse invite %s --renew`", f.peer.Name)
	default:
		return isFalse(v1alpha1.ReasonJoining, "The peer was accepted and picks up its session")
	}
}

// sessionKept is how our own session at a provider stands.
func sessionKept(o *observation) *condition {
	s := o.contact.session
	switch {
	case !hasSession(o.peer) || o.deleted() && (s == nil || s.holding == nil):
		return nil
	case o.namespace == nil || s == nil && said(o.peer, v1alpha1.ConditionSession) == nil:
		return unknown(v1alpha1.ReasonPending, "Namespace %s is not ready: see condition Ready", v1alpha1.TenantNamespace(o.peer.Name))
	case s == nil:
		return nil
	case s.stands():
		return s.beside(o, held(o, s))
	case s.joining.inVain():
		return isFalse(s.joining.reason, "%s", s.joining.message)
	case s.joining.stage == waiting:
		return unknown(s.joining.reason, "%s", s.joining.message)
	default:
		return held(o, s)
	}
}

// beside adds to what is said of a session that stands why another invitation for the same peer was not used. The reason
// is that of the invitation: the session itself has nothing to complain of.
func (s *session) beside(o *observation, c *condition) *condition {
	if c == nil || !s.joining.inVain() {
		return c
	}
	if c.ok() {
		c.reason = s.joining.reason
	}
	c.message += fmt.Sprintf(". The other invitation, in Secret %s, was not used, and changes nothing: %s. Join with another one, or "+
		"delete that Secret", secretName(o.peer, v1alpha1.JoinSecret), s.joining.message)
	return c
}

// held is the condition by the credentials that we hold.
func held(o *observation, s *session) *condition {
	switch {
	case s.holding == nil:
		return isFalse(v1alpha1.ReasonNotInvited, "This cluster has not joined the peer: run `kubectl hanse invite` there "+
			"and `kubectl hanse join` here with what it prints%s", direction(o.peer, false))
	case s.holding.byHand():
		return unknown(v1alpha1.ReasonNotInvited, "The credentials in Secret %s were made by hand: Hanse uses them and "+
			"does not renew them", v1alpha1.LinkSecret)
	case s.holding.problem != nil:
		return isFalse(v1alpha1.ReasonCredentialsInvalid, "The session in Secret %s cannot be used: %v. Run `kubectl hanse "+
			"invite NAME --renew` at the peer and join with it", v1alpha1.LinkSecret, s.holding.problem)
	default:
		return renewed(o, s)
	}
}

// stands reports whether there is a session that works, other than the one that a join brings right now. No invitation that
// fails takes it away.
func (s *session) stands() bool {
	brought := s.offer != nil && s.offer.invitation != nil && s.holding.from(s.offer.invitation.ID)
	return s.holding.kept() && !brought && s.renewal.reason != v1alpha1.ReasonUnauthorized
}

// renewed is the condition where there is a session that we keep.
func renewed(o *observation, s *session) *condition {
	schedule := o.config.schedule()
	switch {
	case s.renewal.stage != settled:
		return isFalse(s.renewal.reason, "%s", s.renewal.message)
	case s.unsure:
		return nil
	case schedule.shortened(s.holding):
		return isFalse(v1alpha1.ReasonSessionShortened, "The peer's API server gives sessions of a clearly shorter life than "+
			"the %s that are asked for, and an outage that is longer ends them. Hanse renews them at half of their life%s",
			schedule.life, direction(o.peer, true))
	default:
		return isTrue("Our credentials at the peer are good and are renewed in time" + direction(o.peer, true))
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

// show puts into the status when the session that we keep ends.
func (s *session) show(status *v1alpha1.PeerStatus) {
	if s == nil {
		return
	}
	status.Session = nil
	if s.holding.kept() && !s.holding.expires.IsZero() {
		status.Session = &v1alpha1.SessionStatus{Expires: &metav1.Time{Time: s.holding.expires.Truncate(time.Second)}}
	}
}
