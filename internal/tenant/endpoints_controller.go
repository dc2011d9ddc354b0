// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/reflection"
)

// endpointsReconciler makes an EndpointSlice for each ShadowEndpointSlice of a peer. What the peer says of its endpoints holds while the
// tunnel to it works; otherwise none of them is ready.
type endpointsReconciler struct {
	client client.Client
	events *eventFeed
	queue  lateQueue
}

func newEndpointsReconciler(c client.Client, events *eventFeed) *endpointsReconciler {
	r := &endpointsReconciler{client: c, events: events}
	events.topics[serviceKind] = topic{r.message, r.queue.get}
	return r
}

func (r *endpointsReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("endpoints").
		For(&v1alpha1.ShadowEndpointSlice{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&discoveryv1.EndpointSlice{}).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(sliceInPlaceOf), builder.WithPredicates(ends)).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.slicesOfService), builder.WithPredicates(comesOrGoes)).
		Watches(&v1alpha1.Connection{}, handler.EnqueueRequestsFromMapFunc(r.slicesBeside),
			builder.WithPredicates(predicate.Or[client.Object](local.Connects, connectionMoved))).
		Watches(&v1alpha1.Peer{}, handler.EnqueueRequestsFromMapFunc(r.slicesOf), builder.WithPredicates(local.Connects)).
		WatchesRawSource(&r.queue).
		WithOptions(options()).
		Complete(r)
}

// Reconcile brings one EndpointSlice in line with what the peer asks for. When the peer asks no more it goes with what owns it.
func (r *endpointsReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	shadow, peer, err := r.observe(ctx, request)
	if err != nil || shadow == nil {
		return reconcile.Result{}, err
	}
	found, err := local.Find(ctx, r.client, client.ObjectKey{Namespace: shadow.Namespace, Name: sliceName(shadow.Name)}, &discoveryv1.EndpointSlice{})
	if err != nil {
		return reconcile.Result{}, err
	}
	want, why, err := r.wanted(ctx, shadow, peer)
	if err != nil {
		return reconcile.Result{}, err
	}
	if found != nil && !metav1.IsControlledBy(found, shadow) {
		found, want, why = nil, nil, fmt.Sprintf("this cluster has an EndpointSlice %q of its own", found.Name)
	}
	refused := r.write(ctx, found, want)
	if refused != nil {
		if why = whyRefused(refused); why == "" {
			return reconcile.Result{}, refused
		}
		if apierrors.IsInvalid(refused) {
			refused = nil // it is as long as it is told so
		}
		refused = errors.Join(refused, r.write(ctx, found, nil)) // those of before would be stale
	}
	events, again, err := r.events.due(ctx, subject{serviceKind, request.NamespacedName}, peer, shadow.Status.Events)
	if err = errors.Join(refused, err, r.report(ctx, shadow, why, events)); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// observe returns the ShadowEndpointSlice, and the peer whose twin it lies in, or nil where there is nothing to keep.
func (r *endpointsReconciler) observe(ctx context.Context, request reconcile.Request) (*v1alpha1.ShadowEndpointSlice, string, error) {
	shadow, err := local.Find(ctx, r.client, request.NamespacedName, &v1alpha1.ShadowEndpointSlice{})
	if err != nil {
		return nil, "", err
	}
	if shadow == nil || !shadow.DeletionTimestamp.IsZero() {
		r.events.forget(subject{serviceKind, request.NamespacedName})
		return nil, "", nil
	}
	twin, err := local.Find(ctx, r.client, client.ObjectKey{Name: shadow.Namespace}, &corev1.Namespace{}, client.UnsafeDisableDeepCopy)
	if err != nil || twin == nil || v1alpha1.TwinPeer(twin) == "" {
		return nil, "", err
	}
	return shadow, v1alpha1.TwinPeer(twin), nil
}

// whyRefused says for the consumer why the API server takes no EndpointSlice, such as a quota, and nothing if that passes by itself or
// the twin is about to go.
func whyRefused(err error) string {
	why, refused := refusalOf(err)
	if !refused || local.IsEnding(err) {
		return ""
	}
	return "this cluster does not take the EndpointSlice: " + why
}

// wanted returns the EndpointSlice that there should be, or why there should be none.
func (r *endpointsReconciler) wanted(
	ctx context.Context, shadow *v1alpha1.ShadowEndpointSlice, peer string,
) (*discoveryv1.EndpointSlice, string, error) {
	key := client.ObjectKey{Namespace: shadow.Namespace, Name: shadow.Spec.Service}
	service, err := local.Find(ctx, r.client, key, &corev1.Service{}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, "", err
	}
	if service != nil && !reflection.IsCopy(service) {
		return nil, fmt.Sprintf("spec.service: this cluster has a Service %q of its own", service.Name), nil
	}
	seen, err := homeRanges(ctx, r.client, peer)
	if err != nil {
		return nil, "", err
	}
	connected, err := r.connected(ctx, peer)
	if err != nil {
		return nil, "", err
	}
	want, why := sliceFor(shadow, seen, connected)
	return want, why, nil
}

// connected says whether the tunnel to the peer works. The gateway says so in the Connection, and that before anybody else knows; but
// while there is no gateway, the Peer alone says that.
func (r *endpointsReconciler) connected(ctx context.Context, name string) (bool, error) {
	peer, err := local.Find(ctx, r.client, client.ObjectKey{Name: name}, &v1alpha1.Peer{}, client.UnsafeDisableDeepCopy)
	if err != nil || peer == nil {
		return false, err
	}
	connection, err := connectionTo(ctx, r.client, name)
	return err == nil && local.IsConnected(peer) && local.IsConnected(connection), err
}

// write has there be the EndpointSlice that is wanted instead of the one that was found. Either may be nil. The family of one cannot
// change.
func (r *endpointsReconciler) write(ctx context.Context, found, want *discoveryv1.EndpointSlice) error {
	var err error
	switch {
	case found != nil && (want == nil || found.AddressType != want.AddressType):
		err = r.client.Delete(ctx, found, client.Preconditions{UID: &found.UID}) // if another is wanted, the end of this one asks for it
	case found != nil && same(found, want):
	case found != nil:
		want.ResourceVersion = found.ResourceVersion
		err = r.client.Update(ctx, want)
	case want != nil:
		err = r.client.Create(ctx, want)
	}
	if err := local.IgnoreStale(err); err != nil {
		return fmt.Errorf("write EndpointSlice: %w", err)
	}
	return nil
}

func same(found, want *discoveryv1.EndpointSlice) bool {
	return maps.Equal(found.Labels, want.Labels) && equality.Semantic.DeepEqual(found.Ports, want.Ports) &&
		equality.Semantic.DeepEqual(found.Endpoints, want.Endpoints)
}

// report says in the status why there is no EndpointSlice, and what happened to the Service. If all is well, the status says nothing,
// which costs no write.
func (r *endpointsReconciler) report(
	ctx context.Context, shadow *v1alpha1.ShadowEndpointSlice, why string, events []v1alpha1.RemoteEvent,
) error {
	before := shadow.DeepCopy()
	shadow.Status.Events = events
	v1alpha1.Answer(&shadow.Status.Conditions, v1alpha1.ReasonEndpointsRefused, why, shadow.Generation)
	if equality.Semantic.DeepEqual(before.Status, shadow.Status) {
		return nil
	}
	shadow.Status.ObservedGeneration = shadow.Generation
	if err := local.IgnoreStale(r.client.Status().Patch(ctx, shadow, client.MergeFrom(before))); err != nil {
		return fmt.Errorf("report on ShadowEndpointSlice: %w", err)
	}
	return nil
}

// message is the ShadowEndpointSlice by which the peer is told of a Service: of several, the first by name.
func (r *endpointsReconciler) message(ctx context.Context, object types.NamespacedName, uid types.UID) (types.NamespacedName, bool) {
	service, err := local.Find(ctx, r.client, object, &corev1.Service{}, client.UnsafeDisableDeepCopy)
	if err != nil || service == nil || service.UID != uid || !reflection.IsCopy(service) {
		return object, false
	}
	slices := r.slicesOfService(ctx, service)
	if len(slices) == 0 {
		return object, false
	}
	first := slices[0].NamespacedName
	for _, other := range slices[1:] {
		if other.Name < first.Name {
			first = other.NamespacedName
		}
	}
	return first, true
}

// comesOrGoes are the events of Services that say whose they are.
var comesOrGoes = local.Turns(func(o client.Object) bool { return reflection.IsCopy(o) })

// ends are the events of objects that are gone.
var ends = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(event.UpdateEvent) bool { return false },
}

// sliceInPlaceOf returns the ShadowEndpointSlice that can have its EndpointSlice when this one is gone, which may be of somebody else.
func sliceInPlaceOf(_ context.Context, slice client.Object) []reconcile.Request {
	shadow, ours := strings.CutPrefix(slice.GetName(), slicePrefix)
	if !ours {
		return nil
	}
	return requestFor(slice.GetNamespace(), shadow)
}

// slicesOfService returns those of the Service.
func (r *endpointsReconciler) slicesOfService(ctx context.Context, service client.Object) []reconcile.Request {
	list := &v1alpha1.ShadowEndpointSliceList{}
	if err := r.client.List(ctx, list, client.InNamespace(service.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List ShadowEndpointSlices", "Namespace", service.GetNamespace())
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if list.Items[i].Spec.Service == service.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// slicesBeside returns those in twins of the peer whose Connection it is.
func (r *endpointsReconciler) slicesBeside(ctx context.Context, connection client.Object) []reconcile.Request {
	return r.slicesOfPeer(ctx, strings.TrimPrefix(connection.GetNamespace(), v1alpha1.TenantNamespacePrefix))
}

// slicesOf returns those in twins of the Peer.
func (r *endpointsReconciler) slicesOf(ctx context.Context, peer client.Object) []reconcile.Request {
	return r.slicesOfPeer(ctx, peer.GetName())
}

func (r *endpointsReconciler) slicesOfPeer(ctx context.Context, peer string) []reconcile.Request {
	return requestsOfPeer(ctx, r.client, peer, &v1alpha1.ShadowEndpointSliceList{})
}
