// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
)

const (
	// settlePause is how soon a tenant namespace is looked at again whose rights have to settle.
	settlePause = 200 * time.Millisecond
	// workers is how many peers are worked on at the same time. None of them waits for a peer's answer.
	workers = 8
	// cacheLag is how long a cache needs to show what was just written.
	cacheLag = 50 * time.Millisecond
)

// A step brings one part of a Peer to where its spec wants it, and adds to the observation what it has found out.
type step interface {
	Reconcile(ctx context.Context, o *observation) (result, error)
}

// A result is what a step leaves to do.
type result struct {
	again time.Time // when to look at the peer again though nothing changes, zero for no time of its own
	stop  bool      // there is nothing left to do or to tell about this Peer now
}

// A Controller keeps Peers.
type Controller struct {
	*deps
	steps      []step // in this order
	network    *networkKeeper
	calls      *calls
	addresses  *addressStep
	tombstones *calls // of former peers
	consumers  *flowSchema

	mu     sync.Mutex
	states map[string]*state // peer → what is known of it
}

// New returns the controller of Peers. c reads from a cache, live from the API server itself.
func New(config Config, c client.Client, live client.Reader, links *peers.Links, recorder events.EventRecorder) *Controller {
	config.Default()
	d := &deps{config: &config, client: c, direct: local.Uncached(c, live), links: links, recorder: recorder}
	p := &Controller{
		deps:      d,
		network:   &networkKeeper{d},
		addresses: &addressStep{deps: d},
		consumers: &flowSchema{deps: d},
		states:    map[string]*state{},
	}
	leave := &leaveStep{d}
	p.calls = &calls{deps: d, background: newBackground(), lock: &p.mu, longest: repairPeriod, steps: []step{
		&sessionStep{deps: d, peers: p.count},
		&probeStep{deps: d, transfers: newTransfers(), peers: p.count},
		leave,
	}}
	p.tombstones = &calls{
		deps: d, background: p.calls.background, lock: &p.mu, longest: config.TombstoneLife, steps: []step{&tombstoneStep{leave}},
	}
	p.steps = []step{
		&tenantStep{deps: d, counting: local.NewCounting(c, config.Namespace)},
		&inviteStep{deps: d},
		p.calls,
		&followStep{d},
		p.addresses,
		&connectionStep{d},
	}
	return p
}

// Reconcile does for one Peer what this package is for.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	problems := []error{c.consumers.keep(ctx, req.Name)}
	o, err := c.observe(ctx, req.Name)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case o == nil:
		c.forget(req.Name)
		return c.resultOf(time.Time{}, problems)
	case o.peer.UID == "":
		left, err := c.tombstones.Reconcile(ctx, o)
		return c.resultOf(left.again, append(problems, err))
	case o.deleted() && !controllerutil.ContainsFinalizer(o.peer, v1alpha1.FinalizerPeer):
		c.links.Close(req.Name)
		return reconcile.Result{}, nil
	case discovered(o.peer):
		return c.resultOf(time.Time{}, append(problems, c.report(ctx, o)))
	}
	var again time.Time
	for _, step := range c.steps {
		r, err := step.Reconcile(ctx, o)
		problems = append(problems, err)
		again = sooner(again, r.again)
		if r.stop {
			return c.resultOf(again, problems)
		}
	}
	return c.resultOf(again, append(problems, c.report(ctx, o)))
}

// discovered reports whether the peer was only found in the network. Nothing is made for it. (One that has lost its roles
// has our finalizer.)
func discovered(peer *v1alpha1.Peer) bool {
	return len(peer.Spec.Roles) == 0 && !controllerutil.ContainsFinalizer(peer, v1alpha1.FinalizerPeer)
}

// resultOf says when to look again. That somebody else was faster with a write, or that our cache lags behind, is no error:
// the newer object is on its way to us.
func (c *Controller) resultOf(again time.Time, problems []error) (reconcile.Result, error) {
	stale := false
	for i, err := range problems {
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			stale, problems[i] = true, nil
		}
	}
	switch err := errors.Join(problems...); {
	case err != nil:
		return reconcile.Result{}, err
	case stale:
		return reconcile.Result{RequeueAfter: cacheLag}, nil
	case again.IsZero():
		return reconcile.Result{}, nil
	default:
		return reconcile.Result{RequeueAfter: max(again.Sub(c.config.Clock.Now()), time.Millisecond)}, nil
	}
}

// sooner returns the earlier of two times, of which zero is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// SetupWithManager registers the controller with the manager.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	if err := errors.Join(c.config.Validate(), mgr.Add(c.calls.background), c.network.setup(mgr)); err != nil {
		return err
	}
	ctx := context.Background() //nolint:forbidigo // the manager has no context before it starts, and nothing is waited for
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.Peer{}, clusterIDField, indexClusterID); err != nil {
		return fmt.Errorf("index Peers: %w", err)
	}
	peer, everyPeer := handler.EnqueueRequestsFromMapFunc(peersOf), handler.EnqueueRequestsFromMapFunc(c.everyPeer)
	return ctrl.NewControllerManagedBy(mgr).
		Named("peering").
		For(&v1alpha1.Peer{}, builder.WithPredicates(peerChanges)).
		Watches(&v1alpha1.Peer{}, handler.EnqueueRequestsFromMapFunc(c.namesakes), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Namespace{}, peer, builder.WithPredicates(namespaceChanges)).
		Watches(&corev1.Node{}, peer, builder.WithPredicates(nodeTurned)).
		Watches(&v1alpha1.Advertisement{}, peer, builder.WithPredicates(offerChanges)).
		Watches(&v1alpha1.PeeringClaim{}, peer, builder.WithPredicates(claimChanges)).
		Watches(&v1alpha1.Connection{}, handler.EnqueueRequestsFromMapFunc(c.peersOfConnection), builder.WithPredicates(connectionChanges)).
		Watches(&corev1.ConfigMap{}, everyPeer, builder.WithPredicates(predicate.NewPredicateFuncs(c.isOwnNetwork))).
		Watches(&appsv1.Deployment{}, everyPeer, builder.WithPredicates(gatewayTurned)).
		WatchesRawSource(source.Channel(c.calls.ended, &handler.EnqueueRequestForObject{})).
		WatchesRawSource(peers.LinkChanges(c.links, peerOfLink)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(c)
}

// watchedConditions are those of a Peer by which a join goes on.
var watchedConditions = []string{v1alpha1.ConditionJoined, v1alpha1.ConditionSession}

// peerChanges leaves out most of what we ourselves write.
var peerChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*v1alpha1.Peer), e.ObjectNew.(*v1alpha1.Peer)
	return before.UID != after.UID || before.Generation != after.Generation ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		!equality.Semantic.DeepEqual(before.Finalizers, after.Finalizers) ||
		before.Annotations[v1alpha1.AnnotationJoin] != after.Annotations[v1alpha1.AnnotationJoin] ||
		slices.ContainsFunc(watchedConditions, func(kind string) bool {
			return !ptr.Equal(said(before, kind), said(after, kind))
		})
}}

// namespaceChanges are those of namespaces whose name makes them tenant namespaces, whoever made them, and that twins go.
var namespaceChanges = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return isTenantName(e.Object.GetName()) },
	UpdateFunc: func(e event.UpdateEvent) bool { return isTenantName(e.ObjectNew.GetName()) },
	DeleteFunc: func(e event.DeleteEvent) bool {
		return isTenantName(e.Object.GetName()) || isOfType(e.Object, v1alpha1.TypeTwin)
	},
}

func isTenantName(name string) bool { return strings.HasPrefix(name, v1alpha1.TenantNamespacePrefix) }

func isOfType(object client.Object, value string) bool {
	return object.GetLabels()[v1alpha1.LabelType] == value
}

// offerChanges are those of an advertisement that matter here: it is renewed far more often.
var offerChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*v1alpha1.Advertisement), e.ObjectNew.(*v1alpha1.Advertisement)
	return !equality.Semantic.DeepEqual(networkOf(before), networkOf(after)) || before.Spec.Phase != after.Spec.Phase ||
		!ptr.Equal(verdictOf(before), verdictOf(after)) || !equality.Semantic.DeepEqual(before.Status.Network, after.Status.Network)
}}

// claimChanges are what the claimer says, and that it was let in.
var claimChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*v1alpha1.PeeringClaim), e.ObjectNew.(*v1alpha1.PeeringClaim)
	return before.Generation != after.Generation || accepted(before) != accepted(after)
}}

// nodeTurned lets through that a virtual node goes, which a Peer that is being deleted waits for, and that its peer was cut off,
// for another reason than before, or is back.
var nodeTurned = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return isOfType(after, v1alpha1.TypeVirtualNode) && whyCutOff(before) != whyCutOff(after)
	},
	DeleteFunc: func(e event.DeleteEvent) bool { return isOfType(e.Object, v1alpha1.TypeVirtualNode) },
}

// whyCutOff returns the reason that the virtual node shows, "" if its peer is not cut off.
func whyCutOff(node *corev1.Node) string {
	return ptr.Deref(v1alpha1.CutOff(node), corev1.NodeCondition{}).Reason
}

// peersOf finds the Peer of a tenant namespace, of what lies in one and of a virtual node by the name, and that of a twin by
// the label.
func peersOf(_ context.Context, o client.Object) []reconcile.Request {
	peer, isTenant := strings.CutPrefix(cmp.Or(o.GetNamespace(), o.GetName()), v1alpha1.TenantNamespacePrefix)
	if _, isNode := o.(*corev1.Node); isNode {
		peer = strings.TrimPrefix(o.GetName(), v1alpha1.VirtualNodePrefix)
	} else if !isTenant {
		peer = o.GetLabels()[v1alpha1.LabelPeer]
	}
	if peer == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: peer}}}
}

// peerOfLink looks at a Peer whose link was made, closed, cut off, or is back.
func peerOfLink(_ context.Context, peer string, queue peers.Queue[reconcile.Request]) {
	queue.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: peer}})
}

// networkOf returns what the peer says of its network, and nothing while that is not known.
func networkOf(ad *v1alpha1.Advertisement) v1alpha1.Network {
	if ad == nil {
		return v1alpha1.Network{}
	}
	return ptr.Deref(ad.Spec.Network, v1alpha1.Network{})
}
