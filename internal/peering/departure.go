package peering

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

// A departure is what the other side has said about parting from us.
type departure struct {
	// mode is how this side parts then: Agreed after a word of farewell, Forgotten where nothing of ours is left over
	// there. It is empty if the other side stays.
	mode v1alpha1.PartingMode
	// how tells the administrator how we know.
	how string
	// wrong is why a tombstone is not believed.
	wrong error
}

// departed says whether the other side has parted from us. That it answers with 401 or not at all says nothing.
func (c *Config) departed(peer *v1alpha1.Peer, f *facts) departure {
	if peer.HasRole(v1alpha1.RoleProvider) && f.probe.tombstone != "" {
		err := c.verify(peer, f.probe.tombstone, f.probe.link.Invitation())
		if err != nil {
			return departure{wrong: err}
		}
		return departure{mode: v1alpha1.PartingForgotten, how: "The peer has parted from this cluster by force and has left a " +
			"signed statement"}
	}
	if offer := f.offer; peer.HasRole(v1alpha1.RoleProvider) && offer != nil && offer.Spec.Phase == v1alpha1.OfferLeaving {
		return departure{mode: v1alpha1.PartingAgreed, how: "The peer parts from this cluster, which it has told in its advertisement"}
	}
	if !peer.HasRole(v1alpha1.RoleConsumer) {
		return departure{}
	}
	return c.departedBy(peer, f.claim)
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
	key, err := trust.ParsePublicKey(peer.Spec.PublicKey)
	if err != nil {
		return fmt.Errorf("read spec.publicKey: %w", err)
	}
	_, err = trust.VerifyTombstone(key, text, trust.Tombstone{
		From: peer.Spec.ClusterID, To: c.ClusterID, Invitation: invitation,
	})
	return err
}

// followSuit deletes the Peer of a cluster that has parted from us. It reports whether it did.
func (c *Controller) followSuit(ctx context.Context, peer *v1alpha1.Peer, d departure, known *state) (bool, error) {
	c.warn(peer, d.wrong, known)
	if d.mode == "" {
		return false, nil
	}
	if d.mode == v1alpha1.PartingForgotten {
		if err := c.partForgotten(ctx, peer); err != nil {
			return false, err
		}
	}
	uid := peer.UID
	if err := c.client.Delete(ctx, peer, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("delete Peer: %w", err)
	}
	c.recorder.Eventf(peer, nil, corev1.EventTypeWarning, v1alpha1.ReasonPeerLeft, "PartFromPeer",
		"%s: this Peer is deleted, with all that the two clusters had of each other", d.how)
	ctrl.LoggerFrom(ctx).Info("The peer has parted from us", "how", d.how)
	return true, nil
}

// partForgotten makes the Peer one that is parted from without another word, and without a tombstone.
func (c *Controller) partForgotten(ctx context.Context, peer *v1alpha1.Peer) error {
	if peer.Parting().Mode == v1alpha1.PartingForgotten {
		return nil
	}
	before := peer.DeepCopy()
	if peer.Spec.Parting == nil {
		peer.Spec.Parting = &v1alpha1.PeerParting{}
	}
	peer.Spec.Parting.Mode = v1alpha1.PartingForgotten
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.client.Patch(ctx, peer, patch); err != nil {
		return fmt.Errorf("set spec.parting.mode: %w", err)
	}
	return nil
}

// warn tells of a tombstone that is not believed, once for each cause.
func (c *Controller) warn(peer *v1alpha1.Peer, wrong error, known *state) {
	if wrong == nil {
		known.wrong = ""
		return
	}
	if known.wrong == wrong.Error() {
		return
	}
	known.wrong = wrong.Error()
	cause := "it is not what a tombstone looks like, or is of another parting"
	if errors.Is(wrong, trust.ErrSignature) {
		cause = "it is not signed with the key that spec.publicKey names"
	} else if errors.Is(wrong, trust.ErrKey) {
		cause = "spec.publicKey is not set, so nobody can tell whose it is"
	}
	c.recorder.Eventf(peer, nil, corev1.EventTypeWarning, v1alpha1.ReasonProofInvalid, "PartFromPeer",
		"The peer says that it has parted from this cluster, which is not believed: %s. If it is true, delete this Peer", cause)
}
