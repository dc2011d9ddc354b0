// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
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
	"github.com/hanse-dev/hanse/internal/policy"
)

func (r *mappingReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("namespace-mapping").
		For(&v1alpha1.NamespaceMapping{}).
		Watches(&v1alpha1.NamespaceMapping{}, handler.EnqueueRequestsFromMapFunc(r.mappingsDivided), builder.WithPredicates(comings)).
		Watches(&v1alpha1.ShadowPod{}, r.shadowsCounted()).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.mappingsOfNamespace)).
		Watches(&v1alpha1.Peer{}, handler.EnqueueRequestsFromMapFunc(r.mappingsOfPeer), builder.WithPredicates(specChanges)).
		Watches(&v1alpha1.Connection{}, handler.EnqueueRequestsFromMapFunc(r.mappingsBeside), builder.WithPredicates(connectionMoved)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.allMappings), builder.WithPredicates(publicRanges)).
		WithOptions(options()).
		Complete(r)
}

func (r *shadowPodReconciler) setup(mgr ctrl.Manager) error {
	r.config.Decider.OnChange(policy.ShadowPod, r.policiesChanged)
	if err := mgr.Add(r.events); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("shadow-pod").
		For(&v1alpha1.ShadowPod{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.podChanged), builder.WithPredicates(remotePods)).
		Watches(&v1alpha1.Peer{}, handler.EnqueueRequestsFromMapFunc(r.waitingOf), builder.WithPredicates(specChanges)).
		WatchesRawSource(freed{r}).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.shadowsOfTwin),
			builder.WithPredicates(twins, turns)).
		WithOptions(options()).
		Complete(r)
}

// freed is the source of ShadowPods that may have room now. No pod is let in before it is known what room there is.
type freed struct{ *shadowPodReconciler }

// Start implements source.Source.
func (f freed) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	f.queue = queue
	return nil
}

// WaitForSync implements source.SyncingSource.
func (f freed) WaitForSync(ctx context.Context) error { return f.config.Room.WaitForRoom(ctx) }

// keptPod is how long the pod of a ShadowPod may be, in bytes and with what is asked of its way, to stay in the cache until it is
// made. Most are shorter.
const keptPod = 4 << 10

// TrimShadowPod is a cache transform that takes off a ShadowPod who wrote its fields, and the pod and its way where these are long
// or not needed any more: see complete. A consumer could fill our memory otherwise.
func TrimShadowPod(object any) (any, error) {
	shadow, ok := object.(*v1alpha1.ShadowPod)
	if !ok {
		return object, nil // a tombstone: what it holds was trimmed before
	}
	shadow.ManagedFields = nil
	status := &shadow.Status
	made := status.PodUID != "" && status.ObservedGeneration == shadow.Generation
	long := len(shadow.Spec.Pod)+len(shadow.Spec.Onward) > keptPod
	if made || long || meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionUnrecoverable) {
		shadow.Spec.Pod, shadow.Spec.Onward = "", ""
	}
	return shadow, nil
}

// options limit each object by itself, so that a broken one holds up no other.
func options() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			retryAtLeast, retryAtMost),
	}
}

var (
	twins = predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetLabels()[v1alpha1.LabelType] == v1alpha1.TypeTwin
	})
	remotePods = predicate.NewPredicateFuncs(func(o client.Object) bool {
		_, remote := o.GetLabels()[v1alpha1.LabelHomeUID]
		return remote || v1alpha1.OwnerShadowPod(o) != nil
	})
	// comings are the events after which there is one more of a kind, or one less.
	comings = predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
	// specChanges leaves out changes of status, which come with every heartbeat of a peer.
	specChanges = predicate.GenerationChangedPredicate{}
	// turns are the events after which a namespace may be a twin that it was not, or the other way around.
	turns = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero() ||
			!maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
			!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
	}}
)

// publicRanges are the changes of nodes by which there are more addresses that a peer's pods must not reach.
var publicRanges = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return rangesOfNode(e.Object).public() },
	UpdateFunc: func(e event.UpdateEvent) bool {
		now := rangesOfNode(e.ObjectNew)
		return now.public() && !slices.Equal(rangesOfNode(e.ObjectOld), now)
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

func requestFor(namespace, name string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

// mappingsOfNamespace returns the mapping that a twin is for, and all of those in a tenant namespace. When a twin goes,
// another mapping of the peer may get its place.
func (r *mappingReconciler) mappingsOfNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	ns, ok := o.(*corev1.Namespace)
	if !ok {
		return nil
	}
	if ns.Labels[v1alpha1.LabelType] == v1alpha1.TypeTenant {
		return r.mappingsIn(ctx, ns.Name)
	}
	twin, ok := twinIn(ns)
	if !ok {
		return nil
	}
	requests := requestFor(v1alpha1.TenantNamespace(twin.peer), twin.home)
	if !ns.DeletionTimestamp.IsZero() {
		requests = append(requests, r.mappingsIn(ctx, v1alpha1.TenantNamespace(twin.peer))...)
	}
	return requests
}

// mappingsOfPeer returns all mappings of the peer, and those that are gone and whose twins are still here.
func (r *mappingReconciler) mappingsOfPeer(ctx context.Context, peer client.Object) []reconcile.Request {
	requests := r.mappingsIn(ctx, v1alpha1.TenantNamespace(peer.GetName()))
	twins, err := twinsOf(ctx, r.client, peer.GetName())
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List twin namespaces", "Peer", peer.GetName())
	}
	for i := range twins {
		requests = append(requests, r.mappingsOfNamespace(ctx, &twins[i])...)
	}
	return requests
}

// allMappings are looked at when our own nodes have other addresses, from which peers are kept away.
func (r *mappingReconciler) allMappings(ctx context.Context, _ client.Object) []reconcile.Request {
	r.guarding.nodesChanged()
	return r.mappingsIn(ctx, corev1.NamespaceAll)
}

func (r *mappingReconciler) mappingsIn(ctx context.Context, namespace string) []reconcile.Request {
	return requestsIn(ctx, r.client, namespace, &v1alpha1.NamespaceMappingList{})
}

// mappingsBeside returns those in the namespace of the object.
func (r *mappingReconciler) mappingsBeside(ctx context.Context, o client.Object) []reconcile.Request {
	return r.mappingsIn(ctx, o.GetNamespace())
}

// shadowsOfTwin looks at all of a twin again when its namespace changes, above all when it begins to end.
func (r *shadowPodReconciler) shadowsOfTwin(ctx context.Context, ns client.Object) []reconcile.Request {
	return requestsIn(ctx, r.client, ns.GetName(), &v1alpha1.ShadowPodList{})
}

// requestsOfPeer are for all objects of a kind in twins of the peer.
func requestsOfPeer(ctx context.Context, reader client.Reader, peer string, list client.ObjectList) []reconcile.Request {
	twins, err := twinsOf(ctx, reader, peer)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List twin namespaces", "Peer", peer)
	}
	var requests []reconcile.Request
	for i := range twins {
		requests = append(requests, requestsIn(ctx, reader, twins[i].Name, list)...)
	}
	return requests
}

// requestsIn are for all objects of a kind in the namespace.
func requestsIn(ctx context.Context, reader client.Reader, namespace string, list client.ObjectList) []reconcile.Request {
	var out []reconcile.Request
	err := reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	if err == nil {
		err = meta.EachListItem(list, func(item runtime.Object) error {
			o, err := meta.Accessor(item)
			if err == nil {
				out = append(out, requestFor(o.GetNamespace(), o.GetName())...)
			}
			return err
		})
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List what a change is about", "Namespace", namespace)
	}
	return out
}
