package kubelet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// eventfulWorld is one in which turin runs the pod web, which is an hour old.
func eventfulWorld(t *testing.T) (*world, *v1alpha1.ShadowPod) {
	t.Helper()
	pod := podCalled("web")
	w := offloaded(t, pod)
	shadow := shadowOf(pod)
	return w, shadow
}

func (w *world) warned(reason, message string, count int32) v1alpha1.RemoteEvent {
	now := metav1.NewTime(w.Clock.Now())
	return v1alpha1.RemoteEvent{
		Type: "Warning", Reason: reason, Message: message, Source: v1alpha1.SourceKubelet, Count: count, First: now, Last: now,
	}
}

// flush writes the events that wait for it.
func (w *world) flush() {
	for len(w.pods.teller.queue) > 0 {
		w.pods.teller.write(w.Context(), <-w.pods.teller.queue)
	}
}

// tells has turin tell these events of the pod, and home write them.
func (w *world) tells(shadow *v1alpha1.ShadowPod, events ...v1alpha1.RemoteEvent) {
	w.Helper()
	shadow.Status.Events = events
	w.pods.teller.tell(w.pod("web"), shadow)
	w.flush()
}

func (w *world) eventsAtHome() []eventsv1.Event {
	w.Helper()
	list := &eventsv1.EventList{}
	if err := w.Home.Server.List(w.Context(), list, client.InNamespace("shop")); err != nil {
		w.Fatal(err)
	}
	return list.Items
}

// Nobody tells an event twice: it must outlive that the API server of home is away, or has just started and knows no rights.
func TestEventsWaitForTheAPIServerOfHome(t *testing.T) {
	forbidden := apierrors.NewForbidden(eventsv1.Resource("events"), "", errors.New("not yet"))
	ending := apierrors.NewForbidden(eventsv1.Resource("events"), "", errors.New("the namespace ends"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, c := range map[string]struct {
		failures []error
		tries    int
		written  int
	}{
		"it answers":       {nil, 1, 1},
		"it does not yet":  {[]error{errors.New("connection refused"), forbidden, apierrors.NewInternalError(errors.New("etcd"))}, 4, 1},
		"it refuses":       {[]error{apierrors.NewBadRequest("no")}, 1, 0},
		"namespace ending": {[]error{ending}, 1, 0},
		"it never answers": {slices.Repeat([]error{errors.New("connection refused")}, 100), eventTries.Steps, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, shadow := eventfulWorld(t)
			tries := 0
			w.Home.Before(func(write testkit.Write) error {
				if write.Kind != "Event" {
					return nil
				}
				if tries++; tries <= len(c.failures) {
					return c.failures[tries-1]
				}
				return nil
			})
			w.tells(shadow, w.warned("Unhealthy", "Readiness probe failed", 1))
			if got := len(w.eventsAtHome()); got != c.written || tries != c.tries {
				t.Errorf("%d events after %d tries, want %d after %d", got, tries, c.written, c.tries)
			}
		})
	}
}

func TestEventsOfTheRemotePodAreSeenAtHome(t *testing.T) {
	w, shadow := eventfulWorld(t)
	shadow.Status.Events = []v1alpha1.RemoteEvent{w.warned("Unhealthy", "Readiness probe failed: HTTP 500", 3)}
	w.put(w.Away, shadow)
	w.reconcilePod("web")
	w.flush()
	got := w.eventsAtHome()
	if len(got) != 1 {
		t.Fatalf("got %d events", len(got))
	}
	home, event := w.pod("web"), got[0]
	want := eventsv1.Event{
		ObjectMeta: event.ObjectMeta, EventTime: metav1.NewMicroTime(testkit.Noon),
		Series:              &eventsv1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(testkit.Noon)},
		ReportingController: "kubelet", ReportingInstance: turinNode, Action: "Run", Type: "Warning", Reason: "Unhealthy",
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web", UID: home.UID},
		Note:      "Readiness probe failed: HTTP 500",
	}
	if diff := cmp.Diff(want, event); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	w.wrote()
	w.reconcilePod("web")
	w.flush()
	if writes := w.wrote(); len(writes) != 0 {
		t.Errorf("wrote %v", writes)
	}
}

func TestEventIsWrittenOnceWhoeverWritesIt(t *testing.T) {
	w, shadow := eventfulWorld(t)
	for i, want := range []string{
		"home create Event",                  // the first process
		"",                                   // the same again
		"home create Event home patch Event", // the next process, and it happened once more
		"home patch Event",                   // and again
	} {
		if i == 2 {
			w.pods.teller = newPodTeller(w.Home.Client, w.Clock, w.links)
		}
		w.tells(shadow, w.warned("Unhealthy", "Readiness probe failed", int32(max(i, 1))))
		var writes []string
		for _, write := range w.wrote() {
			writes = append(writes, write[:strings.LastIndex(write, " ")])
		}
		if got := strings.Join(writes, " "); got != want {
			t.Errorf("%d: wrote %q, want %q", i, got, want)
		}
	}
	if got := w.eventsAtHome(); len(got) != 1 || got[0].Series == nil || got[0].Series.Count != 3 {
		t.Errorf("got %+v", got)
	}
}

func TestEventThatHasExpiredIsWrittenAnew(t *testing.T) {
	w, shadow := eventfulWorld(t)
	w.tells(shadow, w.warned("Unhealthy", "Readiness probe failed", 1))
	old := w.eventsAtHome()
	w.remove(w.Home, &old[0])
	w.Clock.Step(time.Hour)
	w.tells(shadow, w.warned("Unhealthy", "Readiness probe failed", 2))
	if got := w.eventsAtHome(); len(got) != 1 {
		t.Errorf("got %d events", len(got))
	}
}

// Each of ten thousand pods has some events, which an earlier process wrote long ago.
func TestNewProcessLeavesOldEventsAlone(t *testing.T) {
	w, shadow := eventfulWorld(t)
	old := w.warned("Unhealthy", "Readiness probe failed", 1)
	w.Clock.Step(recentEvents)
	w.tells(shadow, old)
	if got := w.eventsAtHome(); len(got) != 0 {
		t.Errorf("got %d events", len(got))
	}
	// What happens later is told, however late the provider's clock is.
	old.Count++
	w.tells(shadow, old)
	if got := w.eventsAtHome(); len(got) != 1 {
		t.Errorf("got %d events", len(got))
	}
}

func TestPodTellsSoMuch(t *testing.T) {
	w, shadow := eventfulWorld(t)
	for i := range 1000 {
		w.tells(shadow, w.warned("Unhealthy", fmt.Sprint("another message ", i), int32(i)))
		w.Clock.Step(time.Second)
	}
	if got, most := len(w.eventsAtHome()), warningsAtOnce+1000/30+1; got > most || got < 10 {
		t.Errorf("got %d events, want at most %d", got, most)
	}
	if writes := len(w.wrote()); writes > 2*(warningsAtOnce+1000/30+1) {
		t.Errorf("%d writes", writes)
	}
}

func TestPlainPodHasTwoEvents(t *testing.T) {
	w, shadow := eventfulWorld(t)
	var events []v1alpha1.RemoteEvent
	for _, reason := range []string{"Pulled", "Killing", "Started", "SandboxChanged"} {
		event := w.warned(reason, "", 1)
		event.Type = "Normal"
		events = append(events, event)
	}
	w.tells(shadow, events...)
	var got []string
	for _, event := range w.eventsAtHome() {
		got = append(got, event.Reason)
	}
	if len(got) != 2 || !strings.Contains(fmt.Sprint(got), "Started") || !strings.Contains(fmt.Sprint(got), "Pulled") {
		t.Errorf("got %v", got)
	}
}

func TestPeerTellsSoMuch(t *testing.T) {
	w, shadow := eventfulWorld(t)
	for w.links.MayTell(turin) {
	}
	w.tells(shadow, w.warned("Unhealthy", "Readiness probe failed", 1))
	if got := w.eventsAtHome(); len(got) != 0 {
		t.Errorf("got %d events", len(got))
	}
	w.Clock.Step(time.Second)
	w.tells(shadow, w.warned("Unhealthy", "Readiness probe failed", 2))
	if got := w.eventsAtHome(); len(got) != 1 {
		t.Errorf("got %d events", len(got))
	}
}

func TestPodsThatAreGoneAreForgotten(t *testing.T) {
	w, shadow := eventfulWorld(t)
	w.tells(shadow, w.warned("Unhealthy", "Readiness probe failed", 1))
	w.remove(w.Home, w.pod("web"))
	w.reconcilePod("web")
	if got := len(w.pods.teller.pods); got != 0 {
		t.Errorf("remembers %d pods", got)
	}
}
