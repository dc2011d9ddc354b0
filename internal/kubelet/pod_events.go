package kubelet

import (
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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
)

const (
	// normalsAtOnce and warningsAtOnce are how many events of a pod are written at once, and normalPeriod and warningPeriod
	// how often over time.
	normalsAtOnce, warningsAtOnce = 2, 5
	normalPeriod, warningPeriod   = time.Minute, 30 * time.Second
	// recentEvents is how long ago an event must have happened for a new process to take it for written.
	recentEvents = 5 * time.Minute

	mostEventsQueued = 4096
	eventWriters     = 2
)

// eventTries are for an API server that is away for half a minute.
var eventTries = wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Steps: 8}

// reporters say whose name the event at home has: for its users the virtual node's kubelet is one like any other.
var reporters = map[string]string{v1alpha1.SourceKubelet: "kubelet", v1alpha1.SourceHanse: "hanse-kubelet"}

// podTeller writes what peers tell of the events of pods as events of the home pods. The name of an event follows from what
// it says, so that no process writes it twice.
type podTeller struct {
	client client.Client
	clock  clock.PassiveClock
	links  *peers.Links
	queue  chan telling
	tries  wait.Backoff

	mu   sync.Mutex
	pods map[request]*toldPod
}

// toldPod is what this process remembers of a pod, so that the API server is not asked again and again.
type toldPod struct {
	uid               types.UID
	counts            map[string]int32 // name of an event → count that was written
	normals, warnings *rate.Limiter
}

// telling is an event to be written. A repeated one exists already, most likely.
type telling struct {
	event    *eventsv1.Event
	repeated bool
}

func newPodTeller(c client.Client, clk clock.PassiveClock, links *peers.Links) *podTeller {
	return &podTeller{
		client: c, clock: clk, links: links, queue: make(chan telling, mostEventsQueued), tries: eventTries,
		pods: map[request]*toldPod{},
	}
}

// tell has those events of the pod written that are news, as far as the bounds of the pod and of its peer let them. What they
// do not let through is dropped: the status of the pod tells how it is.
func (t *podTeller) tell(home *corev1.Pod, shadow *v1alpha1.ShadowPod) {
	now, peer := t.clock.Now(), peerOf(home.Spec.NodeName)
	t.mu.Lock()
	defer t.mu.Unlock()
	told, first := t.of(home)
	events := offload.InboundEvents(home, shadow, now)
	named := make(map[string]int32, len(events))
	for _, e := range events {
		event := eventOf(home, &e)
		before, known := told.counts[event.Name]
		named[event.Name] = max(e.Count, before)
		if known && e.Count <= before || first && past(home, &e, now) {
			continue
		}
		if limit := t.limit(told, &e, peer, now); limit != "" {
			eventsDropped.WithLabelValues(limit).Inc()
			continue
		}
		select {
		case t.queue <- telling{event: event, repeated: known}:
		default:
			eventsDropped.WithLabelValues("queue").Inc()
		}
	}
	told.counts = named
}

// of returns what is remembered of the pod, and whether that is nothing yet.
func (t *podTeller) of(home *corev1.Pod) (*toldPod, bool) {
	told := t.pods[requestFor(home)]
	if told != nil && told.uid == home.UID {
		return told, false
	}
	told = &toldPod{uid: home.UID}
	t.pods[requestFor(home)] = told
	return told, true
}

// past says whether an earlier process has written the event, most likely. That the API server refuses those that it has
// makes up for events that were written a moment ago.
func past(home *corev1.Pod, e *v1alpha1.RemoteEvent, now time.Time) bool {
	return now.Sub(e.Last.Time) >= recentEvents && now.Sub(home.CreationTimestamp.Time) >= recentEvents
}

// limit returns which limit the event exceeds, or nothing.
func (t *podTeller) limit(told *toldPod, e *v1alpha1.RemoteEvent, peer string, now time.Time) string {
	limiter, period, atOnce := &told.normals, normalPeriod, normalsAtOnce
	if e.Type == corev1.EventTypeWarning {
		limiter, period, atOnce = &told.warnings, warningPeriod, warningsAtOnce
	}
	if *limiter == nil {
		*limiter = rate.NewLimiter(rate.Every(period), atOnce)
	}
	if !(*limiter).AllowN(now, 1) {
		return "pod"
	}
	if !t.links.MayTell(peer) {
		return "peer"
	}
	return ""
}

// forget drops what is remembered of a pod that is gone.
func (t *podTeller) forget(pod request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, pod)
}

// Start writes events until the context ends. It implements manager.Runnable.
func (t *podTeller) Start(ctx context.Context) error {
	var writers sync.WaitGroup
	for range eventWriters {
		writers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case next := <-t.queue:
					t.write(ctx, next)
				}
			}
		})
	}
	writers.Wait()
	return nil
}

// write writes one event, and tries again for a while as long as the API server does not say that it never will: nobody tells
// the event again.
func (t *podTeller) write(ctx context.Context, next telling) {
	var err error
	_ = wait.ExponentialBackoffWithContext(ctx, t.tries, func(ctx context.Context) (bool, error) {
		err = t.put(ctx, next)
		return err == nil || isFinal(err), nil
	})
	if err != nil {
		eventsDropped.WithLabelValues("error").Inc()
		ctrl.LoggerFrom(ctx).V(1).Info("Cannot write an event", "Pod", next.event.Regarding.Name, "cause", err.Error())
		return
	}
	eventsWritten.Inc()
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

func (t *podTeller) put(ctx context.Context, next telling) error {
	if next.repeated {
		err := t.repeat(ctx, next.event)
		if apierrors.IsNotFound(err) { // events live for an hour
			err = t.client.Create(ctx, next.event.DeepCopy())
		}
		return err
	}
	err := t.client.Create(ctx, next.event.DeepCopy())
	if apierrors.IsAlreadyExists(err) {
		err = t.repeat(ctx, next.event)
	}
	return err
}

// repeat says how often the event happened, which is all that may change of it.
func (t *podTeller) repeat(ctx context.Context, event *eventsv1.Event) error {
	if event.Series == nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"series": event.Series})
	if err != nil {
		return fmt.Errorf("encode series: %w", err)
	}
	return t.client.Patch(ctx, &eventsv1.Event{ObjectMeta: nameOf(event)}, client.RawPatch(types.MergePatchType, patch))
}

// eventOf returns the event of the home pod.
func eventOf(home *corev1.Pod, e *v1alpha1.RemoteEvent) *eventsv1.Event {
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: home.Namespace, Name: eventName(home, e)},
		EventTime:  metav1.NewMicroTime(e.First.Time),
		// Where it happened is the virtual node.
		ReportingController: reporters[e.Source],
		ReportingInstance:   home.Spec.NodeName,
		Action:              "Run",
		Reason:              e.Reason,
		Type:                e.Type,
		Note:                e.Message,
		Regarding: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: home.Namespace, Name: home.Name, UID: home.UID,
			FieldPath: fieldPath(&home.Spec, e.Container),
		},
	}
	if e.Count > 1 {
		event.Series = &eventsv1.EventSeries{Count: e.Count, LastObservedTime: metav1.NewMicroTime(e.Last.Time)}
	}
	return event
}

// eventName returns a name that the same event always has and no other.
func eventName(home *corev1.Pod, e *v1alpha1.RemoteEvent) string {
	said := strings.Join([]string{string(home.UID), e.Type, e.Reason, e.Container, e.Source, e.Message}, "\x00")
	sum := sha256.Sum256([]byte(said))
	return strings.TrimRight(home.Name[:min(len(home.Name), 200)], "-.") + "." + hex.EncodeToString(sum[:8])
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
