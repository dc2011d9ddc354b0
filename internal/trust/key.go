package trust

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"

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

// ParsePublicKey is the reverse of FormatPublicKey.
func ParsePublicKey(text string) (ed25519.PublicKey, error) {
	key, err := decode(text, ed25519.PublicKeySize)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return key, nil
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
