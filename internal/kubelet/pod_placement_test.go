// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/testkit"
)

const noRoom = "The provider has no node with room for the pod: Insufficient cpu"

func ownedBy(pod *corev1.Pod, kind string) *corev1.Pod {
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "web", UID: "owner", Controller: ptr.To(true)}}
	return pod
}

// tell has the provider say something about the pod.
func (w *world) tell(name string, conditions ...metav1.Condition) {
	w.Helper()
	shadow := w.shadow(name)
	shadow.Status.Conditions = conditions
	w.put(w.Away, shadow)
}

func roomless(reason string) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.ConditionScheduled, Status: metav1.ConditionFalse, Reason: reason, Message: noRoom,
		LastTransitionTime: metav1.NewTime(testkit.Noon.Add(-10 * time.Minute)), // the provider's clock is wrong
	}
}

func TestPodWithoutRoomSaysSoOnceAndIsLetGo(t *testing.T) {
	w := offloaded(t, ownedBy(podCalled("web-1"), "ReplicaSet"))
	w.reconcilePod("web-1")
	w.tell("web-1", roomless(v1alpha1.ReasonNoRoom))
	w.reconcilePod("web-1")
	again := w.reconcilePod("web-1")
	if diff := cmp.Diff([]string{"home patch/status Pod web-1"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	status := w.pod("web-1").Status
	waiting := status.ContainerStatuses[0].State.Waiting
	if status.Reason != v1alpha1.ReasonNoRoom || status.Message != noRoom || waiting == nil || waiting.Reason != v1alpha1.ReasonNoRoom {
		t.Errorf("status: %+v", status)
	}
	if event := w.NextEvent(); !strings.Contains(event, "Warning NoRoom "+noRoom) || len(w.Events.Events) > 0 {
		t.Errorf("event %q", event)
	}
	if again.RequeueAfter != 30*time.Second {
		t.Errorf("it is let go in %s", again.RequeueAfter)
	}

	w.Clock.Step(30 * time.Second)
	w.reconcilePod("web-1")
	if diff := cmp.Diff([]string{"home patch/status Pod web-1", "home delete Pod web-1"}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if uid := w.deletes[0].Preconditions.UID; *uid != "uid-web-1" {
		t.Errorf("precondition %s", *uid)
	}
	if event := w.NextEvent(); !strings.Contains(event, v1alpha1.ReasonPlacementTimeout) {
		t.Errorf("event %q", event)
	}
}

// What home asks of clusters keeps a pod off those behind its provider too. If it finds no room for that, its user is told so.
func TestPodWithoutRoomSaysWhichClustersBehindItsProviderAreLeftOut(t *testing.T) {
	const way = "It stays on the provider's own nodes. bremen: It is excluded"
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	w.tell("web-1", roomless(v1alpha1.ReasonNoRoom), metav1.Condition{
		Type: v1alpha1.ConditionOnward, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonStaysHere, Message: way,
	})
	w.reconcilePod("web-1")
	if status := w.pod("web-1").Status; status.Reason != v1alpha1.ReasonNoRoom || status.Message != noRoom+". "+way {
		t.Errorf("status: %+v", status)
	}
}

func TestPodThatHasFoundRoomMeanwhileStays(t *testing.T) {
	w := offloaded(t, ownedBy(podCalled("web-1"), "ReplicaSet"))
	w.reconcilePod("web-1")
	w.tell("web-1", roomless(v1alpha1.ReasonNoRoom))
	w.reconcilePod("web-1")
	w.turin.Freeze()
	w.tell("web-1")
	w.Clock.Step(time.Hour)
	w.wrote()
	w.reconcilePod("web-1")
	if got := w.wrote(); got != nil {
		t.Errorf("wrote %v", got)
	}
}

func TestPodThatFoundRoomShowsItsReasonNoMore(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	w.tell("web-1", roomless(v1alpha1.ReasonNoRoom))
	w.reconcilePod("web-1")
	w.runRemote("web-1", corev1.PodRunning)
	w.reconcilePod("web-1")
	status := w.pod("web-1").Status
	if status.Reason != "" || offload.PodCondition(&status, v1alpha1.PodPlaced) != nil || status.Phase != corev1.PodRunning {
		t.Errorf("status: %+v", status)
	}
}

func TestWhoIsLetGoAndWhen(t *testing.T) {
	shown := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: v1alpha1.PodPlaced, Status: corev1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.NewTime(testkit.Noon),
		}}}
	}
	for name, tc := range map[string]struct {
		how    v1alpha1.NamespaceOffloadingSpec
		change func(pod *corev1.Pod)
		after  time.Duration // 0 for never
	}{
		"a pod of a ReplicaSet after a while": {change: func(*corev1.Pod) {}, after: 30 * time.Second},
		"after the user's time": {
			how:    v1alpha1.NamespaceOffloadingSpec{PlacementTimeout: &metav1.Duration{Duration: time.Minute}},
			change: func(*corev1.Pod) {}, after: time.Minute,
		},
		"later while room is made": {
			change: func(p *corev1.Pod) { p.Status = shown(v1alpha1.ReasonScalingUp) }, after: 10 * time.Minute,
		},
		"later by the user's time": {
			how:    v1alpha1.NamespaceOffloadingSpec{ScaleUpTimeout: &metav1.Duration{Duration: time.Hour}},
			change: func(p *corev1.Pod) { p.Status = shown(v1alpha1.ReasonScalingUp) }, after: time.Hour,
		},
		"one of a StatefulSet too":       {change: func(p *corev1.Pod) { ownedBy(p, "StatefulSet") }, after: 30 * time.Second},
		"never one of a Job":             {change: func(p *corev1.Pod) { ownedBy(p, "Job") }},
		"never a bare one":               {change: func(p *corev1.Pod) { p.OwnerReferences = nil }},
		"never one without a controller": {change: func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }},
		"never one that runs":            {change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }},
		"never one that ran":             {change: func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1}} }},
		"never one that is being initialised": {change: func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		}},
		"never one that is going": {change: func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.NewTime(testkit.Noon)) }},
		"never one that has room": {change: func(p *corev1.Pod) { p.Status.Conditions = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			pod := ownedBy(podCalled("web-1"), "ReplicaSet")
			pod.Status = shown(v1alpha1.ReasonNoRoom)
			tc.change(pod)
			at, may := letGoAt(pod, &tc.how)
			if may != (tc.after > 0) || may && at.Sub(testkit.Noon) != tc.after {
				t.Errorf("let go: %t, after %s", may, at.Sub(testkit.Noon))
			}
		})
	}
}

func TestNobodyIsLetGoWhileTheProviderIsCutOff(t *testing.T) {
	w := offloaded(t, ownedBy(podCalled("web-1"), "ReplicaSet"))
	w.reconcilePod("web-1")
	w.tell("web-1", roomless(v1alpha1.ReasonNoRoom))
	w.reconcilePod("web-1")
	w.cut(true)
	w.Clock.Step(time.Hour)
	w.wrote()
	w.reconcilePod("web-1")
	if got := w.wrote(); got != nil {
		t.Errorf("wrote %v", got)
	}
}

func TestWhatTheProviderDoesNotDoIsToldOnce(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	w.runRemote("web-1", corev1.PodRunning)
	w.tell("web-1", metav1.Condition{
		Type: v1alpha1.ConditionDebug, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDebugForbidden, Message: "not allowed",
	})
	w.reconcilePod("web-1")
	w.reconcilePod("web-1")
	if event := w.NextEvent(); !strings.Contains(event, v1alpha1.ReasonDebugForbidden) || len(w.Events.Events) > 0 {
		t.Errorf("event %q, and %d more", event, len(w.Events.Events))
	}
	if w.pod("web-1").Status.Phase != corev1.PodRunning {
		t.Error("the pod does not run on")
	}
}

func TestWhatTheProviderLeavesOutIsShown(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	w.runRemote("web-1", corev1.PodRunning)
	w.tell("web-1", metav1.Condition{
		Type: v1alpha1.ConditionMetadata, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMetadataLeftOut, Message: "left out a.b/c",
	})
	w.reconcilePod("web-1")
	shown := offload.PodCondition(&w.pod("web-1").Status, v1alpha1.PodMetadata)
	if shown == nil || shown.Status != corev1.ConditionFalse || !strings.Contains(shown.Message, "a.b/c") {
		t.Errorf("got condition %+v", shown)
	}
	if event := w.NextEvent(); !strings.Contains(event, v1alpha1.ReasonMetadataLeftOut) {
		t.Errorf("got event %q", event)
	}
}

func TestStatusOfAPodThatFlapsIsWrittenOnceASecond(t *testing.T) {
	w := offloaded(t, podCalled("web-1"))
	w.reconcilePod("web-1")
	w.wrote()
	written := 0
	var last time.Duration
	for i := range 100 {
		w.runRemote("web-1", corev1.PodRunning)
		w.flap("web-1", i)
		last = w.reconcilePod("web-1").RequeueAfter
		written += len(w.wrote())
		w.Clock.Step(100 * time.Millisecond)
	}
	const atOnce = 6 // see peers.Links.Pace
	if written < atOnce || written > atOnce+11 {
		t.Errorf("%d writes in ten seconds", written)
	}
	w.Clock.Step(last)
	w.reconcilePod("web-1")
	if restarts := w.pod("web-1").Status.ContainerStatuses[0].RestartCount; restarts != 99 {
		t.Errorf("home shows %d restarts in the end", restarts)
	}
}

// flap has the provider count a restart.
func (w *world) flap(name string, restarts int) {
	w.Helper()
	shadow := w.shadow(name)
	shadow.Status.Restarts = map[string]int32{"web": int32(restarts)}
	w.put(w.Away, shadow)
}
