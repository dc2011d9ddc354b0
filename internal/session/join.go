package session

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

// join uses the invitation that the peer gave us, if there is one, as far as that goes now.
func (c *Controller) join(ctx context.Context, seen *look, known *state) error {
	if seen.offer == nil {
		known.joining = attempts{}
		return nil
	}
	seen.joining = seen.offer.judge(seen.peer, c.config.ClusterID, seen.takenBy)
	if seen.joining.stage == refused {
		return nil
	}
	tries := &known.joining
	if !tries.due(seen.offer.invitation.ID, seen.now) {
		seen.joining = tries.last
		return nil
	}
	var err error
	if seen.joining, err = c.advance(ctx, seen); err != nil {
		return err
	}
	tries.record(seen.joining, seen.now)
	if seen.joining.stage != settled {
		return nil
	}
	seen.offer, known.introduced = nil, true
	return nil
}

// advance goes through the steps of a join. Each leaves behind what the next look needs to go on.
func (c *Controller) advance(ctx context.Context, seen *look) (verdict, error) {
	if seen.holding.from(seen.offer.invitation.ID) {
		return c.finish(ctx, seen)
	}
	if err := c.pin(ctx, seen.peer, seen.offer.invitation); err != nil {
		return verdict{}, err
	}
	if err := c.secrets.begin(ctx, seen.offer); err != nil {
		return verdict{}, err
	}
	session, v, err := c.ask(ctx, seen)
	if err != nil || v.stage == waiting || v.stage == failed {
		return v, err
	}
	if v.stage == refused {
		return v, c.secrets.refuse(ctx, seen.offer, v)
	}
	if err := c.take(ctx, seen, session); err != nil {
		return verdict{}, err
	}
	return c.finish(ctx, seen)
}

// pin keeps in the Peer which cluster has invited us, so that it can never become another one unnoticed.
func (c *Controller) pin(ctx context.Context, peer *v1alpha1.Peer, invitation *trust.Invitation) error {
	if peer.Spec.ClusterID != "" && peer.Spec.PublicKey != "" {
		return nil
	}
	before := peer.DeepCopy()
	peer.Spec.ClusterID, peer.Spec.PublicKey = invitation.ClusterID, invitation.PublicKey
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.client.Patch(ctx, peer, patch); err != nil {
		return fmt.Errorf("pin cluster id and key of peer %q: %w", peer.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Pinned the peer's cluster id and key", "clusterID", peer.Spec.ClusterID)
	return nil
}

// ask reads the peer's answer to our claim, and makes the claim if there is none.
func (c *Controller) ask(ctx context.Context, seen *look) (trust.Session, verdict, error) {
	o := seen.offer
	guest, err := c.links.Guest(ctx, o.invitation)
	if err != nil {
		return trust.Session{}, fails(v1alpha1.ReasonInvitationInvalid, "The invitation cannot be used: %v", err), nil
	}
	defer guest.Close()
	claim, err := guest.Read(ctx)
	if apierrors.IsNotFound(err) {
		v, err := c.claim(ctx, seen, guest)
		return trust.Session{}, v, err
	}
	if err != nil {
		return trust.Session{}, guestProblem(err, o.invitation, seen.now), ctx.Err()
	}
	session, v := answerOf(o, claim)
	return session, v, nil
}

// claim makes our claim over there. That another was faster shows at the next look.
func (c *Controller) claim(ctx context.Context, seen *look, guest Guest) (verdict, error) {
	sealed, v, err := c.inviteBack(ctx, seen)
	if err != nil || v.stage == waiting {
		return v, err
	}
	claim := &v1alpha1.PeeringClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: seen.offer.invitation.Namespace, Name: v1alpha1.PeeringClaimName},
		Spec: v1alpha1.PeeringClaimSpec{
			Invitation: seen.offer.invitation.ID, ClusterID: c.config.ClusterID, SealingKey: seen.offer.key.Public(),
			InvitationBack: sealed, Version: c.config.Version,
		},
	}
	trust.SignClaim(c.config.ClusterKey, seen.offer.invitation.PublicKey, &claim.Spec)
	if err := guest.Claim(ctx, claim); err != nil && !apierrors.IsAlreadyExists(err) {
		return guestProblem(err, seen.offer.invitation, seen.now), ctx.Err()
	}
	return waits("The peer was asked and has not answered yet"), nil
}

// inviteBack returns our own invitation for the peer, sealed, if both sides want that.
func (c *Controller) inviteBack(ctx context.Context, seen *look) (string, verdict, error) {
	o, peer := seen.offer, seen.peer
	ours, claim, err := c.ownInvitation(ctx, peer)
	if err != nil {
		return "", verdict{}, err
	}
	switch backOf(o, peer, ours, claim) {
	case backPending:
		return "", waits("Our own invitation for the peer is not ready, and goes with the join: see " +
			"condition Joined"), nil
	case backReady:
		sealed, err := trust.Seal(o.invitation.SealingKey, ours.Data[v1alpha1.InvitationToken])
		if err != nil {
			return "", verdict{}, fmt.Errorf("invite peer %q back: %w", peer.Name, err)
		}
		return sealed, verdict{}, nil
	default:
		return "", verdict{}, nil
	}
}

// ownInvitation returns the Secret with our invitation for the peer and the peer's use of it, both if there are.
func (c *Controller) ownInvitation(
	ctx context.Context, peer *v1alpha1.Peer,
) (*corev1.Secret, *v1alpha1.PeeringClaim, error) {
	ours, err := c.secrets.read(ctx, peer.Name, v1alpha1.InvitationSecret)
	if err != nil {
		return nil, nil, err
	}
	claim := &v1alpha1.PeeringClaim{}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: v1alpha1.PeeringClaimName}
	err = c.client.Get(ctx, key, claim)
	if apierrors.IsNotFound(err) {
		return ours, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read PeeringClaim %s: %w", key, err)
	}
	return ours, claim, nil
}

// take stores the session that the peer gave us.
func (c *Controller) take(ctx context.Context, seen *look, session trust.Session) error {
	held := linkSecret(seen.peer.Name)
	if seen.holding != nil {
		held = seen.holding.secret
	}
	i := seen.offer.invitation
	credentials := peers.Credentials{Servers: i.Servers, CA: i.CA, Namespace: i.Namespace, Invitation: i.ID}
	holding, err := c.secrets.store(ctx, held, credentials, session, seen.now)
	if err != nil {
		return err
	}
	seen.holding = holding
	return nil
}

// finish tells the peer that its answer has arrived, and throws the invitation away.
func (c *Controller) finish(ctx context.Context, seen *look) (verdict, error) {
	err := c.confirm(ctx, seen)
	switch {
	case errors.Is(err, errStale), forbidden(err):
		// Another part of this process still has the old credentials, or the peer binds our rights right now.
		return waits("The peer has let us in, and we wait until our rights there are in force"), nil
	case errors.Is(err, errReplaced), apierrors.IsNotFound(err):
		return fails(v1alpha1.ReasonInvitationUsed, "The peer has made a newer invitation for us while we used this one: join "+
			"with the newer one"), nil
	case err != nil:
		return guestProblem(err, seen.offer.invitation, seen.now), ctx.Err()
	}
	if err := c.secrets.end(ctx, seen.offer); err != nil {
		return verdict{}, err
	}
	c.recorder.Eventf(seen.peer, nil, corev1.EventTypeNormal, v1alpha1.ReasonJoined, "JoinPeer",
		"This cluster has joined peer %q%s", seen.peer.Name, directions(seen))
	ctrl.LoggerFrom(ctx).Info("Joined", "clusterID", seen.peer.Spec.ClusterID)
	return verdict{}, nil
}

// directions says why only one direction is agreed where one side wants both.
func directions(seen *look) string {
	switch mutual, invited := seen.offer.invitation.Mutual(), invites(seen.peer); {
	case mutual && !invited:
		return ". Only this direction is agreed: the peer would like to be invited back, and this Peer has no invitation for it"
	case !mutual && invited:
		return ". Only this direction is agreed: the peer did not ask to be invited back"
	default:
		return ""
	}
}

var (
	errStale    = errors.New("the link is not that of the newest session")
	errReplaced = errors.New("the claim over there is not ours")
)

// confirm makes our claim over there say that we are here to stay, and which version of Hanse we run.
func (c *Controller) confirm(ctx context.Context, seen *look) error {
	link, err := c.links.Ensure(ctx, seen.peer)
	if err != nil {
		return err
	}
	if link.Invitation() != seen.holding.credentials.Invitation {
		return errStale
	}
	claim := &v1alpha1.PeeringClaim{}
	key := client.ObjectKey{Namespace: link.TenantNamespace(), Name: v1alpha1.PeeringClaimName}
	if err := link.Client().Get(ctx, key, claim); err != nil {
		return fmt.Errorf("read PeeringClaim %s of peer %q: %w", key, seen.peer.Name, err)
	}
	if claim.Spec.Invitation != link.Invitation() {
		return errReplaced
	}
	if claim.Spec.Phase != "" && claim.Spec.Version == c.config.Version {
		return nil
	}
	before := claim.DeepCopy()
	if claim.Spec.Phase == "" { // one that says Leaving can never say anything else
		claim.Spec.Phase = v1alpha1.ClaimJoined
	}
	claim.Spec.Version = c.config.Version
	if err := link.Client().Patch(ctx, claim, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patch PeeringClaim %s of peer %q: %w", key, seen.peer.Name, err)
	}
	return nil
}
