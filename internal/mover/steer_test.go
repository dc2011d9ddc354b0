// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/move"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// newSteering is a stage whose namespace has no quota for a copy.
func newSteering(t *testing.T) *stage {
	t.Helper()
	s := newStage(t)
	full := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2")}
	s.Home.Put(&corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "full"},
		Spec:       corev1.ResourceQuotaSpec{Hard: full}, Status: corev1.ResourceQuotaStatus{Hard: full, Used: full},
	})
	return s
}

// succeeds has the ReplicaSet make a pod in the place of the evicted one, as admission lets it.
func (s *stage) succeeds(name string) {
	s.Helper()
	pod := s.pod(name)
	pod.Spec.NodeName, pod.Status = "", corev1.PodStatus{Phase: corev1.PodPending}
	pod.CreationTimestamp = metav1.NewTime(s.Clock.Now())
	pm := testkit.Get[v1alpha1.PodMove](s.Home, ns, s.move.Name)
	if until := pm.Status.GateUntil; pm.Status.Phase == v1alpha1.MoveSteering && until != nil && s.Clock.Now().Before(until.Time) {
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.GateMove}}
	}
	s.Home.Put(pod)
}

// runs has the pod be bound where it must go, and become Ready.
func (s *stage) runs(name string) {
	testkit.Change(s.Home, ns, name, func(pod *corev1.Pod) {
		if !move.IsGated(pod) {
			pod.Spec.NodeName = "there"
			becomeReady(pod)
		}
	})
}

func (s *stage) lookAtGate(name string) {
	s.Helper()
	s.World.Reconcile(&gates{s.Mover}, ns, name)
}

// isFree checks that the pod may run anywhere.
func (s *stage) isFree(name string) {
	s.Helper()
	if pod := testkit.Get[corev1.Pod](s.Home, ns, name); move.IsGated(pod) || pod.Spec.Affinity != nil {
		s.Errorf("it has gates %v and affinity %v", pod.Spec.SchedulingGates, pod.Spec.Affinity)
	}
}

func (s *stage) isGated(name string) bool {
	return move.IsGated(testkit.Get[corev1.Pod](s.Home, ns, name))
}

func TestPodIsSteered(t *testing.T) {
	s := newSteering(t)
	pm := s.look()
	s.expect(pm, v1alpha1.MoveSteering, metav1.ConditionFalse, v1alpha1.ReasonMoving, "Waiting for ReplicaSet web-1 to make a pod in the place of web-1-a")
	if pm.Status.Method != v1alpha1.MoveSteer || !pm.Status.GateUntil.Time.Equal(s.Clock.Now().Add(move.GateFor)) {
		t.Errorf("method %s, gated until %v", pm.Status.Method, pm.Status.GateUntil)
	}
	if diff := cmp.Diff([]string{"web-1-b"}, s.pods()); diff != "" {
		t.Errorf("the original is there: %s", diff)
	}
	s.succeeds("web-1-c")
	s.succeeds("web-1-d") // as when the owner is scaled up just then
	pm = s.look()
	s.expect(pm, v1alpha1.MoveHandingOver, metav1.ConditionFalse, v1alpha1.ReasonMoving, "web-1-c to be Ready")
	if pm.Status.GateUntil != nil || s.isGated("web-1-c") || !s.isGated("web-1-d") {
		t.Errorf("gated until %v, gated pods: %t, %t", pm.Status.GateUntil, s.isGated("web-1-c"), s.isGated("web-1-d"))
	}
	s.lookAtGate("web-1-d")
	s.isFree("web-1-d")
	s.runs("web-1-c")
	pm = s.look()
	s.expect(pm, v1alpha1.MoveSucceeded, metav1.ConditionTrue, v1alpha1.ReasonMoved, "node there")
	if diff := cmp.Diff([]v1alpha1.MoveAction{v1alpha1.MoveEvicted, v1alpha1.MoveSteered}, actions(pm)); diff != "" {
		t.Error(diff)
	}
	if len(pm.Finalizers) > 0 || pm.Status.Copy.Name != "web-1-c" {
		t.Errorf("it is held by %v, and has copy %v", pm.Finalizers, pm.Status.Copy)
	}
	want := []string{
		"apply/status PodMove away", "dry-run/eviction Pod web-1-a", "apply/status PodMove away", "create/eviction Pod web-1-a", "apply/status PodMove away",
		"apply/status PodMove away", "patch Pod web-1-c", "apply/status PodMove away", "patch Pod web-1-d", "apply/status PodMove away", "patch PodMove away",
	}
	if diff := cmp.Diff(want, s.Home.Wrote()); diff != "" {
		t.Error(diff)
	}
}

func TestNoPodIsEvictedWhoseSuccessorIsNotGated(t *testing.T) {
	s := newSteering(t)
	s.Home.Refuse("create/eviction", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("not known yet")))
	s.expect(s.look(), v1alpha1.MoveSteering, metav1.ConditionFalse, v1alpha1.ReasonMoving, "not known yet")
	s.Clock.Step(2 * time.Minute)
	s.expect(s.look(), v1alpha1.MoveFailed, metav1.ConditionFalse, v1alpha1.ReasonDeadlineExceeded, "not known yet")
	s.untouched()
}

func TestNothingIsGatedWhileABudgetHoldsTheOriginal(t *testing.T) {
	for _, prefix := range []string{"dry-run/eviction", "create/eviction"} {
		t.Run(prefix, func(t *testing.T) {
			s := newSteering(t)
			stop := s.Home.Refuse(prefix, apierrors.NewTooManyRequests("disruption budget", 1))
			pm := s.look()
			s.expect(pm, v1alpha1.MoveSteering, metav1.ConditionFalse, v1alpha1.ReasonEvictionBlocked, "disruption budget")
			if pm.Status.GateUntil != nil {
				t.Errorf("gated until %v", pm.Status.GateUntil)
			}
			stop()
			s.look()
			s.succeeds("web-1-c")
			s.look()
			s.runs("web-1-c")
			s.expect(s.look(), v1alpha1.MoveSucceeded, metav1.ConditionTrue, v1alpha1.ReasonMoved)
		})
	}
}

func TestSteeringEndsWithNothingGated(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(*stage)
		phase   v1alpha1.MovePhase
		reason  string
	}{
		"the PodMove is deleted": {func(s *stage) { s.Home.Remove(testkit.Get[v1alpha1.PodMove](s.Home, ns, "away")) }, "", ""},
		"the deadline passes":    {func(s *stage) { s.Clock.Step(2 * time.Minute) }, v1alpha1.MoveFailed, v1alpha1.ReasonDeadlineExceeded},
		"a rollout": {func(s *stage) {
			testkit.Change(s.Home, ns, "web", func(d *appsv1.Deployment) { d.Annotations[revision] = "2" })
		}, v1alpha1.MoveFailed, v1alpha1.ReasonRolloutUnderWay},
		"the owner is deleted": {func(s *stage) { s.Home.Remove(testkit.Get[appsv1.ReplicaSet](s.Home, ns, "web-1")) }, v1alpha1.MoveFailed, v1alpha1.ReasonOwnerLost},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSteering(t)
			s.look()
			s.succeeds("web-1-c")
			test.happens(s)
			s.World.Reconcile(s.Mover, ns, "away")
			if test.phase != "" {
				s.expect(testkit.Get[v1alpha1.PodMove](s.Home, ns, "away"), test.phase, metav1.ConditionFalse, test.reason)
			} else if s.Home.Find(&v1alpha1.PodMove{}, ns, "away") {
				t.Error("the PodMove is still there")
			}
			s.lookAtGate("web-1-c")
			s.isFree("web-1-c")
		})
	}
}

func TestGateStaysWhileItsMoveGoesOn(t *testing.T) {
	s := newSteering(t)
	s.look()
	s.succeeds("web-1-c")
	s.Home.Wrote()
	result, err := (&gates{s.Mover}).Reconcile(t.Context(), testkit.Request(ns, "web-1-c"))
	if err != nil || result.RequeueAfter != lookAgain || !s.isGated("web-1-c") {
		t.Errorf("%v, %v", result, err)
	}
	s.Home.ExpectWrites()
}

func TestReplacementThatCannotStartIsLetGo(t *testing.T) {
	s := newSteering(t)
	s.look()
	s.succeeds("web-1-c")
	s.look()
	s.Clock.Step(2 * time.Minute)
	pm := s.look()
	s.expect(pm, v1alpha1.MoveFailed, metav1.ConditionFalse, v1alpha1.ReasonDeadlineExceeded, "not Ready in time")
	if slices.Contains(s.pods(), "web-1-c") || actions(pm)[2] != v1alpha1.MoveCopyEvicted {
		t.Errorf("there are %v after %v", s.pods(), actions(pm))
	}
}

func TestBudgetsAreSeenBefore(t *testing.T) {
	s := newSteering(t)
	s.Home.Put(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "all"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
		Status: policyv1.PodDisruptionBudgetStatus{ExpectedPods: 2, DesiredHealthy: 2},
	})
	s.expect(s.look(), v1alpha1.MoveFailed, metav1.ConditionFalse, v1alpha1.ReasonQuotaExceeded, "PodDisruptionBudget all wants all its pods")
	s.untouched()
}

// Whichever write a manager dies before, the next one brings the move to its end, and evicts nothing else.
func TestManagerMayDieBeforeEachWriteOfSteering(t *testing.T) {
	for point := 1; point <= 10; point++ {
		t.Run(fmt.Sprintf("write %d", point), func(t *testing.T) {
			s := newSteering(t)
			s.diesBefore(point)
			evictions := s.steersOn()
			s.expect(testkit.Get[v1alpha1.PodMove](s.Home, ns, "away"), v1alpha1.MoveSucceeded, metav1.ConditionTrue, v1alpha1.ReasonMoved)
			if diff := cmp.Diff([]string{"web-1-b", "web-1-c"}, s.pods()); diff != "" || slices.ContainsFunc(evictions, func(w string) bool { return w != "create/eviction Pod web-1-a" }) {
				t.Errorf("after %v: %s", evictions, diff)
			}
		})
	}
}

// steersOn has new managers look again and again, and the owner and the scheduler do what they do. It returns what was evicted.
func (s *stage) steersOn() (evictions []string) {
	s.Helper()
	for range 8 {
		s.died = false
		if _, err := s.Mover.Reconcile(s.Context(), testkit.Request(ns, "away")); err != nil && !s.died {
			s.Fatal(err)
		}
		evictions = append(evictions, slices.DeleteFunc(s.Home.Wrote(), func(w string) bool { return !strings.HasPrefix(w, "create/eviction") })...)
		switch pods := s.pods(); {
		case len(pods) == 1:
			s.succeeds("web-1-c")
		case slices.Contains(pods, "web-1-c") && testkit.Get[corev1.Pod](s.Home, ns, "web-1-c").Spec.Affinity != nil:
			s.runs("web-1-c")
		}
	}
	return evictions
}

// The pods of an owner that Hanse knows nothing about are found, too.
func TestPodOfAnOperatorIsSteered(t *testing.T) {
	s := newStage(t)
	theirs := func(name string) *corev1.Pod {
		pod := s.pod(name)
		pod.Labels = nil
		pod.OwnerReferences[0].APIVersion, pod.OwnerReferences[0].Kind, pod.OwnerReferences[0].UID = "example.org/v1", "Database", "database"
		return pod
	}
	s.Home.Put(theirs("db-a"))
	s.move = s.wanted("theirs", "db-a")
	s.Home.Put(s.move)
	s.expect(s.look(), v1alpha1.MoveSteering, metav1.ConditionFalse, v1alpha1.ReasonMoving, "Database web-1")
	made := theirs("db-b")
	made.Spec.NodeName, made.Status = "", corev1.PodStatus{}
	made.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.GateMove}}
	if err := s.Home.Server.Create(t.Context(), made); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	s.look()
	s.runs("db-b")
	s.expect(s.look(), v1alpha1.MoveSucceeded, metav1.ConditionTrue, v1alpha1.ReasonMoved)
}
