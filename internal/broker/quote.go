package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

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

// Quotes are those of this cluster that go to members of its brokers, which are no peers.
type Quotes struct{ member *member }

// Ask asks the member for an offer through the broker, unless it has been asked for the same. The Quote has this name at both.
func (q *Quotes) Ask(ctx context.Context, broker, member, name string, quote *v1alpha1.QuoteSpec) error {
	seen := q.look(broker)
	if seen == nil {
		return fmt.Errorf("broker %s is not connected", broker) //nolint:err113 // it is logged
	}
	body, err := json.Marshal(exchange.SignedQuote{Name: name, Quote: *quote})
	if err != nil {
		return fmt.Errorf("encode the Quote: %w", err)
	}
	_, said := q.member.own(seen, quoteMessage(member, name))
	if said != nil && string(said.Body) == string(body) {
		return nil
	}
	err = q.member.send(ctx, seen, quoteMessage(member, name), trust.Statement{
		Type: trust.Quote, To: member, Sequence: trust.NextSequence(seen.now, said), Expires: quote.ExpirationTime.Time,
	}, json.RawMessage(body))
	if apierrors.IsAlreadyExists(err) { // it is written, and not seen yet: when it is, this is looked at again
		return nil
	}
	return local.IgnoreStale(err)
}

// Offer returns what the member has offered for what it was asked last, as the Quote that it would be at a peer. It is nil if that is
// nothing that is believed.
func (q *Quotes) Offer(ctx context.Context, broker, member, name string) *v1alpha1.Quote {
	seen, known := q.look(broker), &v1alpha1.Member{}
	if seen == nil || q.member.Client.Get(ctx, client.ObjectKey{Name: member}, known) != nil {
		return nil
	}
	_, question := q.member.own(seen, quoteMessage(member, name))
	object, _ := seen.mail.Named(v1alpha1.RelayedName(member, offerMessage(q.member.ClusterID, name)))
	message, there := object.(*v1alpha1.Message)
	if question == nil || !there {
		return nil
	}
	answer, err := seen.read(message)
	if err != nil || answer.Type != trust.Offer || answer.From != member || answer.To != q.member.ClusterID {
		return nil
	}
	offer, err := offerIn(answer, known)
	if err != nil || offer.Quote != question.Sequence { // it may answer what was asked before
		return nil
	}
	asked, err := exchange.ReadSignedQuote(question.Body)
	if err != nil {
		return nil
	}
	return &v1alpha1.Quote{Spec: asked.Quote, Status: v1alpha1.QuoteStatus{Whole: offer.Whole, Components: offer.Components}}
}

// check counts an offer that is not believed. The others are read when they are needed. The error is a Refusal.
func (*member) check(_ context.Context, seen *scene, said *trust.Statement) error {
	from, err := seen.sender(said)
	if err == nil {
		_, err = offerIn(said, from)
	}
	return err
}

// offerIn reads what the member offers. The error is a Refusal if it is not believed.
func offerIn(said *trust.Statement, from *v1alpha1.Member) (*exchange.SignedOffer, error) {
	if err := said.Judge(from.Spec.PublicKey, 0); err != nil {
		return nil, err
	}
	offer, err := exchange.ReadSignedOffer(said.Body)
	if err != nil {
		return nil, &trust.Refusal{Reason: v1alpha1.ReasonMalformed, Message: err.Error()}
	}
	return offer, nil
}

// look returns what is said between us and the broker, nil if that is not known now.
func (q *Quotes) look(broker string) *scene {
	seen := &scene{broker: &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: broker}}, now: q.member.Clock.Now(), readings: aLook{}}
	if q.member.connect(seen) != nil {
		return nil
	}
	return seen
}

// Changes tells a controller of what is said through brokers: enqueue gets the broker.
func (q *Quotes) Changes(enqueue func(ctx context.Context, broker string, queue peers.Queue[reconcile.Request])) source.Source {
	return peers.Changes(q.member.Links, messages, func(ctx context.Context, change peers.Change, queue peers.Queue[reconcile.Request]) {
		enqueue(ctx, change.Link.Peer(), queue)
	})
}

func quoteMessage(member, name string) string { return "quote." + member + "." + name }
func offerMessage(member, name string) string { return "offer." + member + "." + name }

// offer answers one Quote of a member. The offer is made where those for peers are made, to a Quote in our own tenant namespace of the
// broker: at the prices that are advertised to the broker, unless policies say otherwise. The error is a Refusal if it is not believed.
func (m *member) offer(ctx context.Context, seen *scene, said *trust.Statement) error {
	from, err := seen.sender(said)
	if err != nil {
		return err
	}
	asked, err := exchange.ReadSignedQuote(said.Body)
	if err != nil {
		return &trust.Refusal{Reason: v1alpha1.ReasonMalformed, Message: err.Error()}
	}
	name := offerMessage(from.Name, asked.Name)
	seen.answered[name] = true
	_, before := m.own(seen, name)
	if before != nil && before.Type == trust.Offer {
		last, err := exchange.ReadSignedOffer(before.Body)
		if err == nil && last.Quote == said.Sequence {
			return nil
		}
	}
	reply := exchange.SignedOffer{Quote: said.Sequence}
	quote, err := m.quoteFor(ctx, seen, from, asked)
	var why *trust.Refusal
	switch {
	case errors.As(err, &why):
		whole, each := exchange.NoOffers(asked.Quote.Components, why.Reason, why.Message)
		reply.Whole, reply.Components = &whole, each
	case err != nil || quote == nil:
		return err // it is told when the offer is made
	default:
		reply.Whole, reply.Components = quote.Status.Whole, quote.Status.Components
	}
	reply.Components = exchange.Terse(reply.Components)
	return m.send(ctx, seen, name, trust.Statement{Type: trust.Offer, To: from.Name, Sequence: trust.NextSequence(seen.now, before), Expires: said.Expires}, reply)
}

// quoteFor is the Quote in our own cluster by which the member is made an offer, nil while there is none. The error is a Refusal if there is
// to be none.
func (m *member) quoteFor(ctx context.Context, seen *scene, from *v1alpha1.Member, asked *exchange.SignedQuote) (*v1alpha1.Quote, error) {
	if why := m.objection(seen, from, peerOf(seen.peers, from.Name)); why != "" {
		return nil, &trust.Refusal{Reason: v1alpha1.ReasonNotAccepted, Message: why}
	}
	wanted := &v1alpha1.Quote{ObjectMeta: metav1.ObjectMeta{
		Namespace: v1alpha1.TenantNamespace(seen.broker.Name), Name: v1alpha1.RelayedName(from.Name, asked.Name),
		Labels: map[string]string{v1alpha1.LabelFrom: from.Name},
	}, Spec: asked.Quote}
	there, err := local.Find(ctx, m.Client, client.ObjectKeyFromObject(wanted), &v1alpha1.Quote{})
	switch {
	case err != nil:
		return nil, err
	case there == nil:
		err = m.Client.Create(ctx, wanted)
	case there.Labels[v1alpha1.LabelFrom] != from.Name: // the broker has made it as a consumer of ours
		return nil, &trust.Refusal{Reason: v1alpha1.ReasonMalformed, Message: "There is another Quote of that name"}
	case equality.Semantic.DeepEqual(there.Spec, wanted.Spec) && there.Answered():
		return there, nil
	case !equality.Semantic.DeepEqual(there.Spec, wanted.Spec):
		wanted.ResourceVersion = there.ResourceVersion
		err = m.Client.Update(ctx, wanted)
	}
	switch {
	case apierrors.IsForbidden(err): // by the quota
		return nil, &trust.Refusal{Reason: v1alpha1.ReasonRecipientFull, Message: "The provider has too many Quotes through this broker"}
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return nil, &trust.Refusal{Reason: v1alpha1.ReasonMalformed, Message: "The provider does not take the Quote: " + err.Error()}
	}
	if local.IgnoreStale(err) != nil {
		return nil, fmt.Errorf("make Quote %s: %w", wanted.Name, err)
	}
	return nil, nil
}
