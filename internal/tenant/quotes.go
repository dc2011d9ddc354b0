// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/trust"
)

// How many offers one consumer is made: as many at once as it may have Quotes, and so many each second. Policies are asked about each.
const (
	offersPerSecond = rate.Limit(20)
	offersAtOnce    = v1alpha1.MaxQuotes
)

// quoteReconciler makes one offer for each version of a Quote, and deletes Quotes whose time is over. It reserves nothing.
type quoteReconciler struct {
	config  Config
	client  client.Client
	ledger  *ledger
	budgets *eventBudgets

	statements *statements
}

func newQuoteReconciler(cfg Config, c client.Client, l *ledger) *quoteReconciler {
	return &quoteReconciler{config: cfg, client: c, ledger: l, budgets: newEventBudgets(offersPerSecond, offersAtOnce), statements: newStatements(&cfg)}
}

func (r *quoteReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("quote").
		For(&v1alpha1.Quote{}, builder.WithPredicates(specChanges)).
		WatchesRawSource(roomKnown{r.config.Room}).
		WithOptions(options()).
		Complete(r)
}

// Reconcile makes the offer for one Quote, if there is none, and deletes the Quote in time.
func (r *quoteReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	quote, now := &v1alpha1.Quote{}, r.config.Clock.Now()
	if err := r.client.Get(ctx, request.NamespacedName, quote); err != nil || !quote.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	of := requestKeyOf(request.NamespacedName)
	r.statements.past.note(quoteAsQuestion(quote), quote.Status.Sequence, now)
	if quote.Status.ObservedGeneration != quote.Generation || quote.Status.Whole == nil {
		turn := r.budgets.turn(of.peer, now)
		if wait := turn.DelayFrom(now); wait > 0 {
			turn.CancelAt(now)
			return reconcile.Result{RequeueAfter: wait}, nil
		}
		if again, err := r.offer(ctx, of, quote); err != nil || again > 0 {
			return reconcile.Result{RequeueAfter: again}, err
		}
	}
	if left := endOf(quote).Sub(now); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if err := r.client.Delete(ctx, quote, client.Preconditions{UID: &quote.UID}); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("delete it: %w", err)
	}
	return reconcile.Result{}, nil
}

// endOf is when the Quote is forgotten: at its time, or, if that was refused, when it has been there for as long as any may be.
func endOf(quote *v1alpha1.Quote) time.Time {
	end, most := quote.Spec.ExpirationTime.Time, quote.CreationTimestamp.Add(v1alpha1.MaxQuoteTime)
	if said := meta.FindStatusCondition(quote.Status.Conditions, v1alpha1.ConditionOffered); said != nil &&
		said.Reason == v1alpha1.ReasonInvalidExpirationTime && most.Before(end) {
		return most
	}
	return end
}

// offer writes the offer into the status, unless it has to be made later.
func (r *quoteReconciler) offer(ctx context.Context, of requestKey, quote *v1alpha1.Quote) (again time.Duration, err error) {
	made, peer := quote.DeepCopy(), &v1alpha1.Peer{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: of.peer}, peer); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("read Peer %s: %w", of.peer, err)
	}
	status := &made.Status
	who, err := askerOf(ctx, r.client, made, peer)
	if err != nil {
		return 0, err
	}
	bidder, left, err := r.bidder(ctx, made, who)
	switch {
	case err != nil:
		return 0, err
	case left != nil && left.again > 0:
		return left.again, nil
	case left != nil:
		whole, each := exchange.NoOffers(quote.Spec.Components, left.reason, left.message)
		status.Whole, status.Components = &whole, each
	default:
		whole, each := bidder.Offers(quote.Spec.Components)
		status.Whole, status.Components = &whole, each
	}
	status.ObservedGeneration = quote.Generation
	reason := r.conclude(status, quote.Generation)
	if err := r.sign(made, who); err != nil {
		return 0, err
	}
	if err := client.IgnoreNotFound(r.client.Status().Patch(ctx, made, client.MergeFrom(quote))); err != nil {
		return 0, fmt.Errorf("write the offer: %w", err)
	}
	quoted.WithLabelValues(reason).Inc()
	ctrl.LoggerFrom(ctx).V(1).Info("Offered", "application", quote.Spec.Application.Name, "interest", status.Whole.Interest, "reason", reason)
	*quote = *made
	return 0, nil
}

// conclude says in the conditions whether there is an offer, and returns the reason.
func (r *quoteReconciler) conclude(status *v1alpha1.QuoteStatus, generation int64) string {
	said := metav1.Condition{
		Status: metav1.ConditionFalse, Reason: status.Whole.Reason, Message: status.Whole.Message,
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(r.config.Clock.Now()),
	}
	switch {
	case status.Whole.Interest > 0:
		said.Status, said.Reason, said.Message = metav1.ConditionTrue, v1alpha1.ReasonOffered, "All of it can be had"
	case slices.ContainsFunc(status.Components, func(c v1alpha1.ComponentOffer) bool { return c.Interest > 0 }):
		said.Status, said.Reason, said.Message = metav1.ConditionTrue, v1alpha1.ReasonOffered, "A part of it can be had"
	}
	for _, kind := range []string{v1alpha1.ConditionOffered, v1alpha1.ConditionReady} {
		said.Type = kind
		meta.SetStatusCondition(&status.Conditions, said)
	}
	return said.Reason
}

// sign signs the offer.
func (r *quoteReconciler) sign(made *v1alpha1.Quote, who *asker) (err error) {
	said := trust.Statement{Type: trust.Offer, To: who.id, Expires: made.Spec.ExpirationTime.Time}
	made.Status.Signed, err = r.statements.answer(said, made.Status.Signed, exchange.OfferToSign(made, r.statements.sequenceOf(made.Spec.Signed)))
	return err
}

// bidder returns what offers are made by, or what stands against any. It notes what was taken in.
func (r *quoteReconciler) bidder(ctx context.Context, quote *v1alpha1.Quote, who *asker) (exchange.Bidder, *refusal, error) {
	bidder, now := exchange.Bidder{}, r.config.Clock.Now()
	// First, since by that it is told for how long a Quote lies here.
	if reason, message := exchange.QuoteObjection(&quote.Spec, now); reason != "" {
		return bidder, &refusal{reason: reason, message: message}, nil
	}
	sequence, left := r.statements.take(quoteAsQuestion(quote), who)
	if left != nil {
		return bidder, left, nil
	}
	quote.Status.Sequence = sequence
	prices, left, err := advertisedTo(ctx, r.client, r.config.ClusterID, who.peer)
	if left != nil || err != nil {
		return bidder, left, err
	}
	demand := exchange.DemandOf(quote.Spec.Components)
	bidder.Prices = prices
	if r.config.Decider.HasPolicies(policy.Quote) {
		answer, left := askPolicies(ctx, r.config.Decider, policy.Quote, policy.Facts{
			Time: now, Peer: who.peer, Request: demand, Quote: &quote.Spec, Member: who.member, Marks: who.marks, Prices: prices, Price: exchange.PriceOf(prices, demand),
		}, "the Quote")
		if left != nil {
			return bidder, left, nil
		}
		if terms := answer.Terms; terms != nil {
			bidder.Interest = terms.Interest
			if terms.Prices != nil {
				bidder.Prices = terms.Prices
			}
		}
	}
	bidder.Free = r.ledger.free(reservationOf(quote), demand, limitsOf(who.peer).Resources)
	return bidder, nil, nil
}
