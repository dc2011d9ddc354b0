// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Noon is what the clock of a new World shows.
var Noon = time.Date(2031, 5, 7, 12, 0, 0, 0, time.UTC)

// A World is our cluster and that of one peer, a clock, and the events that controllers send.
type World struct {
	testing.TB
	Clock *clocktesting.FakeClock
	// Home is the cluster that the code under test runs in.
	Home *Cluster
	// Away is the cluster of the peer.
	Away *Cluster
	// Events are those of the code under test.
	Events *events.FakeRecorder
}

// NewWorld returns a world whose home has the objects. It is noon, and Hanse was installed an hour ago.
func NewWorld(t testing.TB, objects ...client.Object) *World {
	t.Helper()
	clock := clocktesting.NewFakeClock(Noon)
	installed := Namespace("hanse-system", nil)
	installed.CreationTimestamp = metav1.NewTime(Noon.Add(-time.Hour))
	return &World{
		TB: t, Clock: clock, Events: events.NewFakeRecorder(1000),
		Home: NewCluster(t, clock, append([]client.Object{installed}, objects...)...),
		Away: NewCluster(t, clock),
	}
}

// Reconcile has the reconciler look at the object of that name, and returns what it asks for. An error ends the test.
func (w *World) Reconcile(r reconcile.Reconciler, namespace, name string) reconcile.Result {
	w.Helper()
	result, err := r.Reconcile(w.Context(), Request(namespace, name))
	if err != nil {
		w.Fatalf("reconcile %s/%s: %v", namespace, name, err)
	}
	return result
}

// Request names an object to a reconciler.
func Request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}
}

// EventReasons returns the reasons of the events since the last call.
func (w *World) EventReasons() []string {
	var reasons []string
	for len(w.Events.Events) > 0 {
		if fields := strings.Fields(<-w.Events.Events); len(fields) > 1 {
			reasons = append(reasons, fields[1])
		}
	}
	return reasons
}

// ExpectEvents checks the reasons of the events since the last look.
func (w *World) ExpectEvents(want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, w.EventReasons()); diff != "" {
		w.Errorf("events (-want +got):\n%s", diff)
	}
}

// NextEvent returns the next event, as its type, reason and note. If there is none, the test fails.
func (w *World) NextEvent() string {
	w.Helper()
	select {
	case event := <-w.Events.Events:
		return event
	default:
		w.Error("there is no event")
		return ""
	}
}

// ExpectEvent checks how the next event begins.
func (w *World) ExpectEvent(beginning string) {
	w.Helper()
	if got := w.NextEvent(); !strings.HasPrefix(got, beginning) {
		w.Errorf("event %q, want %q", got, beginning)
	}
}

// ExpectEventWith checks that the next event has all the texts.
func (w *World) ExpectEventWith(texts ...string) {
	w.Helper()
	got := w.NextEvent()
	for _, text := range texts {
		if !strings.Contains(got, text) {
			w.Errorf("event %q lacks %q", got, text)
		}
	}
}

// ExpectCondition checks the status and the reason of a condition, and that its message has the texts.
//
//nolint:revive // a condition has a type, a status and a reason
func ExpectCondition(
	t testing.TB, conditions []metav1.Condition, kind string, status metav1.ConditionStatus, reason string, texts ...string,
) {
	t.Helper()
	got := meta.FindStatusCondition(conditions, kind)
	if got == nil {
		t.Errorf("there is no condition %s", kind)
		return
	}
	if got.Status != status || got.Reason != reason {
		t.Errorf("%s is %s, %s (%s), want %s, %s", kind, got.Status, got.Reason, got.Message, status, reason)
	}
	for _, text := range texts {
		if !strings.Contains(got.Message, text) {
			t.Errorf("the message of %s, %q, lacks %q", kind, got.Message, text)
		}
	}
}
