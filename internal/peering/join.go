package peering

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

// A session is how our own credentials at a provider stand.
type session struct {
	offer   *offer   // nil: there is no invitation to use
	holding *holding // nil: there are no credentials
	takenBy string   // another Peer that stands for the cluster of the offer
	joining verdict
	renewal verdict
	unsure  bool // the session ought to have been renewed, and nobody has tried yet
}

// joinStep uses the invitation that a provider gave us.
type joinStep struct{ *deps }

// Reconcile implements step. Of a Peer that goes only the session matters, which stays good until the two have parted.
func (c *joinStep) Reconcile(ctx context.Context, o *observation) (result, error) {
	if !hasSession(o.peer) || o.namespace == nil {
		o.contact.session, o.contact.sessionGate = nil, gate{}
		return result{}, nil
	}
	if !o.contact.sessionGate.open(o.sightOfCalls(), o.now) {
		return result{}, nil
	}
	seen, err := c.look(ctx, o)
	switch {
	case apierrors.IsForbidden(err):
		o.contact.sessionGate = gate{o.sightOfCalls(), o.now.Add(lookSettling)} // our rights in there were just bound
		return result{}, nil
	case err != nil:
		return result{}, err
	}
	o.session = seen
	if err := c.join(ctx, o); err != nil {
		o.session = nil
		return result{}, err
	}
	return result{}, nil
}

// hasSession reports whether we are, or want to be, a consumer of the peer by an invitation.
func hasSession(peer *v1alpha1.Peer) bool {
	return peer.HasRole(v1alpha1.RoleProvider) && peer.Protocol().Sessions
}

// look reads the invitation and the credentials that lie in the tenant namespace.
func (c *joinStep) look(ctx context.Context, o *observation) (*session, error) {
	seen := &session{}
	held, err := existing(ctx, c.direct, secret(o.namespace.Name, v1alpha1.LinkSecret))
	if err != nil {
		return nil, err
	}
	if held != nil {
		seen.holding = parseHolding(held)
	}
	if o.deleted() {
		return seen, nil
	}
	offered, err := existing(ctx, c.direct, secret(o.namespace.Name, v1alpha1.JoinSecret))
	if offered == nil || err != nil {
		return seen, err
	}
	seen.offer = parseOffer(offered)
	if seen.offer.invitation == nil {
		return seen, nil
	}
	all := &v1alpha1.PeerList{}
	if err := c.client.List(ctx, all); err != nil {
		return nil, fmt.Errorf("list peers: %w", err)
	}
	seen.takenBy = takenBy(all.Items, o.peer.Name, seen.offer.invitation.ClusterID)
	return seen, nil
}

// join uses the invitation that the peer gave us, if there is one, as far as that goes now.
func (c *joinStep) join(ctx context.Context, o *observation) error {
	if o.session.offer == nil {
		o.contact.joining = attempts{}
		return nil
	}
	o.session.joining = o.session.offer.judge(o.peer, c.config.ClusterID, o.session.takenBy)
	if o.session.joining.stage == refused {
		return nil
	}
	tries := &o.contact.joining
	if !tries.due(o.session.offer.invitation.ID, o.now) {
		o.session.joining = tries.last
		return nil
	}
	var err error
	if o.session.joining, err = c.advance(ctx, o); err != nil {
		return err
	}
	tries.record(o.session.joining, o.now)
	if o.session.joining.stage != settled {
		return nil
	}
	o.session.offer, o.contact.introduced = nil, true
	return nil
}

// advance goes through the steps of a join. Each leaves behind what the next look needs to go on.
func (c *joinStep) advance(ctx context.Context, o *observation) (verdict, error) {
	if o.session.holding.from(o.session.offer.invitation.ID) {
		return c.finish(ctx, o)
	}
	if err := c.pin(ctx, o.peer, o.session.offer.invitation); err != nil {
		return verdict{}, err
	}
	if err := c.begin(ctx, o.session.offer); err != nil {
		return verdict{}, err
	}
	session, v, err := c.ask(ctx, o)
	if err != nil || v.stage == waiting || v.stage == failed {
		return v, err
	}
	if v.stage == refused {
		return v, c.refuse(ctx, o.session.offer, v)
	}
	if err := c.take(ctx, o, session); err != nil {
		return verdict{}, err
	}
	return c.finish(ctx, o)
}

// pin keeps in the Peer which cluster has invited us, so that it can never become another one unnoticed.
func (c *joinStep) pin(ctx context.Context, peer *v1alpha1.Peer, invitation *trust.Invitation) error {
	if peer.Spec.ClusterID != "" && peer.Spec.PublicKey != "" {
		return nil
	}
	err := c.patch(ctx, peer, func() {
		peer.Spec.ClusterID, peer.Spec.PublicKey = invitation.ClusterID, invitation.PublicKey
	})
	if err != nil {
		return fmt.Errorf("pin cluster id and key of peer %q: %w", peer.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Pinned the peer's cluster id and key", "clusterID", peer.Spec.ClusterID)
	return nil
}

// ask reads the peer's answer to our claim, and makes the claim if there is none.
func (c *joinStep) ask(ctx context.Context, o *observation) (trust.Session, verdict, error) {
	offer := o.session.offer
	claimant, err := c.links.Claimant(ctx, offer.invitation)
	if err != nil {
		return trust.Session{}, fails(v1alpha1.ReasonInvitationInvalid, "The invitation cannot be used: %v", err), nil
	}
	defer claimant.Close()
	claim, err := claimant.Read(ctx)
	if apierrors.IsNotFound(err) {
		v, err := c.makeClaim(ctx, o, claimant)
		return trust.Session{}, v, err
	}
	if err != nil {
		return trust.Session{}, claimProblem(err, offer.invitation, o.now), ctx.Err()
	}
	session, v := answerOf(offer, claim)
	return session, v, nil
}

// makeClaim makes our claim over there. That another was faster shows at the next look.
func (c *joinStep) makeClaim(ctx context.Context, o *observation, claimant Claimant) (verdict, error) {
	sealed, v, err := c.inviteBack(ctx, o)
	if err != nil || v.stage == waiting {
		return v, err
	}
	claim := &v1alpha1.PeeringClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.session.offer.invitation.Namespace, Name: v1alpha1.PeeringClaimName},
		Spec: v1alpha1.PeeringClaimSpec{
			Invitation: o.session.offer.invitation.ID, ClusterID: c.config.ClusterID, SealingKey: o.session.offer.key.Public(),
			InvitationBack: sealed, Version: c.config.Version,
		},
	}
	trust.SignClaim(c.config.ClusterKey, o.session.offer.invitation.PublicKey, &claim.Spec)
	if err := claimant.Claim(ctx, claim); err != nil && !apierrors.IsAlreadyExists(err) {
		return claimProblem(err, o.session.offer.invitation, o.now), ctx.Err()
	}
	return waits("The peer was asked and has not answered yet"), nil
}

// inviteBack returns our own invitation for the peer, sealed, if both sides want that.
func (c *joinStep) inviteBack(ctx context.Context, o *observation) (string, verdict, error) {
	offer, peer := o.session.offer, o.peer
	namespace := v1alpha1.TenantNamespace(peer.Name)
	ours, err := existing(ctx, c.direct, secret(namespace, v1alpha1.InvitationSecret))
	if err != nil {
		return "", verdict{}, err
	}
	used, err := existing(ctx, c.direct, claim(namespace))
	if err != nil {
		return "", verdict{}, err
	}
	switch backOf(offer, peer, ours, used) {
	case backPending:
		return "", waits("Our own invitation for the peer is not ready, and goes with the join: see " +
			"condition Joined"), nil
	case backReady:
		sealed, err := trust.Seal(offer.invitation.SealingKey, ours.Data[v1alpha1.InvitationToken])
		if err != nil {
			return "", verdict{}, fmt.Errorf("invite peer %q back: %w", peer.Name, err)
		}
		return sealed, verdict{}, nil
	default:
		return "", verdict{}, nil
	}
}

// take stores the session that the peer gave us.
func (c *joinStep) take(ctx context.Context, o *observation, session trust.Session) error {
	held := secret(o.namespace.Name, v1alpha1.LinkSecret)
	if o.session.holding != nil {
		held = o.session.holding.secret
	}
	i := o.session.offer.invitation
	credentials := peers.Credentials{Servers: i.Servers, CA: i.CA, Namespace: i.Namespace, Invitation: i.ID}
	holding, err := c.store(ctx, held, credentials, session, o.now)
	if err != nil {
		return err
	}
	o.session.holding = holding
	return nil
}

// finish tells the peer that its answer has arrived, and throws the invitation away.
func (c *joinStep) finish(ctx context.Context, o *observation) (verdict, error) {
	err := c.confirm(ctx, o)
	switch {
	case errors.Is(err, errStale), isForbidden(err):
		// Another part of this process still has the old credentials, or the peer binds our rights right now.
		return waits("The peer has let us in, and we wait until our rights there are in force"), nil
	case errors.Is(err, errReplaced), apierrors.IsNotFound(err):
		return fails(v1alpha1.ReasonInvitationUsed, "The peer has made a newer invitation for us while we used this one: join "+
			"with the newer one"), nil
	case err != nil:
		return claimProblem(err, o.session.offer.invitation, o.now), ctx.Err()
	}
	if err := c.end(ctx, o.session.offer); err != nil {
		return verdict{}, err
	}
	c.recorder.Eventf(o.peer, nil, corev1.EventTypeNormal, v1alpha1.ReasonJoined, "JoinPeer",
		"This cluster has joined peer %q%s", o.peer.Name, directions(o))
	ctrl.LoggerFrom(ctx).Info("Joined", "clusterID", o.peer.Spec.ClusterID)
	return verdict{}, nil
}

// directions says why only one direction is agreed where one side wants both.
func directions(o *observation) string {
	switch mutual, invited := o.session.offer.invitation.Mutual(), invites(o.peer); {
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
func (c *joinStep) confirm(ctx context.Context, o *observation) error {
	link, err := c.links.Ensure(ctx, o.peer)
	if err != nil {
		return err
	}
	if link.Invitation() != o.session.holding.credentials.Invitation {
		return errStale
	}
	claim := &v1alpha1.PeeringClaim{}
	key := client.ObjectKey{Namespace: link.TenantNamespace(), Name: v1alpha1.PeeringClaimName}
	if err := link.Client().Get(ctx, key, claim); err != nil {
		return fmt.Errorf("read PeeringClaim %s of peer %q: %w", key, o.peer.Name, err)
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
		return fmt.Errorf("patch PeeringClaim %s of peer %q: %w", key, o.peer.Name, err)
	}
	return nil
}
