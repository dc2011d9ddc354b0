package advertisement

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/policy"
)

const (
	// lookAgain is how often a provider is looked at when nothing rings: to see that its mirror broke, or that the
	// advertisement is not there.
	lookAgain = time.Minute
	// lookSoon is the same while there is no link, its mirror is not up to date, the policies cannot be asked, or
	// the provider cannot be answered.
	lookSoon = 10 * time.Second
	// cacheLag is how long a cache needs to show what was just written.
	cacheLag = 50 * time.Millisecond
)

// A Receiver takes in what providers offer.
type Receiver struct {
	config   Config
	client   client.Client
	clock    clock.PassiveClock
	recorder events.EventRecorder
	watches  *watches
	policies *consultation
	ages     *ages
}

// NewReceiver returns a receiver that reads and writes our own cluster with the client, and providers over the links.
//
//nolint:revive // six parts, each of which is another thing
func NewReceiver(
	config Config, c client.Client, links Links, decider Decider, clk clock.PassiveClock, recorder events.EventRecorder,
) *Receiver {
	r := &Receiver{
		config:   config,
		client:   c,
		clock:    clk,
		recorder: recorder,
		watches:  &watches{links: links, clock: clk, interval: config.ReceiveInterval},
		policies: newConsultation(c, decider, config.ClusterID),
		ages:     newAges(clk),
	}
	decider.OnChange(policy.Incoming, r.judgeAgain)
	return r
}

// judgeAgain has every offer that is there judged by the policies that are in force now.
func (r *Receiver) judgeAgain() {
	r.policies.changed()
	r.watches.ringAll()
}

// SetupWithManager registers the receiver with the manager.
func (r *Receiver) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(manager.RunnableFunc(r.watches.Run)); err != nil {
		return fmt.Errorf("add the watches of advertisements: %w", err)
	}
	if err := metrics.Registry.Register(r.ages); err != nil {
		return fmt.Errorf("register the ages of advertisements: %w", err)
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("advertisement-receiver").
		For(&v1alpha1.Peer{}).
		Watches(&v1alpha1.Advertisement{}, handler.EnqueueRequestsFromMapFunc(peerOf),
			builder.WithPredicates(predicate.NewPredicateFuncs(r.isCopy))).
		WatchesRawSource(r.watches).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.config.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the receiver of advertisements: %w", err)
	}
	return nil
}

// isCopy tells copies from our own offers, which lie beside them.
func (r *Receiver) isCopy(object client.Object) bool { return object.GetName() != r.config.ClusterID }

// peerOf maps a copy, or our own advertisement, to its peer.
func peerOf(_ context.Context, object client.Object) []reconcile.Request {
	peer, found := object.GetLabels()[v1alpha1.LabelPeer]
	if !found {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: peer}}}
}

// Reconcile makes the copy of a provider's advertisement, and the answers to it, what they must be.
func (r *Receiver) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	peer := &v1alpha1.Peer{}
	if err := r.client.Get(ctx, request.NamespacedName, peer); err != nil {
		if apierrors.IsNotFound(err) {
			r.stop(request.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if peer.Agentless() {
		return reconcile.Result{}, nil // what it offers is made at home, by package agentless
	}
	known := peer.Spec.ClusterID != "" && peer.HasRole(v1alpha1.RoleProvider)
	if !known || !peer.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, r.forget(ctx, peer)
	}
	now := r.clock.Now()
	seen, err := r.observe(ctx, peer, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	seen = r.policies.hear(ctx, r.settings(), seen, now)
	wanted := r.settings().decide(seen, now)
	answered, err := r.report(ctx, seen, wanted, now)
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return reconcile.Result{RequeueAfter: cacheLag}, nil // our cache lags behind our own writes
	case err != nil:
		return reconcile.Result{}, err
	default:
		return reconcile.Result{RequeueAfter: nextLook(seen, wanted, answered, now)}, nil
	}
}

func (r *Receiver) settings() settings {
	return settings{clusterID: r.config.ClusterID, bounds: r.config.Bounds, helloTimeout: r.config.HelloTimeout}
}

func nextLook(f facts, o outcome, answered bool, now time.Time) time.Duration {
	next := lookAgain
	if !f.synced || f.mirrorErr != nil || f.answer.err != nil || !answered {
		next = lookSoon
	}
	if f.heldBack > 0 {
		next = min(next, f.heldBack)
	}
	if !o.expires.IsZero() {
		next = min(next, max(o.expires.Sub(now), time.Millisecond))
	}
	return next
}
