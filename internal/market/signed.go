// SPDX-License-Identifier: Apache-2.0

package market

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trust"
)

// What is asked of a peer is signed, and so is what it answers. An answer counts if the peer has signed that very answer to what was asked
// last: who may write into our tenant namespace there, and has not its key, gets nothing believed.

// signRequest signs the Request for the peer, in place of what lies there. The error is one of size, or of our own API server.
func (a *applications) signRequest(ctx context.Context, peer string, wanted *v1alpha1.Request) (err error) {
	said := trust.Statement{Type: trust.Request, Expires: wanted.Spec.ExpirationTime.Time}
	wanted.Spec.Signed, err = a.sign(ctx, peer, said, wanted.Spec.Signed, exchange.RequestToSign(wanted))
	return err
}

// signQuote signs the Quote for the peer, in place of what was signed before, which may be nil.
func (a *applications) signQuote(ctx context.Context, peer string, wanted *v1alpha1.Quote, before *v1alpha1.SignedStatement) (err error) {
	said := trust.Statement{Type: trust.Quote, Expires: wanted.Spec.ExpirationTime.Time}
	wanted.Spec.Signed, err = a.sign(ctx, peer, said, before, exchange.QuoteToSign(wanted))
	return err
}

func (a *applications) sign(
	ctx context.Context, peer string, said trust.Statement, before *v1alpha1.SignedStatement, body any,
) (*v1alpha1.SignedStatement, error) {
	to := &v1alpha1.Peer{}
	if err := a.Client.Get(ctx, client.ObjectKey{Name: peer}, to); err != nil {
		return nil, fmt.Errorf("read Peer %s: %w", peer, err)
	}
	said.From, said.To = a.ClusterID, to.Spec.ClusterID
	return trust.SignNext(a.Key, a.Clock.Now(), said, before, body)
}

// doubtRequest says why the answer to our Request at the peer is not believed: nil if it is, or if there is none.
func (a *applications) doubtRequest(peer *v1alpha1.Peer, request *v1alpha1.Request) *trust.Refusal {
	if peer == nil || request == nil || !isAnswered(request) {
		return nil
	}
	return a.doubt(&dialogue{
		peer: peer, asks: trust.Request, answers: trust.Acknowledgement, question: request.Spec.Signed, answer: request.Status.Signed,
		asked: func(body []byte) (string, string) { return exchange.RequestSigned(body, request) },
		answered: func(body []byte, sequence int64) (string, string) {
			return exchange.AnswerSigned(body, request, sequence)
		},
	})
}

// doubtOffer says why the offer for our Quote at the peer is not believed: nil if it is.
func (a *applications) doubtOffer(peer *v1alpha1.Peer, quote *v1alpha1.Quote) *trust.Refusal {
	return a.doubt(&dialogue{
		peer: peer, asks: trust.Quote, answers: trust.Offer, question: quote.Spec.Signed, answer: quote.Status.Signed,
		asked:    func(body []byte) (string, string) { return exchange.QuoteSigned(body, quote) },
		answered: func(body []byte, sequence int64) (string, string) { return exchange.OfferSigned(body, quote, sequence) },
	})
}

// A dialogue is what was asked of a peer, and the answer to it.
type dialogue struct {
	peer             *v1alpha1.Peer
	asks, answers    trust.StatementType
	question, answer *v1alpha1.SignedStatement
	asked            func(body []byte) (reason, message string)
	answered         func(body []byte, sequence int64) (reason, message string)
}

// doubt does not ask whether the answer still holds: until when it does is a part of it, and that of a question that was asked again is none.
func (a *applications) doubt(d *dialogue) *trust.Refusal {
	id, our := d.peer.Spec.ClusterID, trust.PublicKeyOf(a.Key)
	question, err := trust.Expected{Type: d.asks, From: a.ClusterID, Pinned: our, To: id, Same: d.asked}.Verify(d.question)
	if err != nil {
		return why("What lies there is not what was asked", err)
	}
	_, err = trust.Expected{
		Type: d.answers, From: id, Pinned: d.peer.Spec.PublicKey, To: a.ClusterID,
		Same: func(body []byte) (string, string) { return d.answered(body, question.Sequence) },
	}.Verify(d.answer)
	if err != nil {
		return why("Its answer is not believed", err)
	}
	return nil
}

func why(what string, err error) *trust.Refusal {
	said := &trust.Refusal{}
	errors.As(err, &said)
	return &trust.Refusal{Reason: said.Reason, Message: fmt.Sprintf(
		"%s (%s): %s. Ask its administrator who else writes into namespaces of peers there", what, said.Reason, said.Message)}
}

// isAnswered reports whether the provider has answered, for good, what the Request asks for now. One that has expired it may take again.
func isAnswered(request *v1alpha1.Request) bool {
	said := &request.Status
	return said.ObservedGeneration == request.Generation && (said.Phase == v1alpha1.RequestAcknowledged || said.Phase == v1alpha1.RequestRefused)
}

// countDoubts counts the answers that are not believed, each once: when its peer loses what it was to run, or the auction is closed.
func (s *scene) countDoubts(before, after *v1alpha1.ApplicationStatus) {
	had, has := peersOf(before.Components), peersOf(after.Components)
	for peer, why := range s.doubts {
		if slices.Contains(had, peer) && !slices.Contains(has, peer) {
			peers.StatementsRefused.WithLabelValues(peer, why.Reason).Inc()
		}
	}
	if after.Auction == nil || after.Auction.Phase != v1alpha1.AuctionClosed || before.Auction != nil &&
		before.Auction.Round == after.Auction.Round && before.Auction.Phase == v1alpha1.AuctionClosed {
		return
	}
	for peer, why := range s.offerDoubts {
		peers.StatementsRefused.WithLabelValues(peer, why.Reason).Inc()
	}
}
