package placement

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

// everything is the request to look at all that providers offer, and at each namespace.
var everything = reconcile.Request{}

// SetupWithManager registers the controller with the manager.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	if err := c.config.Validate(); err != nil {
		return err
	}
	atEverything := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{everything}
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named("placement").
		For(&v1alpha1.NamespaceOffloading{}, builder.WithPredicates(offloadingChanged)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(offloadingOf), builder.WithPredicates(metadataChanged)).
		Watches(&v1alpha1.Advertisement{}, atEverything, builder.WithPredicates(
			predicate.NewPredicateFuncs(c.isCopy), offerChanged)).
		Watches(&v1alpha1.Peer{}, atEverything, builder.WithPredicates(distanceChanged)).
		Watches(&corev1.Node{}, atEverything, builder.WithPredicates(
			predicate.NewPredicateFuncs(isVirtual), nodeChanged)).
		WatchesRawSource(c.bell).
		// One worker: deciding takes no time but the processor's. And so what it keeps needs no locks.
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(c)
	if err != nil {
		return fmt.Errorf("set up placement: %w", err)
	}
	return nil
}

// isCopy tells what providers offer us from our own offers, which lie beside it.
func (c *Controller) isCopy(object client.Object) bool { return object.GetName() != c.config.ClusterID }

func isVirtual(object client.Object) bool {
	return object.GetLabels()[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode
}

func offloadingOf(_ context.Context, namespace client.Object) []reconcile.Request {
	return []reconcile.Request{requestFor(namespace.GetName())}
}

func requestFor(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{
		Namespace: namespace, Name: v1alpha1.NamespaceOffloadingName,
	}}
}

// offloadingChanged lets through what the user changes, and what anybody but us changes of what we have written. That
// our own writes come by too costs a look, and shows us those that a cache had not shown yet when we looked.
var offloadingChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*v1alpha1.NamespaceOffloading), e.ObjectNew.(*v1alpha1.NamespaceOffloading)
	return before.Generation != after.Generation || !equality.Semantic.DeepEqual(ownPart(before), ownPart(after))
}}

// metadataChanged lets through what policies are asked with.
var metadataChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
		!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
}}

// offerChanged leaves out hellos: what they change, the time and the sequence, makes no cluster better.
var offerChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*v1alpha1.Advertisement), e.ObjectNew.(*v1alpha1.Advertisement)
	return isAccepted(before) != isAccepted(after) || !exchange.SameTerms(&before.Spec, &after.Spec) ||
		!equality.Semantic.DeepEqual(before.Spec.Availability, after.Spec.Availability) ||
		!equality.Semantic.DeepEqual(before.Spec.LargestPod, after.Spec.LargestPod)
}}

func isAccepted(ad *v1alpha1.Advertisement) bool {
	return meta.IsStatusConditionTrue(ad.Status.Conditions, v1alpha1.ConditionAccepted)
}

// distanceChanged lets through new measurements of the way to a peer. All else of it is in its advertisement.
var distanceChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.Peer), e.ObjectNew.(*v1alpha1.Peer)
		return !equality.Semantic.DeepEqual(before.Status.RoundTripTime, after.Status.RoundTripTime)
	},
}

// nodeChanged lets through virtual nodes that come, go, open, close or get other labels: not their heartbeats.
var nodeChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	return isOpen(before) != isOpen(after) || !maps.Equal(before.Labels, after.Labels)
}}

// A bell is a source by which what is no event of an object asks for a look. Nothing is lost that is asked for before the
// controller starts: everything is looked at then.
type bell struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Start is called by the controller before its worker.
func (b *bell) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	b.mu.Lock()
	b.queue = queue
	b.mu.Unlock()
	b.ring()
	return nil
}

// ring asks for a look at everything.
func (b *bell) ring() { b.add(everything) }

// ringFor asks for a look at one namespace.
func (b *bell) ringFor(namespace string) { b.add(requestFor(namespace)) }

func (b *bell) add(request reconcile.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue != nil {
		b.queue.Add(request)
	}
}
