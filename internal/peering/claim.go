// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/trust"
)

// invitationOwner is the field owner of the status of PeeringClaims and of the rules of the FlowSchema.
const invitationOwner = client.FieldOwner("hanse-invitation")

// sessionClaim is the key of Secret hanse-session under which the UID of the claim lies that the session answers.
const sessionClaim = "claim"

// answer judges the claim and says to the claimer what came out. The answer is written last: as long as there is none,
// all of this is done again.
func (c *inviteStep) answer(ctx context.Context, f *invitation) error {
	v, err := c.admit(ctx, f)
	if err != nil {
		return err
	}
	log := ctrl.LoggerFrom(ctx).WithValues("clusterID", f.claim.Spec.ClusterID)
	if v.reason != "" {
		log.Info("Refusing a claim", "reason", v.reason)
		refusal := metav1.Condition{Status: metav1.ConditionFalse, Reason: v.reason, Message: refusals[v.reason].them}
		return c.reply(ctx, f, refusal, nil)
	}
	session, err := c.giveSession(ctx, f)
	if err != nil {
		return err
	}
	if err := c.keepBack(ctx, f, v); err != nil {
		return err
	}
	log.Info("Accepting a claim")
	return c.reply(ctx, f, metav1.Condition{
		Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, Message: "The provider takes this cluster as its peer",
	}, session)
}

// admit judges the claim, and if it is accepted, pins whose it is.
func (c *inviteStep) admit(ctx context.Context, f *invitation) (judgement, error) {
	c.admission.Lock()
	defer c.admission.Unlock()
	others := &v1alpha1.PeerList{}
	if err := c.direct.List(ctx, others); err != nil {
		return judgement{}, fmt.Errorf("list Peers: %w", err)
	}
	v := judge(f, others.Items)
	if v.reason != "" {
		return v, nil
	}
	return v, c.pin(ctx, f.peer, f.claim.Spec.ClusterID, f.claim.Spec.PublicKey)
}

// giveSession gives the consumer its identity, its rights and a session of its own, and returns the session for its eyes
// only.
func (c *inviteStep) giveSession(ctx context.Context, f *invitation) (*v1alpha1.SealedSession, error) {
	account, err := c.account(ctx, f, v1alpha1.PeerServiceAccount)
	if err != nil {
		return nil, err
	}
	secret, err := c.sessionSecret(ctx, f)
	if err != nil {
		return nil, err
	}
	if err := c.bind(ctx, account.Namespace, v1alpha1.ClusterRolePeerTenant, f.rights()...); err != nil {
		return nil, err
	}
	token, err := c.token(ctx, account, secret, int64(c.config.SessionLife.Seconds()))
	if err != nil {
		return nil, err
	}
	return trust.SealSession(c.config.ClusterKey, &f.claim.Spec, trust.Session{
		Token: token.Token, Expires: token.ExpirationTimestamp.Time,
	})
}

// sessionSecret returns the Secret that the tokens of the consumer are bound to. It is made anew for each claim that is
// accepted, so that all older tokens end.
func (c *inviteStep) sessionSecret(ctx context.Context, f *invitation) (*corev1.Secret, error) {
	held := secret(f.draft.Namespace, v1alpha1.SessionSecret)
	there, err := c.find(ctx, held)
	if err != nil {
		return nil, err
	}
	if there && string(held.Data[sessionClaim]) == string(f.claim.UID) {
		return held, nil
	}
	if there {
		if err := c.removeExactly(ctx, held); err != nil {
			return nil, err
		}
	}
	made := secret(f.draft.Namespace, v1alpha1.SessionSecret)
	made.Data = map[string][]byte{sessionClaim: []byte(f.claim.UID)}
	return made, c.create(ctx, f.peer, made)
}

// keepBack puts the invitation that the consumer brought along where one is put by hand: from there we join like anyone.
// It may be there already, or even be used, if we were stopped before the claim was answered. Whoever uses it writes the
// link before it deletes the Secret, so that one of the two is always seen.
func (c *inviteStep) keepBack(ctx context.Context, f *invitation, v judgement) error {
	if v.back == "" {
		return nil
	}
	join := secret(f.draft.Namespace, v1alpha1.JoinSecret)
	_, err := c.find(ctx, join)
	if err == nil && string(join.Data[v1alpha1.InvitationToken]) != v.back {
		link := secret(f.draft.Namespace, v1alpha1.LinkSecret)
		if _, err := c.find(ctx, link); err != nil || string(link.Data[v1alpha1.LinkSecretInvitation]) == v.backID {
			return err
		}
		err = c.put(ctx, join, func() { join.Data = map[string][]byte{v1alpha1.InvitationToken: []byte(v.back)} })
	}
	if err != nil {
		return err
	}
	// Secrets are not watched, so the Peer says that there is an invitation to be used.
	err = c.patch(ctx, f.peer, func() { metav1.SetMetaDataAnnotation(&f.peer.ObjectMeta, v1alpha1.AnnotationJoin, v.backID) })
	if err != nil {
		return fmt.Errorf("tell of the invitation of the peer: %w", err)
	}
	return nil
}

// reply writes the answer to the claim.
func (c *inviteStep) reply(ctx context.Context, f *invitation, answer metav1.Condition, session *v1alpha1.SealedSession) error {
	answer.Type, answer.ObservedGeneration = v1alpha1.ConditionAccepted, f.claim.Generation
	answer.LastTransitionTime = metav1.NewTime(f.now)
	return local.ApplyStatus(ctx, c.client, invitationOwner, f.claim, &v1alpha1.PeeringClaimStatus{
		Conditions: []metav1.Condition{answer}, ObservedGeneration: f.claim.Generation, Session: session,
	})
}

// A judgement is what we think of a claim.
type judgement struct {
	reason string // why it is refused, or ""
	back   string // the invitation that the consumer brought along for us, or ""
	backID string // and its id
}

// judge says whether the claimer becomes our peer. Whatever the claim says comes from somebody who has the invitation,
// and from whom else nobody knows yet.
func judge(f *invitation, others []v1alpha1.Peer) judgement {
	claim := &f.claim.Spec
	switch {
	case f.token == nil || f.over(0):
		return judgement{reason: v1alpha1.ReasonInvitationExpired}
	case claim.Invitation != f.token.ID:
		return judgement{reason: v1alpha1.ReasonInvitationInvalid}
	case trust.VerifyClaim(f.draft.PublicKey, claim) != nil || !sealable(claim.SealingKey):
		return judgement{reason: v1alpha1.ReasonProofInvalid}
	}
	reason := stranger(f.peer, f.draft.ClusterID, claim.ClusterID, claim.PublicKey, takenBy(others, f.peer.Name, claim.ClusterID))
	if reason != "" {
		return judgement{reason: reason}
	}
	if !f.peer.HasRole(v1alpha1.RoleProvider) || !f.token.Mutual() || claim.InvitationBack == "" {
		return judgement{}
	}
	return judgeBack(f)
}

// judgeBack opens the invitation back. It must be the claimer's own: else it would make us join a cluster that has not
// asked for it.
func judgeBack(f *invitation) judgement {
	key, err := trust.ParseSealingKey(string(f.secret.Data[sealingKey]))
	var text []byte
	if err == nil {
		text, err = key.Open(f.claim.Spec.InvitationBack)
	}
	back := &trust.Invitation{}
	if err == nil {
		back, err = trust.ParseInvitation(string(text))
	}
	if err != nil || back.ClusterID != f.claim.Spec.ClusterID || back.PublicKey != f.claim.Spec.PublicKey {
		return judgement{reason: v1alpha1.ReasonInvitationInvalid}
	}
	return judgement{back: string(text), backID: back.ID}
}

func sealable(key string) bool {
	_, err := trust.Seal(key, nil)
	return err == nil
}

// refusals say why a claim was refused: to us, with the claimer's id, the command for another invitation and the claimer's
// key; and to the claimer, no more than it knows anyway.
var refusals = map[string]struct{ us, them string }{
	v1alpha1.ReasonInvitationExpired: {
		"The invitation was claimed after it had ended: run %[2]s",
		"The invitation has ended: ask the provider's administrator for another one",
	},
	v1alpha1.ReasonInvitationInvalid: {
		"The claim of cluster %[1]q names another invitation, or brings one along that is not its own: run %[2]s",
		"The claim names another invitation, or the invitation that it brings along is not its own: ask the provider's " +
			"administrator for another one, and join again",
	},
	v1alpha1.ReasonProofInvalid: {
		"Whoever claimed the invitation as cluster %[1]q does not have that cluster's key; if the invitation may be in wrong " +
			"hands, run %[2]s and send it another way",
		"The claim is not signed with the key that it names",
	},
	v1alpha1.ReasonKeyMismatch: {
		"The invitation was claimed by a cluster that calls itself %[1]q and has another key than this Peer; if you know that it " +
			"was installed anew, set publicKey of this Peer to %[3]s and run %[2]s",
		"The provider knows a cluster of this id by another key: its administrator must set publicKey of the Peer to the key of " +
			"this cluster, and invite it again",
	},
	v1alpha1.ReasonClusterIDMismatch: {
		"The invitation was claimed by cluster %[1]q, which is not the one that it was for: run %[2]s, and make another Peer for " +
			"that cluster",
		"The invitation is for a cluster of another id: ask the provider's administrator for one of your own",
	},
	v1alpha1.ReasonClusterIDTaken: {
		"The invitation was claimed by cluster %[1]q, and another Peer stands for a cluster of that id: see `kubectl get peers`, " +
			"and delete one of the two",
		"The provider has another Peer for a cluster of this id: ask its administrator to delete that one, or to renew its " +
			"invitation",
	},
}
