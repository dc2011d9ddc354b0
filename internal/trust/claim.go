// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	purposeClaim     = "claim"
	purposeSession   = "session"
	purposeTombstone = "tombstone"
)

// ErrSession means that what was opened is no session.
var ErrSession = errors.New("not a session")

// SignClaim sets publicKey and proof of the claim: the claimer has the key, and makes the claim to the provider of the
// given public key.
func SignClaim(key ed25519.PrivateKey, provider string, claim *v1alpha1.PeeringClaimSpec) {
	claim.PublicKey = PublicKeyOf(key)
	claim.Proof = sign(key, purposeClaim, claimFields(provider, claim)...)
}

// VerifyClaim checks that the claimer has the key that it names and means the provider of the given public key. The
// errors are ErrKey and ErrSignature.
func VerifyClaim(provider string, claim *v1alpha1.PeeringClaimSpec) error {
	return verify(claim.PublicKey, claim.Proof, purposeClaim, claimFields(provider, claim)...)
}

// claimFields name the provider, so that one that was made a claim to cannot make it, under the name of its consumer, to
// another provider that has invited it.
func claimFields(provider string, claim *v1alpha1.PeeringClaimSpec) []string {
	return []string{provider, claim.Invitation, claim.ClusterID, claim.SealingKey, claim.InvitationBack}
}

// A Session is what a consumer works with at its provider.
type Session struct {
	// Token is the bearer token.
	Token string `json:"token"`
	// Expires is when it ends, by the provider's clock.
	Expires time.Time `json:"expires"`
}

// SealSession makes the answer to a claim: the session, for the claimer's eyes only, signed by the provider.
func SealSession(key ed25519.PrivateKey, claim *v1alpha1.PeeringClaimSpec, session Session) (*v1alpha1.SealedSession, error) {
	data, err := json.Marshal(session)
	if err != nil {
		return nil, fmt.Errorf("encode the session: %w", err)
	}
	sealed, err := Seal(claim.SealingKey, data)
	if err != nil {
		return nil, err
	}
	return &v1alpha1.SealedSession{Sealed: sealed, Signature: sign(key, purposeSession, claim.Invitation, sealed)}, nil
}

// OpenSession opens the answer to our claim. The errors are ErrKey, ErrSignature where another than the provider of the given
// public key has written it, ErrSealed and ErrSession.
func OpenSession(provider string, key SealingKey, invitation string, answer *v1alpha1.SealedSession) (Session, error) {
	if err := verify(provider, answer.Signature, purposeSession, invitation, answer.Sealed); err != nil {
		return Session{}, err
	}
	data, err := key.Open(answer.Sealed)
	if err != nil {
		return Session{}, err
	}
	session := Session{}
	if err := json.Unmarshal(data, &session); err != nil || session.Check() != nil {
		return Session{}, ErrSession
	}
	return session, nil
}

// Check tells whether the session can be used, whatever its time. The error is ErrSession.
func (s Session) Check() error {
	if !isToken(s.Token) || !isTime(s.Expires) {
		return ErrSession
	}
	return nil
}

// maxToken bounds a bearer token: as a header of HTTP it could not be much larger.
const maxToken = 16 << 10

func isToken(text string) bool {
	return text != "" && len(text) <= maxToken && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// isTime reports whether t is set, and can be written into objects: their years have four digits.
func isTime(t time.Time) bool { return !t.IsZero() && t.UTC().Year() >= 1 && t.UTC().Year() <= 9999 }

// maxTombstone bounds a tombstone as text.
const maxTombstone = 4096

// ErrTombstone means that a text is no tombstone, or not the one that it should be.
var ErrTombstone = errors.New("not a tombstone")

// A Tombstone says that one cluster has parted from another without being able to tell it.
type Tombstone struct {
	// From is the id of the cluster that has left, To that of the one that it has left.
	From string `json:"from"`
	To   string `json:"to"`
	// Invitation is the id of the invitation by which they had become peers, so that a later peering of the same two is
	// not ended by it.
	Invitation string `json:"invitation"`
	// Time is when it was said.
	Time time.Time `json:"time"`
	// Signature is that of From.
	Signature string `json:"signature"`
}

// SignTombstone returns the statement as text.
func SignTombstone(key ed25519.PrivateKey, stone Tombstone) (string, error) {
	stone.Time = stone.Time.UTC().Truncate(time.Second)
	stone.Signature = sign(key, purposeTombstone, stone.fields()...)
	data, err := json.Marshal(stone)
	if err != nil {
		return "", fmt.Errorf("encode the tombstone: %w", err)
	}
	return string(data), nil
}

func (t *Tombstone) fields() []string {
	return []string{t.From, t.To, t.Invitation, t.Time.Format(time.RFC3339)}
}

// VerifyTombstone reads a statement and checks that from, whose pinned key is given, has left to, with whom it had
// become a peer by the invitation. The errors are ErrTombstone, ErrKey and ErrSignature.
func VerifyTombstone(key, text string, want Tombstone) error {
	if len(text) > maxTombstone {
		return fmt.Errorf("%w: it is larger than %d bytes", ErrTombstone, maxTombstone)
	}
	stone := Tombstone{}
	if err := json.Unmarshal([]byte(text), &stone); err != nil || !stone.wrote(text) {
		return ErrTombstone
	}
	if stone.From != want.From || stone.To != want.To || stone.Invitation != want.Invitation {
		return fmt.Errorf("%w: it is of another parting", ErrTombstone)
	}
	return verify(key, stone.Signature, purposeTombstone, stone.fields()...)
}

// wrote reports whether the text is what SignTombstone makes of the statement, to the letter. So nothing is in it that was
// not signed, such as parts of a second or keys of another statement.
func (t *Tombstone) wrote(text string) bool {
	stone := *t
	stone.Time = stone.Time.UTC().Truncate(time.Second)
	data, err := json.Marshal(stone)
	return err == nil && string(data) == text
}
