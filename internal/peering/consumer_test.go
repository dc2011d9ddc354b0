// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"crypto/ed25519"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trust"
)

// A consumer is the other side: it uses invitations as the protocol says, or as it likes.
type consumer struct {
	t          *testing.T
	clusterID  string
	key        ed25519.PrivateKey
	sealing    trust.SealingKey
	invitation *trust.Invitation
}

func newConsumer(t *testing.T, clusterID string) *consumer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &consumer{t: t, clusterID: clusterID, key: key}
}

func (c *consumer) publicKey() string {
	return trust.PublicKeyOf(c.key)
}

// receive takes the invitation that the provider has made.
func (c *consumer) receive(w *world) {
	c.t.Helper()
	secret := &corev1.Secret{}
	w.get(tenant, v1alpha1.InvitationSecret, secret)
	invitation, err := trust.ParseInvitation(string(secret.Data[v1alpha1.InvitationToken]))
	if err != nil {
		c.t.Fatal(err)
	}
	c.invitation = invitation
}

// claims uses the invitation; change makes the claim another one before it is signed, spoil after that.
func (c *consumer) claims(w *world, change, spoil func(*v1alpha1.PeeringClaimSpec)) {
	c.t.Helper()
	if !w.lives(c.invitation.Token) {
		c.t.Fatal("the invitation's token has ended")
	}
	sealing, err := trust.NewSealingKey()
	if err != nil {
		c.t.Fatal(err)
	}
	c.sealing = sealing
	claim := &v1alpha1.PeeringClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.invitation.Namespace, Name: v1alpha1.PeeringClaimName},
		Spec: v1alpha1.PeeringClaimSpec{
			Invitation: c.invitation.ID, ClusterID: c.clusterID, SealingKey: sealing.Public(), Version: "v0.1.0",
		},
	}
	if change != nil {
		change(&claim.Spec)
	}
	trust.SignClaim(c.key, c.invitation.PublicKey, &claim.Spec)
	if spoil != nil {
		spoil(&claim.Spec)
	}
	if err := w.client.Create(c.t.Context(), claim); err != nil {
		c.t.Fatal(err)
	}
}

// opens reads the answer to the claim and opens the session in it.
func (c *consumer) opens(w *world) trust.Session {
	c.t.Helper()
	answer := w.claim().Status.Session
	if answer == nil {
		c.t.Fatalf("no session: %v", w.claim().Status.Conditions)
	}
	session, err := trust.OpenSession(c.invitation.PublicKey, c.sealing, c.invitation.ID, answer)
	if err != nil {
		c.t.Fatal(err)
	}
	return session
}

// says sets the phase of the claim.
func (c *consumer) says(w *world, phase v1alpha1.ClaimPhase) {
	c.t.Helper()
	claim := w.claim()
	claim.Spec.Phase = phase
	claim.Generation++
	if err := w.client.Update(c.t.Context(), claim); err != nil {
		c.t.Fatal(err)
	}
}

// joins does all of it.
func (c *consumer) joins(w *world) trust.Session {
	c.t.Helper()
	w.reconcile()
	c.receive(w)
	c.claims(w, nil, nil)
	w.reconcile()
	session := c.opens(w)
	c.says(w, v1alpha1.ClaimJoined)
	w.reconcile()
	return session
}

// invitesBack makes an invitation of its own and puts it, sealed, into the claim.
func (c *consumer) invitesBack(change func(*trust.Invitation)) func(*v1alpha1.PeeringClaimSpec) {
	back := trust.Invitation{
		ID: "back", ClusterID: c.clusterID, PublicKey: c.publicKey(), Servers: []string{"https://198.51.100.1:6443"},
		Namespace: "hanse-peer-lubeck", Token: "back-token", Expires: c.invitation.Expires,
	}
	change(&back)
	text, err := back.Format()
	if err != nil {
		c.t.Fatal(err)
	}
	sealed, err := trust.Seal(c.invitation.SealingKey, []byte(text))
	if err != nil {
		c.t.Fatal(err)
	}
	return func(claim *v1alpha1.PeeringClaimSpec) { claim.InvitationBack = sealed }
}
