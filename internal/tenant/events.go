package tenant

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

const (
	// normalDelay is for how long a normal event waits for a status that is written anyway.
	normalDelay = 30 * time.Second
	// warningDelay is for how long a warning waits for others, and for the status of a pod that begins to run.
	warningDelay = startingDelay + time.Second
	// warningPeriod is how often the status of a pod is written for the sake of warnings alone, and repeatedPeriod how often
	// for those of a kind that is on record.
	warningPeriod  = 10 * time.Second
	repeatedPeriod = 5 * time.Minute

	// watchSeconds is for how long a twin is watched. Then it is looked whether there are pods in it still.
	watchSeconds = 10 * 60
	// rewatchAtLeast and rewatchAtMost are how long the next watch waits if the last one went wrong.
	rewatchAtLeast = time.Second
	rewatchAtMost  = time.Minute
)

// What autoscalers say about a pod in events.
const (
	eventTriggered    = "TriggeredScaleUp"  // cluster-autoscaler: room is being made
	eventNotTriggered = "NotTriggerScaleUp" // cluster-autoscaler: it cannot make any
	eventNominated    = "Nominated"         // Karpenter: room is being made
	karpenter         = "karpenter"
)

// podEvents hears what kubelets and autoscalers say about the pods of peers. It watches the events of those twins that have
// pods, and keeps of them what is not on record yet: a few for each pod.
type podEvents struct {
	cache   client.Reader
	watcher watcher
	queue   func() enqueuer

	unwatched chan string // twins that are to be watched

	mu      sync.Mutex
	watched map[string]struct{}
	heard   map[types.NamespacedName]*heard // pod → what was heard of it
}

// A watcher follows objects. It is a client.WithWatch.
type watcher interface {
	Watch(ctx context.Context, list client.ObjectList, options ...client.ListOption) (watch.Interface, error)
}

// heard is what was heard of one pod.
type heard struct {
	pod    types.UID
	events []v1alpha1.PodEvent // not yet fit for others
	// scaling is when the autoscaler said something of the pod last, and scalingUp that it makes room.
	scaling   time.Time
	scalingUp bool
}

func newPodEvents(cache client.Reader, w watcher, queue func() enqueuer) *podEvents {
	return &podEvents{
		cache: cache, watcher: w, queue: queue, unwatched: make(chan string, 1024),
		watched: map[string]struct{}{}, heard: map[types.NamespacedName]*heard{},
	}
}

// Start watches the twins that follow names until the context ends. It implements manager.Runnable.
func (e *podEvents) Start(ctx context.Context) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case twin := <-e.unwatched:
			watches.Go(func() { e.watchTwin(ctx, twin) })
		}
	}
}

// follow has the events of the twin watched.
func (e *podEvents) follow(twin string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, known := e.watched[twin]; known {
		return
	}
	select {
	case e.unwatched <- twin:
		e.watched[twin] = struct{}{}
	default: // the next look at a pod of the twin asks again
	}
}

// unfollow forgets that the twin is watched.
func (e *podEvents) unfollow(twin string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.watched, twin)
}

// watchTwin watches the twin for as long as there are pods in it.
func (e *podEvents) watchTwin(ctx context.Context, twin string) {
	defer e.unfollow(twin)
	log := ctrl.LoggerFrom(ctx).WithValues("Namespace", twin)
	version, pause := "", rewatchAtLeast
	for ctx.Err() == nil && e.inUse(ctx, twin) {
		var err error
		if version, err = e.watchOnce(ctx, twin, version); err == nil {
			pause = rewatchAtLeast
		} else if ctx.Err() == nil {
			log.Info("Not hearing the events of pods", "cause", err.Error(), "again", pause.String())
		}
		rest(ctx, wait.Jitter(pause, 1))
		if err != nil {
			pause = min(2*pause, rewatchAtMost)
		}
	}
}

// rest waits, at most until the context ends.
func rest(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// inUse says whether there are ShadowPods in the twin.
func (e *podEvents) inUse(ctx context.Context, twin string) bool {
	shadows := &v1alpha1.ShadowPodList{}
	err := e.cache.List(ctx, shadows, client.InNamespace(twin), client.Limit(1), client.UnsafeDisableDeepCopy)
	return err != nil || len(shadows.Items) > 0
}

// watchOnce watches the events behind the version, and returns up to where it came. Without a version the API server sends
// those first that there are. It lists none, so that nobody holds them all.
func (e *podEvents) watchOnce(ctx context.Context, twin, version string) (string, error) {
	changes, err := e.watcher.Watch(ctx, &corev1.EventList{}, client.InNamespace(twin),
		client.MatchingFields{"involvedObject.kind": "Pod"},
		&client.ListOptions{Raw: &metav1.ListOptions{
			ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To(int64(wait.Jitter(watchSeconds, 0.5))),
		}})
	if err != nil {
		return "", fmt.Errorf("watch events: %w", err)
	}
	defer changes.Stop()
	for {
		select {
		case <-ctx.Done():
			return version, nil
		case change, open := <-changes.ResultChan():
			if !open {
				return version, nil
			}
			if change.Type == watch.Error {
				return "", fmt.Errorf("watch events: %w", apierrors.FromObject(change.Object))
			}
			version = versionOf(change.Object, version)
			if event, ok := change.Object.(*corev1.Event); ok && (change.Type == watch.Added || change.Type == watch.Modified) {
				e.hear(ctx, event)
			}
		}
	}
}

// versionOf returns the resource version of the object, and the other one if it has none.
func versionOf(object runtime.Object, otherwise string) string {
	if accessor, err := meta.Accessor(object); err == nil && accessor.GetResourceVersion() != "" {
		return accessor.GetResourceVersion()
	}
	return otherwise
}

// hear keeps what the event says, if it is about a pod of ours that is there, and has the pod looked at.
func (e *podEvents) hear(ctx context.Context, event *corev1.Event) {
	about := types.NamespacedName{Namespace: event.Namespace, Name: event.InvolvedObject.Name}
	scaling, up := scales(event)
	told, tells := offload.ReadEvent(event)
	if !scaling && !tells {
		return
	}
	pod := &corev1.Pod{}
	err := e.cache.Get(ctx, about, pod, client.UnsafeDisableDeepCopy)
	if err != nil || pod.UID != event.InvolvedObject.UID || v1alpha1.OwnerShadowPod(pod) == nil {
		return
	}
	e.mu.Lock()
	known := e.heard[about]
	if known == nil || known.pod != pod.UID {
		known = &heard{pod: pod.UID}
		e.heard[about] = known
	}
	if tells {
		known.events = offload.AddEvent(known.events, told)
	}
	if at := offload.EventTime(event); scaling && at.After(known.scaling) {
		known.scaling, known.scalingUp = at, up
	}
	e.mu.Unlock()
	e.wake(about, scaling, told.Type)
}

// wake has the pod looked at when what was heard of it is due.
func (e *podEvents) wake(about types.NamespacedName, scaling bool, kind string) {
	delay := normalDelay
	switch {
	case scaling:
		delay = 0
	case kind == corev1.EventTypeWarning:
		delay = warningDelay
	}
	e.queue().AddAfter(ctrl.Request{NamespacedName: about}, delay)
}

// scales says whether the event is an autoscaler's, and whether that makes room for the pod.
func scales(event *corev1.Event) (says, up bool) {
	switch event.Reason {
	case eventTriggered:
		return true, true
	case eventNotTriggered:
		return true, false
	case eventNominated:
		isKarpenter := event.ReportingController == karpenter || event.Source.Component == karpenter
		return isKarpenter, isKarpenter
	default:
		return false, false
	}
}

// scalingUp returns when the autoscaler said that it makes room for the pod. The time is zero if it has not, or does not any
// more.
func (e *podEvents) scalingUp(pod *corev1.Pod) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.heard[client.ObjectKeyFromObject(pod)]
	if known == nil || known.pod != pod.UID || !known.scalingUp {
		return time.Time{}
	}
	return known.scaling
}

// of returns what was heard of the pod and is not on record, as its consumer may hear it. Of a pod whose node is not known
// yet nothing is told, since its name could not be taken out.
func (e *podEvents) of(pod *corev1.Pod, recorded []v1alpha1.PodEvent) []v1alpha1.PodEvent {
	if pod.Spec.NodeName == "" {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.heard[client.ObjectKeyFromObject(pod)]
	if known == nil || known.pod != pod.UID {
		return nil
	}
	var out []v1alpha1.PodEvent
	news := false
	for i := range known.events {
		event := offload.ExportEvent(pod, &known.events[i])
		news = news || !slices.Equal(offload.AddEvent(recorded, event), recorded)
		out = append(out, event)
	}
	if !news {
		known.events = nil
	}
	return out
}

// forget drops what was heard of a pod whose ShadowPod is gone.
func (e *podEvents) forget(about types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.heard, about)
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
func (n *note) untilEvents(recorded, next []v1alpha1.PodEvent, now time.Time) (time.Duration, bool) {
	wait, written := time.Duration(0), false
	for i := range next {
		one, ok := n.untilEvent(recorded, &next[i], now)
		if ok && (!written || one < wait) {
			wait, written = one, true
		}
	}
	return wait, written
}

// untilEvent returns the same for one event. Of what is on record already, the count of warnings is written now and then;
// what is normal comes along with something else.
func (n *note) untilEvent(recorded []v1alpha1.PodEvent, event *v1alpha1.PodEvent, now time.Time) (time.Duration, bool) {
	if slices.Contains(recorded, *event) {
		return 0, false
	}
	warning := event.Type == corev1.EventTypeWarning
	if slices.ContainsFunc(recorded, func(old v1alpha1.PodEvent) bool { return offload.Alike(&old, event) }) {
		return left(repeatedPeriod, now.Sub(n.events)), warning
	}
	delay := normalDelay
	if warning {
		delay = warningDelay
	}
	return max(left(delay, now.Sub(event.Last.Time)), left(warningPeriod, now.Sub(n.events))), true
}
