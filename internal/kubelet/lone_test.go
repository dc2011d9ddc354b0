// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func lone(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	return pod
}

// moveOver ends the PodMove of the pod.
func (w *world) moveOver(pod *corev1.Pod, phase v1alpha1.MovePhase, message string) {
	w.Helper()
	move := testkit.Get[v1alpha1.PodMove](w.Home, pod.Namespace, "leaves-"+string(pod.UID))
	move.Status.Phase = phase
	move.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionFalse, Reason: "Whatever", Message: message}}
	w.Home.Put(move)
	w.Clock.Step(firstBlocked + time.Second)
}

func (w *world) expectDrain(what string, again bool, want ...string) {
	w.Helper()
	after := w.reconcileDrain().RequeueAfter
	if diff := cmp.Diff(want, w.wrote()); diff != "" || (after > 0) != again {
		w.Errorf("%s: it comes back after %s; writes (-want +got):\n%s", what, after, diff)
	}
}

func TestLonePodLeavesANodeByAMove(t *testing.T) {
	pod := lone(podCalled("toolbox"))
	w := newWorld(t, unpeering(nil), closedNode(), pod)
	w.expectDrain("at first", true, "home create PodMove leaves-uid-toolbox")
	want := v1alpha1.PodMoveSpec{
		Pod: v1alpha1.MovedPod{Name: "toolbox", UID: "uid-toolbox"}, Destination: v1alpha1.MoveDestination{Elsewhere: v1alpha1.ElsewhereAnyNode},
		Method: v1alpha1.MoveDeleteFirst, OnFailure: v1alpha1.OnFailureLeave, TTLSecondsAfterFinished: ptr.To[int32](600),
	}
	if diff := cmp.Diff(want, testkit.Get[v1alpha1.PodMove](w.Home, "shop", "leaves-uid-toolbox").Spec); diff != "" {
		t.Error(diff)
	}
	w.Clock.Step(firstBlocked)
	w.expectDrain("while it moves", true)
	w.Clock.Step(firstBlocked)
	w.ExpectEvents()
	w.moveOver(pod, v1alpha1.MoveSucceeded, "")
	w.expectDrain("when it has moved", false)
}

func TestLonePodThatCannotMoveIsEvicted(t *testing.T) {
	pod := lone(podCalled("toolbox"))
	w := newWorld(t, unpeering(nil), closedNode(), pod)
	w.expectDrain("at first", true, "home create PodMove leaves-uid-toolbox")
	w.moveOver(pod, v1alpha1.MoveFailed, "no node has room")
	w.expectDrain("when it has not moved", false, "home create/eviction Pod toolbox")
}

func TestLonePodIsEvictedWhereNoPodsMove(t *testing.T) {
	w := newWorld(t, unpeering(nil), closedNode(), lone(podCalled("toolbox")))
	w.Home.Refuse("create PodMove", apierrors.NewForbidden(schema.GroupResource{Resource: "podmoves"}, "", errors.New("pods in namespaces of Kubernetes")))
	w.expectDrain("at first", false, "home create PodMove leaves-uid-toolbox", "home create/eviction Pod toolbox")
}

func TestLonePodStaysIfItOnlyMightGo(t *testing.T) {
	pod := lone(bare("toolbox", "hanse-turin"))
	w := newWorld(t, offloadingThat(v1alpha1.StrategyLocal, v1alpha1.ChangeEvict), openNode("turin", nil), pod)
	if again := w.evict(); again != firstBlocked {
		t.Errorf("while it moves it comes back after %s", again)
	}
	w.moveOver(pod, v1alpha1.MoveFailed, "a volume stays")
	w.wrote()
	if again := w.evict(); again != firstBlocked || w.wrote() != nil {
		t.Errorf("it comes back after %s", again)
	}
	w.ExpectEvent("Warning OffloadingChanged The pod must leave Node hanse-turin (strategy is Local), and cannot: its PodMove leaves-uid-toolbox has failed: a volume stays")
}
