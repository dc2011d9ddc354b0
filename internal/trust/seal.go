package trust

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"

	"golang.org/x/crypto/curve25519"
	"golang.org/x/crypto/nacl/box"
)

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

// parseSealingPublic reads the public half of a SealingKey. Points of low order are none: what is sealed to them is open to
// everybody.
func parseSealingPublic(text string) ([32]byte, error) {
	raw, err := decode(text, 32)
	if err != nil {
		return [32]byte{}, fmt.Errorf("%w: %w", ErrKey, err)
	}
	if _, err := curve25519.X25519(make([]byte, 32), raw); err != nil { // any private key tells
		return [32]byte{}, fmt.Errorf("%w: it is a point of low order", ErrKey)
	}
	return [32]byte(raw), nil
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
	publicRaw, err := decode(k.Public(), 32)
	if err != nil {
		return nil, ErrSealed
	}
	public, private := [32]byte(publicRaw), [32]byte(k)
	text, ok := box.OpenAnonymous(nil, raw, &public, &private)
	if !ok {
		return nil, ErrSealed
	}
	return text, nil
}
