// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

// A reading is what came of reading one version of a Message: each is verified once, and counted once if it is refused.
type reading struct {
	message *v1alpha1.Message
	said    *trust.Statement
	err     error
	refused string // the reason for which it was counted last
	// marks are what the statement says of members, if it says that, and notMarks is why they are not taken in.
	marks    *exchange.Marks
	notMarks error
}

// isOf says whether it is the reading of that very version. A broker may say of another text that it is the same version.
func (r *reading) isOf(message *v1alpha1.Message) bool {
	return r != nil && r.message.UID == message.UID && r.message.ResourceVersion == message.ResourceVersion && r.message.Spec == message.Spec
}

// aLook are the readings of one look at a broker. There are no more of them than Messages that are followed.
type aLook map[client.ObjectKey]*reading

// looks are the last looks at all brokers.
type looks struct {
	mu       sync.Mutex
	byBroker map[string]aLook
}

// begin begins another look at the broker, and returns the last one too, of which the other one takes what it needs.
func (l *looks) begin(broker string) (last, now aLook) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byBroker == nil {
		l.byBroker = map[string]aLook{}
	}
	last, now = l.byBroker[broker], aLook{}
	l.byBroker[broker] = now
	return last, now
}

// end forgets the broker.
func (l *looks) end(broker string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byBroker, broker)
}

// reading is that of the Message, of the last look if there is one.
func (s *scene) reading(message *v1alpha1.Message) *reading {
	key := client.ObjectKeyFromObject(message)
	found := s.readings[key]
	if !found.isOf(message) {
		found = s.before[key]
	}
	if !found.isOf(message) {
		found = &reading{}
		found.said, found.err = trust.VerifyStatement(&message.Spec.SignedStatement, message.Spec.To)
	}
	found.message = message // the same again may be another copy, of which one is enough
	s.readings[key] = found
	return found
}

// read reads what a Message says now. The error is a Refusal.
func (s *scene) read(message *v1alpha1.Message) (*trust.Statement, error) {
	found := s.reading(message)
	if found.err != nil {
		return nil, found.err
	}
	if err := found.said.JudgeTime(s.now); err != nil {
		return nil, err
	}
	return found.said, nil
}

// refuse counts a Message that is not taken in.
func (*member) refuse(seen *scene, message *v1alpha1.Message, err error) {
	why := &trust.Refusal{Reason: v1alpha1.ReasonMalformed}
	errors.As(err, &why)
	if of := seen.reading(message); of.refused != why.Reason {
		of.refused = why.Reason
		peers.StatementsRefused.WithLabelValues(seen.broker.Name, why.Reason).Inc()
	}
}
