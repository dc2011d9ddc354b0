// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"golang.org/x/crypto/nacl/box"
)

func TestWhatIsSealedIsOpened(t *testing.T) {
	for _, text := range []string{"", "x", strings.Repeat("x", maxSealed/4*3-box.AnonymousOverhead)} {
		sealed, err := Seal(sealing.Public(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if opened, err := sealing.Open(sealed); err != nil || string(opened) != text {
			t.Errorf("got %d bytes of %d, %v", len(opened), len(text), err)
		}
	}
}

func TestTheSameTextNeverLooksTheSame(t *testing.T) {
	first, err := Seal(sealing.Public(), []byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	if second, err := Seal(sealing.Public(), []byte("text")); err != nil || second == first {
		t.Errorf("got the same box, or %v", err)
	}
}

func TestBoxesThatDoNotOpen(t *testing.T) {
	sealed, err := Seal(sealing.Public(), []byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil {
		t.Fatal(err)
	}
	changed := func(at int) string {
		other := append([]byte(nil), raw...)
		other[at] ^= 1
		return base64.StdEncoding.EncodeToString(other)
	}
	tests := map[string]struct {
		key    SealingKey
		sealed string
	}{
		"to another key":     {SealingKey{1}, sealed},
		"to the zero key":    {SealingKey{}, sealed},
		"nothing":            {sealing, ""},
		"cut off":            {sealing, sealed[:len(sealed)-4]},
		"shorter than a box": {sealing, base64.StdEncoding.EncodeToString(raw[:31])},
		"other sender":       {sealing, changed(0)},
		"other tag":          {sealing, changed(32)},
		"other text":         {sealing, changed(len(raw) - 1)},
		"not base64":         {sealing, sealed + "!"},
		"too large":          {sealing, strings.Repeat("A", maxSealed+4)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if text, err := test.key.Open(test.sealed); !errors.Is(err, ErrSealed) || text != nil {
				t.Errorf("got %q, %v, want %v", text, err, ErrSealed)
			}
		})
	}
}

func TestNothingIsSealedThatEverybodyOrNobodyCouldOpen(t *testing.T) {
	if _, err := Seal(lowOrder, []byte("text")); !errors.Is(err, ErrKey) {
		t.Errorf("to a point of low order: got %v, want %v", err, ErrKey)
	}
	if _, err := Seal(sealing.Public(), make([]byte, maxSealed)); err == nil {
		t.Error("sealed a text that is too large to be opened")
	}
}
