package trust

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
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
