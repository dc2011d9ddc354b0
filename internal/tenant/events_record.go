// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/local"
	"github.com/hanse-dev/hanse/internal/offload"
)

// The kinds of objects of whose events peers are told.
const (
	podKind     = "Pod"
	claimKind   = "PersistentVolumeClaim"
	serviceKind = "Service"
)

// podMessage is the ShadowPod of a pod. It has its name.
func (e *eventFeed) podMessage(ctx context.Context, object types.NamespacedName, uid types.UID) (types.NamespacedName, bool) {
	pod, err := local.Find(ctx, e.cache, object, &corev1.Pod{}, client.UnsafeDisableDeepCopy)
	return object, err == nil && pod != nil && pod.UID == uid && v1alpha1.OwnerShadowPod(pod) != nil
}

// scalingUp returns when the autoscaler said that it makes room for the pod. The time is zero if it has not, or does not any
// more.
func (e *eventFeed) scalingUp(pod *corev1.Pod) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.heard[subject{podKind, client.ObjectKeyFromObject(pod)}]
	if known == nil || known.object != pod.UID || !known.scalingUp {
		return time.Time{}
	}
	return known.scaling
}

// of returns what was heard of the pod and is not on record, as its consumer may hear it. Of a pod whose node is not known
// yet nothing is told, since its name could not be taken out.
func (e *eventFeed) of(pod *corev1.Pod, recorded []v1alpha1.RemoteEvent) []v1alpha1.RemoteEvent {
	if pod.Spec.NodeName == "" {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.heard[subject{podKind, client.ObjectKeyFromObject(pod)}]
	if known == nil || known.object != pod.UID {
		return nil
	}
	return known.news(recorded, func(event *v1alpha1.RemoteEvent) v1alpha1.RemoteEvent { return offload.ExportEvent(pod, event) })
}

// news returns what was heard as others may hear it, and forgets it if all is on record.
func (h *heard) news(recorded []v1alpha1.RemoteEvent, export func(*v1alpha1.RemoteEvent) v1alpha1.RemoteEvent) []v1alpha1.RemoteEvent {
	var out []v1alpha1.RemoteEvent
	news := false
	for i := range h.events {
		event := export(&h.events[i])
		news = news || !slices.Equal(offload.AddEvent(recorded, event), recorded)
		out = append(out, event)
	}
	if !news {
		h.events = nil
	}
	return out
}

// due returns the events to have on record in the message, and when to look again for those that have to wait. It is for objects
// other than pods, whose events come with nothing else.
func (e *eventFeed) due(ctx context.Context, of subject, peer string, recorded []v1alpha1.RemoteEvent) ([]v1alpha1.RemoteEvent, time.Duration, error) {
	nodes, err := e.nodes(ctx)
	if err != nil {
		return recorded, 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.heard[of]
	if known == nil {
		return recorded, 0, nil
	}
	next, now := recorded, e.clock.Now()
	for _, event := range known.news(recorded, func(event *v1alpha1.RemoteEvent) v1alpha1.RemoteEvent {
		return offload.ExportEventOf(of.kind, event, nodes)
	}) {
		next = offload.AddEvent(next, event)
	}
	wait, written := known.pace.untilEvents(recorded, next, now)
	if written && wait == 0 {
		wait = known.pace.untilTurn(e.budgets, peer, now)
	}
	if !written || wait > 0 {
		return recorded, wait, nil
	}
	known.pace.wrote(now)
	return next, 0, nil
}

// nodes are the names of all nodes, with and without their domains.
func (e *eventFeed) nodes(ctx context.Context) (map[string]bool, error) {
	list, names := &corev1.NodeList{}, map[string]bool{}
	if err := e.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	for i := range list.Items {
		host, _, _ := strings.Cut(list.Items[i].Name, ".")
		names[host], names[list.Items[i].Name] = true, true
	}
	return names, nil
}

// forget drops what was heard of an object whose message is gone.
func (e *eventFeed) forget(of subject) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.heard, of)
}

// A lateQueue is the queue of a controller, from when that has started. It is a source of the controller.
type lateQueue struct {
	at atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]]
}

// Start implements source.Source.
func (l *lateQueue) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	l.at.Store(&queue)
	return nil
}

// get returns the queue, or nil: then the controller has yet to look at everything.
func (l *lateQueue) get() enqueuer {
	if queue := l.at.Load(); queue != nil {
		return *queue
	}
	return nil
}

// eventPace is how often a message is written for the sake of events alone.
type eventPace struct {
	events time.Time         // when events were written last
	turn   *rate.Reservation // to write them, which have waited long enough; nil if none do
}

// wrote says that the events are written.
func (p *eventPace) wrote(now time.Time) {
	p.events = now
	p.endTurn(now)
}

// hear puts the events of the pod on record.
func (d *decision) hear(s *observation) {
	if !s.ours() || d.status.PodUID != "" && d.status.PodUID != s.pod.UID {
		return
	}
	for _, event := range append(offload.Happened(s.pod, d.status.Recreations), s.heard...) {
		d.status.Events = offload.AddEvent(d.status.Events, event)
	}
}

// untilEvents returns how long the events that are new have to wait to be written, and whether they are written at all for
// their own sake.
func (p *eventPace) untilEvents(recorded, next []v1alpha1.RemoteEvent, now time.Time) (time.Duration, bool) {
	wait, written := time.Duration(0), false
	for i := range next {
		one, ok := p.untilEvent(recorded, &next[i], now)
		if ok && (!written || one < wait) {
			wait, written = one, true
		}
	}
	return wait, written
}

// untilEvent returns the same for one event. Of what is on record already, the count of warnings is written now and then;
// what is normal comes along with something else.
func (p *eventPace) untilEvent(recorded []v1alpha1.RemoteEvent, event *v1alpha1.RemoteEvent, now time.Time) (time.Duration, bool) {
	if slices.Contains(recorded, *event) {
		return 0, false
	}
	warning := event.Type == corev1.EventTypeWarning
	if slices.ContainsFunc(recorded, func(old v1alpha1.RemoteEvent) bool { return offload.Alike(&old, event) }) {
		return left(repeatedPeriod, now.Sub(p.events)), warning
	}
	delay := normalDelay
	if warning {
		delay = warningDelay
	}
	return max(left(delay, now.Sub(event.Last.Time)), left(warningPeriod, now.Sub(p.events))), true
}
