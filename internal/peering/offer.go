// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/sanitize"
	"github.com/hanse-dev/hanse/internal/trust"
)

// Our notes in the Secrets hanse-join and hanse-link are annotations, so that a restart loses nothing: on JoinSecret the id of
// the invitation that the other notes are about, and why the invitation can never be used; on LinkSecret when the session
// was made or renewed, by our clock.

// An offer is what lies in JoinSecret: an invitation that the peer gave us, and our notes on it.
type offer struct {
	secret     *corev1.Secret
	invitation *trust.Invitation // nil if it is none
	problem    error             // why it is none
	key        *trust.SealingKey // nil while there is none
	refusal    verdict           // why it can never be used
}

func parseOffer(secret *corev1.Secret) *offer {
	o := &offer{secret: secret}
	o.invitation, o.problem = trust.ParseInvitation(string(secret.Data[v1alpha1.InvitationToken]))
	if o.problem != nil || secret.Annotations[v1alpha1.AnnotationInvitation] != o.invitation.ID {
		return o
	}
	if key, err := trust.ParseSealingKey(string(secret.Data[sealingKey])); err == nil {
		o.key = &key
	}
	if reason := secret.Annotations[v1alpha1.AnnotationRefusal]; reason != "" {
		o.refusal = refuses(reason, "%s", secret.Annotations[v1alpha1.AnnotationRefusalMessage])
	}
	return o
}

// A holding is what lies in LinkSecret: our credentials at the peer, and when they were made.
type holding struct {
	secret      *corev1.Secret
	credentials peers.Credentials
	problem     error // why they cannot be used
	issued      time.Time
	expires     time.Time
}

func parseHolding(secret *corev1.Secret) *holding {
	h := &holding{secret: secret}
	h.credentials, h.problem = peers.ParseCredentials(secret.Data)
	h.issued, _ = time.Parse(time.RFC3339Nano, secret.Annotations[v1alpha1.AnnotationIssued])
	h.expires, _ = time.Parse(time.RFC3339Nano, secret.Annotations[v1alpha1.AnnotationExpires])
	return h
}

// byHand reports whether the credentials did not come by an invitation. Those are not ours to keep.
func (h *holding) byHand() bool { return len(h.secret.Data[v1alpha1.LinkSecretInvitation]) == 0 }

// kept reports whether there is a session that we keep.
func (h *holding) kept() bool { return h != nil && !h.byHand() && h.problem == nil }

// from reports whether the session came by the invitation.
func (h *holding) from(invitation string) bool {
	return h.kept() && h.credentials.Invitation == invitation
}

// version tells one session from the next.
func (h *holding) version() string { return h.credentials.Invitation + "/" + h.issued.String() }

// begin makes the one-time key of the offer, unless there is one.
func (d *deps) begin(ctx context.Context, o *offer) error {
	if o.key != nil {
		return nil
	}
	key, err := trust.NewSealingKey()
	if err != nil {
		return err
	}
	o.secret.Data[sealingKey] = []byte(key.Format())
	metav1.SetMetaDataAnnotation(&o.secret.ObjectMeta, v1alpha1.AnnotationInvitation, o.invitation.ID)
	delete(o.secret.Annotations, v1alpha1.AnnotationRefusal)
	delete(o.secret.Annotations, v1alpha1.AnnotationRefusalMessage)
	if err := d.write(ctx, o.secret); err != nil {
		return err
	}
	o.key = &key
	return nil
}

// refuse notes why the offer can never be used: the peer forgets it soon.
func (d *deps) refuse(ctx context.Context, o *offer, why verdict) error {
	metav1.SetMetaDataAnnotation(&o.secret.ObjectMeta, v1alpha1.AnnotationRefusal, why.reason)
	metav1.SetMetaDataAnnotation(&o.secret.ObjectMeta, v1alpha1.AnnotationRefusalMessage, why.message)
	return d.write(ctx, o.secret)
}

// end deletes the offer that was used, but not one that has come into its place.
func (d *deps) end(ctx context.Context, o *offer) error {
	err := d.client.Delete(ctx, o.secret, client.Preconditions{UID: &o.secret.UID, ResourceVersion: &o.secret.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Secret %s: %w", client.ObjectKeyFromObject(o.secret), err)
	}
	return nil
}

// store writes the session into LinkSecret. The version of the Secret goes along: if somebody has put other credentials there
// meanwhile, theirs stay.
func (d *deps) store(
	ctx context.Context, o *observation, s *session, credentials peers.Credentials, given trust.Session,
) error {
	credentials.Token = given.Token
	data, err := credentials.SecretData()
	if err != nil {
		return fmt.Errorf("store the session: %w", err)
	}
	held := secret(o.namespace.Name, v1alpha1.LinkSecret)
	if s.holding != nil {
		held = s.holding.secret.DeepCopy()
	}
	held.Data = data
	metav1.SetMetaDataAnnotation(&held.ObjectMeta, v1alpha1.AnnotationIssued, o.now.UTC().Format(time.RFC3339Nano))
	metav1.SetMetaDataAnnotation(&held.ObjectMeta, v1alpha1.AnnotationExpires, given.Expires.UTC().Format(time.RFC3339))
	if err := d.write(ctx, held); err != nil {
		return err
	}
	s.holding = parseHolding(held)
	return nil
}

// write updates the Secret as it was read, or creates one that was not.
func (d *deps) write(ctx context.Context, secret *corev1.Secret) error {
	do := func() error { return d.client.Update(ctx, secret) }
	if secret.ResourceVersion == "" {
		do = func() error { return d.client.Create(ctx, secret) }
	}
	if err := do(); err != nil {
		return fmt.Errorf("write Secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	return nil
}

// maxWords bounds what we repeat of a peer's words.
const maxWords = 256

// judge says whether our side may use the offer at all. takenBy names another Peer that stands for the same cluster.
func (o *offer) judge(peer *v1alpha1.Peer, ours, takenBy string) verdict {
	i := o.invitation
	if i == nil {
		return refuses(v1alpha1.ReasonInvitationInvalid, "What lies in Secret %s is no invitation that can be used: %v. Ask for "+
			"the whole line that `kubectl hanse invite` prints at the peer", secretName(peer, v1alpha1.JoinSecret), o.problem)
	}
	switch reason := stranger(peer, ours, i.ClusterID, i.PublicKey, takenBy); reason {
	case v1alpha1.ReasonClusterIDMismatch:
		return refuses(reason, "The invitation comes from cluster %q, but this Peer is %q, and this cluster %q: use the invitation "+
			"of that cluster, in the cluster that it was made for, or join under another name", i.ClusterID, peer.Spec.ClusterID, ours)
	case v1alpha1.ReasonClusterIDTaken:
		return refuses(reason, "The invitation comes from cluster %q, for which Peer %q stands already: join under that name, or "+
			"delete that Peer first", i.ClusterID, takenBy)
	case v1alpha1.ReasonKeyMismatch:
		return refuses(reason, "The invitation comes from a cluster that calls itself %q and has another key than the one in "+
			"spec.publicKey. Ask its administrator: only if the key was replaced there, set spec.publicKey to %s", i.ClusterID, i.PublicKey)
	default:
		return o.refusal
	}
}

// stranger returns why the cluster of that id and key may not become the peer of ours, or "". takenBy names another Peer that
// stands for it.
func stranger(peer *v1alpha1.Peer, ours, clusterID, publicKey, takenBy string) string {
	switch pinned := &peer.Spec; {
	case clusterID == ours, pinned.ClusterID != "" && pinned.ClusterID != clusterID:
		return v1alpha1.ReasonClusterIDMismatch
	case pinned.PublicKey != "" && pinned.PublicKey != publicKey:
		return v1alpha1.ReasonKeyMismatch
	case takenBy != "":
		return v1alpha1.ReasonClusterIDTaken
	default:
		return ""
	}
}

// takenBy names the first other Peer that stands for the cluster.
func takenBy(all []v1alpha1.Peer, name, clusterID string) string {
	first := ""
	for i := range all {
		// One without roles was only discovered, and may be a lie.
		other := all[i].Name != name && all[i].Spec.ClusterID == clusterID && len(all[i].Spec.Roles) > 0
		if other && (first == "" || all[i].Name < first) {
			first = all[i].Name
		}
	}
	return first
}

// invites reports whether the peer is to become our consumer too.
func invites(peer *v1alpha1.Peer) bool {
	return peer.HasRole(v1alpha1.RoleConsumer) && peer.Spec.Invitation != nil
}

// invitationSeen reports whether what is said of our invitation is said of the one that the spec asks for now.
func invitationSeen(peer *v1alpha1.Peer) bool {
	if said := peer.Status.Invitation; said != nil && said.Serial >= peer.Spec.Invitation.Serial {
		return true
	}
	joined := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionJoined)
	return joined != nil && joined.ObservedGeneration >= peer.Generation
}

// answerOf reads the answer to our claim. Without one the error is a verdict: what is waited for, or why there will be none.
func answerOf(o *offer, claim *v1alpha1.PeeringClaim) (trust.Session, error) {
	accepted := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionAccepted)
	switch {
	case claim.Spec.Invitation != o.invitation.ID:
		return trust.Session{}, waits("The peer still holds the claim of an earlier invitation")
	case claim.Spec.SealingKey != o.key.Public():
		return trust.Session{}, refuses(v1alpha1.ReasonInvitationUsed, "Another cluster, or another Peer, has used this "+
			"invitation before us: tell the peer's administrator, and ask for a new one (`kubectl hanse invite --renew`)")
	case accepted != nil && accepted.Status == metav1.ConditionFalse:
		return trust.Session{}, refuses(refusalReason(accepted.Reason), "The peer refuses us: %s", words(accepted.Message))
	case claim.Status.Session == nil:
		return trust.Session{}, waits("The peer was asked and has not answered yet")
	}
	session, err := trust.OpenSession(o.invitation.PublicKey, *o.key, o.invitation.ID, claim.Status.Session)
	switch {
	case errors.Is(err, trust.ErrSignature):
		return session, refuses(v1alpha1.ReasonKeyMismatch, "The answer to our claim was not signed by the cluster that has "+
			"invited us: somebody else writes in its name; tell the peer's administrator")
	case err != nil:
		return session, refuses(v1alpha1.ReasonMalformed, "The answer to our claim makes no sense (%v): check the version of "+
			"Hanse at the peer, and ask for a new invitation", err)
	default:
		return session, nil
	}
}

// refusalReason lets through the reasons that a provider may have.
func refusalReason(reason string) string {
	if _, known := refusals[reason]; known {
		return reason
	}
	return v1alpha1.ReasonInvitationInvalid
}

// words makes of a peer's words something that can be shown.
func words(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(sanitize.Text(text, maxWords), ""))
}
