// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

const (
	defaultTimeToLive = time.Hour
	// readTime is how long a claimer may read why it was refused.
	readTime = 30 * time.Second
	// pickUpTime is how long after the end of the invitation a consumer that was accepted in time may pick up its session.
	pickUpTime = 10 * time.Minute
	// addressPause is how soon the address of the API server is looked for again: what tells it is not watched.
	addressPause = time.Minute
)

// An invitation is how our invitation for a consumer stands, as one close look at the peer and its tenant namespace found.
type invitation struct {
	peer    *v1alpha1.Peer
	secret  *corev1.Secret         // that holds the invitation, or nil
	token   *trust.Invitation      // what it holds, or nil while it has no token
	claim   *v1alpha1.PeeringClaim // or nil
	account bool                   // the consumer has an identity here
	binding *rbacv1.RoleBinding    // of the consumer's rights, empty if there is none
	draft   trust.Invitation       // what an invitation would be, as far as it is not made for it alone
	now     time.Time
}

// An action is one step towards what the Peer asks for.
type action int

const (
	nothing action = iota
	setRights
	dropInvitation
	dropClaim
	prepare
	mint
	answerClaim
	clearSession
)

// decide returns the next step. Each leads to other facts, and a step that was cut short is decided upon again.
func decide(f *invitation) action {
	switch {
	case f.rightsDiffer():
		return setRights
	case f.asked():
		return f.invite()
	case f.secret != nil && f.token == nil:
		return f.complete()
	case f.claim != nil && f.claim.DeletionTimestamp.IsZero():
		return f.claimed()
	case f.secret != nil && (f.peer.Spec.Invitation == nil || f.over(0)):
		return dropInvitation
	default:
		return nothing
	}
}

// invite is the next step towards a new invitation. What is left of the one before it goes first, the Secret before the
// claim, so that nobody can claim anew with the old one.
func (f *invitation) invite() action {
	switch {
	case usable(f.draft) != nil:
		return nothing
	case f.secret != nil:
		return dropInvitation
	case f.claim != nil:
		return dropClaim
	default:
		return prepare
	}
}

func (f *invitation) complete() action {
	switch {
	case f.peer.Spec.Invitation == nil || f.over(0):
		return dropInvitation
	case usable(f.draft) != nil:
		return nothing
	default:
		return mint
	}
}

// claimed is what to do with a claim.
func (f *invitation) claimed() action {
	switch f.accepted() {
	case metav1.ConditionTrue:
		return f.conclude()
	case metav1.ConditionFalse:
		if f.secret != nil && !f.now.Before(f.readBy()) {
			return dropInvitation
		}
		return nothing
	default:
		return answerClaim
	}
}

// conclude is what is left to do for a consumer that was accepted: until it says that it has its session, it needs the
// invitation to read it.
func (f *invitation) conclude() action {
	joined := f.claim.Spec.Phase != ""
	switch {
	case f.secret != nil && (joined || f.over(pickUpTime)):
		return dropInvitation
	case joined && f.claim.Status.Session != nil:
		return clearSession
	default:
		return nothing
	}
}

// asked reports whether the Peer asks for an invitation that was not made yet. Those that were are remembered in its
// status, since nothing else is left of them in the end.
func (f *invitation) asked() bool {
	if f.peer.Spec.Invitation == nil {
		return false
	}
	made := f.shown()
	if f.secret != nil {
		made = max(made, f.serial())
	}
	return f.peer.Spec.Invitation.Serial > made
}

// told reports whether the status tells that the invitation in the Secret was made.
func (f *invitation) told() bool { return f.secret == nil || f.serial() <= f.shown() }

// shown returns the serial of the invitation of which the status tells that it was made, or -1.
func (f *invitation) shown() int64 {
	return ptr.Deref(f.peer.Status.Invitation, v1alpha1.InvitationStatus{Serial: -1}).Serial
}

// serial returns that of the Secret, which is lower than any if the Secret is none that we have made.
func (f *invitation) serial() int64 {
	serial, err := strconv.ParseInt(f.secret.Annotations[v1alpha1.AnnotationSerial], 10, 64)
	if err != nil {
		return -1
	}
	return serial
}

func (f *invitation) expires() time.Time {
	expires, _ := time.Parse(time.RFC3339, f.secret.Annotations[v1alpha1.AnnotationExpires])
	return expires
}

// over reports whether the invitation ended that long ago.
func (f *invitation) over(ago time.Duration) bool { return !f.now.Before(f.expires().Add(ago)) }

// accepted returns how the claim was answered, or "" if it was not.
func (f *invitation) accepted() metav1.ConditionStatus { return f.answer().Status }

func (f *invitation) answer() metav1.Condition {
	if f.claim == nil {
		return metav1.Condition{}
	}
	answer := meta.FindStatusCondition(f.claim.Status.Conditions, v1alpha1.ConditionAccepted)
	return ptr.Deref(answer, metav1.Condition{})
}

// readBy returns until when a refused claimer may read why.
func (f *invitation) readBy() time.Time { return f.answer().LastTransitionTime.Add(readTime) }

// rights returns who is to have the rights of a consumer.
func (f *invitation) rights() []rbacv1.Subject {
	if f.peer.Access() == v1alpha1.AccessSuspended {
		return nil
	}
	return []rbacv1.Subject{accountSubject(f.draft.Namespace, v1alpha1.PeerServiceAccount)}
}

// rightsDiffer reports whether a consumer has rights that it should not have, or the other way round.
func (f *invitation) rightsDiffer() bool {
	return f.account && !equality.Semantic.DeepEqual(f.binding.Subjects, f.rights())
}

// wantsServers reports whether the addresses of the API server matter now.
func (f *invitation) wantsServers() bool { return f.asked() || f.secret != nil && f.token == nil }

// due returns when it must be looked at again though nothing changes, at the latest after that time.
func (f *invitation) due(latest time.Duration) time.Time {
	due := f.now.Add(latest)
	switch {
	case f.wantsServers():
		return sooner(due, f.now.Add(addressPause))
	case f.secret == nil:
		return due
	case f.accepted() == metav1.ConditionFalse:
		return sooner(due, f.readBy())
	case f.accepted() == metav1.ConditionTrue:
		return sooner(due, f.expires().Add(pickUpTime))
	default:
		return sooner(due, f.expires())
	}
}

// timeToLive returns for how long the invitation that the Peer asks for can be used.
func timeToLive(peer *v1alpha1.Peer) time.Duration {
	return cmp.Or(ptr.Deref(peer.Spec.Invitation.TimeToLive, metav1.Duration{}).Duration, defaultTimeToLive)
}

// usable checks that an invitation made of the draft can be used.
func usable(draft trust.Invitation) error {
	draft.ID, draft.Token, draft.Expires = "any", "any", time.Unix(1, 0)
	text, err := draft.Format()
	if err == nil {
		_, err = trust.ParseInvitation(text)
	}
	return err
}
