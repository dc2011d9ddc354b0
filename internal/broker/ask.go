// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/sanitize"
	"github.com/hanse-dev/hanse/internal/trust"
)

// askAll asks for the invitations that are wanted through this broker, and uses those that have come.
func (m *member) askAll(ctx context.Context, seen *scene) {
	for i := range seen.peers {
		wanted := &seen.peers[i]
		if wanted.Spec.Introducer != seen.broker.Name || !wanted.DeletionTimestamp.IsZero() {
			continue
		}
		said, err := m.ask(ctx, seen, wanted.DeepCopy())
		seen.note(err)
		if said != nil {
			seen.note(introduced.say(ctx, m.Client, wanted, *said))
		}
	}
}

// ask asks for the invitation of one Peer, and returns how that stands.
func (m *member) ask(ctx context.Context, seen *scene, wanted *v1alpha1.Peer) (*metav1.Condition, error) {
	message, request := m.ourRequest(seen, wanted.Spec.ClusterID)
	if !wanted.AwaitsInvitation() {
		if message != nil {
			return nil, m.remove(ctx, seen, message)
		}
		if wanted.HasRole(v1alpha1.RoleBroker) { // what its members know is said of it from now on
			return nil, nil
		}
		return &metav1.Condition{
			Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonIntroduced,
			Message: "An invitation came through " + seen.broker.Name + ", which is not needed any more",
		}, nil
	}
	known := seen.members[wanted.Spec.ClusterID]
	switch {
	case known == nil:
		return notYet(v1alpha1.ReasonUnknownMember, "Nothing is known of cluster %s through %s: see `kubectl get members`",
			wanted.Spec.ClusterID, seen.broker.Name), nil
	case !isNamed(known):
		return notYet(v1alpha1.ReasonNotHeard, "No broker names member %s any more, so that it cannot be asked: see `kubectl get members`", known.Name), nil
	case wanted.Spec.PublicKey != "" && wanted.Spec.PublicKey != known.Spec.PublicKey:
		return notYet(v1alpha1.ReasonKeyMismatch, "The key in spec.publicKey is not the one by which member %s is known. Ask its administrator",
			known.Name), nil
	case request == nil || introducedOf(wanted) == nil: // what was answered to an earlier Peer of that name says nothing about this one
		return m.request(ctx, seen, wanted, known)
	}
	return m.follow(ctx, seen, wanted, message, request)
}

// ourRequest is what we have asked of the cluster. A broker may have put something else there that we have said.
func (m *member) ourRequest(seen *scene, clusterID string) (*v1alpha1.Message, *trust.Statement) {
	message, said := m.own(seen, "hand-over."+clusterID)
	if said != nil && (said.Type != trust.HandOver || said.To != clusterID) {
		return message, nil
	}
	return message, said
}

// follow returns how a request stands that we have made, and uses the invitation when it has come.
func (m *member) follow(
	ctx context.Context, seen *scene, wanted *v1alpha1.Peer, message *v1alpha1.Message, request *trust.Statement,
) (*metav1.Condition, error) {
	known := seen.members[request.To]
	answer, lost := m.answerTo(seen, known, request), notRelayed(message)
	answered := answer != nil && answer.Request == request.Sequence
	switch {
	case !answered && lost != "":
		return notYet(v1alpha1.ReasonPending, "%s does not bring %s our request: %s", seen.broker.Name, known.Name, lost), nil
	case answer == nil || !answered && (answer.Refusal == "" || introducedOf(wanted).Reason != v1alpha1.ReasonNotAccepted):
		return notYet(v1alpha1.ReasonPending, "%s was asked for an invitation through %s, and has not answered", known.Name, seen.broker.Name), nil
	case answer.Refusal == "":
		return m.use(ctx, wanted, request, answer)
	}
	if answered && seen.now.Sub(time.Unix(0, request.Sequence)) >= askAgain { // its administrator may have changed that
		if _, err := m.request(ctx, seen, wanted, known); err != nil {
			return nil, err
		}
	}
	seen.soon(askAgain)
	return notYet(v1alpha1.ReasonNotAccepted, "%s gives no invitation: %s", known.Name, sanitize.Text(answer.Refusal, maxWords)), nil
}

// introducedOf is condition Introduced of the Peer, nil if there is none.
func introducedOf(peer *v1alpha1.Peer) *metav1.Condition {
	return meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionIntroduced)
}

func notYet(reason, format string, args ...any) *metav1.Condition {
	return &metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// request asks the member. From now on the Peer stands for the cluster with that key, and for no other.
func (m *member) request(ctx context.Context, seen *scene, wanted *v1alpha1.Peer, known *v1alpha1.Member) (*metav1.Condition, error) {
	if wanted.Spec.PublicKey == "" {
		before := wanted.DeepCopy()
		wanted.Spec.PublicKey = known.Spec.PublicKey
		if err := m.Client.Patch(ctx, wanted, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return nil, fmt.Errorf("pin the key of Peer %s: %w", wanted.Name, err)
		}
	}
	sequence := seen.now.UnixNano()
	key, err := trust.HandOverKey(m.Key, known.Name, sequence)
	if err != nil {
		return nil, err
	}
	statement := trust.Statement{Type: trust.HandOver, To: known.Name, Sequence: sequence, Expires: seen.now.Add(handOverLife)}
	if err := m.send(ctx, seen, "hand-over."+known.Name, statement, trust.HandOverRequest{SealingKey: key.Public()}); err != nil {
		return nil, err
	}
	return notYet(v1alpha1.ReasonPending, "%s is asked for an invitation through %s", known.Name, seen.broker.Name), nil
}

// answerTo is what the member has answered to our request, or last to an earlier one, nil if nothing that is believed.
func (m *member) answerTo(seen *scene, known *v1alpha1.Member, request *trust.Statement) *trust.HandOverResponse {
	var last *trust.HandOverResponse
	for message, said := range m.directed(seen, trust.HandOverAnswer) {
		if said.From != known.Name {
			continue
		}
		answer := &trust.HandOverResponse{}
		if err := errors.Join(said.Judge(known.Spec.PublicKey, 0), said.Read(answer)); err != nil {
			m.refuse(seen, message, err)
			continue
		}
		if answer.Request <= request.Sequence && (last == nil || answer.Request > last.Request) {
			last = answer
		}
	}
	return last
}

var errOtherCluster = errors.New("it is of another cluster, or of another key")

// use brings the invitation to where an administrator would bring it.
func (m *member) use(ctx context.Context, wanted *v1alpha1.Peer, request *trust.Statement, answer *trust.HandOverResponse) (*metav1.Condition, error) {
	key, err := trust.HandOverKey(m.Key, request.To, request.Sequence)
	if err != nil {
		return nil, err
	}
	text, err := key.Open(answer.Invitation)
	invitation := &trust.Invitation{}
	if err == nil {
		invitation, err = trust.ParseInvitation(string(text))
	}
	if err == nil && (invitation.ClusterID != wanted.Spec.ClusterID || invitation.PublicKey != wanted.Spec.PublicKey) {
		err = errOtherCluster
	}
	if err != nil {
		return notYet(v1alpha1.ReasonMalformed, "The invitation that %s has sent cannot be used: %v", request.To, err), nil
	}
	came := notYet(v1alpha1.ReasonPending, "The invitation of %s has come, and is being used: see condition Session", request.To)
	if wanted.Annotations[v1alpha1.AnnotationJoin] == invitation.ID {
		return came, nil
	}
	if err := m.store(ctx, wanted.Name, text); err != nil {
		return nil, err
	}
	before := wanted.DeepCopy()
	metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, v1alpha1.AnnotationJoin, invitation.ID) // has the manager look at the Secret
	if err := m.Client.Patch(ctx, wanted, client.MergeFrom(before)); err != nil {
		return nil, fmt.Errorf("announce the invitation of Peer %s: %w", wanted.Name, err)
	}
	return came, nil
}

// store writes the invitation into Secret hanse-join.
func (m *member) store(ctx context.Context, peer string, text []byte) error {
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer), Name: v1alpha1.JoinSecret}
	secret, err := local.Find(ctx, m.direct, key, &corev1.Secret{})
	if err != nil {
		return err
	}
	data := map[string][]byte{v1alpha1.InvitationToken: text}
	if secret == nil {
		err = m.direct.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Data: data})
	} else {
		secret.Data = data
		err = m.direct.Update(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("write the invitation of Peer %s: %w", peer, err)
	}
	return nil
}
