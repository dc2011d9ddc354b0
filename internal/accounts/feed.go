// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// feed is an event handler that meters what changes. What is to be counted by that is so when the period is over.
type feed struct {
	*accountant

	changed, gone func(context.Context, client.Object, queue)
}

// Create implements handler.EventHandler.
func (f feed) Create(ctx context.Context, e event.CreateEvent, to queue) {
	if pod, isPod := e.Object.(*corev1.Pod); isPod && e.IsInInitialList {
		f.podFound(ctx, pod, to)
	}
	f.changed(ctx, e.Object, to)
}

// Update implements handler.EventHandler.
func (f feed) Update(ctx context.Context, e event.UpdateEvent, to queue) {
	f.changed(ctx, e.ObjectNew, to)
}

// Delete implements handler.EventHandler.
func (f feed) Delete(ctx context.Context, e event.DeleteEvent, to queue) { f.gone(ctx, e.Object, to) }

// Generic implements handler.EventHandler.
func (feed) Generic(context.Context, event.GenericEvent, queue) {}

func ignored(context.Context, client.Object, queue) {}

// accountChanged looks at an Account that somebody may have written into, after a while.
func (a *accountant) accountChanged(_ context.Context, o client.Object, to queue) {
	account, ok := o.(*v1alpha1.Account)
	if ok && account.Direction() != "" {
		to.AddAfter(requestFor(account.Direction(), peerOfTenant(o)), a.answerDelay())
	}
}

func peerOfTenant(o client.Object) string {
	return strings.TrimPrefix(o.GetNamespace(), v1alpha1.TenantNamespacePrefix)
}

func (a *accountant) peerGone(_ context.Context, o client.Object, _ queue) {
	for _, meter := range a.meters {
		meter.Forget(o.GetName())
	}
}

// podChanged meters a pod of a peer here, or of ours at a peer. One that has come through us is both.
func (a *accountant) podChanged(ctx context.Context, o client.Object, to queue) {
	pod, ok := o.(*corev1.Pod)
	switch {
	case !ok:
	case !holds(pod):
		a.podGone(ctx, pod, to)
	default:
		a.meter(ctx, pod, to)
	}
}

// podFound meters what a pod held that has ended while we did not run.
func (a *accountant) podFound(ctx context.Context, pod *corev1.Pod, to queue) {
	if pod.Spec.NodeName != "" && pod.Status.StartTime != nil && offload.Terminal(pod.Status.Phase) {
		a.meter(ctx, pod, to)
	}
}

func (a *accountant) meter(ctx context.Context, pod *corev1.Pod, to queue) {
	if v1alpha1.OwnerShadowPod(pod) != nil {
		a.hold(ctx, v1alpha1.AccountLent, a.guest(ctx, pod), pod, to)
	}
	if peer, away := strings.CutPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix); away {
		a.hold(ctx, v1alpha1.AccountBorrowed, exchange.RequestKey{Peer: peer, Request: a.requestOf(ctx, pod)}, pod, to)
	}
}

// holds reports whether the pod holds what it asks for: its kubelet has taken it, and it has not ended. Both sides see this time.
func holds(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.Status.StartTime != nil && !offload.Terminal(pod.Status.Phase)
}

func (a *accountant) hold(ctx context.Context, direction v1alpha1.AccountDirection, key exchange.RequestKey, pod *corev1.Pod, to queue) {
	if key.Peer == "" {
		return
	}
	a.open(ctx, direction, key.Peer)
	changed := a.meters[direction].Hold(&exchange.MeteredPod{
		NamespacedName: client.ObjectKeyFromObject(pod), Peer: key.Peer, Request: key.Request,
		Holds: exchange.Count(pod), Started: pod.Status.StartTime.Time,
	}, a.Clock.Now())
	if changed {
		to.AddAfter(requestFor(direction, key.Peer), a.untilNext(key.Peer))
	}
}

func (a *accountant) podGone(_ context.Context, o client.Object, to queue) {
	at := a.Clock.Now()
	if pod, ok := o.(*corev1.Pod); ok && offload.Terminal(pod.Status.Phase) {
		at = exchange.EndedAt(pod, at)
	}
	for direction, meter := range a.meters {
		if peer := meter.Release(client.ObjectKeyFromObject(o), at); peer != "" {
			to.AddAfter(requestFor(direction, peer), a.untilNext(peer))
		}
	}
}

// guest is whose pod it is, and which Request it names. Whose it is only its namespace tells for sure.
func (a *accountant) guest(ctx context.Context, pod *corev1.Pod) exchange.RequestKey {
	ns, err := local.Find(ctx, a.Client, client.ObjectKey{Name: pod.Namespace}, &corev1.Namespace{}, client.UnsafeDisableDeepCopy)
	if err != nil || ns == nil {
		return exchange.RequestKey{}
	}
	return exchange.RequestKey{Peer: v1alpha1.TwinPeer(ns), Request: pod.Labels[v1alpha1.LabelRequest]}
}

// requestOf is the name of the Request whose room the pod uses, "" if it uses none: that of the oldest Application that has such a
// component and was there before the pod.
func (a *accountant) requestOf(ctx context.Context, pod *corev1.Pod) string {
	all := &v1alpha1.ApplicationList{}
	if err := a.Client.List(ctx, all, client.InNamespace(pod.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List Applications", "Namespace", pod.Namespace)
	}
	var found *v1alpha1.Application
	for i := range all.Items {
		app := &all.Items[i]
		isOf := slices.ContainsFunc(app.Spec.Components, func(c v1alpha1.ApplicationComponent) bool {
			return offload.HasLabels(pod, c.PodLabels)
		})
		isOlder := found == nil || app.CreationTimestamp.Before(&found.CreationTimestamp)
		if isOf && isOlder && !pod.CreationTimestamp.Before(&app.CreationTimestamp) {
			found = app
		}
	}
	if found == nil {
		return ""
	}
	return offload.RequestName(found)
}

// requestChanged meters what is reserved here for a Request of a peer.
func (a *accountant) requestChanged(ctx context.Context, o client.Object, to queue) {
	// What a member reserves until it is a peer is not for the account of the broker.
	if request, ok := o.(*v1alpha1.Request); ok && request.Labels[v1alpha1.LabelFrom] == "" {
		a.reserve(ctx, v1alpha1.AccountLent, peerOfTenant(o), request)
		to.AddAfter(requestFor(v1alpha1.AccountLent, peerOfTenant(o)), a.untilNext(peerOfTenant(o)))
	}
}

func (a *accountant) requestGone(_ context.Context, o client.Object, _ queue) {
	key, now := exchange.RequestKey{Peer: peerOfTenant(o), Request: o.GetName()}, a.Clock.Now()
	a.meters[v1alpha1.AccountLent].Reserve(key, nil, now, now)
}

// requestsAt meters what is reserved for us at the peer.
func (a *accountant) requestsAt(ctx context.Context, change peers.Change, to peers.Queue[reconcile.Request]) {
	peer, now, there := change.Link.Peer(), a.Clock.Now(), map[string]bool{}
	if !change.Mirror.HasSynced() {
		return
	}
	for _, object := range change.Mirror.List() {
		if request, ok := object.(*v1alpha1.Request); ok {
			there[request.Name] = true
			a.reserve(ctx, v1alpha1.AccountBorrowed, peer, request)
		}
	}
	meter := a.meters[v1alpha1.AccountBorrowed]
	for _, name := range meter.Requests(peer) {
		if !there[name] {
			meter.Reserve(exchange.RequestKey{Peer: peer, Request: name}, nil, now, now)
		}
	}
	to.AddAfter(requestFor(v1alpha1.AccountBorrowed, peer), a.untilNext(peer))
}

func (a *accountant) reserve(ctx context.Context, direction v1alpha1.AccountDirection, peer string, request *v1alpha1.Request) {
	a.open(ctx, direction, peer)
	since := request.CreationTimestamp.Time
	if said := meta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionAcknowledged); said != nil {
		since = said.LastTransitionTime.Time
	}
	key := exchange.RequestKey{Peer: peer, Request: request.Name}
	a.meters[direction].Reserve(key, exchange.NewMeteredReservation(request), since, a.Clock.Now())
}

// open has the meter begin where the last Account of the peer ends, or else with the day.
func (a *accountant) open(ctx context.Context, direction v1alpha1.AccountDirection, peer string) {
	a.meters[direction].Open(peer, func() time.Time {
		since := a.Clock.Now().UTC().Truncate(day)
		own, err := a.own(ctx, direction, peer)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Begin to count with this day", "Peer", peer)
		}
		var last time.Time
		for _, account := range own {
			if until := account.Own().CountedUntil; until != nil && until.After(last) {
				last = until.Time
			}
		}
		if !last.IsZero() {
			since = last
		}
		return since
	})
}
