// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/trust"
)

// usageDelay is how long after the pods of a Request have changed its status says so. Many pods that come together cost one write.
const usageDelay = time.Second

// requestReconciler answers Requests, each version of a Request once, and ends what it has acknowledged. The ledger knows what is
// reserved now; the status of a Request is what is known of it after a restart. So more is reserved before the status says so, and less
// after that.
type requestReconciler struct {
	config Config
	client client.Client
	live   client.Reader
	ledger *ledger
	queue  lateQueue

	statements *statements
}

func newRequestReconciler(cfg Config, c client.Client, live client.Reader, l *ledger) *requestReconciler {
	r := &requestReconciler{config: cfg, client: c, live: live, ledger: l, statements: newStatements(&cfg)}
	l.uses = func(of requestKey) {
		if queue := r.queue.get(); queue != nil {
			queue.AddAfter(reconcile.Request{NamespacedName: of.namespacedName()}, usageDelay)
		}
	}
	return r
}

func (r *requestReconciler) setup(mgr ctrl.Manager, pods *shadowPodReconciler) error {
	// Nothing is acknowledged before it is known what pods of peers ask for.
	known := handler.Funcs{CreateFunc: func(
		ctx context.Context, e event.CreateEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request],
	) {
		if e.IsInInitialList {
			pods.podChanged(ctx, e.Object)
		}
	}}
	return ctrl.NewControllerManagedBy(mgr).
		Named("request").
		For(&v1alpha1.Request{}, builder.WithPredicates(specChanges)).
		Watches(&corev1.Pod{}, known, builder.WithPredicates(remotePods)).
		Watches(&v1alpha1.Peer{}, handler.EnqueueRequestsFromMapFunc(r.requestsOf), builder.WithPredicates(specChanges)).
		WatchesRawSource(&r.queue).
		WatchesRawSource(roomKnown{r.config.Room}).
		WithOptions(options()).
		Complete(r)
}

// roomKnown is a source of nothing. No worker begins before it is known what room there is.
type roomKnown struct{ Room }

// Start implements source.Source.
func (roomKnown) Start(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	return nil
}

// WaitForSync implements source.SyncingSource.
func (k roomKnown) WaitForSync(ctx context.Context) error { return k.WaitForRoom(ctx) }

// requestsOf returns the Requests of the peer, which end when the peer is no consumer any more.
func (r *requestReconciler) requestsOf(ctx context.Context, peer client.Object) []reconcile.Request {
	return requestsIn(ctx, r.client, v1alpha1.TenantNamespace(peer.GetName()), &v1alpha1.RequestList{})
}

// requestFacts are what there is of one Request.
type requestFacts struct {
	asked *v1alpha1.Request
	peer  *v1alpha1.Peer // an empty one if it is gone
	who   *asker
	now   time.Time
}

// relayed is the Request by which the peer has asked for the same through the broker that has introduced it, before the two were peers. It
// has no name if nobody has introduced it.
func (f *requestFacts) relayed() client.ObjectKey {
	broker := f.peer.Annotations[v1alpha1.AnnotationIntroducedBy]
	if broker == "" || f.who.member != "" {
		return client.ObjectKey{}
	}
	return client.ObjectKey{Namespace: v1alpha1.TenantNamespace(broker), Name: v1alpha1.RelayedName(f.peer.Spec.ClusterID, f.asked.Name)}
}

// Reconcile answers one Request, if it has not been answered, and ends its reservation in time.
func (r *requestReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	of := requestKeyOf(request.NamespacedName)
	seen, err := r.observe(ctx, r.client, request)
	if err == nil && seen != nil && seen.open() {
		// Who answers what the cache shows late would answer twice, or end what was renewed.
		seen, err = r.observe(ctx, r.live, request)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if seen == nil {
		r.forget(of)
		return reconcile.Result{}, nil
	}
	of = reservationOf(seen.asked)
	r.statements.past.note(requestAsQuestion(seen.asked), seen.asked.Status.Sequence, seen.now)
	next := answerTo(seen)
	next.status.Used = r.ledger.usedBy(of)
	if err := r.answer(ctx, seen, next); err != nil {
		return reconcile.Result{}, err
	}
	if next.decided {
		r.sign(ctx, next)
	}
	if err := r.report(ctx, seen.asked, &next.status); err != nil {
		return reconcile.Result{}, err
	}
	if seen.open() {
		r.ledger.keep(of, next.status.Reserved)
	}
	if next.who.member != "" {
		return r.endOfMember(ctx, next)
	}
	return reconcile.Result{RequeueAfter: next.again()}, r.endBeside(ctx, next)
}

// forget gives back what was reserved for a Request that is gone. Whether a peer had asked by it, or a member, its name does not tell for sure,
// and only one of them can have.
func (r *requestReconciler) forget(lies requestKey) {
	r.ledger.keep(lies, nil)
	if from, _, is := strings.Cut(lies.name, "."); is {
		r.ledger.keep(relayedTo(lies, from), nil)
	}
}

// endOfMember deletes the Request of a member when its time is over.
func (r *requestReconciler) endOfMember(ctx context.Context, seen *requestAnswer) (reconcile.Result, error) {
	end := seen.asked.Spec.ExpirationTime.Time
	if most := seen.asked.CreationTimestamp.Add(v1alpha1.MaxRelayedReservation); seen.status.Phase != v1alpha1.RequestAcknowledged && most.Before(end) {
		end = most
	}
	if left := end.Sub(seen.now); left > 0 {
		return reconcile.Result{RequeueAfter: sooner(seen.retry, left)}, nil
	}
	return reconcile.Result{}, r.remove(ctx, seen.asked)
}

// endBeside deletes the Request by which the peer has asked for the same as a member, when it has the room by its own: also the one that a manager
// has left that was killed meanwhile.
func (r *requestReconciler) endBeside(ctx context.Context, seen *requestAnswer) error {
	if seen.status.Phase != v1alpha1.RequestAcknowledged || seen.relayed().Name == "" {
		return nil
	}
	relayed, err := local.Find(ctx, r.client, seen.relayed(), &v1alpha1.Request{})
	if err != nil || relayed == nil || relayed.Labels[v1alpha1.LabelFrom] == "" {
		return err
	}
	return r.remove(ctx, relayed)
}

func (r *requestReconciler) remove(ctx context.Context, ofMember *v1alpha1.Request) error {
	if err := r.client.Delete(ctx, ofMember, client.Preconditions{UID: &ofMember.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the Request of a member: %w", err)
	}
	return nil
}

// observe returns nil if there is no Request, or it is going.
func (r *requestReconciler) observe(ctx context.Context, reader client.Reader, request reconcile.Request) (*requestFacts, error) {
	seen := &requestFacts{asked: &v1alpha1.Request{}, peer: &v1alpha1.Peer{}, now: r.config.Clock.Now()}
	if err := reader.Get(ctx, request.NamespacedName, seen.asked); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !seen.asked.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	peer := requestKeyOf(request.NamespacedName).peer
	if err := r.client.Get(ctx, client.ObjectKey{Name: peer}, seen.peer); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read Peer %s: %w", peer, err)
	}
	var err error
	seen.who, err = askerOf(ctx, r.client, seen.asked, seen.peer)
	return seen, err
}

// answer ends a reservation whose time is over, and judges a Request that has no answer: what it asks for is reserved if nothing
// stands against it.
func (r *requestReconciler) answer(ctx context.Context, seen *requestFacts, next *requestAnswer) error {
	if seen.ends() {
		next.expire()
	}
	if !seen.unanswered() {
		return nil
	}
	demand := exchange.DemandOf(seen.asked.Spec.Components)
	price, left, err := r.judge(ctx, next, demand)
	if err != nil {
		return err
	}
	if left == nil {
		left = r.reserve(seen, demand)
	}
	if left != nil {
		answered.WithLabelValues(left.reason).Inc()
		next.refuse(left)
		return nil
	}
	answered.WithLabelValues(v1alpha1.ReasonReserved).Inc()
	next.acknowledge(demand, price)
	ctrl.LoggerFrom(ctx).Info("Acknowledged", "application", seen.asked.Spec.Application.Name)
	return nil
}

func (r *requestReconciler) reserve(seen *requestFacts, demand corev1.ResourceList) *refusal {
	of, limits, relayed := reservationOf(seen.asked), limitsOf(seen.peer).Resources, seen.relayed()
	if relayed.Name == "" {
		return r.ledger.acknowledge(of, demand, seen.asked.Locked(), limits)
	}
	return r.ledger.acknowledgeInPlaceOf(relayedTo(requestKeyOf(relayed), seen.peer.Spec.ClusterID), of, demand, seen.asked.Locked(), limits)
}

// sign signs the answer. What was not decided now is not signed anew, since others may have written it.
func (r *requestReconciler) sign(ctx context.Context, next *requestAnswer) {
	asked := next.asked.DeepCopy()
	asked.Status = next.status
	until := next.now.Add(v1alpha1.MaxReservation)
	if next.status.Phase == v1alpha1.RequestAcknowledged {
		until = next.status.ValidUntil.Time
	}
	signed, err := r.statements.answer(trust.Statement{Type: trust.Acknowledgement, To: next.who.id, Expires: until}, asked.Status.Signed,
		exchange.AnswerToSign(asked, r.statements.sequenceOf(asked.Spec.Signed)))
	if err != nil { // the consumer says that it is not signed
		ctrl.LoggerFrom(ctx).Error(err, "Sign the answer")
	}
	next.status.Signed = signed
}

// judge says what the demand costs, and what stands against the Request whatever room there is.
func (r *requestReconciler) judge(
	ctx context.Context, next *requestAnswer, demand corev1.ResourceList,
) (*v1alpha1.Price, *refusal, error) {
	seen := next.requestFacts
	sequence, left := r.statements.take(requestAsQuestion(seen.asked), seen.who)
	if left != nil {
		return nil, left, nil
	}
	next.status.Sequence = sequence
	if ahead := seen.asked.Spec.ExpirationTime.Sub(seen.now); seen.who.member != "" && ahead > v1alpha1.MaxRelayedReservation {
		return nil, &refusal{reason: v1alpha1.ReasonInvalidExpirationTime, message: fmt.Sprintf(
			"spec.expirationTime is more than %s ahead: until it is a peer, a member has room for that at most", v1alpha1.MaxRelayedReservation)}, nil
	}
	prices, left, err := advertisedTo(ctx, r.client, r.config.ClusterID, seen.peer)
	if left != nil || err != nil {
		return nil, left, err
	}
	quote, err := r.quoteFor(ctx, seen)
	if err != nil {
		return nil, nil, err
	}
	price := exchange.QuotedPrice(exchange.PriceOf(prices, demand), quote, &seen.asked.Spec, seen.now)
	if reason, message := exchange.ObjectionTo(&seen.asked.Spec, price, seen.now); reason != "" {
		return nil, &refusal{reason: reason, message: message}, nil
	}
	if !r.config.Decider.HasPolicies(policy.Request) {
		return price, nil, nil
	}
	_, left = askPolicies(ctx, r.config.Decider, policy.Request, policy.Facts{
		Time: seen.now, Peer: seen.peer, Request: demand, Reservation: &seen.asked.Spec, Member: seen.who.member, Marks: seen.who.marks, Price: price,
	}, "the Request")
	return price, left, nil
}

// quoteFor is the Quote by which the same was offered before, nil if there is none. Who was introduced by a broker may have asked through it.
func (r *requestReconciler) quoteFor(ctx context.Context, seen *requestFacts) (*v1alpha1.Quote, error) {
	quote, err := local.Find(ctx, r.live, client.ObjectKeyFromObject(seen.asked), &v1alpha1.Quote{})
	if quote != nil || err != nil || seen.relayed().Name == "" {
		return quote, err
	}
	quote, err = local.Find(ctx, r.live, seen.relayed(), &v1alpha1.Quote{})
	if quote == nil || quote.Labels[v1alpha1.LabelFrom] != seen.peer.Spec.ClusterID {
		return nil, err
	}
	return quote, err
}

// advertisedTo returns the prices that the consumer is advertised, or why nothing is offered to it.
func advertisedTo(ctx context.Context, c client.Client, clusterID string, peer *v1alpha1.Peer) (*v1alpha1.Prices, *refusal, error) {
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: clusterID}
	offer, err := local.Find(ctx, c, key, &v1alpha1.Advertisement{})
	if err != nil {
		return nil, nil, err
	}
	if offer == nil {
		return nil, &refusal{reason: v1alpha1.ReasonNotOffered, message: "The provider offers nothing to this cluster: " +
			"ask again when there is an Advertisement"}, nil
	}
	return offer.Spec.Prices, nil, nil
}

// report writes the status if it has changed. Nobody else writes it.
func (r *requestReconciler) report(ctx context.Context, asked *v1alpha1.Request, status *v1alpha1.RequestStatus) error {
	if equality.Semantic.DeepEqual(&asked.Status, status) {
		return nil
	}
	changed := asked.DeepCopy()
	changed.Status = *status
	if err := client.IgnoreNotFound(r.client.Status().Patch(ctx, changed, client.MergeFrom(asked))); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}
