// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
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

type objectQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (r *objectReconciler) setup(mgr ctrl.Manager) error {
	making := ctrl.NewControllerManagedBy(mgr).
		Named("shadow-object").
		For(&v1alpha1.ShadowObject{}, builder.WithPredicates(predicate.Or[client.Object](
			predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Watches(&networkingv1.Ingress{}, r.ingressHandler()).
		Watches(&v1alpha1.Peer{}, handler.EnqueueRequestsFromMapFunc(r.objectsOf), builder.WithPredicates(specChanges)).
		WithOptions(options())
	for _, kind := range r.allowed {
		making = making.WatchesRawSource(local.WatchWhenDefined(
			mgr.GetCache(), mgr.GetRESTMapper(), kind.GroupVersionKind(), handler.EnqueueRequestsFromMapFunc(shadowOf)))
	}
	return making.Complete(r)
}

// shadowOf is the ShadowObject that an object was made for.
func shadowOf(_ context.Context, object client.Object) []reconcile.Request {
	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.Kind != "ShadowObject" {
		return nil
	}
	return requestFor(object.GetNamespace(), owner.Name)
}

// ingressHandler has the ShadowObject looked at that an Ingress was made for; and where its hosts came or went, those that have them
// too or wait for them.
func (r *objectReconciler) ingressHandler() handler.EventHandler {
	enqueue := func(ctx context.Context, q objectQueue, changed ...client.Object) {
		requests := shadowOf(ctx, changed[len(changed)-1])
		if len(changed) == 1 || !equality.Semantic.DeepEqual(hostsOf(changed[0]), hostsOf(changed[1])) {
			requests = append(requests, r.besides(ctx, changed)...)
		}
		for _, request := range requests {
			q.Add(request)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q objectQueue) { enqueue(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q objectQueue) {
			enqueue(ctx, q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q objectQueue) { enqueue(ctx, q, e.Object) },
	}
}

// besides are the ShadowObjects of other Ingresses with hosts of these, and those that were denied a host because another has it.
func (r *objectReconciler) besides(ctx context.Context, changed []client.Object) []reconcile.Request {
	ingresses, shadows := &networkingv1.IngressList{}, &v1alpha1.ShadowObjectList{}
	for _, list := range []client.ObjectList{ingresses, shadows} {
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "List what an Ingress is beside")
			return nil
		}
	}
	var hosts []string
	for _, one := range changed {
		hosts = append(hosts, hostsOf(one)...)
	}
	var requests []reconcile.Request
	for i := range ingresses.Items {
		other := &ingresses.Items[i]
		if other.Namespace != changed[0].GetNamespace() && reflection.Overlap(hosts, reflection.HostsOf(&other.Spec)) {
			requests = append(requests, shadowOf(ctx, other)...)
		}
	}
	for i := range shadows.Items {
		c := meta.FindStatusCondition(shadows.Items[i].Status.Conditions, v1alpha1.ConditionApplied)
		if c != nil && c.Reason == v1alpha1.ReasonHostTaken {
			requests = append(requests, requestFor(shadows.Items[i].Namespace, shadows.Items[i].Name)...)
		}
	}
	return requests
}

func hostsOf(object client.Object) []string {
	ingress, ok := object.(*networkingv1.Ingress)
	if !ok {
		return nil
	}
	return reflection.HostsOf(&ingress.Spec)
}

// objectsOf are the ShadowObjects in twins of the Peer, which may allow something else now.
func (r *objectReconciler) objectsOf(ctx context.Context, peer client.Object) []reconcile.Request {
	return requestsOfPeer(ctx, r.client, peer.GetName(), &v1alpha1.ShadowObjectList{})
}

// isAsWanted says whether the object is what is wanted, but for what defaults and controllers have added.
func isAsWanted(found, want *unstructured.Unstructured) bool {
	if found.GetAnnotations()[v1alpha1.AnnotationOriginVersion] != want.GetAnnotations()[v1alpha1.AnnotationOriginVersion] ||
		found.GetAnnotations()[v1alpha1.AnnotationOriginUID] != want.GetAnnotations()[v1alpha1.AnnotationOriginUID] ||
		!maps.Equal(found.GetLabels(), want.GetLabels()) {
		return false
	}
	for field, value := range want.Object {
		if field != "metadata" && !reflection.Includes(found.Object[field], value) {
			return false
		}
	}
	return true
}

func ingressFrom(object *unstructured.Unstructured) (*networkingv1.Ingress, error) {
	ingress := &networkingv1.Ingress{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, ingress); err != nil {
		return nil, fmt.Errorf("read Ingress %s: %w", object.GetName(), err)
	}
	return ingress, nil
}

// report writes what the consumer is told, and returns how long that has to wait: a status that changes all the time is told less often.
func (r *objectReconciler) report(ctx context.Context, seen *objectFacts, denial *reflection.Denial) (time.Duration, error) {
	told := seen.shadow.DeepCopy()
	told.Status.ObservedGeneration = told.Generation
	told.Status.Addresses, told.Status.Object = nil, ""
	applied := metav1.Condition{
		Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonApplied, ObservedGeneration: told.Generation,
	}
	switch {
	case denial != nil:
		applied.Status, applied.Reason, applied.Message = metav1.ConditionFalse, denial.Reason, denial.Message
	case seen.found != nil:
		told.Status.Addresses = reflection.AddressesOf(seen.found)
		told.Status.Object, applied.Message = statusText(seen.found, told.Spec.StatusBack)
	}
	meta.SetStatusCondition(&told.Status.Conditions, applied)
	if equality.Semantic.DeepEqual(told.Status, seen.shadow.Status) {
		return 0, nil
	}
	isNews := !equality.Semantic.DeepEqual(told.Status.Conditions, seen.shadow.Status.Conditions)
	if !isNews {
		turn := r.reports.turn(seen.peer.Name, r.clock.Now())
		if wait := turn.DelayFrom(r.clock.Now()); wait > 0 {
			turn.CancelAt(r.clock.Now())
			return wait, nil
		}
	}
	if err := r.client.Status().Patch(ctx, told, client.MergeFrom(seen.shadow)); err != nil {
		return 0, local.IgnoreStale(fmt.Errorf("write status: %w", err))
	}
	return 0, nil
}

// statusText returns the status of the object as JSON, where it is asked for, or why it is left out.
func statusText(object *unstructured.Unstructured, asked bool) (text, why string) {
	status, ok := object.Object["status"]
	if !asked || !ok {
		return "", ""
	}
	data, err := json.Marshal(status)
	if err != nil || len(data) > v1alpha1.MaxShadowStatusBytes {
		return "", fmt.Sprintf("its status of more than %d bytes is left out", v1alpha1.MaxShadowStatusBytes)
	}
	return string(data), ""
}
