// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
)

const (
	// evictorWorkers is how many nodes and namespaces are looked at in parallel, and evictionRequests how many requests
	// each of them has open.
	evictorWorkers   = 4
	evictionRequests = 8
	// evictionsPerSecond bounds all evictions together, so that ten thousand pods do not look for another place in the same
	// moment.
	evictionsPerSecond = 100
	// evictionPause is how soon it goes on when the share of the moment is used up.
	evictionPause = time.Second
	// firstBlocked and lastBlocked are how soon a pod that may not go yet is tried again, at first and at last.
	firstBlocked = 5 * time.Second
	lastBlocked  = time.Minute
	// admissionDelay is for the API server to place new pods by a changed offloading: what replaces a pod that goes sooner
	// might come to where it was.
	admissionDelay = 5 * time.Second
)

// Reasons of the events of evictions, beside those in the table of reasons.
const (
	reasonDrainBlocked = "DrainBlocked"
	actionDrain        = "Drain"
	actionEvict        = "Evict"
)

// evictor has pods go that must: see reasons. A request names a Peer, for the pods on its virtual node, or with a namespace
// its NamespaceOffloading, for the pods of the namespace.
type evictor struct {
	client client.Client
	live   client.Reader // for pods at home, which the cache does not have
	clock  clock.PassiveClock
	events events.EventRecorder
	pods   *podController // deletes pods at home
	pace   flowcontrol.PassiveRateLimiter

	mu sync.Mutex // for what comes of requests: blocked, and evicted
	// blocked says what may not go yet, by leaver.budget, and what is onItsWay. It keeps us from asking in vain, and can be forgotten any time.
	blocked *flowcontrol.Backoff
}

func newEvictor(c client.Client, live client.Reader, clk clock.Clock, recorder events.EventRecorder, pods *podController) *evictor {
	blocked := flowcontrol.NewBackOff(firstBlocked, lastBlocked)
	blocked.Clock = clk
	return &evictor{
		client: c, live: live, clock: clk, events: recorder, pods: pods, blocked: blocked,
		pace: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(evictionsPerSecond, evictionsPerSecond, clk),
	}
}

func (e *evictor) setupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("eviction").
		Watches(&v1alpha1.Peer{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Advertisement{}, handler.EnqueueRequestsFromMapFunc(peerOfAdvertisement)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(peerOfNode), builder.WithPredicates(closes())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(peerOfPod), builder.WithPredicates(binds())).
		Watches(&v1alpha1.NamespaceOffloading{}, local.Later(admissionDelay, ofNamespace), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, local.Later(admissionDelay, e.ofAllNamespaces), builder.WithPredicates(opens())).
		Watches(&corev1.Pod{}, local.Later(admissionDelay, ofNamespace), builder.WithPredicates(binds())).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: evictorWorkers,
			RateLimiter:             backOff[reconcile.Request](lastRetry),
		}).
		Complete(e)
}

// Reconcile has the pods of one virtual node or namespace go that must, as far as they may.
func (e *evictor) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if req.Namespace == "" {
		return e.drain(ctx, req.Name)
	}
	return e.moveMisplaced(ctx, req)
}

// drain is for the pods on the virtual node of the peer.
func (e *evictor) drain(ctx context.Context, peer string) (reconcile.Result, error) {
	seen, err := observeNode(ctx, e.client, peer)
	if err != nil {
		return reconcile.Result{}, err
	}
	facts := placeFacts{nodeFacts: seen}
	if !facts.drains() {
		return reconcile.Result{}, nil
	}
	pods, err := podsOn(ctx, e.client, seen.node.Name, "")
	if err != nil {
		return reconcile.Result{}, err
	}
	done := e.letGo(ctx, leavers(pods, func(*corev1.Pod) placeFacts { return facts }))
	e.tellPeer(seen, done)
	return reconcile.Result{RequeueAfter: done.next()}, nil
}

// moveMisplaced is for the pods of the namespace that run where its user does not let new ones run.
func (e *evictor) moveMisplaced(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	offloading := &v1alpha1.NamespaceOffloading{}
	if err := e.client.Get(ctx, req.NamespacedName, offloading); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !offloading.DeletionTimestamp.IsZero() || offloading.Spec.OnChange != v1alpha1.ChangeEvict {
		return reconcile.Result{}, nil
	}
	placement, err := offload.NewPlacement(offloading)
	if err != nil {
		return reconcile.Result{}, nil //nolint:nilerr // the status tells the user; trying again cannot help
	}
	nodes := &corev1.NodeList{}
	if err := e.client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list virtual nodes: %w", err)
	}
	pods, err := e.podsOf(ctx, req.Namespace, placement.Strategy() == v1alpha1.StrategyRemote)
	if err != nil {
		return reconcile.Result{}, err
	}
	done := e.letGo(ctx, leavers(pods, func(pod *corev1.Pod) placeFacts { return misplacedFacts(pod, &placement, nodes.Items) }))
	return reconcile.Result{RequeueAfter: done.next()}, nil
}

// podsOf returns the pods of the namespace: those at home only if they are asked for, because they must be read from the API
// server, whose own cache is good enough.
func (e *evictor) podsOf(ctx context.Context, namespace string, withHome bool) ([]corev1.Pod, error) {
	if !withHome {
		return listPods(ctx, e.client, client.InNamespace(namespace))
	}
	return listPods(ctx, e.live, client.InNamespace(namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}})
}

// evicted is what came of one round.
type evicted struct {
	gone, stayed []leaver
	// waits says that some were not asked again yet, more that the pace left some for later.
	waits, more bool
}

// next is how soon it goes on by itself.
func (d *evicted) next() time.Duration {
	switch {
	case d.more:
		return evictionPause
	case d.waits || len(d.stayed) > 0:
		return firstBlocked
	default:
		return 0 // an event says when another pod comes
	}
}

func (e *evictor) letGo(ctx context.Context, going []leaver) *evicted {
	done := &evicted{}
	e.blocked.GC()
	var group errgroup.Group
	group.SetLimit(evictionRequests)
	for _, one := range going {
		if now := e.clock.Now(); e.blocked.IsInBackOffSinceUpdate(one.budget(), now) || e.blocked.IsInBackOffSinceUpdate(onItsWay(one.pod), now) {
			done.waits = true
			continue
		}
		if one.reason.how == byEviction && !e.pace.TryAccept() {
			done.more = true
			break
		}
		group.Go(func() error {
			e.letOneGo(ctx, one, done)
			return nil
		})
	}
	_ = group.Wait() // what a pod met is told in its events, and stops no other
	return done
}

// letOneGo has one pod go. One that does not is left for a while, ever longer, with all that share its budget.
func (e *evictor) letOneGo(ctx context.Context, one leaver, done *evicted) {
	err := e.send(ctx, one)
	e.mu.Lock()
	defer e.mu.Unlock()
	if errors.Is(err, errMoves) { // its PodMove tells of it
		done.waits = true
		e.blocked.Next(onItsWay(one.pod), e.clock.Now())
		return
	}
	if client.IgnoreNotFound(err) == nil {
		e.blocked.Reset(one.budget())
		done.gone = append(done.gone, one)
		podsDrained.WithLabelValues("gone").Inc()
		if one.reason.onPod {
			e.events.Eventf(one.pod, nil, corev1.EventTypeNormal, one.reason.event, actionEvict,
				"The pod was evicted, since the NamespaceOffloading does not let it run on Node %s: %s", one.pod.Spec.NodeName, one.cause)
		}
		return
	}
	done.stayed = append(done.stayed, one)
	podsDrained.WithLabelValues("stayed").Inc()
	isNews, now := e.blocked.Get(one.budget()) == 0, e.clock.Now()
	if !e.blocked.IsInBackOffSinceUpdate(one.budget(), now) { // those that were asked at the same time count once
		e.blocked.Next(one.budget(), now)
	}
	if isNews && ctx.Err() == nil {
		event, action := reasonDrainBlocked, actionDrain
		if one.reason.onPod {
			event, action = one.reason.event, actionEvict
		}
		e.events.Eventf(one.pod, nil, corev1.EventTypeWarning, event, action, "%s", whyItStays(one, err))
	}
}

func (e *evictor) send(ctx context.Context, one leaver) error {
	pod := one.pod
	switch one.reason.how {
	case byForce:
		return e.pods.forget(ctx, pod)
	case byDeletion:
		return e.pods.delete(ctx, pod)
	default:
		if isLone(pod) {
			return e.moveLone(ctx, one)
		}
		return e.evict(ctx, pod)
	}
}

func (e *evictor) evict(ctx context.Context, pod *corev1.Pod) error {
	return e.client.SubResource("eviction").Create(ctx, &corev1.Pod{ObjectMeta: nameOf(pod)}, &policyv1.Eviction{
		ObjectMeta:    nameOf(pod),
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
}

// whyItStays says it in words that are the same as long as the cause is.
func whyItStays(one leaver, err error) string {
	must := fmt.Sprintf("The pod must leave Node %s (%s), and ", one.pod.Spec.NodeName, one.cause)
	if cause, found := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); found {
		return must + "waits for its PodDisruptionBudget: " + bounded(cause.Message)
	}
	if apierrors.IsTooManyRequests(err) {
		return must + "may not yet: " + bounded(err.Error())
	}
	return must + "cannot: " + bounded(err.Error())
}

// tellPeer says on the Peer what has happened. Its texts are the same in every round, so that one event stands for all.
func (e *evictor) tellPeer(seen nodeFacts, done *evicted) {
	if len(done.gone) > 0 {
		e.events.Eventf(seen.peer, seen.node, corev1.EventTypeNormal, done.gone[0].reason.event, actionDrain,
			"Pods were moved away from Node %s: %s", seen.node.Name, done.gone[0].cause)
	}
	if len(done.stayed) > 0 {
		e.events.Eventf(seen.peer, seen.node, corev1.EventTypeWarning, reasonDrainBlocked, actionDrain,
			"Pods stay on Node %s until they may go, such as when their PodDisruptionBudgets allow it: see their events",
			seen.node.Name)
	}
}

// ofNamespace is a request for the namespace of the object.
func ofNamespace(_ context.Context, object client.Object) []reconcile.Request {
	key := client.ObjectKey{Namespace: object.GetNamespace(), Name: v1alpha1.NamespaceOffloadingName}
	return []reconcile.Request{{NamespacedName: key}}
}

// ofAllNamespaces is a request for each namespace that is offloaded.
func (e *evictor) ofAllNamespaces(ctx context.Context, cause client.Object) []reconcile.Request {
	list := &v1alpha1.NamespaceOffloadingList{}
	if err := e.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing namespace offloadings", "cause", cause.GetName())
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, ofNamespace(ctx, &list.Items[i])...)
	}
	return requests
}
