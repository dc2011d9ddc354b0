package invitation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

// sessionClaim is the key of Secret hanse-session under which the UID of the claim lies that the session answers.
const sessionClaim = "claim"

// answer judges the claim and says to the claimer what came out. The answer is written last: as long as there is none,
// all of this is done again.
func (c *Controller) answer(ctx context.Context, f *facts) error {
	v, err := c.admit(ctx, f)
	if err != nil {
		return err
	}
	log := ctrl.LoggerFrom(ctx).WithValues("clusterID", f.claim.Spec.ClusterID)
	if v.reason != "" {
		log.Info("Refusing a claim", "reason", v.reason)
		return c.applyClaim(ctx, f.claim, refused(f, v.reason))
	}
	session, err := c.furnish(ctx, f)
	if err != nil {
		return err
	}
	if err := c.keepBack(ctx, f, v); err != nil {
		return err
	}
	log.Info("Accepting a claim")
	return c.applyClaim(ctx, f.claim, accepted(f, session))
}

// admit judges the claim, and if it is accepted, pins whose it is.
func (c *Controller) admit(ctx context.Context, f *facts) (verdict, error) {
	c.admission.Lock()
	defer c.admission.Unlock()
	others := &v1alpha1.PeerList{}
	if err := c.direct.List(ctx, others); err != nil {
		return verdict{}, fmt.Errorf("list Peers: %w", err)
	}
	v := judge(f, others.Items)
	if v.reason != "" {
		return v, nil
	}
	return v, c.pin(ctx, f)
}

func (c *Controller) pin(ctx context.Context, f *facts) error {
	claim, pinned := &f.claim.Spec, f.peer.DeepCopy()
	pinned.Spec.ClusterID, pinned.Spec.PublicKey = claim.ClusterID, claim.PublicKey
	if pinned.Spec.ClusterID == f.peer.Spec.ClusterID && pinned.Spec.PublicKey == f.peer.Spec.PublicKey {
		return nil
	}
	patch := client.MergeFromWithOptions(f.peer, client.MergeFromWithOptimisticLock{})
	if err := c.client.Patch(ctx, pinned, patch, fieldOwner); err != nil {
		return fmt.Errorf("pin cluster id and key: %w", err)
	}
	return nil
}

// furnish gives the consumer its identity, its rights and a session of its own, and returns the session for its eyes
// only.
func (c *Controller) furnish(ctx context.Context, f *facts) (*v1alpha1.SealedSession, error) {
	account, err := c.account(ctx, f, v1alpha1.PeerServiceAccount)
	if err != nil {
		return nil, err
	}
	secret, err := c.session(ctx, f)
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

// session returns the Secret that the tokens of the consumer are bound to. It is made anew for each claim that is
// accepted, so that all older tokens end.
func (c *Controller) session(ctx context.Context, f *facts) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	found, err := c.find(ctx, f.draft.Namespace, v1alpha1.SessionSecret, secret)
	if err != nil {
		return nil, err
	}
	if found && string(secret.Data[sessionClaim]) == string(f.claim.UID) {
		return secret, nil
	}
	if found {
		if err := c.remove(ctx, secret); err != nil {
			return nil, err
		}
	}
	secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.draft.Namespace, Name: v1alpha1.SessionSecret,
			Labels: map[string]string{v1alpha1.LabelManaged: "true", v1alpha1.LabelPeer: f.peer.Name},
		},
		Data: map[string][]byte{sessionClaim: []byte(f.claim.UID)},
	}
	if err := c.client.Create(ctx, secret); err != nil {
		return nil, fmt.Errorf("create Secret %s: %w", secret.Name, err)
	}
	return secret, nil
}

// keepBack puts the invitation that the consumer brought along where one is put by hand: from there we join like anyone.
// It may be there already, or even be used, if we were stopped before the claim was answered. Whoever uses it writes the
// link before it deletes the Secret, so that one of the two is always seen.
func (c *Controller) keepBack(ctx context.Context, f *facts, v verdict) error {
	if v.back == "" {
		return nil
	}
	join := &corev1.Secret{}
	found, err := c.find(ctx, f.draft.Namespace, v1alpha1.JoinSecret, join)
	if err != nil {
		return err
	}
	if !found || string(join.Data[v1alpha1.InvitationToken]) != v.back {
		link := &corev1.Secret{}
		found, err := c.find(ctx, f.draft.Namespace, v1alpha1.LinkSecret, link)
		if err != nil || found && string(link.Data[v1alpha1.LinkSecretInvitation]) == v.backID {
			return err
		}
		join.Namespace, join.Name = f.draft.Namespace, v1alpha1.JoinSecret
		err = c.put(ctx, join, func() { join.Data = map[string][]byte{v1alpha1.InvitationToken: []byte(v.back)} })
		if err != nil {
			return err
		}
	}
	return c.ring(ctx, f.peer, v.backID)
}

// ring says that there is an invitation to be used: Secrets are not watched.
func (c *Controller) ring(ctx context.Context, peer *v1alpha1.Peer, id string) error {
	if peer.Annotations[v1alpha1.AnnotationJoin] == id {
		return nil
	}
	rung := peer.DeepCopy()
	metav1.SetMetaDataAnnotation(&rung.ObjectMeta, v1alpha1.AnnotationJoin, id)
	if err := c.client.Patch(ctx, rung, client.MergeFrom(peer), fieldOwner); err != nil {
		return fmt.Errorf("tell of the invitation of the peer: %w", err)
	}
	return nil
}
