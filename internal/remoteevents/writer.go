// SPDX-License-Identifier: Apache-2.0

package remoteevents

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/reference"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// normalsAtOnce and warningsAtOnce are how many events of an object are written at once, and normalPeriod and warningPeriod
	// how often over time.
	normalsAtOnce, warningsAtOnce = 2, 5
	normalPeriod, warningPeriod   = time.Minute, 30 * time.Second
	// recentEvents is how long ago an event must have happened for a new process to take it for written.
	recentEvents = 5 * time.Minute

	mostQueued = 4096
	writers    = 2

	// mostObjects is of how many objects is remembered what was told of them, and remembered for how long.
	mostObjects = 1 << 18
	remembered  = 24 * time.Hour
)

// eventTries are for an API server that is away for half a minute.
var eventTries = wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Steps: 8}

// reporters say whose name the event at home has: for its users a virtual node is a node like any other. What other controllers of a
// peer say has the name of the virtual node, which is all of the source that kubectl shows.
var reporters = map[string]string{v1alpha1.SourceKubelet: "kubelet", v1alpha1.SourceHanse: "hanse-kubelet"}

// A Writer writes what peers tell of events of remote objects as events of the objects at home. The name of an event follows from
// what it says, so that no process writes it twice.
type Writer struct {
	client  client.Client
	clock   clock.PassiveClock
	mayTell func(peer string) bool
	queue   chan telling
	tries   wait.Backoff

	mu      sync.Mutex
	objects *cache.LRUExpireCache // source → *told
}

// A Report is what a peer tells of an object.
type Report struct {
	Peer string
	// Home is the object at home.
	Home client.Object
	// Action is what the peer does for the object, in one word.
	Action string
	// Events are what happened, checked, the most telling first.
	Events []v1alpha1.RemoteEvent
}

// source is who tells of what.
type source struct {
	peer string
	home types.UID
}

// told is what this process remembers of an object, so that the API server is not asked again and again.
type told struct {
	counts            map[string]int32 // name of an event → count that was written
	normals, warnings *rate.Limiter
}

// telling is an event to be written. A repeated one exists already, most likely.
type telling struct {
	event    *eventsv1.Event
	repeated bool
}

// New returns a writer that asks for each event whether the peer may tell one more.
func New(c client.Client, clk clock.PassiveClock, mayTell func(peer string) bool) *Writer {
	return &Writer{
		client: c, clock: clk, mayTell: mayTell, queue: make(chan telling, mostQueued), tries: eventTries,
		objects: cache.NewLRUExpireCacheWithClock(mostObjects, clk),
	}
}

// Tell has those events written that are news, as far as the bounds of the object and of its peer let them. What they do not let
// through is dropped: the status of the object tells how it is.
func (w *Writer) Tell(r Report) {
	about, err := reference.GetReference(w.client.Scheme(), r.Home)
	if err != nil {
		return // a kind that is not known has no events
	}
	about.ResourceVersion = ""
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	known, first := w.of(source{r.Peer, r.Home.GetUID()})
	named := make(map[string]int32, len(r.Events))
	for _, e := range r.Events {
		event := r.event(about, &e)
		before, repeated := known.counts[event.Name]
		named[event.Name] = max(e.Count, before)
		if repeated && e.Count <= before || first && past(r.Home, &e, now) {
			continue
		}
		if limit := w.limit(known, &e, r.Peer, now); limit != "" {
			dropped.WithLabelValues(limit).Inc()
			continue
		}
		select {
		case w.queue <- telling{event: event, repeated: repeated}:
		default:
			dropped.WithLabelValues("queue").Inc()
		}
	}
	known.counts = named
}

// of returns what is remembered of the object, and whether that is nothing yet.
func (w *Writer) of(from source) (*told, bool) {
	found, ok := w.objects.Get(from)
	known, _ := found.(*told)
	if !ok {
		known = &told{}
	}
	w.objects.Add(from, known, remembered)
	return known, !ok
}

// past says whether an earlier process has written the event, most likely. That the API server refuses those that it has
// makes up for events that were written a moment ago.
func past(home client.Object, e *v1alpha1.RemoteEvent, now time.Time) bool {
	return now.Sub(e.Last.Time) >= recentEvents && now.Sub(home.GetCreationTimestamp().Time) >= recentEvents
}

// limit returns which limit the event exceeds, or nothing.
func (w *Writer) limit(known *told, e *v1alpha1.RemoteEvent, peer string, now time.Time) string {
	limiter, period, atOnce := &known.normals, normalPeriod, normalsAtOnce
	if e.Type == corev1.EventTypeWarning {
		limiter, period, atOnce = &known.warnings, warningPeriod, warningsAtOnce
	}
	if *limiter == nil {
		*limiter = rate.NewLimiter(rate.Every(period), atOnce)
	}
	if !(*limiter).AllowN(now, 1) {
		return "object"
	}
	if !w.mayTell(peer) {
		return "peer"
	}
	return ""
}

// Start writes events until the context ends. It implements manager.Runnable.
func (w *Writer) Start(ctx context.Context) error {
	var work sync.WaitGroup
	for range writers {
		work.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case next := <-w.queue:
					w.write(ctx, next)
				}
			}
		})
	}
	work.Wait()
	return nil
}

// write writes one event, and tries again for a while as long as the API server does not say that it never will: nobody tells
// the event again.
func (w *Writer) write(ctx context.Context, next telling) {
	var err error
	_ = wait.ExponentialBackoffWithContext(ctx, w.tries, func(ctx context.Context) (bool, error) {
		err = w.put(ctx, next)
		return err == nil || isFinal(err), nil
	})
	if err != nil {
		dropped.WithLabelValues("error").Inc()
		ctrl.LoggerFrom(ctx).V(1).Info("Cannot write an event", next.event.Regarding.Kind, next.event.Regarding.Name, "cause", err.Error())
		return
	}
	written.Inc()
}

// isFinal says whether the API server has answered, and will not answer otherwise soon. One that has just started knows
// nobody's rights.
func isFinal(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	code := answer.Status().Code
	return code < http.StatusInternalServerError && code != http.StatusTooManyRequests &&
		(code != http.StatusForbidden || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause))
}

func (w *Writer) put(ctx context.Context, next telling) error {
	if next.repeated {
		err := w.repeat(ctx, next.event)
		if apierrors.IsNotFound(err) { // events live for an hour
			err = w.client.Create(ctx, next.event.DeepCopy())
		}
		return err
	}
	err := w.client.Create(ctx, next.event.DeepCopy())
	if apierrors.IsAlreadyExists(err) {
		err = w.repeat(ctx, next.event)
	}
	return err
}

// repeat says how often the event happened, which is all that may change of it.
func (w *Writer) repeat(ctx context.Context, event *eventsv1.Event) error {
	if event.Series == nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"series": event.Series})
	if err != nil {
		return fmt.Errorf("encode series: %w", err)
	}
	return w.client.Patch(ctx, &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: event.Namespace, Name: event.Name}}, client.RawPatch(types.MergePatchType, patch))
}

// event returns the event of the home object.
func (r *Report) event(about *corev1.ObjectReference, e *v1alpha1.RemoteEvent) *eventsv1.Event {
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: about.Namespace, Name: r.name(e)},
		EventTime:  metav1.NewMicroTime(e.First.Time),
		// Where it happened is the virtual node.
		ReportingController: cmp.Or(reporters[e.Source], v1alpha1.VirtualNodeName(r.Peer)),
		ReportingInstance:   v1alpha1.VirtualNodeName(r.Peer),
		Action:              r.Action,
		Reason:              e.Reason,
		Type:                e.Type,
		Note:                e.Message,
		Regarding:           *about,
	}
	if pod, ok := r.Home.(*corev1.Pod); ok {
		event.Regarding.FieldPath = fieldPath(&pod.Spec, e.Container)
	}
	if e.Count > 1 {
		event.Series = &eventsv1.EventSeries{Count: e.Count, LastObservedTime: metav1.NewMicroTime(e.Last.Time)}
	}
	return event
}

// name returns a name that the same event of the same peer always has and no other.
func (r *Report) name(e *v1alpha1.RemoteEvent) string {
	said := strings.Join([]string{r.Peer, string(r.Home.GetUID()), e.Type, e.Reason, e.Container, e.Source, e.Message}, "\x00")
	sum, home := sha256.Sum256([]byte(said)), r.Home.GetName()
	return strings.TrimRight(home[:min(len(home), 200)], "-.") + "." + hex.EncodeToString(sum[:8])
}

// fieldPath says which container of the pod an event is about, as kubelets say it.
func fieldPath(spec *corev1.PodSpec, container string) string {
	if container == "" {
		return ""
	}
	for i := range spec.InitContainers {
		if spec.InitContainers[i].Name == container {
			return "spec.initContainers{" + container + "}"
		}
	}
	for i := range spec.EphemeralContainers {
		if spec.EphemeralContainers[i].Name == container {
			return "spec.ephemeralContainers{" + container + "}"
		}
	}
	return "spec.containers{" + container + "}"
}
