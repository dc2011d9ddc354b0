// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/crypto/curve25519"
	"golang.org/x/crypto/nacl/box"
)

// ErrKey means that a text is not the key that it should be.
var ErrKey = errors.New("not a key")

// ErrSignature means that a signature is not that of the key over the text.
var ErrSignature = errors.New("the signature is wrong")

// ParsePrivateKey reads the Ed25519 key of this cluster: PKCS #8 in PEM.
func ParsePrivateKey(data []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%w: it is not PEM", ErrKey)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, fmt.Errorf("%w: it is not an Ed25519 key in PKCS #8", ErrKey)
	}
	return private, nil
}

// FormatPrivateKey is the reverse of ParsePrivateKey.
func FormatPrivateKey(key ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// FormatPublicKey returns the key as objects hold it: in base64.
func FormatPublicKey(key ed25519.PublicKey) string { return base64.StdEncoding.EncodeToString(key) }

// PublicKeyOf returns the public key that belongs to the key, as objects hold it.
func PublicKeyOf(key ed25519.PrivateKey) string {
	return FormatPublicKey(key.Public().(ed25519.PublicKey))
}

// ParsePublicKey is the reverse of FormatPublicKey. A key that anybody can sign for is none, and each key has one text only.
func ParsePublicKey(text string) (ed25519.PublicKey, error) {
	key, err := decodePoint(text)
	if err == nil {
		err = checkSigner(key)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return key[:], nil
}

// checkSigner checks an Ed25519 key: a coordinate and, as the highest bit, the sign of the other one.
func checkSigner(key [32]byte) error {
	key[31] &^= highestBit // points of both signs are of the same order
	if !reduced(key) {
		return errNotReduced
	}
	if slices.Contains(smallOrderY, hex.EncodeToString(key[:])) {
		return errSmallOrder
	}
	return nil
}

// checkShare checks an X25519 key: a coordinate. X25519 does not look at the highest bit and takes more than the coordinate
// can be, which would be other texts for the same key.
func checkShare(key [32]byte) error {
	if !reduced(key) {
		return errNotReduced
	}
	if _, err := curve25519.X25519(make([]byte, 32), key[:]); err != nil { // any private key tells
		return errSmallOrder
	}
	return nil
}

var (
	errNotReduced = errors.New("its coordinate is not reduced, so that it is a second text for another key")
	errSmallOrder = errors.New("it is a point of small order")
)

// highestBit is the bit of the last byte that does not belong to a coordinate.
const highestBit = 0x80

// reduced reports whether the coordinate, in little-endian bytes, is below 2^255-19.
func reduced(c [32]byte) bool {
	return c[31] < 0x7f || c[31] == 0x7f && (!bytes.Equal(c[1:31], bytes.Repeat([]byte{0xff}, 30)) || c[0] < 0xed)
}

// smallOrderY are the y coordinates of the eight points of Ed25519 whose order divides 8, in little-endian bytes. The standard
// library verifies signatures for such a key that were made without any private key.
var smallOrderY = []string{
	"0100000000000000000000000000000000000000000000000000000000000000",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"0000000000000000000000000000000000000000000000000000000000000000",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
}

// sign signs a statement. The purpose keeps a signature from meaning anything else than it was made for.
func sign(key ed25519.PrivateKey, purpose string, fields ...string) string {
	return base64.StdEncoding.EncodeToString(ed25519.Sign(key, statement(purpose, fields)))
}

// verify checks a signature by the key as objects hold it. The errors are ErrKey and ErrSignature.
func verify(publicKey, signature, purpose string, fields ...string) error {
	key, err := ParsePublicKey(publicKey)
	if err != nil {
		return err
	}
	raw, err := decode(signature, ed25519.SignatureSize)
	if err != nil || !ed25519.Verify(key, statement(purpose, fields), raw) {
		return ErrSignature
	}
	return nil
}

// statement puts the fields together so that no two lists of fields give the same text.
func statement(purpose string, fields []string) []byte {
	text := fmt.Appendf(nil, "hanse.dev/%s\n", purpose)
	for _, field := range fields {
		text = fmt.Appendf(text, "%d:%s\n", len(field), field)
	}
	return text
}

// decodePoint reads a point of Curve25519, in one of its two forms.
func decodePoint(text string) ([32]byte, error) {
	raw, err := decode(text, 32)
	if err != nil {
		return [32]byte{}, err
	}
	return [32]byte(raw), nil
}

func decode(text string, size int) ([]byte, error) {
	if len(text) > base64.StdEncoding.EncodedLen(size) {
		return nil, errors.New("it is too long")
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, errors.New("it is not base64")
	}
	if len(raw) != size {
		return nil, fmt.Errorf("it has %d bytes and not %d", len(raw), size)
	}
	return raw, nil
}

// maxSealed bounds what is opened, in bytes of base64. An invitation or a session with a bundle of certificates is far
// smaller.
const maxSealed = 32 << 10

// ErrSealed means that a box cannot be opened with the key.
var ErrSealed = errors.New("it is not sealed to this key")

// A SealingKey is an X25519 private key that is used for one exchange and then thrown away.
type SealingKey [32]byte

// NewSealingKey makes a key.
func NewSealingKey() (SealingKey, error) {
	_, private, err := box.GenerateKey(rand.Reader)
	if err != nil {
		return SealingKey{}, fmt.Errorf("make a key: %w", err)
	}
	return SealingKey(*private), nil
}

// ParseSealingKey reads what Format returned.
func ParseSealingKey(text string) (SealingKey, error) {
	raw, err := decode(text, len(SealingKey{}))
	if err != nil {
		return SealingKey{}, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return SealingKey(raw), nil
}

// Format returns the private key in base64, to be kept in a Secret.
func (k SealingKey) Format() string { return base64.StdEncoding.EncodeToString(k[:]) }

// Public returns the public key in base64, for Seal.
func (k SealingKey) Public() string {
	public, err := curve25519.X25519(k[:], curve25519.Basepoint)
	if err != nil {
		return "" // only a point of low order fails, and the base point is none
	}
	return base64.StdEncoding.EncodeToString(public)
}

// Seal makes of the text a box, in base64, that only the owner of the public key opens. The error is ErrKey when the key
// is none.
func Seal(public string, text []byte) (string, error) {
	key, err := parseSealingPublic(public)
	if err != nil {
		return "", err
	}
	if size := base64.StdEncoding.EncodedLen(len(text) + box.AnonymousOverhead); size > maxSealed {
		return "", fmt.Errorf("seal: it would have %d bytes, of which %d can be opened", size, maxSealed)
	}
	sealed, err := box.SealAnonymous(nil, text, &key, rand.Reader)
	if err != nil {
		return "", fmt.Errorf("seal: %w", err)
	}
	return base64.StdEncoding.EncodeToString(sealed), nil
}

// parseSealingPublic reads the public half of a SealingKey. Points of small order are none: what is sealed to them is open to
// everybody.
func parseSealingPublic(text string) ([32]byte, error) {
	key, err := decodePoint(text)
	if err == nil {
		err = checkShare(key)
	}
	if err != nil {
		return [32]byte{}, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return key, nil
}

// Open is the reverse of Seal. The error is ErrSealed for whatever was not sealed to this key.
func (k SealingKey) Open(sealed string) ([]byte, error) {
	if len(sealed) > maxSealed {
		return nil, fmt.Errorf("%w: it is larger than %d bytes", ErrSealed, maxSealed)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(sealed)
	if err != nil {
		return nil, fmt.Errorf("%w: it is not base64", ErrSealed)
	}
	if len(raw) < box.AnonymousOverhead || checkShare([32]byte(raw[:32])) != nil {
		return nil, ErrSealed // everybody could open a box with a share of small order, which NaCl does not look at
	}
	public, err := decodePoint(k.Public())
	if err != nil {
		return nil, ErrSealed
	}
	private := [32]byte(k)
	text, ok := box.OpenAnonymous(nil, raw, &public, &private)
	if !ok {
		return nil, ErrSealed
	}
	return text, nil
}
