// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

// Questions are Quotes and Requests of this cluster that go to members of its brokers, which are no peers.
type Questions struct{ member *member }

// Quote asks the member for an offer through the broker, unless it has been asked for the same. The Quote has this name at both.
func (q *Questions) Quote(ctx context.Context, broker, member, name string, quote *v1alpha1.QuoteSpec) error {
	s := trust.Statement{Type: trust.Quote, To: member, Expires: quote.ExpirationTime.Time}
	body := exchange.SignedQuote{Name: name, Quote: *quote}
	return q.ask(ctx, broker, name, s, wording{body, func(said *trust.Statement) bool {
		last, err := exchange.ReadSignedQuote(said.Body)
		return err == nil && equality.Semantic.DeepEqual(*last, body)
	}})
}

// Request asks the member for room through the broker, until this cluster is a peer and asks itself, unless it has been asked for the same. The
// Request has this name at both. It is given back when no Application of ours waits for it any more. The error is
// trust.ErrStatementSize if it is too large.
func (q *Questions) Request(ctx context.Context, broker, member, name string, request *v1alpha1.RequestSpec) error {
	body := exchange.SignedRequest{Name: name, Request: *request.DeepCopy()}
	body.Request.ExpirationTime = metav1.NewTime(q.member.Clock.Now().Add(handOverLife).Truncate(time.Second))
	s := trust.Statement{Type: trust.Request, To: member, Expires: body.Request.ExpirationTime.Time}
	return q.ask(ctx, broker, name, s, wording{body, func(said *trust.Statement) bool {
		last, err := exchange.ReadSignedRequest(said.Body)
		if err != nil {
			return false
		}
		last.Request.ExpirationTime = body.Request.ExpirationTime
		return equality.Semantic.DeepEqual(*last, body)
	}})
}

// A wording is the body of a question, and whether the last one has asked the same.
type wording struct {
	body   any
	isSame func(last *trust.Statement) bool
}

// ask says the question through the broker, unless what was said last is the same.
func (q *Questions) ask(ctx context.Context, broker, name string, s trust.Statement, what wording) error {
	seen := q.look(broker)
	if seen == nil {
		return fmt.Errorf("broker %s is not connected", broker) //nolint:err113 // it is logged
	}
	message := messageOf(s.Type, s.To, name)
	_, before := q.member.own(seen, message)
	if before != nil && before.Type == s.Type && what.isSame(before) {
		return nil
	}
	s.Sequence = trust.NextSequence(seen.now, before)
	err := q.member.send(ctx, seen, message, s, what.body)
	if apierrors.IsAlreadyExists(err) { // it is written, and not seen yet: when it is, this is looked at again
		return nil
	}
	return local.IgnoreStale(err)
}

// Offer returns what the member has offered for what it was asked last, as the Quote that it would be at a peer. It is nil if that is
// nothing that is believed.
func (q *Questions) Offer(ctx context.Context, broker, member, name string) *v1alpha1.Quote {
	question, answer := q.answered(ctx, broker, member, name, trust.Quote)
	if answer == nil {
		return nil
	}
	asked, err := exchange.ReadSignedQuote(question.Body)
	offer, wrong := exchange.ReadSignedOffer(answer.Body)
	if errors.Join(err, wrong) != nil {
		return nil
	}
	return &v1alpha1.Quote{Spec: asked.Quote, Status: v1alpha1.QuoteStatus{Whole: offer.Whole, Components: offer.Components}}
}

// Answer returns what the member has answered to the Request, as the one that it would be at a peer. It is nil if that is nothing that is
// believed.
func (q *Questions) Answer(ctx context.Context, broker, member, name string) *v1alpha1.Request {
	question, said := q.answered(ctx, broker, member, name, trust.Request)
	if said == nil {
		return nil
	}
	asked, err := exchange.ReadSignedRequest(question.Body)
	answer, wrong := exchange.ReadSignedAnswer(said.Body)
	if errors.Join(err, wrong) != nil {
		return nil
	}
	return answer.AsRequest(&asked.Request)
}

// answered returns what we have asked the member last, and its answer to that: nil if there is none that is believed.
func (q *Questions) answered(
	ctx context.Context, broker, member, name string, kind trust.StatementType,
) (question, answer *trust.Statement) {
	seen, known := q.look(broker), &v1alpha1.Member{}
	if seen == nil || q.member.Client.Get(ctx, client.ObjectKey{Name: member}, known) != nil {
		return nil, nil
	}
	_, question = q.member.own(seen, messageOf(kind, member, name))
	object, _ := seen.mail.Named(v1alpha1.RelayedName(member, messageOf(answerOf(kind), q.member.ClusterID, name)))
	message, there := object.(*v1alpha1.Message)
	if question == nil || question.Type != kind || !there {
		return nil, nil
	}
	said, err := seen.read(message)
	if err != nil || said.Type != answerOf(kind) || said.From != member || said.To != q.member.ClusterID {
		return nil, nil
	}
	if said.Judge(known.Spec.PublicKey, 0) != nil || answeredBy(said) != question.Sequence { // it may answer what was asked before
		return nil, nil
	}
	return question, said
}

// check counts an answer that is not believed. The others are read when they are needed. The error is a Refusal.
func (*member) check(_ context.Context, seen *scene, _ *v1alpha1.Message, said *trust.Statement) error {
	if _, err := seen.sender(said); err != nil {
		return err
	}
	var err error
	if said.Type == trust.Offer {
		_, err = exchange.ReadSignedOffer(said.Body)
	} else {
		_, err = exchange.ReadSignedAnswer(said.Body)
	}
	if err != nil {
		return &trust.Refusal{Reason: v1alpha1.ReasonMalformed, Message: err.Error()}
	}
	return nil
}

// look returns what is said between us and the broker, nil if that is not known now.
func (q *Questions) look(broker string) *scene {
	seen := &scene{broker: &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: broker}}, now: q.member.Clock.Now(), readings: aLook{}}
	if q.member.connect(seen) != nil {
		return nil
	}
	return seen
}

// Changes tells a controller of what is said through brokers: enqueue gets the broker.
func (q *Questions) Changes(enqueue func(ctx context.Context, broker string, queue peers.Queue[reconcile.Request])) source.Source {
	return peers.Changes(q.member.Links, messages, func(ctx context.Context, change peers.Change, queue peers.Queue[reconcile.Request]) {
		enqueue(ctx, change.Link.Peer(), queue)
	})
}

// messageOf is the name of the Message by which the member is asked, or answered.
func messageOf(kind trust.StatementType, member, name string) string {
	prefix := map[trust.StatementType]string{
		trust.Quote: "quote", trust.Offer: "offer", trust.Request: "request", trust.Acknowledgement: "acknowledgement",
	}[kind]
	return prefix + "." + member + "." + name
}

// answerOf is the type of statements that answer those of the other one.
func answerOf(kind trust.StatementType) trust.StatementType {
	if kind == trust.Quote {
		return trust.Offer
	}
	return trust.Acknowledgement
}

// answeredBy is the sequence of the question that an Offer or an Acknowledgement answers, 0 if that cannot be read.
func answeredBy(said *trust.Statement) int64 {
	answers := struct {
		Quote   int64 `json:"quote"`
		Request int64 `json:"request"`
	}{}
	if json.Unmarshal(said.Body, &answers) != nil {
		return 0
	}
	return max(answers.Quote, answers.Request)
}
