// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/crypto/blake2b"
	"golang.org/x/crypto/nacl/box"
)

// smallOrder are all encodings of the eight points of Ed25519 whose order divides 8, as listed in section 5 of "Taming the
// many EdDSAs" (Chalkias, Garillot, Nikolaenko; https://eprint.iacr.org/2020/1244). The last six are not canonical.
var smallOrder = map[string]string{
	"order 1":                                   "0100000000000000000000000000000000000000000000000000000000000000",
	"order 2":                                   "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"order 4":                                   "0000000000000000000000000000000000000000000000000000000000000000",
	"order 4, negative":                         "0000000000000000000000000000000000000000000000000000000000000080",
	"order 8":                                   "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"order 8, negative":                         "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
	"order 8, the other y":                      "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	"order 8, the other y, negative":            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
	"order 1, with the sign of a zero":          "0100000000000000000000000000000000000000000000000000000000000080",
	"order 2, with the sign of a zero":          "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	"order 1, not reduced":                      "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"order 1, not reduced, the sign of a zero":  "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	"order 4, not reduced":                      "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"order 4, not reduced, with the other sign": "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
}

// forged returns a text that a signature of zeros with that key verifies for, which nobody made with a private key. One text
// in eight is one, whatever the point of small order.
func forged(key []byte) (text, signature []byte) {
	signature = make([]byte, ed25519.SignatureSize)
	signature[0] = 1 // the point of order 1, and the number 0
	for i := range 1000 {
		text = fmt.Appendf(nil, "text %d", i)
		if ed25519.Verify(key, text, signature) {
			return text, signature
		}
	}
	return nil, nil
}

func TestKeysThatEverybodyCanSignForAreNone(t *testing.T) {
	for name, encoded := range smallOrder {
		t.Run(name, func(t *testing.T) {
			raw, err := hex.DecodeString(encoded)
			if err != nil {
				t.Fatal(err)
			}
			if text, _ := forged(raw); text == nil {
				t.Error("nothing can be forged for it, so that it shows nothing")
			}
			if _, err := ParsePublicKey(FormatPublicKey(raw)); !errors.Is(err, ErrKey) {
				t.Errorf("got %v, want %v", err, ErrKey)
			}
		})
	}
}

// notReduced are numbers that a field element of both curves never has: 2^255-19 and more.
func notReduced() map[string][]byte {
	encodings := map[string][]byte{}
	for low := 0xed; low <= 0xff; low++ {
		raw, err := hex.DecodeString(fmt.Sprintf("%02xffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", low))
		if err != nil {
			panic(err)
		}
		encodings[fmt.Sprintf("2^255%+d", low-0x100)] = raw
	}
	return encodings
}

func TestEachKeyHasOneText(t *testing.T) {
	for name, raw := range notReduced() {
		if _, err := ParsePublicKey(FormatPublicKey(raw)); !errors.Is(err, ErrKey) {
			t.Errorf("public key %s: got %v, want %v", name, err, ErrKey)
		}
		if _, err := Seal(base64.StdEncoding.EncodeToString(raw), nil); !errors.Is(err, ErrKey) {
			t.Errorf("key to seal to %s: got %v, want %v", name, err, ErrKey)
		}
	}
	for _, key := range []ed25519.PrivateKey{hamburg, lubeck, visby} {
		if _, err := ParsePublicKey(FormatPublicKey(publicOf(key))); err != nil {
			t.Error(err)
		}
	}
	raw, err := decode(sealing.Public(), 32)
	if err != nil {
		t.Fatal(err)
	}
	raw[31] |= 0x80 // X25519 does not look at this bit
	if _, err := Seal(base64.StdEncoding.EncodeToString(raw), nil); !errors.Is(err, ErrKey) {
		t.Errorf("key to seal to with the highest bit: got %v, want %v", err, ErrKey)
	}
}

func TestClaimThatNobodySignedIsRefused(t *testing.T) {
	claim, provider := validClaim(), FormatPublicKey(publicOf(hamburg))
	identity := make([]byte, ed25519.PublicKeySize)
	identity[0] = 1
	signature := append(identity, make([]byte, ed25519.SignatureSize-len(identity))...)
	claim.PublicKey, claim.Proof = FormatPublicKey(identity), base64.StdEncoding.EncodeToString(signature)
	if err := VerifyClaim(provider, claim); !errors.Is(err, ErrKey) {
		t.Errorf("got %v, want %v", err, ErrKey)
	}
}

// weakShares are the twelve numbers with which everybody shares the same secret (https://cr.yp.to/ecdh.html#validate), and
// three of them with the highest bit, which X25519 does not look at (RFC 7748, section 5).
var weakShares = []string{
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
	"5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"cdeb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b880",
	"4c9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f11d7",
	"d9ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	"daffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	"dbffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	"0000000000000000000000000000000000000000000000000000000000000080",
	"e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b880",
	"5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f11d7",
}

// boxOf makes a box with that share in the place of one that was made for the box. Who opens it with the key finds a text.
func boxOf(t *testing.T, key SealingKey, share []byte) string {
	t.Helper()
	to, err := decode(key.Public(), 32)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := blake2b.New(24, nil)
	if err != nil {
		t.Fatal(err)
	}
	hash.Write(share)
	hash.Write(to)
	nonce := [24]byte(hash.Sum(nil))
	shared, theirs, ours := [32]byte{}, [32]byte(share), [32]byte(key)
	box.Precompute(&shared, &theirs, &ours)
	return base64.StdEncoding.EncodeToString(box.SealAfterPrecomputation(share, []byte("text"), &nonce, &shared))
}

func TestWeakSharesAreRefused(t *testing.T) {
	ephemeral := SealingKey{1}
	public, err := decode(ephemeral.Public(), 32)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := sealing.Open(boxOf(t, sealing, public)); err != nil || string(text) != "text" {
		t.Fatalf("a box with a good share shows %q, %v, so that the others show nothing", text, err)
	}
	for _, encoded := range weakShares {
		raw, err := hex.DecodeString(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Seal(base64.StdEncoding.EncodeToString(raw), nil); !errors.Is(err, ErrKey) {
			t.Errorf("key to seal to %s: got %v, want %v", encoded, err, ErrKey)
		}
		// What everybody can open was sealed to nobody.
		if _, err := sealing.Open(boxOf(t, sealing, raw)); !errors.Is(err, ErrSealed) {
			t.Errorf("box with %s: got %v, want %v", encoded, err, ErrSealed)
		}
	}
}
