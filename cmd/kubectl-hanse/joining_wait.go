package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// vain are the reasons of condition Session with which waiting is in vain: the invitation will not be used.
var vain = []string{
	v1alpha1.ReasonKeyMismatch, v1alpha1.ReasonClusterIDMismatch, v1alpha1.ReasonClusterIDTaken,
	v1alpha1.ReasonInvitationUsed, v1alpha1.ReasonInvitationInvalid, v1alpha1.ReasonInvitationExpired,
	v1alpha1.ReasonProofInvalid,
}

// await waits until the invitation was used and pods can run at the peer, and returns the Peer. before is the condition
// Session of an earlier attempt, nil if there was none: as long as it stands there, nobody has looked at this one.
func (j *joining) await(ctx context.Context, c client.Client, before *metav1.Condition) (*v1alpha1.Peer, error) {
	told := &progress{report: j.report}
	peer := &v1alpha1.Peer{}
	err := until(ctx, j.name()+" to be ready", func(ctx context.Context) (bool, error) {
		read, err := readPeer(ctx, c, j.name())
		if err != nil {
			return false, err
		}
		peer = read
		joined, err := j.joined(ctx, c)
		if err != nil {
			return false, err
		}
		if !joined {
			session := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionSession)
			return false, j.judge(session, &before, told)
		}
		return isReady(peer, told) || !j.mutually() && isProvider(peer), nil
	})
	if err == nil {
		return peer, nil
	}
	why := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionSession)
	if why == nil || why.Status != metav1.ConditionFalse {
		why = meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionReady)
	}
	return nil, fmt.Errorf("%w%s (`kubectl hanse status %s` shows more)", err, because(why), j.name())
}

// judge ends the waiting when the invitation was refused.
func (j *joining) judge(session *metav1.Condition, before **metav1.Condition, told *progress) error {
	if session == nil || *before != nil && session.Reason == (*before).Reason && session.Message == (*before).Message {
		return nil
	}
	*before = nil
	if session.Status == metav1.ConditionFalse && slices.Contains(vain, session.Reason) {
		return final{fmt.Errorf("the invitation of %s was not accepted%s", j.invitation.ClusterID, because(session))}
	}
	told.tell(session.Message)
	return nil
}

// isReady reports whether the Peer, as its spec is now, is Ready, and tells why it is not.
func isReady(peer *v1alpha1.Peer, told *progress) bool {
	ready := currentCondition(peer, v1alpha1.ConditionReady)
	if ready == nil {
		return false
	}
	if ready.Status != metav1.ConditionTrue {
		told.tell(ready.Message)
	}
	return ready.Status == metav1.ConditionTrue
}

// isProvider reports whether pods can run at the peer, though it may have an invitation of ours that it has not used.
func isProvider(peer *v1alpha1.Peer) bool {
	for _, kind := range []string{v1alpha1.ConditionAuthenticated, v1alpha1.ConditionCompatible, v1alpha1.ConditionAdvertised} {
		if !meta.IsStatusConditionTrue(peer.Status.Conditions, kind) {
			return false
		}
	}
	joined := currentCondition(peer, v1alpha1.ConditionJoined)
	return joined != nil && joined.Status == metav1.ConditionFalse
}

// tell says what was agreed on.
func (j *joining) tell(command *cobra.Command, ours string, peer *v1alpha1.Peer) error {
	const oneWay = "%s can run pods in %s.\n%s"
	switch {
	case !peer.HasRole(v1alpha1.RoleConsumer):
		return say(command, oneWay, ours, j.name(), j.oneDirection())
	case meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.ConditionJoined):
		return say(command, "%s and %s run pods in each other.\n", ours, j.name())
	default:
		return say(command, oneWay, ours, j.name(), fmt.Sprintf("This is only one direction until %s uses the invitation that it has from here.\n", j.name()))
	}
}

// oneDirection says what to do when only one side has asked for both directions.
func (j *joining) oneDirection() string {
	why := ""
	switch {
	case j.mutual && !j.invitation.Mutual():
		why = j.invitation.ClusterID + " did not say --mutual when it invited this cluster"
	case !j.mutual && j.invitation.Mutual():
		why = j.invitation.ClusterID + " would run pods here too, but --mutual was not said here"
	default:
		return ""
	}
	return fmt.Sprintf("This is only one direction: %s. For the other one, run `kubectl hanse invite %s` here and join there.\n",
		why, j.name())
}
