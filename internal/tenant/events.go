// SPDX-License-Identifier: Apache-2.0

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
	"k8s.io/utils/clock"
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

// eventFeed hears what is said in events about the pods, claims and Services of peers. It watches those twins in which something is
// going on, and keeps of their events what is not on record yet: a few for each object. A peer is told of them in the status of the
// message that the object was made for, such as a ShadowPod, and never sees an Event.
type eventFeed struct {
	cache   client.Reader
	watcher watcher
	clock   clock.PassiveClock
	budgets *eventBudgets
	topics  map[string]topic // by the kind of the object that an event is about

	unwatched chan string // twins that are to be watched

	mu      sync.Mutex
	watched map[string]struct{}
	heard   map[subject]*heard
}

// A topic is a kind of objects of whose events peers are told.
type topic struct {
	// message returns the name of the message that the object was made for, or false if the object is none of a peer.
	message func(ctx context.Context, object types.NamespacedName, uid types.UID) (types.NamespacedName, bool)
	// queue takes the messages that are to be looked at, if somebody looks already.
	queue func() enqueuer
}

// A subject is what things are heard of: by the kind of the object, and the message that it was made for.
type subject struct {
	kind    string
	message types.NamespacedName
}

// A watcher follows objects. It is a client.WithWatch.
type watcher interface {
	Watch(ctx context.Context, list client.ObjectList, options ...client.ListOption) (watch.Interface, error)
}

// heard is what was heard of one object.
type heard struct {
	object types.UID
	events []v1alpha1.RemoteEvent // not yet fit for others
	pace   eventPace              // of objects other than pods
	// scaling is when the autoscaler said something of the pod last, and scalingUp that it makes room.
	scaling   time.Time
	scalingUp bool
}

func newEventFeed(cache client.Reader, w watcher, clk clock.PassiveClock) *eventFeed {
	return &eventFeed{
		cache: cache, watcher: w, clock: clk, budgets: newEventBudgets(eventWritesPerSecond, eventWritesAtOnce),
		topics: map[string]topic{}, unwatched: make(chan string, 1024), watched: map[string]struct{}{}, heard: map[subject]*heard{},
	}
}

// Start watches the twins that follow names until the context ends. It implements manager.Runnable.
func (e *eventFeed) Start(ctx context.Context) error {
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
func (e *eventFeed) follow(twin string) {
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
func (e *eventFeed) unfollow(twin string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.watched, twin)
}

// watchTwin watches the twin for as long as something is going on in it.
func (e *eventFeed) watchTwin(ctx context.Context, twin string) {
	defer e.unfollow(twin)
	log := ctrl.LoggerFrom(ctx).WithValues("Namespace", twin)
	version, pause := "", rewatchAtLeast
	for ctx.Err() == nil && e.inUse(ctx, twin) {
		var err error
		if version, err = e.watchOnce(ctx, twin, version); err == nil {
			pause = rewatchAtLeast
		} else if ctx.Err() == nil {
			log.Info("Not hearing the events of a twin", "cause", err.Error(), "again", pause.String())
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

// inUse says whether there are ShadowPods in the twin, or claims that wait for their volumes.
func (e *eventFeed) inUse(ctx context.Context, twin string) bool {
	shadows, claims := &v1alpha1.ShadowPodList{}, &v1alpha1.ShadowClaimList{}
	err := e.cache.List(ctx, shadows, client.InNamespace(twin), client.Limit(1), client.UnsafeDisableDeepCopy)
	if err != nil || len(shadows.Items) > 0 {
		return true
	}
	err = e.cache.List(ctx, claims, client.InNamespace(twin), client.UnsafeDisableDeepCopy)
	return err != nil || slices.ContainsFunc(claims.Items, func(c v1alpha1.ShadowClaim) bool { return c.Waits() })
}

// watchOnce watches the events behind the version, and returns up to where it came. Without a version the API server sends
// those first that there are. It lists none, so that nobody holds them all.
func (e *eventFeed) watchOnce(ctx context.Context, twin, version string) (string, error) {
	changes, err := e.watcher.Watch(ctx, &corev1.EventList{}, client.InNamespace(twin),
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

// hear keeps what the event says, if it is about an object of a peer that is there, and has its message looked at.
func (e *eventFeed) hear(ctx context.Context, event *corev1.Event) {
	object := types.NamespacedName{Namespace: event.Namespace, Name: event.InvolvedObject.Name}
	about, known := e.topics[event.InvolvedObject.Kind]
	scaling, up := scales(event)
	told, tells := offload.ReadEvent(event)
	if !known || !scaling && !tells {
		return
	}
	message, ours := about.message(ctx, object, event.InvolvedObject.UID)
	if !ours {
		return
	}
	e.mu.Lock()
	so := e.heardOf(subject{event.InvolvedObject.Kind, message}, event.InvolvedObject.UID)
	if tells {
		so.events = offload.AddEvent(so.events, told)
	}
	if at := offload.EventTime(event); scaling && at.After(so.scaling) {
		so.scaling, so.scalingUp = at, up
	}
	e.mu.Unlock()
	if queue := about.queue(); queue != nil {
		queue.AddAfter(ctrl.Request{NamespacedName: message}, delayOf(scaling, told.Type))
	}
}

// heardOf returns what was heard of the object. What was heard of an earlier one of its name is forgotten.
func (e *eventFeed) heardOf(of subject, object types.UID) *heard {
	known := e.heard[of]
	if known == nil || known.object != object {
		known = &heard{object: object}
		e.heard[of] = known
	}
	return known
}

// delayOf is when what was heard is due.
func delayOf(scaling bool, kind string) time.Duration {
	switch {
	case scaling:
		return 0
	case kind == corev1.EventTypeWarning:
		return warningDelay
	default:
		return normalDelay
	}
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
