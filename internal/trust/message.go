// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"cmp"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/crypto/curve25519"
	kjson "sigs.k8s.io/json"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	purposeMessage = "message"
	// maxStatement bounds a statement as text, as the definition of Messages does.
	maxStatement = 16384
	// maxBody is what is left of that for the body, for sure.
	maxBody = maxStatement - 512
	// maxStatementLife bounds for how long a statement may hold.
	maxStatementLife = 24 * time.Hour
)

// A StatementType says what the body of a statement is.
type StatementType string

const (
	// Introduction says to all members of a broker what the sender has to spare: the body is a v1alpha1.MemberOffer.
	Introduction StatementType = "Introduction"
	// HandOver asks a member for an invitation: the body is a HandOverRequest.
	HandOver StatementType = "HandOver"
	// HandOverAnswer answers that: the body is a HandOverResponse.
	HandOverAnswer StatementType = "HandOverAnswer"
	// Quote asks a member, or a peer, for an offer: the body is an exchange.SignedQuote.
	Quote StatementType = "Quote"
	// Offer answers that: the body is an exchange.SignedOffer.
	Offer StatementType = "Offer"
	// Marks says to all members of a broker what the broker itself has counted of them: the body is an exchange.Marks.
	Marks StatementType = "Marks"
	// Request asks a member, or a peer, for room: the body is an exchange.SignedRequest.
	Request StatementType = "Request"
	// Acknowledgement answers that, also with no: the body is an exchange.SignedAnswer.
	Acknowledgement StatementType = "Acknowledgement"
	// Release gives a member back what was asked of it by a Request: the body is an exchange.SignedRelease.
	Release StatementType = "Release"
	// Account tells a peer what was used on a day: the body is an exchange.SignedCount.
	Account StatementType = "Account"
)

// A Statement is what one cluster says to another, or to all members of a broker, through somebody who is not to be trusted.
type Statement struct {
	Type StatementType `json:"type"`
	// From is the id of the cluster that says it, and Key its public key.
	From string `json:"from"`
	Key  string `json:"key"`
	// To is the id of the cluster that it is for. Empty: for all.
	To string `json:"to,omitempty"`
	// Sequence grows with each statement of one sender.
	Sequence int64 `json:"sequence"`
	// Expires is until when it holds: at most a day ahead.
	Expires time.Time       `json:"expires"`
	Body    json.RawMessage `json:"body"`
}

// HandOverRequest asks for an invitation.
type HandOverRequest struct {
	// SealingKey is the public key to which the invitation is to be encrypted.
	SealingKey string `json:"sealingKey"`
}

// HandOverResponse answers a HandOverRequest.
type HandOverResponse struct {
	// Request is the sequence of the request.
	Request int64 `json:"request"`
	// Invitation is encrypted to the key of the request, and empty if it is refused.
	Invitation string `json:"invitation,omitempty"`
	// Refusal says why there is none.
	Refusal string `json:"refusal,omitempty"`
}

// A Refusal is why a statement is not taken in.
type Refusal struct {
	// Reason is one of the Reasons of conditions.
	Reason  string
	Message string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

func refusal(reason, format string, args ...any) *Refusal {
	return &Refusal{reason, fmt.Sprintf(format, args...)}
}

// ErrStatementSize means that a statement is too large to be made.
var ErrStatementSize = errors.New("too much for one statement")

// SignStatement returns the statement, with the body and the key of the sender, as objects have it.
func SignStatement(key ed25519.PrivateKey, s Statement, body any) (*v1alpha1.SignedStatement, error) {
	var err error
	if s.Body, err = json.Marshal(body); err != nil {
		return nil, fmt.Errorf("encode the body of the statement: %w", err)
	}
	s.Key, s.Expires = PublicKeyOf(key), s.Expires.UTC().Truncate(time.Second)
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode the statement: %w", err)
	}
	if len(text) > maxStatement {
		return nil, fmt.Errorf("%w: it is larger than %d bytes", ErrStatementSize, maxStatement)
	}
	return &v1alpha1.SignedStatement{Statement: string(text), Signature: sign(key, purposeMessage, string(text))}, nil
}

// ReadStatement reads a statement as VerifyStatement does, and checks that it holds now. The error is a Refusal.
func ReadStatement(signed *v1alpha1.SignedStatement, to string, now time.Time) (*Statement, error) {
	s, err := VerifyStatement(signed, to)
	if err == nil {
		err = s.JudgeTime(now)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// VerifyStatement reads a statement, which may be nil, and checks that whoever has the key in it has signed it, and that it is for the cluster of that id.
// Whether it holds now is checked by JudgeTime, and whether that key is the one of the cluster that it speaks for by Judge. The error is
// a Refusal.
func VerifyStatement(signed *v1alpha1.SignedStatement, to string) (*Statement, error) {
	if signed == nil {
		return nil, refusal(v1alpha1.ReasonUnsigned, "it is not signed")
	}
	if len(signed.Statement) > maxStatement {
		return nil, refusal(v1alpha1.ReasonMalformed, "the statement is larger than %d bytes", maxStatement)
	}
	s := &Statement{}
	// Strictly, so that nobody reads anything else in the same text.
	problems, err := kjson.UnmarshalStrict([]byte(signed.Statement), s)
	if err = cmp.Or(err, errors.Join(problems...)); err != nil {
		return nil, refusal(v1alpha1.ReasonMalformed, "the statement cannot be read: %v", err)
	}
	err = verify(s.Key, signed.Signature, purposeMessage, signed.Statement)
	switch {
	case errors.Is(err, ErrKey):
		return nil, refusal(v1alpha1.ReasonMalformed, "the statement names no key: %v", err)
	case err != nil:
		return nil, refusal(v1alpha1.ReasonForged, "the statement was changed, or is not signed by the key that it names")
	case s.To != to:
		return nil, refusal(v1alpha1.ReasonMisaddressed, "the statement is for %q", s.To)
	case s.Sequence <= 0 || s.From == "":
		return nil, refusal(v1alpha1.ReasonMalformed, "the statement has no sequence, or does not say from whom it is")
	}
	return s, nil
}

// JudgeTime says why the statement does not hold now: nil if it does. The error is a Refusal.
func (s *Statement) JudgeTime(now time.Time) error {
	switch {
	case !s.Expires.After(now):
		return refusal(v1alpha1.ReasonExpired, "the statement held until %s", s.Expires.UTC().Format(time.RFC3339))
	case s.Expires.Sub(now) > maxStatementLife:
		return refusal(v1alpha1.ReasonMalformed, "expires: a statement holds for at most %s", maxStatementLife)
	default:
		return nil
	}
}

// Judge says why a statement is not taken in from a cluster whose key is pinned, and of which a statement of that sequence was taken in
// before, 0 for none: nil if it is. One of that very sequence is the same again.
func (s *Statement) Judge(pinned string, taken int64) error {
	switch {
	case s.Key != pinned:
		return refusal(v1alpha1.ReasonForged, "the statement is signed by another key than the one that is pinned for %s", s.From)
	case s.Sequence < taken:
		return refusal(v1alpha1.ReasonStale, "the statement is older than one that was taken in before")
	default:
		return nil
	}
}

// Expected is what a statement of one peer to another must be to be taken in.
type Expected struct {
	Type StatementType
	// From is the id of the cluster that says it, Pinned the key that is pinned for that one, and To the id of the cluster that it is for.
	From, Pinned, To string
	// Taken is the least sequence that is taken in.
	Taken int64
	// Same says why the body is not what the object says beside which it is signed, as the reason and the message of a condition, which are
	// empty if it is.
	Same func(body []byte) (reason, message string)
}

// Verify reads a statement, which may be nil, and checks that it is what was expected. Whether it holds now is checked by JudgeTime. The
// error is a Refusal.
func (e Expected) Verify(signed *v1alpha1.SignedStatement) (*Statement, error) {
	s, err := VerifyStatement(signed, e.To)
	if err != nil {
		return nil, err
	}
	if s.Type != e.Type {
		return nil, refusal(v1alpha1.ReasonMalformed, "the statement is of another type than %s", e.Type)
	}
	if s.From != e.From {
		return nil, refusal(v1alpha1.ReasonForged, "the statement is not from %q", e.From)
	}
	if err := s.Judge(e.Pinned, e.Taken); err != nil {
		return nil, err
	}
	if reason, message := e.Same(s.Body); reason != "" {
		return nil, &Refusal{reason, message}
	}
	return s, nil
}

// SignNext signs what takes the place of a statement to the same cluster, which may be nil. It holds for a day at most.
func SignNext(
	key ed25519.PrivateKey, now time.Time, s Statement, before *v1alpha1.SignedStatement, body any,
) (*v1alpha1.SignedStatement, error) {
	said, _ := VerifyStatement(before, s.To)
	s.Sequence = NextSequence(now, said)
	if most := now.Add(maxStatementLife); s.Expires.After(most) {
		s.Expires = most
	}
	return SignStatement(key, s, body)
}

// NextSequence is the sequence of a statement that is made now, after that one, which may be nil: our clock may have gone back since.
func NextSequence(now time.Time, before *Statement) int64 {
	if before == nil {
		return now.UnixNano()
	}
	return max(now.UnixNano(), before.Sequence+1)
}

// Fits says whether there is room for the body in a statement.
func Fits(body any) bool {
	text, err := json.Marshal(body)
	return err == nil && len(text) <= maxBody
}

// Read reads the body of a statement. The error is a Refusal.
func (s *Statement) Read(body any) error {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(s.Body, body); err != nil {
		return refusal(v1alpha1.ReasonMalformed, "body: %v", err)
	}
	return nil
}

// HandOverKey is the key to which the answer to our request of that sequence is encrypted. It is derived, by HKDF (RFC 5869), from the key
// of this cluster, so that nothing need be kept until the answer comes.
func HandOverKey(key ed25519.PrivateKey, to string, sequence int64) (SealingKey, error) {
	derived, err := hkdf.Key(sha256.New, key.Seed(), nil, "hanse.dev/hand-over\n"+to+"\n"+strconv.FormatInt(sequence, 10), curve25519.ScalarSize)
	if err != nil {
		return SealingKey{}, fmt.Errorf("derive a key: %w", err)
	}
	return SealingKey(derived), nil
}
