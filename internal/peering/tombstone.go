// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

// inform leaves a consumer a statement that we have parted from it, and the right to read it. One that has no identity
// here needs none.
func (c *leaveStep) inform(ctx context.Context, peer *v1alpha1.Peer, seen *parting) error {
	account := serviceAccount(seen.namespace.Name, v1alpha1.PeerServiceAccount)
	known, err := c.find(ctx, account)
	if err != nil || !known {
		return err
	}
	text, err := c.statement(peer.Spec.ClusterID, ptr.Deref(seen.claim, v1alpha1.PeeringClaim{}).Spec.Invitation)
	if err != nil {
		return err
	}
	stone := configMap(account.Namespace, v1alpha1.Tombstone)
	err = c.put(ctx, stone, func() {
		if len(stone.Data) == 0 { // what stands there already stays
			stone.Data = map[string]string{v1alpha1.TombstoneStatement: text}
		}
	})
	if err != nil {
		return err
	}
	seen.stone = stone
	subject := accountSubject(account.Namespace, account.Name)
	return c.bind(ctx, account.Namespace, v1alpha1.ClusterRolePeerTombstone, subject)
}

// statement is a signed one that we have parted from the cluster, with which we had become peers by the invitation.
func (d *deps) statement(clusterID, invitation string) (string, error) {
	return trust.SignTombstone(d.config.ClusterKey, trust.Tombstone{
		From: d.config.ClusterID, To: clusterID, Invitation: invitation, Time: d.config.Clock.Now(),
	})
}

// clear ends the tenant namespace, when nothing else of the peer is left: as a whole, or all but the tombstone.
func (c *leaveStep) clear(ctx context.Context, peer *v1alpha1.Peer, seen *parting) (obstacle, error) {
	going := obstacle{thing: "namespace " + v1alpha1.TenantNamespace(peer.Name) + " to go"}
	ns := seen.namespace
	switch {
	case seen.ending:
		return going, nil
	case ns == nil:
		return obstacle{}, nil
	}
	var credentials *corev1.Secret // by which we tell a provider that we have parted from it, when it answers again
	if seen.mode == v1alpha1.PartingForced && peer.HasRole(v1alpha1.RoleProvider) && peer.Protocol().Sessions {
		var err error
		if credentials, err = existing(ctx, c.direct, secret(ns.Name, v1alpha1.LinkSecret)); err != nil {
			return obstacle{}, err
		}
	}
	if seen.mode == v1alpha1.PartingForgotten || seen.stone == nil && credentials == nil {
		return going, c.removeExactly(ctx, ns)
	}
	if err := c.strip(ctx, ns.Name, seen.stone != nil, credentials != nil); err != nil {
		return obstacle{}, err
	}
	return obstacle{}, c.keepTombstone(ctx, ns)
}

// strip takes out of the tenant namespace what the tombstone does not need, which is for the peer to find, for us to deliver,
// or both. Bindings of our manager stay, by which it can.
func (c *leaveStep) strip(ctx context.Context, namespace string, found, delivered bool) error {
	needless := append(ofConsumer(namespace), secret(namespace, v1alpha1.JoinSecret),
		named(&v1alpha1.Connection{}, namespace, v1alpha1.ConnectionName))
	if !found {
		needless = append(needless, identityOfConsumer(namespace)...)
	}
	if !delivered {
		needless = append(needless, secret(namespace, v1alpha1.LinkSecret))
	}
	offers := &v1alpha1.AdvertisementList{}
	if err := c.client.List(ctx, offers, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list Advertisements: %w", err)
	}
	for i := range offers.Items {
		needless = append(needless, &offers.Items[i])
	}
	return errors.Join(
		c.remove(ctx, needless...),
		c.unbind(ctx, namespace, v1alpha1.ClusterRoleKubeletInTenant),
	)
}

// keepTombstone makes the tenant namespace the tombstone, in one step: before it the parting begins again, after it there is
// nothing left to do.
func (c *leaveStep) keepTombstone(ctx context.Context, ns *corev1.Namespace) error {
	expires := c.config.Clock.Now().Add(c.config.TombstoneLife).UTC().Format(time.RFC3339)
	return c.mark(ctx, ns, map[string]string{v1alpha1.LabelType: v1alpha1.TypeTombstone},
		map[string]string{v1alpha1.AnnotationExpires: expires})
}

// How often it is tried to deliver a statement: as long after the last time as that was after the parting, within these
// bounds.
const (
	firstDelivery = time.Minute
	lastDelivery  = time.Hour
)

// tombstoneStep looks after what is left of a former peer: it delivers the statement that is not for the peer to find, and
// ends the tombstone when that has served.
type tombstoneStep struct{ *leaveStep }

// Reconcile implements step.
func (c *tombstoneStep) Reconcile(ctx context.Context, o *observation) (result, error) {
	again, err := c.serve(ctx, o.namespace, o.peer)
	if err != nil || !again.IsZero() {
		return result{again: again}, err
	}
	c.links.Close(o.peer.Name)
	return result{}, c.removeExactly(ctx, o.namespace)
}

// serve tries to deliver our statement, if that is to be delivered. It returns when to look again, zero if there is nothing to
// keep the tombstone for.
func (c *tombstoneStep) serve(ctx context.Context, ns *corev1.Namespace, peer *v1alpha1.Peer) (time.Time, error) {
	expires, _ := time.Parse(time.RFC3339, ns.Annotations[v1alpha1.AnnotationExpires])
	now := c.config.Clock.Now()
	left := expires.Sub(now)
	if left <= 0 {
		return time.Time{}, nil
	}
	credentials, err := existing(ctx, c.direct, secret(ns.Name, v1alpha1.LinkSecret))
	if err != nil {
		return time.Time{}, err
	}
	if credentials != nil {
		if !c.deliver(ctx, peer, ns.Labels[v1alpha1.LabelClusterID], string(credentials.Data[v1alpha1.LinkSecretInvitation])) {
			return now.Add(min(left, max(c.config.TombstoneLife-left, firstDelivery), lastDelivery)), nil
		}
		c.links.Close(peer.Name)
		if err := c.remove(ctx, credentials); err != nil {
			return time.Time{}, err
		}
	}
	there, err := c.find(ctx, configMap(ns.Name, v1alpha1.Tombstone))
	if err != nil || !there {
		return time.Time{}, err
	}
	return now.Add(left), nil
}

// deliver tells the peer, over the link that is left, that we have parted from it. It reports whether that is done.
func (c *tombstoneStep) deliver(ctx context.Context, peer *v1alpha1.Peer, clusterID, invitation string) bool {
	log := ctrl.LoggerFrom(ctx).WithValues("peer", peer.Name)
	text, err := c.statement(clusterID, invitation)
	var link *peers.Link
	if err == nil {
		link, err = c.links.Ensure(ctx, peer)
	}
	if err == nil {
		err = tellLeaving(ctx, link, text)
	}
	if err == nil || apierrors.IsNotFound(err) {
		log.Info("The peer knows now that we have parted from it")
		return true
	}
	log.V(1).Info("The peer cannot be told yet that we have parted from it", "cause", err.Error())
	return false
}

// A departure is what the other side has said about parting from us.
type departure struct {
	// mode is how this side parts then: Agreed where the other side has told us so, Forgotten where nothing of ours is left
	// there. It is empty if the other side stays.
	mode v1alpha1.PartingMode
	// how tells the administrator how we know.
	how string
	// wrong is why a tombstone is not believed.
	wrong error
}

// departed says whether the other side has parted from us. That it answers with 401 or not at all says nothing.
func (c *Config) departed(o *observation) departure {
	peer, probe := o.peer, &o.contact.probe
	if peer.HasRole(v1alpha1.RoleProvider) && probe.tombstone != "" {
		err := c.verify(peer, probe.tombstone, probe.link.Invitation())
		if err != nil {
			return departure{wrong: err}
		}
		return departure{mode: v1alpha1.PartingForgotten, how: "The peer has parted from this cluster by force and has left a " +
			"signed statement"}
	}
	if offer := o.offer; peer.HasRole(v1alpha1.RoleProvider) && offer != nil && offer.Spec.Phase == v1alpha1.OfferLeaving {
		return departure{mode: v1alpha1.PartingAgreed, how: "The peer parts from this cluster, which it has told in its advertisement"}
	}
	if !peer.HasRole(v1alpha1.RoleConsumer) {
		return departure{}
	}
	return c.departedBy(peer, o.claim)
}

// departedBy says whether the claim of a consumer takes leave. Only of one that was let in is anything believed: whoever
// has an invitation can write a claim.
func (c *Config) departedBy(peer *v1alpha1.Peer, claim *v1alpha1.PeeringClaim) departure {
	switch {
	case !accepted(claim) || claim.Spec.ClusterID != peer.Spec.ClusterID:
		return departure{}
	case claim.Spec.Tombstone != "":
		if err := c.verify(peer, claim.Spec.Tombstone, claim.Spec.Invitation); err != nil {
			return departure{wrong: err}
		}
		return departure{mode: v1alpha1.PartingForgotten, how: "The peer has parted from this cluster by force and has sent a " +
			"signed statement"}
	case claim.Spec.Phase == v1alpha1.ClaimLeaving:
		return departure{mode: v1alpha1.PartingAgreed, how: "The peer parts from this cluster, which it has told in its claim"}
	default:
		return departure{}
	}
}

// accepted reports whether the claimer was let in.
func accepted(claim *v1alpha1.PeeringClaim) bool {
	return claim != nil && meta.IsStatusConditionTrue(claim.Status.Conditions, v1alpha1.ConditionAccepted)
}

// verify checks that a statement is the tombstone of the peer's parting from us.
func (c *Config) verify(peer *v1alpha1.Peer, text, invitation string) error {
	return trust.VerifyTombstone(peer.Spec.PublicKey, text, trust.Tombstone{
		From: peer.Spec.ClusterID, To: c.ClusterID, Invitation: invitation,
	})
}

// followStep deletes the Peer of a cluster that has parted from us.
type followStep struct{ *deps }

// Reconcile implements step.
func (c *followStep) Reconcile(ctx context.Context, o *observation) (result, error) {
	if o.deleted() {
		return result{}, nil
	}
	peer, d := o.peer, c.config.departed(o)
	c.warn(peer, d.wrong, o.known)
	if d.mode == "" {
		return result{}, nil
	}
	if d.mode == v1alpha1.PartingForgotten {
		if err := c.partForgotten(ctx, peer); err != nil {
			return result{stop: true}, err
		}
	}
	if err := c.removeExactly(ctx, peer); err != nil {
		return result{stop: true}, err
	}
	c.recorder.Eventf(peer, nil, corev1.EventTypeWarning, v1alpha1.ReasonPeerLeft, "PartFromPeer",
		"%s: this Peer is deleted, with all that the two clusters had of each other", d.how)
	ctrl.LoggerFrom(ctx).Info("The peer has parted from us", "how", d.how)
	return result{stop: true}, nil
}

// partForgotten makes the Peer one that is parted from without another word, and without a tombstone.
func (d *deps) partForgotten(ctx context.Context, peer *v1alpha1.Peer) error {
	err := d.patch(ctx, peer, func() {
		parting := ptr.Deref(peer.Spec.Parting, v1alpha1.PeerParting{})
		parting.Mode = v1alpha1.PartingForgotten
		peer.Spec.Parting = &parting
	})
	if err != nil {
		return fmt.Errorf("set spec.parting.mode: %w", err)
	}
	return nil
}

// warn tells of a tombstone that is not believed, once for each cause.
func (c *followStep) warn(peer *v1alpha1.Peer, wrong error, known *state) {
	if wrong == nil {
		known.warned = ""
		return
	}
	if known.warned == wrong.Error() {
		return
	}
	known.warned = wrong.Error()
	cause := "it is not what a tombstone looks like, or is of another parting"
	if errors.Is(wrong, trust.ErrSignature) {
		cause = "it is not signed with the key that spec.publicKey names"
	} else if errors.Is(wrong, trust.ErrKey) {
		cause = "spec.publicKey is not set, so nobody can tell whose it is"
	}
	c.recorder.Eventf(peer, nil, corev1.EventTypeWarning, v1alpha1.ReasonProofInvalid, "PartFromPeer",
		"The peer says that it has parted from this cluster, which is not believed: %s. If it is true, delete this Peer", cause)
}
