// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

const (
	// remembered is for how long it is known what was said last under a name that is free again: no statement holds for longer.
	remembered = 24 * time.Hour
	// maxRemembered is of how many names of one consumer that is known. Of the others it is known that nothing old is taken in.
	maxRemembered = 1000
)

// A question is what a consumer asks by a Request or a Quote.
type question struct {
	kind   trust.StatementType
	of     requestKey // also of a Quote
	uid    types.UID
	signed *v1alpha1.SignedStatement
	taken  int64 // the sequence of what was taken in last, as the status says
	// same says why what is signed is not what the object says, as the reason and the message of a condition.
	same func(body []byte) (reason, message string)
}

func requestAsQuestion(asked *v1alpha1.Request) *question {
	return &question{
		trust.Request, reservationOf(asked), asked.UID, asked.Spec.Signed, asked.Status.Sequence,
		func(body []byte) (string, string) { return exchange.RequestSigned(body, asked) },
	}
}

func quoteAsQuestion(asked *v1alpha1.Quote) *question {
	return &question{
		trust.Quote, reservationOf(asked), asked.UID, asked.Spec.Signed, asked.Status.Sequence,
		func(body []byte) (string, string) { return exchange.QuoteSigned(body, asked) },
	}
}

// statements judges what consumers have signed of one kind of object, and signs what they are answered.
type statements struct {
	clusterID string
	key       ed25519.PrivateKey
	clock     clock.PassiveClock
	past      past
}

func newStatements(cfg *Config) *statements {
	return &statements{clusterID: cfg.ClusterID, key: cfg.ClusterKey, clock: cfg.Clock}
}

// take judges who asks, and what it has signed, and returns the sequence of that if it is to be answered on its merits.
func (s *statements) take(asked *question, who *asker) (int64, *refusal) {
	if reason, message := who.barred(); reason != "" {
		return 0, &refusal{reason: reason, message: message}
	}
	now := s.clock.Now()
	said, err := trust.Expected{
		Type: asked.kind, From: who.id, Pinned: who.key, To: s.clusterID, Taken: s.past.least(asked), Same: asked.same,
	}.Verify(asked.signed)
	if err == nil {
		err = said.JudgeTime(now)
	}
	if err != nil {
		why := &trust.Refusal{}
		errors.As(err, &why)
		peers.StatementsRefused.WithLabelValues(who.peer.Name, why.Reason).Inc()
		return 0, &refusal{reason: why.Reason, message: fmt.Sprintf("spec.signed: %s. %s", why.Message, remedyFor(why.Reason))}
	}
	s.past.note(asked, said.Sequence, now)
	return said.Sequence, nil
}

// remedyFor says what the consumer can do about a statement that is not taken in.
func remedyFor(reason string) string {
	switch reason {
	case v1alpha1.ReasonStale:
		return "Sign it anew, with a higher sequence"
	case v1alpha1.ReasonExpired:
		return "Sign it anew, with a later end"
	case v1alpha1.ReasonMisaddressed:
		return "Sign it for this cluster, by its id"
	case v1alpha1.ReasonMalformed:
		return "Write it as Hanse does"
	default:
		return "Sign it with the key of your cluster that the provider has pinned when you joined, and change nothing after that"
	}
}

// answer signs the body as what is answered in place of the answer before, which may be nil. The error is one of size.
func (s *statements) answer(said trust.Statement, before *v1alpha1.SignedStatement, body any) (*v1alpha1.SignedStatement, error) {
	said.From = s.clusterID
	return trust.SignNext(s.key, s.clock.Now(), said, before, body)
}

// sequenceOf is that of the statement that lies there, whatever it is worth, 0 if it cannot be read: an answer, also with no, names what it
// answers.
func (s *statements) sequenceOf(signed *v1alpha1.SignedStatement) int64 {
	said, err := trust.VerifyStatement(signed, s.clusterID)
	if err != nil {
		return 0
	}
	return said.Sequence
}

// A past knows what consumers have said last under each name, also when the name is free again: what was released is not asked for again by
// the old text. A restart forgets what no object tells.
type past struct {
	mu     sync.Mutex
	byPeer map[string]*pastOf
}

type pastOf struct {
	last  map[string]lastSaid // by name
	floor int64               // of names that are not in last, what was said has a higher sequence
}

type lastSaid struct {
	uid      types.UID
	sequence int64
	until    time.Time
}

// least is the least sequence that is taken in for the question.
func (p *past) least(asked *question) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.byPeer[asked.of.peer]
	if of == nil {
		return asked.taken
	}
	last, known := of.last[asked.of.name]
	switch {
	case known && last.uid != asked.uid:
		return last.sequence + 1
	case known:
		return max(asked.taken, last.sequence)
	case asked.taken == 0 && of.floor > 0:
		return of.floor + 1
	default:
		return asked.taken
	}
}

// note notes what was said under the name of the question.
func (p *past) note(asked *question, sequence int64, now time.Time) {
	if sequence == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byPeer == nil {
		p.byPeer = map[string]*pastOf{}
	}
	of := p.byPeer[asked.of.peer]
	if of == nil {
		p.forget(now)
		of = &pastOf{last: map[string]lastSaid{}}
		p.byPeer[asked.of.peer] = of
	}
	of.last[asked.of.name] = lastSaid{asked.uid, sequence, now.Add(remembered)}
	of.shrink(now)
}

// forget forgets consumers of which nothing holds any more.
func (p *past) forget(now time.Time) {
	for peer, of := range p.byPeer {
		if of.expire(now); len(of.last) == 0 {
			delete(p.byPeer, peer)
		}
	}
}

func (o *pastOf) expire(now time.Time) {
	for name, last := range o.last {
		if !last.until.After(now) {
			delete(o.last, name)
		}
	}
}

// shrink keeps to the bound: what gives way is what was said first.
func (o *pastOf) shrink(now time.Time) {
	if len(o.last) <= maxRemembered {
		return
	}
	o.expire(now)
	for len(o.last) > maxRemembered {
		first := ""
		for name, last := range o.last {
			if first == "" || last.sequence < o.last[first].sequence {
				first = name
			}
		}
		o.floor = max(o.floor, o.last[first].sequence)
		delete(o.last, first)
	}
}
