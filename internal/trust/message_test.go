// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// asked is a statement of lubeck to hamburg.
func asked() Statement {
	return Statement{Type: HandOver, From: "lubeck", To: "hamburg", Sequence: 7, Expires: noon.Add(time.Hour)}
}

func signed(t testing.TB, key ed25519.PrivateKey, s Statement, body any) *v1alpha1.MessageSpec {
	t.Helper()
	text, err := SignStatement(key, s, body)
	if err != nil {
		t.Fatal(err)
	}
	return &v1alpha1.MessageSpec{To: s.To, SignedStatement: *text}
}

func readMessage(message *v1alpha1.MessageSpec) (*Statement, error) {
	return ReadStatement(&message.SignedStatement, message.To, noon)
}

// signedText is a Message to hamburg with that text, to the letter, which lubeck has signed.
func signedText(text string) *v1alpha1.MessageSpec {
	return &v1alpha1.MessageSpec{To: "hamburg", SignedStatement: v1alpha1.SignedStatement{Statement: text, Signature: sign(lubeck, purposeMessage, text)}}
}

func expectRefusal(t *testing.T, err error, reason string) {
	t.Helper()
	var why *Refusal
	switch {
	case reason == "" && err != nil:
		t.Errorf("refused: %v", err)
	case reason != "" && (!errors.As(err, &why) || why.Reason != reason):
		t.Errorf("got %+v, want %s", err, reason)
	}
}

func TestAStatementIsReadAsItWasSigned(t *testing.T) {
	message := signed(t, lubeck, asked(), HandOverRequest{SealingKey: sealing.Public()})
	got, err := readMessage(message)
	if err != nil {
		t.Fatal(err)
	}
	want := asked()
	want.Key, want.Body = FormatPublicKey(publicOf(lubeck)), json.RawMessage(`{"sealingKey":"`+sealing.Public()+`"}`)
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	body := HandOverRequest{}
	if err := got.Read(&body); err != nil || body.SealingKey != sealing.Public() {
		t.Errorf("its body is %+v, %v", body, err)
	}
	expectRefusal(t, got.Read(new([]string)), v1alpha1.ReasonMalformed)
}

func TestStatementsThatAreRefused(t *testing.T) {
	with := func(change func(*Statement)) *v1alpha1.MessageSpec {
		s := asked()
		change(&s)
		return signed(t, lubeck, s, "body")
	}
	changed := func(change func(*v1alpha1.MessageSpec)) *v1alpha1.MessageSpec {
		message := with(func(*Statement) {})
		change(message)
		return message
	}
	text := with(func(*Statement) {}).Statement
	edited := func(from, to string) *v1alpha1.MessageSpec {
		after := strings.Replace(text, from, to, 1)
		if after == text {
			t.Fatalf("%s is not in %s", from, text)
		}
		return signedText(after)
	}
	for name, test := range map[string]struct {
		message *v1alpha1.MessageSpec
		reason  string
	}{
		"as signed":          {signedText(text), ""},
		"at its last second": {with(func(s *Statement) { s.Expires = noon.Add(time.Second) }), ""},
		"for a day":          {with(func(s *Statement) { s.Expires = noon.Add(24 * time.Hour) }), ""},
		"for all": {changed(func(m *v1alpha1.MessageSpec) {
			*m = *signed(t, lubeck, Statement{Type: Introduction, From: "lubeck", Sequence: 1, Expires: noon.Add(time.Hour)}, "")
		}), ""},
		"changed by a byte": {changed(func(m *v1alpha1.MessageSpec) {
			m.Statement = strings.Replace(m.Statement, `"sequence":7`, `"sequence":8`, 1)
		}), v1alpha1.ReasonForged},
		"with a space more": {changed(func(m *v1alpha1.MessageSpec) { m.Statement += " " }), v1alpha1.ReasonForged},
		"by another key": {changed(func(m *v1alpha1.MessageSpec) {
			m.Signature = sign(visby, purposeMessage, m.Statement)
		}), v1alpha1.ReasonForged},
		"signed for something else": {changed(func(m *v1alpha1.MessageSpec) {
			m.Signature = sign(lubeck, purposeClaim, m.Statement)
		}), v1alpha1.ReasonForged},
		"without a signature":      {changed(func(m *v1alpha1.MessageSpec) { m.Signature = "" }), v1alpha1.ReasonForged},
		"expired":                  {with(func(s *Statement) { s.Expires = noon }), v1alpha1.ReasonExpired},
		"without an end":           {with(func(s *Statement) { s.Expires = time.Time{} }), v1alpha1.ReasonExpired},
		"for more than a day":      {with(func(s *Statement) { s.Expires = noon.Add(24*time.Hour + time.Second) }), v1alpha1.ReasonMalformed},
		"for a hundred years":      {with(func(s *Statement) { s.Expires = noon.AddDate(100, 0, 0) }), v1alpha1.ReasonMalformed},
		"for thousands of years":   {edited(`"expires":"2026`, `"expires":"9999`), v1alpha1.ReasonMalformed},
		"to another than it says":  {changed(func(m *v1alpha1.MessageSpec) { m.To = "visby" }), v1alpha1.ReasonMisaddressed},
		"to all, though to one":    {changed(func(m *v1alpha1.MessageSpec) { m.To = "" }), v1alpha1.ReasonMisaddressed},
		"too large":                {signedText(text + strings.Repeat(" ", maxStatement)), v1alpha1.ReasonMalformed},
		"an unknown field":         {edited(`{"type"`, `{"more":1,"type"`), v1alpha1.ReasonMalformed},
		"a field in another case":  {edited(`{"type"`, `{"Type"`), v1alpha1.ReasonMalformed},
		"a field twice":            {edited(`"sequence":7`, `"sequence":7,"sequence":9`), v1alpha1.ReasonMalformed},
		"another statement behind": {signedText(text + text), v1alpha1.ReasonMalformed},
		"a letter behind":          {signedText(text + "x"), v1alpha1.ReasonMalformed},
		"no JSON":                  {signedText("hello"), v1alpha1.ReasonMalformed},
		"null":                     {signedText("null"), v1alpha1.ReasonMalformed},
		"a list":                   {signedText("[]"), v1alpha1.ReasonMalformed},
		"a deep list":              {signedText(strings.Repeat("[", maxStatement)), v1alpha1.ReasonMalformed},
		"without a key":            {edited(`"key":"`+FormatPublicKey(publicOf(lubeck))+`"`, `"key":""`), v1alpha1.ReasonMalformed},
		"the key of everybody":     {edited(FormatPublicKey(publicOf(lubeck)), lowOrder), v1alpha1.ReasonMalformed},
		"sequence 0":               {with(func(s *Statement) { s.Sequence = 0 }), v1alpha1.ReasonMalformed},
		"a negative sequence":      {with(func(s *Statement) { s.Sequence = -1 }), v1alpha1.ReasonMalformed},
		"a sequence beyond 64 bit": {edited(`"sequence":7`, `"sequence":9223372036854775808`), v1alpha1.ReasonMalformed},
		"a fraction of a sequence": {edited(`"sequence":7`, `"sequence":7.5`), v1alpha1.ReasonMalformed},
		"from nobody":              {with(func(s *Statement) { s.From = "" }), v1alpha1.ReasonMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readMessage(test.message)
			expectRefusal(t, err, test.reason)
		})
	}
}

func TestStatementsThatCannotBeSigned(t *testing.T) {
	if _, err := SignStatement(lubeck, asked(), strings.Repeat("x", maxStatement)); !errors.Is(err, ErrStatementSize) {
		t.Errorf("one that is too large: %v", err)
	}
	if _, err := SignStatement(lubeck, asked(), math.NaN()); err == nil {
		t.Error("one that is no JSON is signed")
	}
}

func TestStatementsAreJudgedByThePinnedKeyAndTheLastSequence(t *testing.T) {
	ours := FormatPublicKey(publicOf(lubeck))
	for name, test := range map[string]struct {
		pinned string
		taken  int64
		reason string
	}{
		"the first":         {ours, 0, ""},
		"newer":             {ours, 6, ""},
		"the same again":    {ours, 7, ""},
		"older":             {ours, 8, v1alpha1.ReasonStale},
		"in another's name": {FormatPublicKey(publicOf(visby)), 0, v1alpha1.ReasonForged},
		"of one without":    {"", 0, v1alpha1.ReasonForged},
	} {
		t.Run(name, func(t *testing.T) {
			said, err := readMessage(signed(t, lubeck, asked(), ""))
			if err != nil {
				t.Fatal(err)
			}
			expectRefusal(t, said.Judge(test.pinned, test.taken), test.reason)
		})
	}
}

func TestStatementsThatWereNotExpected(t *testing.T) {
	const beside = "it says something else"
	expected := Expected{
		Type: HandOver, From: "lubeck", Pinned: FormatPublicKey(publicOf(lubeck)), To: "hamburg", Taken: 7,
		Same: func(body []byte) (reason, message string) {
			if string(body) != `"body"` {
				return v1alpha1.ReasonForged, beside
			}
			return "", ""
		},
	}
	for name, test := range map[string]struct {
		signed *v1alpha1.SignedStatement
		reason string
	}{
		"as expected":         {&signed(t, lubeck, asked(), "body").SignedStatement, ""},
		"not signed":          {nil, v1alpha1.ReasonUnsigned},
		"another body":        {&signed(t, lubeck, asked(), "other").SignedStatement, v1alpha1.ReasonForged},
		"another key":         {&signed(t, visby, asked(), "body").SignedStatement, v1alpha1.ReasonForged},
		"a text of no signer": {&v1alpha1.SignedStatement{Statement: "{}"}, v1alpha1.ReasonMalformed},
		"another type":        {with(t, func(s *Statement) { s.Type = Quote }), v1alpha1.ReasonMalformed},
		"from another":        {with(t, func(s *Statement) { s.From = "visby" }), v1alpha1.ReasonForged},
		"for another":         {with(t, func(s *Statement) { s.To = "visby" }), v1alpha1.ReasonMisaddressed},
		"older":               {with(t, func(s *Statement) { s.Sequence = 6 }), v1alpha1.ReasonStale},
		"newer":               {with(t, func(s *Statement) { s.Sequence = 8 }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			said, err := expected.Verify(test.signed)
			expectRefusal(t, err, test.reason)
			if (said == nil) != (err != nil) {
				t.Errorf("got %+v beside %v", said, err)
			}
		})
	}
}

// with is what lubeck has signed with a change.
func with(t *testing.T, change func(*Statement)) *v1alpha1.SignedStatement {
	t.Helper()
	s := asked()
	change(&s)
	return &signed(t, lubeck, s, "body").SignedStatement
}

func TestTheNextStatementIsNewer(t *testing.T) {
	var before *v1alpha1.SignedStatement
	last := int64(0)
	for _, now := range []time.Time{noon, noon, noon.Add(-time.Hour), noon.Add(time.Hour)} {
		said := asked()
		said.Sequence, said.Expires = 0, now.AddDate(1, 0, 0)
		next, err := SignNext(lubeck, now, said, before, "body")
		if err != nil {
			t.Fatal(err)
		}
		read, err := ReadStatement(next, "hamburg", now)
		if err != nil {
			t.Fatal(err)
		}
		if read.Sequence <= last || read.Sequence < now.UnixNano() || !read.Expires.Equal(now.Add(maxStatementLife)) {
			t.Errorf("at %s after %d: %+v", now, last, read)
		}
		before, last = next, read.Sequence
	}
}

func TestWhatFitsCanBeSigned(t *testing.T) {
	body := strings.Repeat("x", maxBody-2)
	if !Fits(body) || Fits(body+"x") {
		t.Error("the bound is another")
	}
	said := asked()
	said.Type, said.From, said.To, said.Sequence = Acknowledgement, strings.Repeat("a", 30), strings.Repeat("a", 30), math.MaxInt64
	if _, err := SignStatement(lubeck, said, body); err != nil {
		t.Error(err)
	}
}

func TestEachHandOverHasItsOwnKey(t *testing.T) {
	type of struct {
		key      ed25519.PrivateKey
		to       string
		sequence int64
	}
	seen := map[SealingKey]string{}
	for _, o := range []of{
		{lubeck, "hamburg", 1}, {lubeck, "hamburg", 2}, {lubeck, "hamburg", 11}, {lubeck, "hamburg1", 1}, {lubeck, "hamburg\n1", 1}, {visby, "hamburg", 1},
	} {
		key, err := HandOverKey(o.key, o.to, o.sequence)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := HandOverKey(o.key, o.to, o.sequence); again != key {
			t.Errorf("%q %d: the same gives another key", o.to, o.sequence)
		}
		if other, found := seen[key]; found {
			t.Errorf("%q %d has the key of %s", o.to, o.sequence, other)
		}
		seen[key] = fmt.Sprintf("%q %d", o.to, o.sequence)
		if sealed, err := Seal(key.Public(), []byte("invitation")); err != nil {
			t.Error(err)
		} else if opened, err := key.Open(sealed); err != nil || string(opened) != "invitation" {
			t.Errorf("opened %q, %v", opened, err)
		}
	}
}

// FuzzReadStatement signs whatever comes, so that the fuzzer gets behind the signature.
func FuzzReadStatement(f *testing.F) {
	f.Add("hamburg", signed(f, lubeck, asked(), HandOverRequest{SealingKey: sealing.Public()}).Statement)
	f.Add("", signed(f, lubeck, Statement{Type: Introduction, From: "lubeck", Sequence: 1, Expires: noon.Add(time.Hour)}, v1alpha1.MemberOffer{}).Statement)
	f.Fuzz(func(t *testing.T, to, text string) {
		message := &v1alpha1.MessageSpec{To: to, SignedStatement: v1alpha1.SignedStatement{Statement: text, Signature: sign(lubeck, purposeMessage, text)}}
		said, err := readMessage(message)
		if err != nil {
			if why := (&Refusal{}); !errors.As(err, &why) || why.Reason == "" {
				t.Errorf("it gives no reason: %v", err)
			}
			return
		}
		if said.Key != FormatPublicKey(publicOf(lubeck)) || said.To != to || said.Sequence <= 0 || said.From == "" ||
			!said.Expires.After(noon) || said.Expires.Sub(noon) > maxStatementLife || len(text) > maxStatement {
			t.Fatalf("took %+v", said)
		}
		message.Signature = sign(visby, purposeMessage, text)
		_, err = readMessage(message)
		expectRefusal(t, err, v1alpha1.ReasonForged)
		_ = said.Read(&HandOverRequest{})
		_ = said.Read(&HandOverResponse{})
	})
}
