// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/clusterset"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/peers"
)

func (i *importer) setup(mgr ctrl.Manager) error {
	connections := builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, local.Connects))
	return ctrl.NewControllerManagedBy(mgr).
		Named("cluster-set-imports").
		For(&mcsv1beta1.ServiceExport{}).
		Watches(&mcsv1beta1.ServiceImport{}, &handler.EnqueueRequestForObject{}).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(i.namesOf)).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(i.namesOf)).
		Watches(&v1alpha1.ExportedService{}, handler.EnqueueRequestsFromMapFunc(nameTold)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(i.namesIn), builder.WithPredicates(comesOrGoes)).
		Watches(&v1alpha1.Peer{}, handler.EnqueueRequestsFromMapFunc(i.names), connections).
		Watches(&v1alpha1.Connection{}, handler.EnqueueRequestsFromMapFunc(i.names), connections).
		// Its address may be given to another pod.
		Watches(&corev1.Pod{}, local.Later(debounce, i.names), builder.WithPredicates(guestGoes)).
		WatchesRawSource(peers.LinkChanges(i.Links, i.linkChanged)).
		WatchesRawSource(peers.Changes(i.Links, exported, i.told)).
		WithOptions(options()).
		Complete(i)
}

func (e *exporter) setup(mgr ctrl.Manager) error {
	moved := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).
		Named("cluster-set-exports").
		For(&v1alpha1.Peer{}, moved).
		Watches(&mcsv1beta1.ServiceExport{}, handler.EnqueueRequestsFromMapFunc(e.sharing), moved).
		Watches(&corev1.Service{}, local.Later(debounce, e.sharingExport)).
		Watches(&discoveryv1.EndpointSlice{}, local.Later(debounce, e.sharingExport)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(e.sharing), builder.WithPredicates(comesOrGoes)).
		Watches(&v1alpha1.ExportedService{}, handler.EnqueueRequestsFromMapFunc(peerOfTenant), builder.WithPredicates(
			predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, answered))).
		Watches(&v1alpha1.Connection{}, handler.EnqueueRequestsFromMapFunc(peerOfTenant), moved).
		WatchesRawSource(peers.LinkChanges(e.Links, func(_ context.Context, peer string, queue peers.Queue[reconcile.Request]) {
			queue.Add(requestFor(peer))
		})).
		WatchesRawSource(peers.Changes(e.Links, exported, func(_ context.Context, change peers.Change, queue peers.Queue[reconcile.Request]) {
			queue.AddAfter(requestFor(change.Link.Peer()), debounce)
		})).
		WithOptions(options()).
		Complete(e)
}

func requestFor(peer string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Name: peer}}
}

// peerOfTenant is the peer in whose tenant namespace the object lies.
func peerOfTenant(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{requestFor(strings.TrimPrefix(object.GetNamespace(), v1alpha1.TenantNamespacePrefix))}
}

var (
	// comesOrGoes are the events after which there may be a namespace that was not there, or the other way around.
	comesOrGoes = local.Turns(func(o client.Object) bool { return o.GetDeletionTimestamp().IsZero() })
	// answered are the events after which a message is refused that was not, or the other way around, or for another reason.
	answered = local.Turns(func(o client.Object) string {
		message, ok := o.(*v1alpha1.ExportedService)
		if !ok {
			return ""
		}
		return clusterset.Refused(message)
	})
	// guestGoes are the ends of pods of peers.
	guestGoes = predicate.And(
		predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[v1alpha1.LabelHomeUID] != "" }),
		predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
		},
	)
)

// nameOf returns the name of the multi-cluster Service that a Service or an EndpointSlice belongs to: one that Hanse has made, or else one
// that may be exported.
func nameOf(object client.Object) string {
	labels := object.GetLabels()
	if clusterset.IsOurs(object) {
		return labels[mcsv1beta1.LabelServiceName]
	}
	if _, isService := object.(*corev1.Service); isService {
		return object.GetName()
	}
	return labels[discoveryv1.LabelServiceName]
}

// namesOf is the name of a Service or an EndpointSlice, if there is such a multi-cluster Service. Most are none.
func (c *Config) namesOf(ctx context.Context, object client.Object) []reconcile.Request {
	key := client.ObjectKey{Namespace: object.GetNamespace(), Name: nameOf(object)}
	if key.Name == "" || !clusterset.IsOurs(object) && !c.isExported(ctx, key) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

func (c *Config) isExported(ctx context.Context, key client.ObjectKey) bool {
	export, err := local.Find(ctx, c.Client, key, &mcsv1beta1.ServiceExport{}, client.UnsafeDisableDeepCopy)
	return err != nil || export != nil
}

// nameTold is the name of the Service that an ExportedService tells of.
func nameTold(_ context.Context, object client.Object) []reconcile.Request {
	told, ok := object.(*v1alpha1.ExportedService)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: toldOf(told)}}
}

// names are all multi-cluster Services of which something is known here.
func (i *importer) names(ctx context.Context, _ client.Object) []reconcile.Request {
	return i.namesIn(ctx, nil)
}

// namesIn are those in the namespace.
func (i *importer) namesIn(ctx context.Context, namespace client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for key := range i.known(ctx) {
		if namespace == nil || key.Namespace == namespace.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: key})
		}
	}
	return requests
}

// known are the multi-cluster Services of which something is known here.
func (i *importer) known(ctx context.Context) map[client.ObjectKey]bool {
	exports, imports, told := &mcsv1beta1.ServiceExportList{}, &mcsv1beta1.ServiceImportList{}, &v1alpha1.ExportedServiceList{}
	for _, list := range []client.ObjectList{exports, imports, told} {
		if err := i.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "List multi-cluster Services")
		}
	}
	found := map[client.ObjectKey]bool{}
	for n := range exports.Items {
		found[client.ObjectKeyFromObject(&exports.Items[n])] = true
	}
	for n := range imports.Items {
		found[client.ObjectKeyFromObject(&imports.Items[n])] = true
	}
	for n := range told.Items {
		found[toldOf(&told.Items[n])] = true
	}
	partners, err := i.partners(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List peers")
	}
	for n := range partners {
		for _, object := range partners[n].there(v1alpha1.ExportedByProvider) {
			found[toldOf(object)] = true
		}
	}
	return found
}

func toldOf(e *v1alpha1.ExportedService) client.ObjectKey {
	return client.ObjectKey{Namespace: e.Spec.Namespace, Name: e.Spec.Name}
}

// linkChanged follows what the peer tells over a new link, and has all looked at that it may have told of.
func (i *importer) linkChanged(ctx context.Context, _ string, queue peers.Queue[reconcile.Request]) {
	for _, request := range i.names(ctx, nil) {
		queue.Add(request)
	}
}

// told has the Service looked at of which a peer tells something, or, at the start, all.
func (i *importer) told(ctx context.Context, change peers.Change, queue peers.Queue[reconcile.Request]) {
	if change.Name == "" {
		i.linkChanged(ctx, change.Link.Peer(), queue)
		return
	}
	// It is gone, maybe, and was named by its spec, unless the peer is hostile: then nothing of it was taken.
	if parts := strings.Split(change.Name, "."); len(parts) == 4 {
		queue.AddAfter(reconcile.Request{NamespacedName: client.ObjectKey{Namespace: parts[1], Name: parts[2]}}, debounce)
	}
}

// sharing are all peers that share something.
func (e *exporter) sharing(ctx context.Context, _ client.Object) []reconcile.Request {
	list := &v1alpha1.PeerList{}
	if err := e.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List peers")
	}
	var requests []reconcile.Request
	for n := range list.Items {
		if list.Items[n].Spec.ClusterSet != nil {
			requests = append(requests, requestFor(list.Items[n].Name))
		}
	}
	return requests
}

// sharingExport are those that are told of the Service that the object belongs to.
func (e *exporter) sharingExport(ctx context.Context, object client.Object) []reconcile.Request {
	name := nameOf(object)
	if name == "" || clusterset.IsOurs(object) || !e.isExported(ctx, client.ObjectKey{Namespace: object.GetNamespace(), Name: name}) {
		return nil
	}
	return e.sharing(ctx, object)
}
