// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestClaims(t *testing.T) {
	provider := FormatPublicKey(publicOf(hamburg))
	tests := map[string]struct {
		change   func(c *v1alpha1.PeeringClaimSpec)
		provider string // by default hamburg
		want     error
	}{
		"as it was signed": {change: func(*v1alpha1.PeeringClaimSpec) {}},
		"of another version, leaving": {change: func(c *v1alpha1.PeeringClaimSpec) {
			c.Version, c.Phase, c.Tombstone = "v0.2.0", v1alpha1.ClaimLeaving, "x"
		}},
		"another invitation":  {change: func(c *v1alpha1.PeeringClaimSpec) { c.Invitation = "4567" }, want: ErrSignature},
		"another cluster":     {change: func(c *v1alpha1.PeeringClaimSpec) { c.ClusterID = "visby" }, want: ErrSignature},
		"another sealing key": {change: func(c *v1alpha1.PeeringClaimSpec) { c.SealingKey = lowOrder }, want: ErrSignature},
		"another way back":    {change: func(c *v1alpha1.PeeringClaimSpec) { c.InvitationBack = "other" }, want: ErrSignature},
		"no way back":         {change: func(c *v1alpha1.PeeringClaimSpec) { c.InvitationBack = "" }, want: ErrSignature},
		"fields shifted": {change: func(c *v1alpha1.PeeringClaimSpec) {
			c.Invitation, c.ClusterID = c.Invitation+"l", "ubeck"
		}, want: ErrSignature},
		"another key": {change: func(c *v1alpha1.PeeringClaimSpec) {
			c.PublicKey = FormatPublicKey(publicOf(visby))
		}, want: ErrSignature},
		"no key":           {change: func(c *v1alpha1.PeeringClaimSpec) { c.PublicKey = "" }, want: ErrKey},
		"key that is none": {change: func(c *v1alpha1.PeeringClaimSpec) { c.PublicKey = "AAAA" }, want: ErrKey},
		"no proof":         {change: func(c *v1alpha1.PeeringClaimSpec) { c.Proof = "" }, want: ErrSignature},
		"proof cut off":    {change: func(c *v1alpha1.PeeringClaimSpec) { c.Proof = c.Proof[:80] }, want: ErrSignature},
		// visby, which lubeck has made a claim to, makes it to hamburg, which has invited visby.
		"made to another provider": {
			change: func(*v1alpha1.PeeringClaimSpec) {}, provider: FormatPublicKey(publicOf(visby)), want: ErrSignature,
		},
		"proof of another purpose": {change: func(c *v1alpha1.PeeringClaimSpec) {
			c.Proof = sign(lubeck, purposeTombstone, claimFields(provider, c)...)
		}, want: ErrSignature},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			claim := validClaim()
			test.change(claim)
			to := provider
			if test.provider != "" {
				to = test.provider
			}
			if err := VerifyClaim(to, claim); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

var validSession = Session{Token: "session-token", Expires: noon}

func sealSession(t testing.TB, session Session) *v1alpha1.SealedSession {
	t.Helper()
	answer, err := SealSession(hamburg, validClaim(), session)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// answerOf seals and signs any text in the place of a session.
func answerOf(t testing.TB, text string) *v1alpha1.SealedSession {
	t.Helper()
	sealed, err := Seal(sealing.Public(), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &v1alpha1.SealedSession{Sealed: sealed, Signature: sign(hamburg, purposeSession, "0123", sealed)}
}

func TestSessionIsOpenedByWhoClaimedIt(t *testing.T) {
	got, err := OpenSession(FormatPublicKey(publicOf(hamburg)), sealing, "0123", sealSession(t, validSession))
	if err != nil || got != validSession {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := SealSession(hamburg, &v1alpha1.PeeringClaimSpec{SealingKey: lowOrder}, validSession); !errors.Is(err, ErrKey) {
		t.Errorf("to a point of low order: got %v, want %v", err, ErrKey)
	}
}

func TestSessionsThatAreNotOpened(t *testing.T) {
	good := sealSession(t, validSession)
	second := sealSession(t, Session{Token: "other", Expires: noon})
	tests := map[string]struct {
		provider   string     // by default hamburg
		key        SealingKey // by default ours
		invitation string     // by default ours
		answer     *v1alpha1.SealedSession
		want       error
	}{
		"of another provider":     {provider: FormatPublicKey(publicOf(visby)), answer: good, want: ErrSignature},
		"for another key":         {key: SealingKey{1}, answer: good, want: ErrSealed},
		"for another invitation":  {invitation: "4567", answer: good, want: ErrSignature},
		"nothing":                 {answer: &v1alpha1.SealedSession{}, want: ErrSignature},
		"with another's box":      {answer: &v1alpha1.SealedSession{Sealed: second.Sealed, Signature: good.Signature}, want: ErrSignature},
		"with a box cut off":      {answer: &v1alpha1.SealedSession{Sealed: good.Sealed[:80], Signature: good.Signature}, want: ErrSignature},
		"with a line break":       {answer: &v1alpha1.SealedSession{Sealed: good.Sealed + "\n", Signature: good.Signature}, want: ErrSignature},
		"with a broken signature": {answer: &v1alpha1.SealedSession{Sealed: good.Sealed, Signature: "AAAA"}, want: ErrSignature},
		"signed, but too large": {
			answer: &v1alpha1.SealedSession{
				Sealed:    strings.Repeat("A", maxSealed+4),
				Signature: sign(hamburg, purposeSession, "0123", strings.Repeat("A", maxSealed+4)),
			}, want: ErrSealed,
		},
		"no JSON":                {answer: answerOf(t, "x"), want: ErrSession},
		"null":                   {answer: answerOf(t, "null"), want: ErrSession},
		"a list":                 {answer: answerOf(t, "[]"), want: ErrSession},
		"two":                    {answer: answerOf(t, `{"token":"a","expires":"2026-12-01T12:00:00Z"}{}`), want: ErrSession},
		"a number as token":      {answer: answerOf(t, `{"token":1e3,"expires":"2026-12-01T12:00:00Z"}`), want: ErrSession},
		"a number as time":       {answer: answerOf(t, `{"token":"a","expires":1e300}`), want: ErrSession},
		"a time beyond the year": {answer: answerOf(t, `{"token":"a","expires":"9999-12-31T23:59:59-01:00"}`), want: ErrSession},
		"no time":                {answer: answerOf(t, `{"token":"a"}`), want: ErrSession},
		"no token":               {answer: sealSession(t, Session{Expires: noon}), want: ErrSession},
		"a token of two lines":   {answer: sealSession(t, Session{Token: "a\nb", Expires: noon}), want: ErrSession},
		"a token with a letter":  {answer: sealSession(t, Session{Token: "ü", Expires: noon}), want: ErrSession},
		"a huge token":           {answer: sealSession(t, Session{Token: strings.Repeat("a", maxToken+1), Expires: noon}), want: ErrSession},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			provider, key, invitation := FormatPublicKey(publicOf(hamburg)), sealing, "0123"
			if test.provider != "" {
				provider = test.provider
			}
			if test.key != (SealingKey{}) {
				key = test.key
			}
			if test.invitation != "" {
				invitation = test.invitation
			}
			got, err := OpenSession(provider, key, invitation, test.answer)
			if !errors.Is(err, test.want) || got != (Session{}) {
				t.Errorf("got %+v, %v, want %v", got, err, test.want)
			}
		})
	}
}

func FuzzOpenSession(f *testing.F) {
	good := sealSession(f, validSession)
	f.Add(good.Sealed, good.Signature, `{"token":"a","expires":"2026-12-01T12:00:00Z"}`)
	f.Add("", "", `{"TOKEN":"a","token":"b\u0000","expires":"2026-12-01T12:00:00.5+23:59"}`)
	f.Add(strings.Repeat("A", 100), base64.StdEncoding.EncodeToString(make([]byte, 64)), "null")
	f.Fuzz(func(t *testing.T, sealed, signature, text string) {
		forged := &v1alpha1.SealedSession{Sealed: sealed, Signature: signature}
		if got, err := OpenSession(FormatPublicKey(publicOf(hamburg)), sealing, "0123", forged); err == nil && got != validSession {
			t.Errorf("forged: %+v", got)
		}
		if len(text) > maxSealed/2 {
			return
		}
		got, err := OpenSession(FormatPublicKey(publicOf(hamburg)), sealing, "0123", answerOf(t, text))
		if err != nil {
			if !errors.Is(err, ErrSession) || got != (Session{}) {
				t.Errorf("got %+v, %v, want %v", got, err, ErrSession)
			}
			return
		}
		again, err := OpenSession(FormatPublicKey(publicOf(hamburg)), sealing, "0123", sealSession(t, got))
		if err != nil || again.Token != got.Token || !again.Expires.Equal(got.Expires) {
			t.Errorf("%v, %s", err, cmp.Diff(got, again))
		}
	})
}

var parting = Tombstone{From: "hamburg", To: "lubeck", Invitation: "0123", Time: noon}

func tombstone(t testing.TB, stone Tombstone) string {
	t.Helper()
	text, err := SignTombstone(hamburg, stone)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTombstoneIsRead(t *testing.T) {
	for name, at := range map[string]time.Time{
		"at noon":                   noon,
		"by another zone's clock":   noon.In(time.FixedZone("", 3600)),
		"a moment after":            noon.Add(999 * time.Millisecond),
		"with a monotonic part too": time.Now(),
	} {
		t.Run(name, func(t *testing.T) {
			stone := parting
			stone.Time = at
			if err := VerifyTombstone(FormatPublicKey(publicOf(hamburg)), tombstone(t, stone), parting); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTombstonesThatAreNotBelieved(t *testing.T) {
	good := tombstone(t, parting)
	replaced := func(old, with string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%s is not in %s", old, good)
		}
		return strings.Replace(good, old, with, 1)
	}
	// signedAs makes one that hamburg itself has signed, with a time that is written otherwise.
	signedAs := func(at string) string {
		signature := sign(hamburg, purposeTombstone, "hamburg", "lubeck", "0123", at)
		return fmt.Sprintf(`{"from":"hamburg","to":"lubeck","invitation":"0123","time":%q,"signature":%q}`, at, signature)
	}
	if signedAs("2026-12-01T12:00:00Z") != good {
		t.Fatal("the test signs otherwise than the package")
	}
	tests := map[string]struct {
		text string
		key  string // by default that of hamburg
		want error
	}{
		"of another cluster's key":        {good, FormatPublicKey(publicOf(visby)), ErrSignature},
		"of no pinned key":                {good, "none", ErrKey},
		"from another":                    {tombstone(t, Tombstone{From: "visby", To: "lubeck", Invitation: "0123", Time: noon}), "", ErrTombstone},
		"to another":                      {tombstone(t, Tombstone{From: "hamburg", To: "visby", Invitation: "0123", Time: noon}), "", ErrTombstone},
		"of an earlier peering":           {tombstone(t, Tombstone{From: "hamburg", To: "lubeck", Invitation: "0", Time: noon}), "", ErrTombstone},
		"sent back to where it came from": {tombstone(t, Tombstone{From: "lubeck", To: "hamburg", Invitation: "0123", Time: noon}), "", ErrTombstone},
		"from replaced":                   {replaced("hamburg", "visby"), "", ErrTombstone},
		"to replaced":                     {replaced("lubeck", "visby"), "", ErrTombstone},
		"invitation replaced":             {replaced("0123", "4567"), "", ErrTombstone},
		"time replaced":                   {replaced("2026", "2027"), "", ErrSignature},
		"signature replaced":              {replaced(`"signature":"`, `"signature":"AAAA`), "", ErrSignature},
		"no signature":                    {good[:strings.Index(good, `,"signature"`)] + "}", "", ErrTombstone},
		"part of a second":                {replaced("00Z", "00.5Z"), "", ErrTombstone},
		"another zone":                    {replaced("T12:00:00Z", "T13:00:00+01:00"), "", ErrTombstone},
		"signed in another zone":          {signedAs("2026-12-01T13:00:00+01:00"), "", ErrTombstone},
		"signed with part of a second":    {signedAs("2026-12-01T12:00:00.5Z"), "", ErrTombstone},
		"a key twice":                     {replaced(`{`, `{"from":"visby",`), "", ErrTombstone},
		"a key in capitals":               {replaced(`"from"`, `"FROM"`), "", ErrTombstone},
		"an unknown key":                  {replaced(`{`, `{"force":true,`), "", ErrTombstone},
		"escapes":                         {replaced("hamburg", `\u0068amburg`), "", ErrTombstone},
		"spaces":                          {replaced(`,`, `, `), "", ErrTombstone},
		"a line break behind":             {good + "\n", "", ErrTombstone},
		"another object behind":           {good + "{}", "", ErrTombstone},
		"a number as time":                {replaced(`"2026-12-01T12:00:00Z"`, "1e9"), "", ErrTombstone},
		"in a list":                       {"[" + good + "]", "", ErrTombstone},
		"nothing":                         {"", "", ErrTombstone},
		"null":                            {"null", "", ErrTombstone},
		"an empty object":                 {"{}", "", ErrTombstone},
		"huge":                            {good + strings.Repeat(" ", maxTombstone), "", ErrTombstone},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			key := FormatPublicKey(publicOf(hamburg))
			if test.key != "" {
				key = test.key
			}
			if err := VerifyTombstone(key, test.text, parting); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestTombstonesThatWereCutOffAreNotBelieved(t *testing.T) {
	good := tombstone(t, parting)
	for end := range len(good) {
		if err := VerifyTombstone(FormatPublicKey(publicOf(hamburg)), good[:end], parting); !errors.Is(err, ErrTombstone) {
			t.Fatalf("after %d of %d characters: got %v, want %v", end, len(good), err, ErrTombstone)
		}
	}
}

func TestTombstoneOfATimeThatCannotBeWritten(t *testing.T) {
	stone := parting
	stone.Time = noon.AddDate(10_000, 0, 0)
	if text, err := SignTombstone(hamburg, stone); err == nil {
		t.Errorf("wrote %s", text)
	}
}

func FuzzVerifyTombstone(f *testing.F) {
	good := tombstone(f, parting)
	f.Add(good)
	f.Add(strings.Replace(good, "00Z", "00.5Z", 1))
	f.Add(strings.Replace(good, "{", `{"from":"visby",`, 1))
	f.Add(good + "\n")
	f.Add("null")
	f.Fuzz(func(t *testing.T, text string) {
		err := VerifyTombstone(FormatPublicKey(publicOf(hamburg)), text, parting)
		if err == nil {
			if text != good {
				t.Errorf("forged: %s", text)
			}
			return
		}
		if !errors.Is(err, ErrTombstone) && !errors.Is(err, ErrSignature) {
			t.Errorf("got %v", err)
		}
	})
}
