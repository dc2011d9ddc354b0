// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
)

// An asker is who asks by a Request or a Quote in the tenant namespace of a peer: the peer itself, or a member for which that one is the
// broker.
type asker struct {
	peer    *v1alpha1.Peer // an empty one if it is gone
	id, key string         // what is asked is signed by that key
	// member is the id of the member, empty if the peer itself asks, and marks are what the broker says of it, nil if nothing.
	member string
	marks  *v1alpha1.MemberMarks
	// invited says that the member is to become a consumer anyhow, by its administrator's invitation.
	invited bool
}

// askerOf returns an asker without a key if nothing is known of the member: nothing that it has signed is believed.
func askerOf(ctx context.Context, c client.Client, asked client.Object, peer *v1alpha1.Peer) (*asker, error) {
	from := asked.GetLabels()[v1alpha1.LabelFrom]
	if from == "" {
		return &asker{peer: peer, id: peer.Spec.ClusterID, key: peer.Spec.PublicKey}, nil
	}
	who := &asker{peer: peer, id: from, member: from}
	known, err := local.Find(ctx, c, client.ObjectKey{Name: from}, &v1alpha1.Member{})
	if known == nil || err != nil {
		return who, err
	}
	who.key, who.marks = known.Spec.PublicKey, known.MarksOf(peer.Name)
	own, err := local.Find(ctx, c, client.ObjectKey{Name: from}, &v1alpha1.Peer{})
	who.invited = own != nil && own.HasRole(v1alpha1.RoleConsumer) && own.Spec.PublicKey == who.key
	return who, err
}

// parted says whether the peer is not any more by what it asks.
func (a *asker) parted() bool {
	role := v1alpha1.RoleConsumer
	if a.member != "" {
		role = v1alpha1.RoleBroker
	}
	return !a.peer.HasRole(role) || !a.peer.DeletionTimestamp.IsZero()
}

// barred says why nothing is taken in of who asks, as the reason and the message of a condition; both are empty if something is. A member
// need not be let in as its broker is.
func (a *asker) barred() (reason, message string) {
	if a.member == "" {
		return barred(a.peer)
	}
	switch {
	case a.parted():
		return v1alpha1.ReasonParting, "The provider is no member of this broker, or is parting from it"
	case !a.invited && !a.peer.AcceptsMember(a.member): // a broker that is a consumer too may write here itself
		return v1alpha1.ReasonNotAccepted, "The provider does not let the member become its consumer: spec.acceptMembers of its Peer for the broker must name it"
	default:
		return "", ""
	}
}
