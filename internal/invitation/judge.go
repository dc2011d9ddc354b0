package invitation

import (
	"fmt"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

// A verdict is what we think of a claim.
type verdict struct {
	reason string // why it is refused, or ""
	back   string // the invitation that the consumer brought along for us, or ""
	backID string // and its id
}

// judge says whether the claimer becomes our peer. Whatever the claim says comes from somebody who has the invitation,
// and from whom else nobody knows yet.
func judge(f *facts, others []v1alpha1.Peer) verdict {
	claim := &f.claim.Spec
	switch {
	case f.invitation == nil || f.over(0):
		return verdict{reason: v1alpha1.ReasonInvitationExpired}
	case claim.Invitation != f.invitation.ID:
		return verdict{reason: v1alpha1.ReasonInvitationInvalid}
	case trust.VerifyClaim(f.draft.PublicKey, claim) != nil || !sealable(claim.SealingKey):
		return verdict{reason: v1alpha1.ReasonProofInvalid}
	}
	if reason := stranger(f, others); reason != "" {
		return verdict{reason: reason}
	}
	if !f.peer.HasRole(v1alpha1.RoleProvider) || !f.invitation.Mutual() || claim.InvitationBack == "" {
		return verdict{}
	}
	return judgeBack(f)
}

// stranger returns why the claimer is not the cluster that may become this peer, or "".
func stranger(f *facts, others []v1alpha1.Peer) string {
	claim, pinned := &f.claim.Spec, &f.peer.Spec
	switch {
	case claim.ClusterID == f.draft.ClusterID:
		return v1alpha1.ReasonClusterIDMismatch
	case pinned.ClusterID != "" && pinned.ClusterID != claim.ClusterID:
		return v1alpha1.ReasonClusterIDMismatch
	case pinned.PublicKey != "" && pinned.PublicKey != claim.PublicKey:
		return v1alpha1.ReasonKeyMismatch
	}
	for i := range others {
		// One without roles was only discovered, and may be a lie.
		if others[i].Name != f.peer.Name && others[i].Spec.ClusterID == claim.ClusterID && len(others[i].Spec.Roles) > 0 {
			return v1alpha1.ReasonClusterIDTaken
		}
	}
	return ""
}

// judgeBack opens the invitation back. It must be the claimer's own: else it would make us join a cluster that has not
// asked for it.
func judgeBack(f *facts) verdict {
	invalid := verdict{reason: v1alpha1.ReasonInvitationInvalid}
	key, err := trust.ParseSealingKey(string(f.secret.Data[sealingKey]))
	if err != nil {
		return invalid
	}
	text, err := key.Open(f.claim.Spec.InvitationBack)
	if err != nil {
		return invalid
	}
	back, err := trust.ParseInvitation(string(text))
	if err != nil || back.ClusterID != f.claim.Spec.ClusterID || back.PublicKey != f.claim.Spec.PublicKey {
		return invalid
	}
	return verdict{back: string(text), backID: back.ID}
}

func sealable(key string) bool {
	_, err := trust.Seal(key, nil)
	return err == nil
}

// refusalForThem says to the claimer why it was refused, and no more than it knows anyway.
func refusalForThem(reason string) string {
	switch reason {
	case v1alpha1.ReasonInvitationExpired:
		return "The invitation has ended: ask the provider's administrator for another one"
	case v1alpha1.ReasonInvitationInvalid:
		return "The claim names another invitation, or the invitation that it brings along is not its own: ask the " +
			"provider's administrator for another one, and join again"
	case v1alpha1.ReasonProofInvalid:
		return "The claim is not signed with the key that it names"
	case v1alpha1.ReasonKeyMismatch:
		return "The provider knows a cluster of this id by another key: its administrator must set publicKey of the Peer to " +
			"the key of this cluster, and invite it again"
	case v1alpha1.ReasonClusterIDMismatch:
		return "The invitation is for a cluster of another id: ask the provider's administrator for one of your own"
	default:
		return "The provider has another Peer for a cluster of this id: ask its administrator to delete that one, or to " +
			"renew its invitation"
	}
}

// refusalForUs says to our administrator why the claim was refused.
func refusalForUs(f *facts, reason string) string {
	claim, again := &f.claim.Spec, fmt.Sprintf("`kubectl hanse invite %s --renew`", f.peer.Name)
	switch reason {
	case v1alpha1.ReasonInvitationExpired:
		return "The invitation was claimed after it had ended: run " + again
	case v1alpha1.ReasonInvitationInvalid:
		return fmt.Sprintf("The claim of cluster %q names another invitation, or brings one along that is not its own: run %s",
			claim.ClusterID, again)
	case v1alpha1.ReasonProofInvalid:
		return fmt.Sprintf("Whoever claimed the invitation as cluster %q does not have that cluster's key; if the invitation "+
			"may be in wrong hands, run %s and send it another way", claim.ClusterID, again)
	case v1alpha1.ReasonKeyMismatch:
		return fmt.Sprintf("The invitation was claimed by a cluster that calls itself %q and has another key than this Peer; "+
			"if you know that it was installed anew, set publicKey of this Peer to %s and run %s",
			claim.ClusterID, claim.PublicKey, again)
	case v1alpha1.ReasonClusterIDMismatch:
		return fmt.Sprintf("The invitation was claimed by cluster %q, which is not the one that it was for: run %s, and make "+
			"another Peer for that cluster", claim.ClusterID, again)
	default:
		return fmt.Sprintf("The invitation was claimed by cluster %q, and another Peer stands for a cluster of that id: see "+
			"`kubectl get peers`, and delete one of the two", claim.ClusterID)
	}
}
