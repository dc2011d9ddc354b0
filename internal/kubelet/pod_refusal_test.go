// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// ownedBy is a pod of a controller of that kind, which was made a moment ago.
func (w *world) ownedBy(kind, name string) *corev1.Pod {
	pod := podCalled(name)
	pod.UID = types.UID("uid-" + name)
	pod.CreationTimestamp = metav1.NewTime(w.Clock.Now())
	if kind != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: kind, Name: "web", UID: types.UID("uid-of-" + kind), Controller: ptr.To(true),
		}}
	}
	return pod
}

// giveUp has turin say that it cannot run the pod.
func (w *world) giveUp(name string) {
	w.Helper()
	shadow := w.shadow(name)
	shadow.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionUnrecoverable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPodInvalid,
		Message: "a quantity is too long", LastTransitionTime: metav1.NewTime(testkit.Noon),
	}}
	w.put(w.Away, shadow)
}

func TestPodThatIsRefusedWaitsBeforeItFails(t *testing.T) {
	w := offloaded(t)
	w.put(w.Home, w.ownedBy("ReplicaSet", "web-1"))
	w.reconcilePod("web-1")
	w.giveUp("web-1")
	w.wrote()
	result := w.reconcilePod("web-1")
	status := w.pod("web-1").Status
	placed := offload.PodCondition(&status, v1alpha1.PodPlaced)
	if status.Phase == corev1.PodFailed || placed == nil || placed.Reason != v1alpha1.ReasonRefusedByProvider {
		t.Fatalf("phase %s, placed %v", status.Phase, placed)
	}
	expectCause(t, &status)
	if event := w.NextEvent(); !strings.Contains(event, v1alpha1.ReasonRefusedByProvider) {
		t.Errorf("event %q", event)
	}
	if result.RequeueAfter != firstHold {
		t.Errorf("it is looked at again after %s", result.RequeueAfter)
	}
	w.expectRefusal(corev1.ConditionTrue)
	w.wrote()
	w.reconcilePod("web-1")
	if got := w.wrote(); got != nil {
		t.Errorf("nothing changed, but %v was written", got)
	}

	w.Clock.Step(firstHold)
	w.reconcilePod("web-1")
	if status := w.pod("web-1").Status; status.Phase != corev1.PodFailed || status.Reason != v1alpha1.ReasonPodInvalid {
		t.Errorf("phase %s, reason %q", status.Phase, status.Reason)
	}
	w.expectRefusal(corev1.ConditionFalse)
}

func expectCause(t *testing.T, status *corev1.PodStatus) {
	t.Helper()
	for _, part := range []string{v1alpha1.ReasonPodInvalid, "a quantity is too long"} {
		if !strings.Contains(status.Message, part) || !strings.Contains(status.ContainerStatuses[0].State.Waiting.Message, part) {
			t.Errorf("the pod does not say %q: %q", part, status.Message)
		}
	}
}

// expectRefusal checks whether the node says that turin refuses pods.
func (w *world) expectRefusal(want corev1.ConditionStatus) {
	w.Helper()
	w.reconcileNode()
	if c := nodeCondition(w.node(), v1alpha1.NodeRefusesPods); c == nil || c.Status != want {
		w.Errorf("the node says %v", c)
	}
}

// A ReplicaSet makes a pod for each that fails, at once.
func TestProviderThatGivesUpEveryPodCausesNoStorm(t *testing.T) {
	for name, ran := range map[string]bool{"before they ran": false, "when they have run": true} {
		t.Run(name, func(t *testing.T) {
			w := offloaded(t)
			made := 0
			var alive []string
			replace := func() string {
				made++
				pod := fmt.Sprintf("web-%d", made)
				w.put(w.Home, w.ownedBy("ReplicaSet", pod))
				w.reconcilePod(pod)
				if ran {
					w.runRemote(pod, corev1.PodRunning)
					w.reconcilePod(pod)
				}
				w.giveUp(pod)
				return pod
			}
			for range 3 {
				alive = append(alive, replace())
			}
			for range 120 {
				w.Clock.Step(30 * time.Second)
				for i, pod := range alive {
					if w.reconcilePod(pod); terminal(w.pod(pod)) {
						alive[i] = replace()
					}
				}
			}
			if made > 20 {
				t.Errorf("3 replicas made %d pods in an hour", made)
			}
			if made < 5 {
				t.Errorf("only %d pods were made in an hour: nothing is tried again", made)
			}
		})
	}
}

func TestPodThatRanLongFailsAtOnceWhenItIsGivenUp(t *testing.T) {
	w := offloaded(t)
	w.put(w.Home, w.ownedBy("StatefulSet", "db-0"))
	w.reconcilePod("db-0")
	w.runRemote("db-0", corev1.PodRunning)
	w.Clock.Step(time.Hour)
	w.reconcilePod("db-0")
	w.giveUp("db-0")
	w.reconcilePod("db-0")
	if status := w.pod("db-0").Status; status.Phase != corev1.PodFailed || status.Reason != v1alpha1.ReasonPodInvalid {
		t.Errorf("phase %s, reason %q", status.Phase, status.Reason)
	}
}

// A Job counts pods that fail, and a pod without a controller would be lost.
func TestPodThatMustNotFailIsAskedForAgain(t *testing.T) {
	for _, kind := range []string{"Job", ""} {
		t.Run("of "+kind, func(t *testing.T) {
			w := offloaded(t)
			w.put(w.Home, w.ownedBy(kind, "task-1"))
			w.reconcilePod("task-1")
			w.giveUp("task-1")
			w.Clock.Step(24 * time.Hour)
			if result := w.reconcilePod("task-1"); result.RequeueAfter != askAgainAfter {
				t.Errorf("looked at again after %s", result.RequeueAfter)
			}
			for range 2 { // the second time as the first
				w.Clock.Step(askAgainAfter)
				w.wrote()
				w.reconcilePod("task-1")
				w.forgetRemote("task-1")
				w.reconcilePod("task-1")
				if phase := w.pod("task-1").Status.Phase; phase == corev1.PodFailed {
					t.Fatal("it failed")
				}
				w.giveUp("task-1")
				w.Clock.Step(askAgainAfter / 2)
				w.wrote()
				w.reconcilePod("task-1")
				if got := w.wrote(); got != nil {
					t.Errorf("refused again, %v was written", got)
				}
				w.Clock.Step(-askAgainAfter / 2)
			}
			w.runRemote("task-1", corev1.PodRunning)
			w.reconcilePod("task-1")
			if status := w.pod("task-1").Status; status.Phase != corev1.PodRunning || isRefused(&status) {
				t.Errorf("when the provider takes it: phase %s, conditions %v", status.Phase, status.Conditions)
			}
		})
	}
}

// Only what the provider gave up lately, of the same controller, holds the next pod back.
func TestWhichPodsCount(t *testing.T) {
	now := testkit.Noon
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   int
	}{
		"one that the provider gave up": {func(*corev1.Pod) {}, 1},
		"long ago":                      {func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-remembered)) }, 0},
		"one that failed by itself":     {func(p *corev1.Pod) { p.Status.Conditions = nil }, 0},
		"one that is held":              {func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, 0},
		"that of another controller":    {func(p *corev1.Pod) { p.OwnerReferences[0].UID = "uid-of-other" }, 0},
		"one without a controller":      {func(p *corev1.Pod) { p.OwnerReferences = nil }, 0},
	} {
		w := &world{World: testkit.NewWorld(t)}
		other := w.ownedBy("ReplicaSet", "web-1")
		other.Status.Phase = corev1.PodFailed
		offload.Disrupt(&other.Status, v1alpha1.ReasonPodInvalid, "", now)
		c.change(other)
		if got := failedBefore([]corev1.Pod{*other}, w.ownedBy("ReplicaSet", "web-2"), now); got != c.want {
			t.Errorf("%s: counts %d", name, got)
		}
		if got := failedBefore([]corev1.Pod{*other}, w.ownedBy("", "bare"), now); got != 0 {
			t.Errorf("%s: counts %d for a pod without a controller", name, got)
		}
	}
}

func TestHoldGrowsWithThePodsThatFailed(t *testing.T) {
	for _, c := range []struct {
		failed int
		ran    bool
		want   time.Duration
	}{
		{0, false, firstHold},
		{1, false, 2 * firstHold},
		{4, false, 16 * firstHold},
		{5, false, longestHold},
		{1000, false, longestHold},
		{0, true, 0},
		{1, true, firstHold},
		{2, true, 2 * firstHold},
		{1000, true, longestHold},
	} {
		if got := holdFor(c.failed, c.ran); got != c.want {
			t.Errorf("after %d, having run: %t: %s, want %s", c.failed, c.ran, got, c.want)
		}
	}
}
