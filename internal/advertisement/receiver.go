// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/policy"
)

const (
	// lookAgain is how often a provider is looked at when nothing changes. Nothing tells when a mirror breaks, but what breaks
	// one most often changes the link or the Peer too.
	lookAgain = 5 * time.Minute
	// lookSoon is the same while there is no link, its mirror is not up to date, the policies cannot be asked, or
	// the provider cannot be answered.
	lookSoon = 10 * time.Second
	// cacheLag is how long a cache needs to show what was just written.
	cacheLag = 50 * time.Millisecond
)

var advertisementKind = v1alpha1.GroupVersion.WithKind("Advertisement")

// advertisements are followed undecoded, so that one that does not decode is seen, and can be answered.
var advertisements = &peers.Subject{Example: emptyAdvertisement()}

func emptyAdvertisement() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(advertisementKind)
	return object
}

// A Receiver takes in what providers offer.
type Receiver struct {
	config   Config
	client   client.Client
	links    *peers.Links
	clock    clock.PassiveClock
	recorder events.EventRecorder
	decider  policy.Decider
	table    *cachedTable
	changed  signal       // the policies were changed
	policies atomic.Int64 // how often they were

	looks   memory[time.Time]   // peer → when it was, or will be, looked at because its message has changed
	intakes memory[intake]      // peer → the newest message that was looked at
	known   memory[*evaluation] // peer → what came of that message
}

// NewReceiver returns a receiver that reads and writes our own cluster with the client, and providers over the links.
//
//nolint:revive // six parts, each of which is another thing
func NewReceiver(
	config Config, c client.Client, links *peers.Links, decider policy.Decider, clk clock.PassiveClock, recorder events.EventRecorder,
) *Receiver {
	r := &Receiver{
		config:   config,
		client:   c,
		links:    links,
		clock:    clk,
		recorder: recorder,
		decider:  decider,
		table:    &cachedTable{client: c, clusterID: config.ClusterID},
		changed:  newSignal(),
	}
	decider.OnChange(policy.Incoming, r.judgeAgain)
	return r
}

// judgeAgain has every offer judged by the policies that are in force now.
func (r *Receiver) judgeAgain() {
	r.policies.Add(1)
	r.changed.send()
}

// SetupWithManager registers the receiver with the manager.
func (r *Receiver) SetupWithManager(mgr ctrl.Manager) error {
	if err := metrics.Registry.Register(r); err != nil {
		return fmt.Errorf("register the metrics of the receiver: %w", err)
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("advertisement-receiver").
		For(&v1alpha1.Peer{}).
		Watches(&v1alpha1.Advertisement{}, handler.EnqueueRequestsFromMapFunc(peerOf),
			builder.WithPredicates(predicate.NewPredicateFuncs(r.isCopy))).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(allWith(r.client, v1alpha1.RoleProvider)),
			builder.WithPredicates(predicate.NewPredicateFuncs(r.config.isOwnNetwork))).
		WatchesRawSource(peers.LinkChanges(r.links, r.onLink)).
		WatchesRawSource(peers.Changes(r.links, advertisements, r.onAdvertisement)).
		WatchesRawSource(r.changed.toPeers(r.client, v1alpha1.RoleProvider)).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.config.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the receiver of advertisements: %w", err)
	}
	return nil
}

// isCopy tells copies from our own offers, which lie beside them.
func (r *Receiver) isCopy(object client.Object) bool { return object.GetName() != r.config.ClusterID }

func (r *Receiver) onLink(_ context.Context, peer string, queue peers.Queue[reconcile.Request]) {
	queue.Add(requestFor(peer))
}

func (r *Receiver) onAdvertisement(_ context.Context, change peers.Change, queue peers.Queue[reconcile.Request]) {
	received.Inc()
	peer := change.Link.Peer()
	if wait, due := r.nextLookAt(peer, r.clock.Now()); due {
		queue.AddAfter(requestFor(peer), wait)
	}
}

// Reconcile makes the copy of a provider's advertisement, and the answers to it, what they must be.
func (r *Receiver) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	peer := &v1alpha1.Peer{}
	if err := r.client.Get(ctx, request.NamespacedName, peer); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(request.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	known := peer.Spec.ClusterID != "" && peer.Spec.ClusterID != r.config.ClusterID && !peer.IsSecond() &&
		peer.HasRole(v1alpha1.RoleProvider)
	if !known || !peer.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, r.drop(ctx, peer)
	}
	now := r.clock.Now()
	r.looksNow(peer.Name, now)
	seen, err := r.observe(ctx, peer, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	seen = r.evaluate(ctx, seen, now)
	wanted := r.config.decide(seen, now)
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

// observe gathers the facts. That the peer cannot be read is a fact, and no error.
func (r *Receiver) observe(ctx context.Context, peer *v1alpha1.Peer, now time.Time) (facts, error) {
	f, err := r.observeHere(ctx, peer)
	if err != nil {
		return f, err
	}
	if f.link, _ = r.links.Get(peer.Name); f.link == nil {
		return f, nil
	}
	mirror := f.link.FollowOne(advertisements, f.link.TenantNamespace(), peer.Spec.ClusterID)
	f.synced, f.mirrorErr = mirror.HasSynced(), mirror.Err()
	if isUnusable(f.mirrorErr) || f.copy == nil && errors.Is(f.mirrorErr, peers.ErrMalformed) {
		f.malformed = f.mirrorErr // what the mirror shows is older than that
		return f, nil
	}
	if f.raw, f.heldBack = r.admit(peer.Name, messageIn(mirror, peer), now); f.raw != nil {
		f.offer, f.malformed = exchange.Decode(f.raw.Object)
		if f.heldBack > 0 || f.mirrorErr != nil || !peer.Protocol().Advertisements {
			f.raw = nil // there is, or may be, a newer version at the peer, which will be answered; or nobody to be answered
		}
		return f, nil
	}
	f.withdrawn = f.synced && f.copy != nil && isGone(ctx, f.link, peer.Spec.ClusterID)
	return f, nil
}

// observeHere gathers what our own cluster knows.
func (r *Receiver) observeHere(ctx context.Context, peer *v1alpha1.Peer) (facts, error) {
	held, err := r.held(ctx, peer)
	if err != nil {
		return facts{}, err
	}
	network, err := r.config.networkFor(ctx, r.client, peer)
	return facts{peer: peer, copy: held, network: network}, err
}

// held returns the copy, or nil. A peer without an id has none, and what has our own id is our own offer.
func (r *Receiver) held(ctx context.Context, peer *v1alpha1.Peer) (*v1alpha1.Advertisement, error) {
	if id := peer.Spec.ClusterID; id == "" || id == r.config.ClusterID {
		return nil, nil
	}
	held := &v1alpha1.Advertisement{}
	if err := r.client.Get(ctx, copyKey(peer), held); err != nil {
		return nil, wrap(client.IgnoreNotFound(err), "read the copy %s", copyKey(peer))
	}
	return held, nil
}

// messageIn returns the newest message of the peer, or nil.
func messageIn(mirror *peers.Mirror, peer *v1alpha1.Peer) *unstructured.Unstructured {
	found, _ := mirror.Named(peer.Spec.ClusterID)
	message, _ := found.(*unstructured.Unstructured)
	return message
}

// isGone asks the API server, since a mirror that does not show something is no proof that it is not there.
func isGone(ctx context.Context, link *peers.Link, name string) bool {
	key := types.NamespacedName{Namespace: link.TenantNamespace(), Name: name}
	return apierrors.IsNotFound(link.Client().Get(ctx, key, emptyAdvertisement()))
}

// copyKey names the copy of the peer's advertisement in our own cluster.
func copyKey(peer *v1alpha1.Peer) types.NamespacedName {
	return types.NamespacedName{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: peer.Spec.ClusterID}
}

// nextLookAt returns after what time to look at a change: at once, or an interval after the look before, so that a peer that
// writes without end costs one look for each interval. It is not due if a look is still to come, which sees this change too.
func (r *Receiver) nextLookAt(peer string, now time.Time) (wait time.Duration, due bool) {
	look := r.looks.of(peer)
	if look.After(now) {
		return 0, false
	}
	wait = max(0, look.Add(r.config.ReceiveInterval).Sub(now))
	r.looks.keep(peer, now.Add(wait))
	return wait, true
}

// looksNow notes a look, whatever caused it. If one was planned for later this is that one: the queue has one place for each
// peer, and in it the sooner look replaces the later.
func (r *Receiver) looksNow(peer string, now time.Time) {
	if r.looks.of(peer).After(now) {
		r.looks.keep(peer, now)
	}
}

// An intake is the newest message that was looked at of one peer, nil if there was none.
type intake struct {
	message *unstructured.Unstructured
	since   time.Time // when it was looked at for the first time
}

// admit returns the message to look at. If its spec is another than that of the one before, and that was admitted less than
// an interval ago, it is the one before, and for how long: our own writes have us look again too, so a peer that writes
// without end would keep us writing.
func (r *Receiver) admit(peer string, message *unstructured.Unstructured, now time.Time) (*unstructured.Unstructured, time.Duration) {
	in := r.intakes.of(peer)
	if !reflect.DeepEqual(specOf(in.message), specOf(message)) {
		if wait := in.since.Add(r.config.ReceiveInterval).Sub(now); wait > 0 {
			return in.message, wait
		}
		in.since = now
	}
	in.message = message
	r.intakes.keep(peer, in)
	return message, 0
}

func specOf(message *unstructured.Unstructured) any {
	if message == nil {
		return nil
	}
	return message.Object["spec"]
}
