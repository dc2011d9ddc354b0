// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestKeysAreWrittenAndRead(t *testing.T) {
	data, err := FormatPrivateKey(hamburg)
	if err != nil {
		t.Fatal(err)
	}
	private, err := ParsePrivateKey(data)
	if err != nil || !private.Equal(hamburg) {
		t.Errorf("private key: got %v", err)
	}
	public, err := ParsePublicKey(FormatPublicKey(publicOf(hamburg)))
	if err != nil || !public.Equal(publicOf(hamburg)) {
		t.Errorf("public key: got %v", err)
	}
	made, err := NewSealingKey()
	if err != nil {
		t.Fatal(err)
	}
	read, err := ParseSealingKey(made.Format())
	if err != nil || read != made {
		t.Errorf("sealing key: got %v", err)
	}
	if another, err := NewSealingKey(); err != nil || another == made {
		t.Errorf("two sealing keys are the same, or %v", err)
	}
}

func TestTextsThatAreNoPrivateKey(t *testing.T) {
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(curve)
	if err != nil {
		t.Fatal(err)
	}
	inPEM := func(der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	}
	tests := map[string]string{
		"nothing":             "",
		"no PEM":              FormatPublicKey(publicOf(hamburg)),
		"PEM of nothing":      inPEM(nil),
		"PEM of a seed alone": inPEM(hamburg.Seed()),
		"of another kind":     inPEM(der),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := ParsePrivateKey([]byte(text)); !errors.Is(err, ErrKey) {
				t.Errorf("got %v, want %v", err, ErrKey)
			}
		})
	}
}

func TestTextsThatAreNoPublicOrSealingKey(t *testing.T) {
	good := FormatPublicKey(publicOf(hamburg))
	tests := map[string]string{
		"nothing":                   "",
		"cut off":                   good[:40],
		"without padding":           strings.TrimRight(good, "="),
		"a byte less":               base64.StdEncoding.EncodeToString(make([]byte, 31)),
		"a byte more":               base64.StdEncoding.EncodeToString(make([]byte, 33)),
		"a line break":              good[:20] + "\n" + good[20:],
		"a line break in its place": good[:20] + "\n" + good[21:],
		"other bits at the end":     good[:42] + "B=", // of the last letter, two bits are not used
		"the alphabet of URLs":      strings.Repeat("_", 43) + "=",
		"huge":                      strings.Repeat("A", 1<<20),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := ParsePublicKey(text); !errors.Is(err, ErrKey) {
				t.Errorf("public key: got %v, want %v", err, ErrKey)
			}
			if _, err := ParseSealingKey(text); !errors.Is(err, ErrKey) {
				t.Errorf("sealing key: got %v, want %v", err, ErrKey)
			}
			if _, err := Seal(text, []byte("x")); !errors.Is(err, ErrKey) {
				t.Errorf("key to seal to: got %v, want %v", err, ErrKey)
			}
		})
	}
}

func TestSignaturesMeanWhatTheyWereMadeFor(t *testing.T) {
	good, key := sign(hamburg, "purpose", "ab", "c"), FormatPublicKey(publicOf(hamburg))
	raw, err := base64.StdEncoding.DecodeString(good)
	if err != nil {
		t.Fatal(err)
	}
	raw[63] |= 0x80
	tests := map[string]error{
		"as it was signed":          verify(key, good, "purpose", "ab", "c"),
		"another key":               verify(FormatPublicKey(publicOf(lubeck)), good, "purpose", "ab", "c"),
		"no key":                    verify("", good, "purpose", "ab", "c"),
		"a key that is too short":   verify(FormatPublicKey(publicOf(hamburg)[:31]), good, "purpose", "ab", "c"),
		"another purpose":           verify(key, good, "purposes", "ab", "c"),
		"fields cut differently":    verify(key, good, "purpose", "a", "bc"),
		"fields in another order":   verify(key, good, "purpose", "c", "ab"),
		"one field for two":         verify(key, good, "purpose", "ab\n1:c"),
		"a field less":              verify(key, good, "purpose", "ab"),
		"an empty field more":       verify(key, good, "purpose", "ab", "c", ""),
		"no signature":              verify(key, "", "purpose", "ab", "c"),
		"a signature cut off":       verify(key, good[:84], "purpose", "ab", "c"),
		"a signature that is huge":  verify(key, strings.Repeat("A", 1<<20), "purpose", "ab", "c"),
		"a signature of other bits": verify(key, base64.StdEncoding.EncodeToString(raw), "purpose", "ab", "c"),
	}
	for name, err := range tests {
		if want := name == "as it was signed"; (err == nil) != want || err != nil && !errors.Is(err, ErrSignature) && !errors.Is(err, ErrKey) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestStatementsOfDifferentFieldsDiffer(t *testing.T) {
	lists := [][]string{{}, {""}, {"", ""}, {"a"}, {"a", ""}, {"", "a"}, {"1:a"}, {"a\n"}, {"a\n0:"}, {"\n1:a"}, {"0:", "a"}}
	seen := []string{}
	for _, fields := range lists {
		text := string(statement("p", fields))
		if slices.Contains(seen, text) {
			t.Errorf("%q gives the text of another list", fields)
		}
		seen = append(seen, text)
	}
	if len(publicOf(hamburg)) != ed25519.PublicKeySize {
		t.Error("the test has no key")
	}
}
