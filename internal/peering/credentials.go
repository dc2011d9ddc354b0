package peering

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

// Our notes in the Secrets hanse-join and hanse-link, so that a restart loses nothing.
const (
	// annotationInvitation is, on JoinSecret, the id of the invitation that the other notes are about.
	annotationInvitation = v1alpha1.AnnotationInvitation
	// annotationRefusal and annotationRefusalMessage say, on JoinSecret, why the invitation can never be used.
	annotationRefusal        = v1alpha1.AnnotationRefusal
	annotationRefusalMessage = v1alpha1.AnnotationRefusalMessage
	// annotationIssued says, on LinkSecret, when the session was made or renewed, by our clock.
	annotationIssued = v1alpha1.AnnotationIssued
)

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
	if o.problem != nil || secret.Annotations[annotationInvitation] != o.invitation.ID {
		return o
	}
	if key, err := trust.ParseSealingKey(string(secret.Data[sealingKey])); err == nil {
		o.key = &key
	}
	if reason := secret.Annotations[annotationRefusal]; reason != "" {
		o.refusal = refuses(reason, "%s", secret.Annotations[annotationRefusalMessage])
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
	h.issued, _ = time.Parse(time.RFC3339Nano, secret.Annotations[annotationIssued])
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
	metav1.SetMetaDataAnnotation(&o.secret.ObjectMeta, annotationInvitation, o.invitation.ID)
	delete(o.secret.Annotations, annotationRefusal)
	delete(o.secret.Annotations, annotationRefusalMessage)
	if err := d.update(ctx, o.secret); err != nil {
		return err
	}
	o.key = &key
	return nil
}

// refuse notes why the offer can never be used: the peer forgets it soon.
func (d *deps) refuse(ctx context.Context, o *offer, why verdict) error {
	metav1.SetMetaDataAnnotation(&o.secret.ObjectMeta, annotationRefusal, why.reason)
	metav1.SetMetaDataAnnotation(&o.secret.ObjectMeta, annotationRefusalMessage, why.message)
	return d.update(ctx, o.secret)
}

// end deletes the offer that was used, but not one that has come into its place.
func (d *deps) end(ctx context.Context, o *offer) error {
	err := d.client.Delete(ctx, o.secret, client.Preconditions{UID: &o.secret.UID, ResourceVersion: &o.secret.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Secret %s: %w", client.ObjectKeyFromObject(o.secret), err)
	}
	return nil
}

// store writes the session into LinkSecret, which is held unless it is to be made, and returns what is held now.
func (d *deps) store(
	ctx context.Context, held *corev1.Secret, credentials peers.Credentials, session trust.Session, now time.Time,
) (*holding, error) {
	credentials.Token = session.Token
	data, err := credentials.SecretData()
	if err != nil {
		return nil, fmt.Errorf("store the session: %w", err)
	}
	secret := held.DeepCopy()
	secret.Data = data
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, annotationIssued, now.UTC().Format(time.RFC3339Nano))
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, v1alpha1.AnnotationExpires, session.Expires.UTC().Format(time.RFC3339))
	if secret.ResourceVersion != "" {
		return parseHolding(secret), d.update(ctx, secret)
	}
	if err := d.client.Create(ctx, secret); err != nil {
		return nil, fmt.Errorf("create Secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	return parseHolding(secret), nil
}

func (d *deps) update(ctx context.Context, secret *corev1.Secret) error {
	if err := d.client.Update(ctx, secret); err != nil {
		return fmt.Errorf("update Secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	return nil
}
