// SPDX-License-Identifier: Apache-2.0

package remoteevents

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

// world is one in which turin runs the pod web, which is an hour old.
type world struct {
	*testkit.World
	writer *Writer
	pod    *corev1.Pod
	most   int // how many events turin may still tell
}

func newWorld(t *testing.T) *world {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", UID: "uid-web", CreationTimestamp: metav1.NewTime(testkit.Noon.Add(-time.Hour)),
	}}
	w := &world{World: testkit.NewWorld(t), pod: pod, most: 1000}
	w.restart()
	return w
}

// restart has another process write events.
func (w *world) restart() {
	w.writer = New(w.Home.Client, w.Clock, func(peer string) bool { w.most--; return peer == "turin" && w.most >= 0 })
	w.writer.tries.Duration = time.Microsecond
}

func (w *world) warned(reason, message string, count int32) v1alpha1.RemoteEvent {
	now := metav1.NewTime(w.Clock.Now())
	return v1alpha1.RemoteEvent{
		Type: "Warning", Reason: reason, Message: message, Source: v1alpha1.SourceKubelet, Count: count, First: now, Last: now,
	}
}

// tells has turin tell these events of the pod, and home write them.
func (w *world) tells(events ...v1alpha1.RemoteEvent) {
	w.Helper()
	w.report(Report{Peer: "turin", Home: w.pod, Action: "Run", Events: events})
}

func (w *world) report(r Report) {
	w.Helper()
	w.writer.Tell(r)
	for len(w.writer.queue) > 0 {
		w.writer.write(w.Context(), <-w.writer.queue)
	}
}

func (w *world) eventsAtHome() []eventsv1.Event {
	w.Helper()
	list := &eventsv1.EventList{}
	if err := w.Home.Server.List(w.Context(), list, client.InNamespace("shop")); err != nil {
		w.Fatal(err)
	}
	return list.Items
}

func TestAnEventSaysWhoSawItAndWhere(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-service"}}
	w := newWorld(t)
	w.pod.Spec.Containers = []corev1.Container{{Name: "c"}}
	crashed, lost := w.warned("BackOff", "Back-off", 3), w.warned("FailedToUpdateEndpointSlices", "quota", 1)
	crashed.Container, lost.Source = "c", v1alpha1.SourceKubernetes
	for name, c := range map[string]struct {
		report Report
		want   eventsv1.Event
	}{
		"of a pod, which happened several times": {Report{"turin", w.pod, "Run", []v1alpha1.RemoteEvent{crashed}}, eventsv1.Event{
			Series:              &eventsv1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(testkit.Noon)},
			ReportingController: "kubelet", Action: "Run", Reason: "BackOff", Note: "Back-off", Regarding: corev1.ObjectReference{
				APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web", UID: "uid-web", FieldPath: "spec.containers{c}",
			},
		}},
		"of a Service": {Report{"turin", service, "Reflect", []v1alpha1.RemoteEvent{lost}}, eventsv1.Event{
			ReportingController: "hanse-turin", Action: "Reflect", Reason: "FailedToUpdateEndpointSlices", Note: "quota",
			Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "shop", Name: "web", UID: "uid-service"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.report(c.report)
			got := w.eventsAtHome()
			if len(got) != 1 {
				t.Fatalf("got %d events", len(got))
			}
			c.want.ObjectMeta, c.want.EventTime = got[0].ObjectMeta, metav1.NewMicroTime(testkit.Noon)
			c.want.Type, c.want.ReportingInstance = "Warning", "hanse-turin"
			if diff := cmp.Diff(c.want, got[0]); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestTwoPeersTellTheSame(t *testing.T) {
	w := newWorld(t)
	w.writer.mayTell = func(string) bool { return true }
	for _, peer := range []string{"turin", "bremen"} {
		w.report(Report{peer, w.pod, "Run", []v1alpha1.RemoteEvent{w.warned("Unhealthy", "m", 1)}})
	}
	if got := w.eventsAtHome(); len(got) != 2 {
		t.Errorf("%d events", len(got))
	}
}

// eventfulWorld is one in which turin runs the pod web, which is an hour old.
// flush writes the events that wait for it.
// tells has turin tell these events of the pod, and home write them.
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
			w := newWorld(t)
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
			w.tells(w.warned("Unhealthy", "Readiness probe failed", 1))
			if got := len(w.eventsAtHome()); got != c.written || tries != c.tries {
				t.Errorf("%d events after %d tries, want %d after %d", got, tries, c.written, c.tries)
			}
		})
	}
}

func TestEventIsWrittenOnceWhoeverWritesIt(t *testing.T) {
	w := newWorld(t)
	for i, want := range []string{
		"create Event",             // the first process
		"",                         // the same again
		"create Event patch Event", // the next process, and it happened once more
		"patch Event",              // and again
	} {
		if i == 2 {
			w.restart()
		}
		w.tells(w.warned("Unhealthy", "Readiness probe failed", int32(max(i, 1))))
		var writes []string
		for _, write := range w.Home.Wrote() {
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
	w := newWorld(t)
	w.tells(w.warned("Unhealthy", "Readiness probe failed", 1))
	old := w.eventsAtHome()
	w.Home.Remove(&old[0])
	w.Clock.Step(time.Hour)
	w.tells(w.warned("Unhealthy", "Readiness probe failed", 2))
	if got := w.eventsAtHome(); len(got) != 1 {
		t.Errorf("got %d events", len(got))
	}
}

// Each of ten thousand pods has some events, which an earlier process wrote long ago.
func TestNewProcessLeavesOldEventsAlone(t *testing.T) {
	w := newWorld(t)
	old := w.warned("Unhealthy", "Readiness probe failed", 1)
	w.Clock.Step(recentEvents)
	w.tells(old)
	if got := w.eventsAtHome(); len(got) != 0 {
		t.Errorf("got %d events", len(got))
	}
	// What happens later is told, however late the provider's clock is.
	old.Count++
	w.tells(old)
	if got := w.eventsAtHome(); len(got) != 1 {
		t.Errorf("got %d events", len(got))
	}
}

func TestAnObjectTellsSoMuch(t *testing.T) {
	w := newWorld(t)
	for i := range 1000 {
		w.tells(w.warned("Unhealthy", fmt.Sprint("another message ", i), int32(i)))
		w.Clock.Step(time.Second)
	}
	if got, most := len(w.eventsAtHome()), warningsAtOnce+1000/30+1; got > most || got < 10 {
		t.Errorf("got %d events, want at most %d", got, most)
	}
	if writes := len(w.Home.Wrote()); writes > 2*(warningsAtOnce+1000/30+1) {
		t.Errorf("%d writes", writes)
	}
}

func TestPlainPodHasTwoEvents(t *testing.T) {
	w := newWorld(t)
	var events []v1alpha1.RemoteEvent
	for _, reason := range []string{"Started", "Pulled", "Killing", "SandboxChanged"} {
		event := w.warned(reason, "", 1)
		event.Type = "Normal"
		events = append(events, event)
	}
	w.tells(events...)
	var got []string
	for _, event := range w.eventsAtHome() {
		got = append(got, event.Reason)
	}
	if len(got) != 2 || !strings.Contains(fmt.Sprint(got), "Started") || !strings.Contains(fmt.Sprint(got), "Pulled") {
		t.Errorf("got %v", got)
	}
}

func TestPeerTellsSoMuch(t *testing.T) {
	w := newWorld(t)
	w.most = 0
	w.tells(w.warned("Unhealthy", "Readiness probe failed", 1))
	if got := w.eventsAtHome(); len(got) != 0 {
		t.Errorf("got %d events", len(got))
	}
	w.most = 1
	w.tells(w.warned("Unhealthy", "Readiness probe failed", 2))
	if got := w.eventsAtHome(); len(got) != 1 {
		t.Errorf("got %d events", len(got))
	}
}
