// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/trust"
)

// directed are the statements of that type that others have made to us.
func (m *member) directed(seen *scene, kind trust.StatementType) iter.Seq2[*v1alpha1.Message, *trust.Statement] {
	return func(yield func(*v1alpha1.Message, *trust.Statement) bool) {
		for _, object := range seen.mail.List() {
			message := object.(*v1alpha1.Message)
			if !message.Relayed() {
				continue
			}
			said := m.statement(seen, message)
			if said == nil || said.Type != kind {
				continue
			}
			if said.To != m.ClusterID {
				m.refuse(seen, message, &trust.Refusal{Reason: v1alpha1.ReasonMisaddressed, Message: "it is for another cluster"})
				continue
			}
			if !yield(message, said) {
				return
			}
		}
	}
}

// answerAll answers the members that have asked something of that type.
func (m *member) answerAll(ctx context.Context, seen *scene, kind trust.StatementType, answer func(context.Context, *scene, *v1alpha1.Message, *trust.Statement) error) {
	for message, said := range m.directed(seen, kind) {
		if err := answer(ctx, seen, message, said); isRefusal(err) {
			m.refuse(seen, message, err)
		} else {
			seen.note(err)
		}
	}
}

// sender is the Member that has made the statement. The error is a Refusal if that is not believed.
func (s *scene) sender(said *trust.Statement) (*v1alpha1.Member, error) {
	from := s.members[said.From]
	if !isNamed(from) {
		return nil, &trust.Refusal{Reason: v1alpha1.ReasonUnknownMember, Message: "the member has not introduced itself, or no broker names it any more"}
	}
	return from, said.Judge(from.Spec.PublicKey, 0)
}

// invite answers one member that asks for an invitation. The error is a Refusal if it is not believed.
func (m *member) invite(ctx context.Context, seen *scene, _ *v1alpha1.Message, said *trust.Statement) error {
	from, err := seen.sender(said)
	if err == nil {
		err = said.Judge(from.Spec.PublicKey, from.Status.HandOverSequence)
	}
	if err != nil {
		return err
	}
	request := trust.HandOverRequest{}
	if err := said.Read(&request); err != nil {
		return err
	}
	if said.Sequence == from.Status.HandOverSequence {
		return nil // answered, whatever has become of the Peer since
	}
	reply := trust.HandOverResponse{Request: said.Sequence}
	peer := peerOf(seen.peers, from.Name)
	if reply.Refusal = m.objection(seen, from, peer); reply.Refusal == "" {
		if peer == nil {
			if peer, err = m.let(ctx, seen, from); err != nil {
				return err
			}
		}
		if reply.Invitation, err = m.invitationFor(ctx, peer, request.SealingKey); err != nil {
			return err
		}
		if reply.Invitation == "" {
			seen.soon(lookSoon)
			return nil
		}
	}
	_, before := m.own(seen, "answer."+from.Name)
	statement := trust.Statement{
		Type: trust.HandOverAnswer, To: from.Name, Sequence: trust.NextSequence(seen.now, before), Expires: seen.now.Add(handOverLife),
	}
	err = m.send(ctx, seen, "answer."+from.Name, statement, reply)
	if errors.Is(err, trust.ErrStatementSize) { // by the certificates of our API server
		reply.Invitation, reply.Refusal = "", "its invitation is too large for a broker: ask its administrator for it (`kubectl hanse invite`)"
		err = m.send(ctx, seen, "answer."+from.Name, statement, reply)
	}
	if err != nil {
		return err
	}
	status := from.Status.DeepCopy()
	status.HandOverSequence = said.Sequence
	return m.write(ctx, seen, from, status)
}

// objection says why the member may not become our consumer, or "".
func (m *member) objection(seen *scene, from *v1alpha1.Member, peer *v1alpha1.Peer) string {
	switch {
	case peer == nil && !seen.broker.AcceptsMember(from.Name):
		return fmt.Sprintf("%s does not let it become its consumer: spec.acceptMembers of its Peer for the broker must name it", m.ClusterID)
	case peer == nil && slices.ContainsFunc(seen.peers, func(p v1alpha1.Peer) bool { return p.Name == from.Name && !onlyDiscovered(&p, from) }):
		return fmt.Sprintf("%s has another peer of that name", m.ClusterID)
	case peer == nil:
		return ""
	case !peer.DeletionTimestamp.IsZero():
		return fmt.Sprintf("%s is parting from it", m.ClusterID)
	case peer.Spec.PublicKey != from.Spec.PublicKey: // or by none: an invitation is for whom its administrator gives it to
		return fmt.Sprintf("%s does not know it by that key", m.ClusterID)
	case !peer.HasRole(v1alpha1.RoleConsumer) || peer.Spec.Invitation == nil:
		return fmt.Sprintf("%s knows it, and not as a consumer that is invited: its administrator must invite it (`kubectl hanse invite`)", m.ClusterID)
	case meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.ConditionJoined):
		return fmt.Sprintf("the two are peers: after an outage, ask the administrator of %s to renew that (`kubectl hanse invite --renew`)", m.ClusterID)
	default:
		return ""
	}
}

// onlyDiscovered says whether the Peer stands for the member, and nobody has said what it is, nor that it has another key.
func onlyDiscovered(peer *v1alpha1.Peer, from *v1alpha1.Member) bool {
	return peer.Spec.ClusterID == from.Name && len(peer.Spec.Roles) == 0 && peer.DeletionTimestamp.IsZero() &&
		(peer.Spec.PublicKey == "" || peer.Spec.PublicKey == from.Spec.PublicKey)
}

// let makes the Peer by which the member becomes our consumer.
func (m *member) let(ctx context.Context, seen *scene, from *v1alpha1.Member) (*v1alpha1.Peer, error) {
	peer := &v1alpha1.Peer{}
	discovered := slices.IndexFunc(seen.peers, func(p v1alpha1.Peer) bool { return p.Name == from.Name })
	if discovered >= 0 {
		peer = seen.peers[discovered].DeepCopy()
	}
	before := peer.DeepCopy()
	peer.Name = from.Name
	metav1.SetMetaDataAnnotation(&peer.ObjectMeta, v1alpha1.AnnotationIntroducedBy, seen.broker.Name)
	peer.Spec.ClusterID, peer.Spec.PublicKey = from.Name, from.Spec.PublicKey
	peer.Spec.Roles, peer.Spec.Invitation = []v1alpha1.PeerRole{v1alpha1.RoleConsumer}, &v1alpha1.PeerInvitation{}
	var err error
	if discovered >= 0 {
		err = m.Client.Patch(ctx, peer, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	} else {
		err = m.Client.Create(ctx, peer)
	}
	if err != nil {
		return nil, fmt.Errorf("let member %s become a consumer: %w", from.Name, err)
	}
	return peer, nil
}

// invitationFor is our invitation for the peer, encrypted, and empty while there is none.
func (m *member) invitationFor(ctx context.Context, peer *v1alpha1.Peer, sealingKey string) (string, error) {
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: v1alpha1.InvitationSecret}
	secret, err := local.Find(ctx, m.direct, key, &corev1.Secret{})
	if apierrors.IsForbidden(err) { // the namespace is so new that our rights in it are not known yet
		return "", nil
	}
	if err != nil || secret == nil || len(secret.Data[v1alpha1.InvitationToken]) == 0 {
		return "", err
	}
	sealed, err := trust.Seal(sealingKey, secret.Data[v1alpha1.InvitationToken])
	if err != nil {
		return "", &trust.Refusal{Reason: v1alpha1.ReasonMalformed, Message: "sealingKey: " + err.Error()}
	}
	return sealed, nil
}
