package advertisement

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

const (
	// lookAgain is how often a provider is looked at when nothing rings: to see that its mirror broke, or that the
	// advertisement is not there.
	lookAgain = time.Minute
	// lookSoon is the same while there is no link, or its mirror has not synced.
	lookSoon = 10 * time.Second
	// cacheLag is how long a cache needs to show what was just written.
	cacheLag = 50 * time.Millisecond
)

// A Receiver takes in what providers offer.
type Receiver struct {
	config  Config
	client  client.Client
	clock   clock.PassiveClock
	watches *watches
}

// NewReceiver returns a receiver that reads and writes our own cluster with the client, and providers over the links.
func NewReceiver(config Config, c client.Client, links Links, clk clock.PassiveClock) *Receiver {
	return &Receiver{
		config:  config,
		client:  c,
		clock:   clk,
		watches: &watches{links: links, clock: clk, interval: config.ReceiveInterval},
	}
}

// SetupWithManager registers the receiver with the manager.
func (r *Receiver) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(manager.RunnableFunc(r.watches.Run)); err != nil {
		return fmt.Errorf("add the watches of advertisements: %w", err)
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
			r.watches.stop(request.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	known := peer.Spec.ClusterID != "" && peer.HasRole(v1alpha1.RoleProvider)
	if !known || !peer.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, r.forget(ctx, peer)
	}
	seen, err := r.observe(ctx, peer)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := r.clock.Now()
	wanted := r.settings().decide(seen, now)
	err = r.report(ctx, seen, wanted, now)
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return reconcile.Result{RequeueAfter: cacheLag}, nil // our cache lags behind our own writes
	case err != nil:
		return reconcile.Result{}, err
	default:
		return reconcile.Result{RequeueAfter: nextLook(seen, wanted, now)}, nil
	}
}

func (r *Receiver) settings() settings {
	return settings{bounds: r.config.Bounds, helloTimeout: r.config.HelloTimeout}
}

func nextLook(f facts, o outcome, now time.Time) time.Duration {
	next := lookAgain
	if !f.synced {
		next = lookSoon
	}
	if o.inForce {
		next = min(next, max(o.expires.Sub(now), time.Millisecond))
	}
	return next
}

// observe gathers the facts. That the peer cannot be read is a fact, and no error.
func (r *Receiver) observe(ctx context.Context, peer *v1alpha1.Peer) (facts, error) {
	f := facts{peer: peer, self: peer.Spec.ClusterID == r.config.ClusterID}
	if f.self {
		return f, nil // what has the name of the copy is our own offer
	}
	held := &v1alpha1.Advertisement{}
	switch err := r.client.Get(ctx, copyKey(peer), held); {
	case err == nil:
		f.copy = held
	case !apierrors.IsNotFound(err):
		return f, fmt.Errorf("read the copy of the advertisement of peer %q: %w", peer.Name, err)
	}
	known, err := r.watches.of(ctx, peer)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("There is no link to the peer", "cause", err.Error())
		return f, nil
	}
	f.link, f.synced, f.mirrorErr = known.link, known.mirror.HasSynced(), known.mirror.Err()
	offer := offerKey(peer, known.link)
	if object, found := known.mirror.Get(offer); found {
		f.raw, f.offer, f.malformed = decode(object)
		return f, nil
	}
	f.withdrawn = f.synced && f.copy != nil && isGone(ctx, known.link, offer)
	return f, nil
}

func decode(object client.Object) (*unstructured.Unstructured, *v1alpha1.Advertisement, error) {
	raw, isRaw := object.(*unstructured.Unstructured)
	if !isRaw {
		return nil, nil, fmt.Errorf("mirrored object is a %T", object)
	}
	offer, err := exchange.Decode(raw.Object)
	return raw, offer, err
}

// isGone asks the API server, since a mirror that does not show something is no proof that it is not there.
func isGone(ctx context.Context, link Link, key types.NamespacedName) bool {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(advertisementKind)
	return apierrors.IsNotFound(link.Client().Get(ctx, key, object))
}

// copyKey names the copy of the peer's advertisement in our own cluster.
func copyKey(peer *v1alpha1.Peer) types.NamespacedName {
	return types.NamespacedName{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: peer.Spec.ClusterID}
}

// offerKey names the peer's advertisement in its own cluster.
func offerKey(peer *v1alpha1.Peer, link Link) types.NamespacedName {
	return types.NamespacedName{Namespace: link.TenantNamespace(), Name: peer.Spec.ClusterID}
}

// report writes what is not yet as it must be: the copy, both answers, and the condition of the Peer.
func (r *Receiver) report(ctx context.Context, f facts, o outcome, now time.Time) error {
	held, err := r.storeCopy(ctx, f, o)
	if cannotBeStored(err) {
		f.malformed = fmt.Errorf("this cluster cannot store the advertisement: %w", err)
		o, held = r.settings().decide(f, now), f.copy
	} else if err != nil {
		return err
	}
	r.count(ctx, f, o)
	return errors.Join(
		r.answerProvider(ctx, f, o, now),
		r.answerCopy(ctx, held, o, now),
		r.reportOnPeer(ctx, f.peer, advertised(f, o), now),
	)
}

func cannotBeStored(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

func (r *Receiver) count(ctx context.Context, f facts, o outcome) {
	if !o.accepted {
		return
	}
	accepted.Inc()
	if f.copy == nil {
		ctrl.LoggerFrom(ctx).Info("Accepted the first advertisement", "sequence", o.sequence)
	}
}
