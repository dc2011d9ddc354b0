// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

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

// without reports whether it is known that there are no credentials.
func (s *session) without() bool { return s != nil && s.holding == nil }

// look reads the invitation and the credentials that lie in the tenant namespace.
func (c *sessionStep) look(ctx context.Context, o *observation) (*session, error) {
	seen := &session{}
	held, err := existing(ctx, c.direct, secret(o.namespace.Name, v1alpha1.LinkSecret))
	if held != nil {
		seen.holding = parseHolding(held)
	}
	if err != nil || o.deleted() {
		return seen, err
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
func (c *sessionStep) join(ctx context.Context, o *observation, s *session) error {
	if s.offer == nil {
		o.contact.joining = attempts{}
		return nil
	}
	if s.joining = s.offer.judge(o.peer, c.config.ClusterID, s.takenBy); s.joining.stage == refused {
		return nil
	}
	var err error
	s.joining, err = o.contact.joining.try(s.offer.invitation.ID, o.now, func() error { return c.advance(ctx, o, s) })
	return err
}

// advance goes through the steps of a join. Each leaves behind what the next look needs to go on.
func (c *sessionStep) advance(ctx context.Context, o *observation, s *session) error {
	i := s.offer.invitation
	if s.holding.from(i.ID) {
		return c.finish(ctx, o, s)
	}
	if err := c.pin(ctx, o.peer, i.ClusterID, i.PublicKey); err != nil {
		return err
	}
	if err := c.begin(ctx, s.offer); err != nil {
		return err
	}
	token, err := c.ask(ctx, o, s.offer)
	if v := (verdict{}); errors.As(err, &v) && v.stage == refused {
		return cmp.Or(c.refuse(ctx, s.offer, v), err)
	}
	if err != nil {
		return err
	}
	credentials := peers.Credentials{Servers: i.Servers, CA: i.CA, Namespace: i.Namespace, Invitation: i.ID}
	if err := c.store(ctx, o, s, credentials, token); err != nil {
		return err
	}
	return c.finish(ctx, o, s)
}

// pin keeps in the Peer which cluster it is, so that it can never become another one unnoticed.
func (d *deps) pin(ctx context.Context, peer *v1alpha1.Peer, clusterID, publicKey string) error {
	err := d.patch(ctx, peer, func() { peer.Spec.ClusterID, peer.Spec.PublicKey = clusterID, publicKey })
	if err != nil {
		return fmt.Errorf("pin cluster id and key of peer %q: %w", peer.Name, err)
	}
	return nil
}

// ask reads the peer's answer to our claim, and makes the claim if there is none.
func (c *sessionStep) ask(ctx context.Context, o *observation, offer *offer) (trust.Session, error) {
	claimant, err := c.links.Claimant(ctx, offer.invitation)
	if err != nil {
		return trust.Session{}, fails(v1alpha1.ReasonInvitationInvalid, "The invitation cannot be used: %v", err)
	}
	defer claimant.Close()
	claim, err := claimant.Read(ctx)
	if apierrors.IsNotFound(err) {
		return trust.Session{}, c.makeClaim(ctx, o, offer, claimant)
	}
	if err != nil {
		return trust.Session{}, claimProblem(ctx, err, offer.invitation, o.now)
	}
	return answerOf(offer, claim)
}

// makeClaim makes our claim at the peer. That another was faster shows at the next look.
func (c *sessionStep) makeClaim(ctx context.Context, o *observation, offer *offer, claimant *peers.Claimant) error {
	sealed, err := c.inviteBack(ctx, o.peer, offer)
	if err != nil {
		return err
	}
	claim := &v1alpha1.PeeringClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: offer.invitation.Namespace, Name: v1alpha1.PeeringClaimName},
		Spec: v1alpha1.PeeringClaimSpec{
			Invitation: offer.invitation.ID, ClusterID: c.config.ClusterID, SealingKey: offer.key.Public(),
			InvitationBack: sealed, Version: c.config.Version,
		},
	}
	trust.SignClaim(c.config.ClusterKey, offer.invitation.PublicKey, &claim.Spec)
	if err := claimant.Claim(ctx, claim); err != nil && !apierrors.IsAlreadyExists(err) {
		return claimProblem(ctx, err, offer.invitation, o.now)
	}
	return waits("The peer was asked and has not answered yet")
}

// inviteBack returns our own invitation for the peer, sealed, if both sides want that and the peer has not used it.
func (c *sessionStep) inviteBack(ctx context.Context, peer *v1alpha1.Peer, offer *offer) (string, error) {
	if !offer.invitation.Mutual() || !invites(peer) {
		return "", nil
	}
	namespace := v1alpha1.TenantNamespace(peer.Name)
	ours, err := existing(ctx, c.direct, secret(namespace, v1alpha1.InvitationSecret))
	if err != nil {
		return "", err
	}
	used, err := existing(ctx, c.direct, claim(namespace))
	if err != nil {
		return "", err
	}
	if ours == nil || ours.Annotations[v1alpha1.AnnotationSerial] != strconv.FormatInt(peer.Spec.Invitation.Serial, 10) {
		if used != nil && invitationSeen(peer) {
			return "", nil
		}
		return "", waits("Our own invitation for the peer is not ready, and goes with the join: see condition Joined")
	}
	text := ours.Data[v1alpha1.InvitationToken]
	back, err := trust.ParseInvitation(string(text))
	switch {
	case err != nil:
		return "", waits("Our own invitation for the peer is not ready, and goes with the join: see condition Joined")
	case used != nil && used.Spec.Invitation == back.ID:
		return "", nil
	default:
		return trust.Seal(offer.invitation.SealingKey, text)
	}
}

// finish tells the peer that its answer has arrived, and throws the invitation away.
func (c *sessionStep) finish(ctx context.Context, o *observation, s *session) error {
	err := c.confirm(ctx, o, s)
	switch {
	case errors.As(err, &verdict{}):
		return err
	case isForbidden(err): // the peer binds our rights right now
		return waits("The peer has let us in, and we wait until our rights there are in force")
	case apierrors.IsNotFound(err):
		return errReplaced
	case err != nil:
		return claimProblem(ctx, err, s.offer.invitation, o.now)
	}
	if err := c.end(ctx, s.offer); err != nil {
		return err
	}
	c.recorder.Eventf(o.peer, nil, corev1.EventTypeNormal, v1alpha1.ReasonJoined, "JoinPeer",
		"This cluster has joined peer %q%s", o.peer.Name, directions(o.peer, s.offer.invitation))
	ctrl.LoggerFrom(ctx).Info("Joined", "clusterID", o.peer.Spec.ClusterID)
	s.offer, o.contact.introduced = nil, true
	return nil
}

// directions says why only one direction is agreed where one side wants both.
func directions(peer *v1alpha1.Peer, invitation *trust.Invitation) string {
	switch mutual, invited := invitation.Mutual(), invites(peer); {
	case mutual && !invited:
		return ". Only this direction is agreed: the peer would like to be invited back, and this Peer has no invitation for it"
	case !mutual && invited:
		return ". Only this direction is agreed: the peer did not ask to be invited back"
	default:
		return ""
	}
}

var errReplaced = fails(v1alpha1.ReasonInvitationUsed, "The peer has made a newer invitation for us while we used this one: join "+
	"with the newer one")

// confirm makes our claim at the peer say that we are here to stay, and which version of Hanse we run.
func (c *sessionStep) confirm(ctx context.Context, o *observation, s *session) error {
	link, err := c.links.Ensure(ctx, o.peer)
	if err != nil {
		return err
	}
	if link.Invitation() != s.holding.credentials.Invitation { // another part of this process has the old credentials
		return waits("The peer has let us in, and we wait until our rights there are in force")
	}
	claim := claim(link.TenantNamespace())
	if err := link.Client().Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
		return fmt.Errorf("read the PeeringClaim at peer %q: %w", o.peer.Name, err)
	}
	if claim.Spec.Invitation != link.Invitation() {
		return errReplaced
	}
	before := claim.DeepCopy()
	claim.Spec.Phase = cmp.Or(claim.Spec.Phase, v1alpha1.ClaimJoined) // one that says Leaving can never say anything else
	claim.Spec.Version = c.config.Version
	if claim.Spec == before.Spec {
		return nil
	}
	if err := link.Client().Patch(ctx, claim, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patch the PeeringClaim at peer %q: %w", o.peer.Name, err)
	}
	return nil
}
