// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// keyOf returns a private key that is always the same for the same letter.
func keyOf(letter byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{letter}, ed25519.SeedSize))
}

func publicOf(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

var (
	hamburg = keyOf('h') // a provider
	lubeck  = keyOf('l') // its consumer
	visby   = keyOf('v') // somebody else

	sealing = SealingKey(bytes.Repeat([]byte{7}, 32))
	noon    = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
)

// lowOrder is a public key with which everybody shares the same secret.
const lowOrder = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

func authority(t testing.TB) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func validInvitation(t testing.TB) *Invitation {
	t.Helper()
	return &Invitation{
		ID: "0123456789abcdef0123456789abcdef", ClusterID: "hamburg", PublicKey: FormatPublicKey(publicOf(hamburg)),
		Servers: []string{"https://192.0.2.1:6443", "https://[2001:db8::1]:6443", "https://api.example.org/"},
		CA:      authority(t), Namespace: "hanse-peer-lubeck", Token: "secret-token", SealingKey: sealing.Public(), Expires: noon,
	}
}

func validClaim() *v1alpha1.PeeringClaimSpec {
	claim := &v1alpha1.PeeringClaimSpec{
		Invitation: "0123", ClusterID: "lubeck", SealingKey: sealing.Public(), InvitationBack: "sealed", Version: "v0.1.0",
	}
	SignClaim(lubeck, FormatPublicKey(publicOf(hamburg)), claim)
	return claim
}
