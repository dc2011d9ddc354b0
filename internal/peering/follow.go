package peering

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

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
