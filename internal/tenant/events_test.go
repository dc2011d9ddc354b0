// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// kubeletSays has the kubelet say something of container c for the count-th time.
func (s *stage) kubeletSays(kind, reason, message string, count int32) {
	s.Helper()
	event := s.event(kind, reason, message, count)
	s.pods.events.hear(s.Context(), event)
}

func (s *stage) event(kind, reason, message string, count int32) *corev1.Event {
	s.Helper()
	pod, now := s.pod(), metav1.NewTime(s.Clock.Now())
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "web." + reason, Namespace: s.twin},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Pod", Namespace: s.twin, Name: "web", UID: pod.UID, FieldPath: "spec.containers{c}",
		},
		Type: kind, Reason: reason, Message: message, Count: count, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: "kubelet", Host: "worker-1"},
	}
}

// told returns the events on record, each as its reason and count.
func (s *stage) told() []string {
	s.Helper()
	var out []string
	for _, event := range s.shadow().Status.Events {
		out = append(out, fmt.Sprintf("%s %d", event.Reason, event.Count))
	}
	return out
}

func (s *stage) expectTold(want ...string) {
	s.Helper()
	if diff := cmp.Diff(want, s.told()); diff != "" {
		s.Errorf("events (-want +got):\n%s", diff)
	}
}

func stageThatRuns(t *testing.T) *stage {
	t.Helper()
	s := newStage(t, shadowPod())
	s.run()
	s.placed()
	return s
}

func TestNormalEventsComeWithTheStatus(t *testing.T) {
	s := stageThatRuns(t)
	s.kubeletSays("Normal", "Pulled", "there already", 1)
	s.kubeletSays("Normal", "Started", "Container started", 1)
	s.kubeletSays("Normal", "Scheduled", "assigned to worker-1", 1)
	s.run()
	s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web")
	s.expectTold("Pulled 1", "Started 1")
	s.run()
	s.Home.ExpectWrites()
}

func TestNormalEventThatIsLateIsToldInTheEnd(t *testing.T) {
	s := stageThatRuns(t)
	s.run()
	s.kubeletSays("Normal", "Started", "Container started", 1)
	if again := s.run(); again != normalDelay {
		t.Errorf("looks again in %s", again)
	}
	s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web")
	s.Clock.Step(normalDelay)
	s.run()
	s.Home.ExpectWrites("update/status ShadowPod web")
	s.expectTold("Started 1")
}

func TestWarningsAreToldTogetherAndSoon(t *testing.T) {
	s := stageThatRuns(t)
	s.run()
	s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web")
	s.kubeletSays("Warning", "Unhealthy", "Readiness probe failed", 1)
	if again := s.run(); again != warningDelay {
		t.Errorf("looks again in %s", again)
	}
	s.kubeletSays("Warning", "BackOff", "Back-off restarting failed container", 1)
	s.Clock.Step(warningDelay)
	s.run()
	s.Home.ExpectWrites("update/status ShadowPod web")
	s.expectTold("BackOff 1", "Unhealthy 1")

	s.Clock.Step(time.Second)
	s.kubeletSays("Warning", "FailedMount", "no such secret", 1)
	if again := s.run(); again != warningPeriod-time.Second {
		t.Errorf("looks again in %s", again)
	}
	s.Home.ExpectWrites()
}

func TestPodThatFailsForHoursIsWrittenNowAndThen(t *testing.T) {
	s := stageThatRuns(t)
	s.run()
	s.Home.Writes()
	for i := range 3600 / 10 {
		s.kubeletSays("Warning", "Unhealthy", fmt.Sprintf("Readiness probe failed: attempt %d", i), 1)
		s.kubeletSays("Warning", "BackOff", "Back-off restarting failed container", int32(i+1))
		s.run()
		s.Clock.Step(10 * time.Second)
	}
	if writes := len(s.Home.Writes()); writes < 10 || writes > 14 {
		t.Errorf("%d writes in an hour", writes)
	}
	if told := s.shadow().Status.Events; len(told) > v1alpha1.MaxRemoteEvents {
		t.Errorf("%d events on record", len(told))
	}
}

// After a restart the API server sends all events of the last hour again.
func TestEventsAreToldOnce(t *testing.T) {
	s := stageThatRuns(t)
	events := []*corev1.Event{
		s.event("Normal", "Started", "Container started", 1), s.event("Warning", "Unhealthy", "Readiness probe failed", 7),
	}
	for range 3 {
		s.pods = newShadowPodReconciler(s.config(), s.Home.Client, s.Home.Server, s.Home.Server)
		s.pods.queue = s.woken
		for _, event := range events {
			s.pods.events.hear(s.Context(), event)
		}
		s.Clock.Step(time.Hour)
		s.run()
	}
	s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web")
	s.expectTold("Started 1", "Unhealthy 7")
	s.run()
	if got := s.pods.events.heard[subject{podKind, testkit.Request(s.twin, "web").NamespacedName}]; got != nil && len(got.events) != 0 {
		t.Errorf("keeps %v", got.events)
	}
}

func TestEventsOfOthersAreNotTold(t *testing.T) {
	s := stageThatRuns(t)
	for name, change := range map[string]func(*corev1.Event){
		"another pod of the name": func(e *corev1.Event) { e.InvolvedObject.UID = "other" },
		"another pod":             func(e *corev1.Event) { e.InvolvedObject.Name = "other" },
		"by another component":    func(e *corev1.Event) { e.Source.Component = "someone" },
		"of an unknown kind":      func(e *corev1.Event) { e.Reason = "Preempted" },
	} {
		event := s.event("Warning", "Unhealthy", name, 1)
		change(event)
		s.pods.events.hear(s.Context(), event)
	}
	s.Clock.Step(time.Minute)
	s.run()
	s.expectTold()
	if len(s.pods.events.heard) != 0 {
		t.Errorf("keeps %v", s.pods.events.heard)
	}
}

func TestMadeAgainIsAnEvent(t *testing.T) {
	s := stageThatRuns(t)
	s.run()
	s.somebodyDeletes()
	s.run()
	s.kubeletLetsGo()
	s.run()
	s.becomes(s.running)
	s.run()
	s.expectTold("MadeAgain 1")
	s.run()
	s.expectTold("MadeAgain 1")
}

func TestOutOfMemoryIsAnEvent(t *testing.T) {
	s := stageThatRuns(t)
	s.becomes(func(status *corev1.PodStatus) {
		status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			Reason: "OOMKilled", ExitCode: 137, FinishedAt: metav1.NewTime(s.Clock.Now()),
		}
	})
	s.run()
	s.expectTold("OOMKilled 1")
}

func TestEventsOfTwinsWithPodsAreWatched(t *testing.T) {
	s := stageThatRuns(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.pods.events.Start(ctx) }()
	s.run()
	event := s.event("Warning", "Unhealthy", "Readiness probe failed", 1)
	heard := func() bool {
		s.pods.events.mu.Lock()
		defer s.pods.events.mu.Unlock()
		return len(s.pods.events.heard) > 0
	}
	for i, deadline := 0, time.Now().Add(time.Minute); !heard() && time.Now().Before(deadline); i++ {
		event.ResourceVersion, event.Name = "", fmt.Sprintf("web.%d", i) // the watch in memory sends nothing that was there before
		if err := s.Home.Server.Create(ctx, event); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !heard() {
		t.Error("the event is not heard")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(s.pods.events.watched) != 0 {
		t.Errorf("still watched: %v", s.pods.events.watched)
	}
}
