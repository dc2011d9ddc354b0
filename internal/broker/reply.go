// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/trust"
)

// What a member asks is answered where peers are answered: by an object in our own tenant namespace of the broker, which has the statement
// of the member, and gets ours. Both are relayed word for word.

// An inquiry is a Quote or a Request of a member.
type inquiry struct {
	name   string
	object client.Object // as it is to lie here
	signed func(there client.Object) (asked, answer *v1alpha1.SignedStatement)
	// refuse is the body of an answer that there is no object for.
	refuse func(why *trust.Refusal) any
}

// quoted answers a Quote of a member. The error is a Refusal if it is not believed.
func (m *member) quoted(ctx context.Context, seen *scene, message *v1alpha1.Message, said *trust.Statement) error {
	return m.reply(ctx, seen, said, func() (*inquiry, error) {
		asked, err := exchange.ReadSignedQuote(said.Body)
		if err != nil {
			return nil, err
		}
		quote := &v1alpha1.Quote{Spec: asked.Quote}
		quote.Spec.Signed = &message.Spec.SignedStatement
		return &inquiry{asked.Name, quote, func(there client.Object) (*v1alpha1.SignedStatement, *v1alpha1.SignedStatement) {
			quote := there.(*v1alpha1.Quote)
			return quote.Spec.Signed, quote.Status.Signed
		}, func(why *trust.Refusal) any {
			whole, each := exchange.NoOffers(asked.Quote.Components, why.Reason, why.Message)
			return exchange.SignedOffer{Name: asked.Name, Quote: said.Sequence, Whole: &whole, Components: exchange.Terse(each)}
		}}, nil
	})
}

// requested answers a Request of a member. The error is a Refusal if it is not believed.
func (m *member) requested(ctx context.Context, seen *scene, message *v1alpha1.Message, said *trust.Statement) error {
	return m.reply(ctx, seen, said, func() (*inquiry, error) {
		asked, err := exchange.ReadSignedRequest(said.Body)
		if err != nil {
			return nil, err
		}
		request := &v1alpha1.Request{Spec: asked.Request}
		request.Spec.Signed = &message.Spec.SignedStatement
		return &inquiry{asked.Name, request, func(there client.Object) (*v1alpha1.SignedStatement, *v1alpha1.SignedStatement) {
			request := there.(*v1alpha1.Request)
			return request.Spec.Signed, request.Status.Signed
		}, func(why *trust.Refusal) any {
			return exchange.SignedAnswer{
				Name: asked.Name, Request: said.Sequence, Reason: why.Reason, Message: why.Message, Phase: v1alpha1.RequestRefused,
			}
		}}, nil
	})
}

// reply answers what a member has asked, unless it is answered. It reads it when it is believed to be from that member.
func (m *member) reply(ctx context.Context, seen *scene, said *trust.Statement, read func() (*inquiry, error)) error {
	from, err := seen.sender(said)
	if err != nil {
		return err
	}
	asked, err := read()
	if err != nil {
		return &trust.Refusal{Reason: v1alpha1.ReasonMalformed, Message: err.Error()}
	}
	kind := answerOf(said.Type)
	name := messageOf(kind, from.Name, asked.name)
	seen.answered[name] = true
	_, before := m.own(seen, name)
	if before != nil && before.Type == kind && answeredBy(before) == said.Sequence {
		return nil
	}
	answer, err := m.answerFor(ctx, seen, from, asked)
	var why *trust.Refusal
	switch {
	case errors.As(err, &why):
		s := trust.Statement{Type: kind, To: from.Name, Sequence: trust.NextSequence(seen.now, before), Expires: said.Expires}
		return m.send(ctx, seen, name, s, asked.refuse(why))
	case err != nil || answer == nil: // it is told when there is one
		return err
	default:
		return m.put(ctx, seen, name, from.Name, answer)
	}
}

// answerFor makes an object of what the member asks, and returns how it was answered, nil while it is not. The error is a Refusal if there is
// to be no object.
func (m *member) answerFor(ctx context.Context, seen *scene, from *v1alpha1.Member, asked *inquiry) (*v1alpha1.SignedStatement, error) {
	if why := m.objection(seen, from, peerOf(seen.peers, from.Name)); why != "" {
		return nil, &trust.Refusal{Reason: v1alpha1.ReasonNotAccepted, Message: why}
	}
	wanted := asked.object
	wanted.SetNamespace(v1alpha1.TenantNamespace(seen.broker.Name))
	wanted.SetName(v1alpha1.RelayedName(from.Name, asked.name))
	wanted.SetLabels(map[string]string{v1alpha1.LabelFrom: from.Name})
	key := client.ObjectKeyFromObject(wanted)
	there, err := local.Find(ctx, m.Client, key, wanted.DeepCopyObject().(client.Object))
	switch {
	case err != nil:
		return nil, err
	case there == nil:
		err = m.Client.Create(ctx, wanted)
	case there.GetLabels()[v1alpha1.LabelFrom] != from.Name: // the broker has made it as a consumer of ours
		return nil, &trust.Refusal{Reason: v1alpha1.ReasonMalformed, Message: "There is another of that name"}
	default:
		theirs, ours := asked.signed(there)
		if now, _ := asked.signed(wanted); theirs != nil && *theirs == *now {
			return m.answerIn(ours, from, now), nil
		}
		wanted.SetResourceVersion(there.GetResourceVersion())
		err = m.Client.Update(ctx, wanted)
	}
	if why := notTaken(err); why != nil {
		return nil, why
	}
	if local.IgnoreStale(err) != nil {
		return nil, fmt.Errorf("write %s: %w", key, err)
	}
	return nil, nil
}

// answerIn is our answer, if it is one to that question: else it is what was answered before.
func (m *member) answerIn(ours *v1alpha1.SignedStatement, from *v1alpha1.Member, asked *v1alpha1.SignedStatement) *v1alpha1.SignedStatement {
	question, err := trust.VerifyStatement(asked, m.ClusterID)
	answer, wrong := trust.VerifyStatement(ours, from.Name)
	if errors.Join(err, wrong) != nil || !m.isOurs(answer) || answeredBy(answer) != question.Sequence {
		return nil
	}
	return ours
}

// notTaken says why our own API server does not take what a member asks, nil if that may pass.
func notTaken(err error) *trust.Refusal {
	switch {
	case apierrors.IsForbidden(err): // by the quota
		return &trust.Refusal{Reason: v1alpha1.ReasonRecipientFull, Message: "The provider is asked for too much through this broker"}
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return &trust.Refusal{Reason: v1alpha1.ReasonMalformed, Message: "The provider does not take it: " + err.Error()}
	default:
		return nil
	}
}

// released gives back what a member does not want any more. The error is a Refusal if it is not believed.
func (m *member) released(ctx context.Context, seen *scene, _ *v1alpha1.Message, said *trust.Statement) error {
	from, err := seen.sender(said)
	if err != nil {
		return err
	}
	what, err := exchange.ReadSignedRelease(said.Body)
	if err != nil {
		return &trust.Refusal{Reason: v1alpha1.ReasonMalformed, Message: err.Error()}
	}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(seen.broker.Name), Name: v1alpha1.RelayedName(from.Name, what.Name)}
	there, err := local.Find(ctx, m.Client, key, &v1alpha1.Request{})
	if err != nil || there == nil || there.Labels[v1alpha1.LabelFrom] != from.Name {
		return err
	}
	asked, err := trust.VerifyStatement(there.Spec.Signed, m.ClusterID)
	if err == nil && asked.Sequence > said.Sequence { // it was asked for again since
		return nil
	}
	if err := m.Client.Delete(ctx, there.DeepCopy(), client.Preconditions{UID: &there.UID}); local.IgnoreStale(err) != nil {
		return fmt.Errorf("release what member %s has asked for: %w", from.Name, err)
	}
	return nil
}
