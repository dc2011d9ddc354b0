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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/move"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// newRecreation is a stage with a pod of nobody's that is to move and to keep its name.
func newRecreation(t *testing.T) *stage {
	t.Helper()
	s := newStage(t)
	lone := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "lone", Labels: map[string]string{"app": "tool"}, Annotations: map[string]string{corev1.PodDeletionCost: "7"}},
		Spec:       s.pod("x").Spec,
	}
	becomeReady(lone)
	s.Home.Put(lone)
	s.move = s.wanted("keeps", "lone")
	s.move.Spec.Method = v1alpha1.MoveDeleteFirst
	s.Home.Put(s.move)
	return s
}

func (s *stage) lone() *corev1.Pod {
	s.Helper()
	return testkit.Get[corev1.Pod](s.Home, ns, "lone")
}

// loneStarts has the pod be bound there, and become Ready.
func (s *stage) loneStarts() {
	s.Helper()
	testkit.Change(s.Home, ns, "lone", func(pod *corev1.Pod) { pod.Spec.NodeName = "there"; becomeReady(pod) })
}

// isRestored checks that the pod is there once more, is nobody's, and may run anywhere.
func (s *stage) isRestored(pm *v1alpha1.PodMove) {
	s.Helper()
	pod := s.lone()
	if pod.UID == pm.Spec.Pod.UID || len(pod.OwnerReferences) > 0 || pod.Labels["app"] != "tool" || pod.Annotations[v1alpha1.AnnotationMove] != "" {
		s.Errorf("it is %+v", pod.ObjectMeta)
	}
	if diff := cmp.Diff([]string{"here"}, pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].Preference.MatchFields[0].Values); diff != "" ||
		pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		s.Errorf("it has affinity %v", pod.Spec.Affinity)
	}
	testkit.ExpectCondition(s, pm.Status.Conditions, v1alpha1.ConditionRestored, metav1.ConditionTrue, v1alpha1.ReasonRestored)
}

func TestPodKeepsItsName(t *testing.T) {
	s := newRecreation(t)
	pm := s.look()
	s.expect(pm, v1alpha1.MoveHandingOver, metav1.ConditionFalse, v1alpha1.ReasonMoving, "to be Ready")
	if pm.Status.Record == "" || pm.Status.Original.Node != "here" {
		t.Errorf("noted down is %+v", pm.Status)
	}
	if pod := s.lone(); pod.UID == pm.Spec.Pod.UID || len(pod.OwnerReferences) > 0 {
		t.Errorf("it is %v", pod.ObjectMeta)
	}
	s.loneStarts()
	pm = s.look()
	s.expect(pm, v1alpha1.MoveSucceeded, metav1.ConditionTrue, v1alpha1.ReasonMoved, "Pod lone was made again, and runs on node there")
	if diff := cmp.Diff([]v1alpha1.MoveAction{v1alpha1.MoveEvicted, v1alpha1.MoveCopied, v1alpha1.MoveHandedOver, v1alpha1.MoveSettled}, actions(pm)); diff != "" {
		t.Error(diff)
	}
	pod := s.lone()
	if diff := cmp.Diff(map[string]string{corev1.PodDeletionCost: "7"}, pod.Annotations); diff != "" || pod.UID != pm.Status.Copy.UID {
		t.Errorf("it has UID %s: %s", pod.UID, diff)
	}
	if pm.Status.Record != "" || len(pm.Finalizers) > 0 {
		t.Errorf("kept are %q and %v", pm.Status.Record, pm.Finalizers)
	}
	s.Home.ExpectWrites(
		"apply/status PodMove keeps", "create/eviction Pod lone", "create Pod lone", "apply/status PodMove keeps", "patch Pod lone",
		"apply/status PodMove keeps", "patch Pod lone", "apply/status PodMove keeps", "patch PodMove keeps",
	)
}

// While a budget holds the pod, it may change. As it was last, so it is made again.
func TestLastStateIsNotedDown(t *testing.T) {
	s := newRecreation(t)
	stop := s.Home.Refuse("create/eviction Pod", apierrors.NewTooManyRequests("disruption budget", 1))
	s.expect(s.look(), v1alpha1.MoveRecreating, metav1.ConditionFalse, v1alpha1.ReasonEvictionBlocked, "disruption budget")
	testkit.Change(s.Home, ns, "lone", func(pod *corev1.Pod) { pod.Labels["note"] = "new" })
	stop()
	s.look()
	if pod := s.lone(); pod.Labels["note"] != "new" {
		t.Errorf("it has labels %v", pod.Labels)
	}
}

func TestQuotaCountsAPodForAMoment(t *testing.T) {
	s := newRecreation(t)
	stop := s.Home.Refuse("create Pod", forbidden())
	s.expect(s.look(), v1alpha1.MoveRecreating, metav1.ConditionFalse, v1alpha1.ReasonCopyRefused, "exceeded quota")
	s.Clock.Step(createAgain)
	stop()
	s.look()
	s.loneStarts()
	s.expect(s.look(), v1alpha1.MoveSucceeded, metav1.ConditionTrue, v1alpha1.ReasonMoved)
}

func forbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "lone", errors.New("exceeded quota: tight"))
}

func TestRefusedPodIsRestored(t *testing.T) {
	s := newRecreation(t)
	stop := s.Home.Refuse("create Pod", forbidden())
	s.look()
	s.Clock.Step(move.RefusedFor)
	pm := s.look()
	s.expect(pm, v1alpha1.MoveRollingBack, metav1.ConditionFalse, v1alpha1.ReasonCopyRefused, "exceeded quota")
	testkit.ExpectCondition(s, pm.Status.Conditions, v1alpha1.ConditionRestored, metav1.ConditionFalse, v1alpha1.ReasonCopyRefused, "exceeded quota")
	stop()
	pm = s.look()
	s.expect(pm, v1alpha1.MoveFailed, metav1.ConditionFalse, v1alpha1.ReasonCopyRefused, "exceeded quota")
	s.isRestored(pm)
	s.ExpectEvents(v1alpha1.ReasonCopyRefused, v1alpha1.ReasonCopyRefused)
}

func TestPodThatDoesNotStartThere(t *testing.T) {
	for name, happens := range map[string]func(*stage){
		"is late": func(s *stage) { s.Clock.Step(2 * time.Minute) },
		"has failed": func(s *stage) {
			testkit.Change(s.Home, ns, "lone", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		},
		"is deleted": func(s *stage) { s.Home.Remove(s.lone()) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newRecreation(t)
			s.look()
			happens(s)
			pm := s.look()
			if pm.Status.Phase != v1alpha1.MoveFailed || !slices.Contains(actions(pm), v1alpha1.MoveRestored) {
				t.Errorf("it is %s after %v", pm.Status.Phase, actions(pm))
			}
			s.isRestored(pm)
		})
	}
}

func TestPodIsLeftThereIfAskedFor(t *testing.T) {
	s := newRecreation(t)
	testkit.Change(s.Home, ns, "keeps", func(pm *v1alpha1.PodMove) { pm.Spec.OnFailure = v1alpha1.OnFailureLeave })
	s.look()
	s.Clock.Step(2 * time.Minute)
	pm := s.look()
	s.expect(pm, v1alpha1.MoveFailed, metav1.ConditionFalse, v1alpha1.ReasonDeadlineExceeded)
	if pod := s.lone(); pod.UID != pm.Status.Copy.UID || pod.Annotations[v1alpha1.AnnotationMove] != "" || len(pod.OwnerReferences) > 0 {
		t.Errorf("it is %+v, and %+v is noted", pod.ObjectMeta, pm.Status.Copy)
	}
}

func TestDeletedPodMoveRestores(t *testing.T) {
	s := newRecreation(t)
	pm := s.look()
	s.Home.Remove(pm)
	s.World.Reconcile(s.Mover, ns, "keeps")
	if s.Home.Find(&v1alpha1.PodMove{}, ns, "keeps") {
		t.Error("the PodMove is still there")
	}
	if pod := s.lone(); pod.UID == pm.Status.Copy.UID || len(pod.OwnerReferences) > 0 {
		t.Errorf("it is %+v", pod.ObjectMeta)
	}
}

func TestSomebodyElsesPodIsLeftAlone(t *testing.T) {
	s := newRecreation(t)
	theirs := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "lone", Labels: map[string]string{"app": "theirs"}}}
	s.Home.Before(func(w testkit.Write) error {
		if w.Verb == "create" && w.Kind == "Pod" {
			s.Home.Put(theirs)
		}
		return nil
	})
	s.look()
	pm := s.look()
	s.expect(pm, v1alpha1.MoveFailed, metav1.ConditionFalse, v1alpha1.ReasonNameTaken)
	if pod := s.lone(); pod.UID != theirs.UID || len(pod.Annotations) > 0 || pm.Status.Record == "" {
		t.Errorf("there is %+v, and %q is kept", pod.ObjectMeta, pm.Status.Record)
	}
}

// In a namespace that is being deleted nothing is restored, and the PodMove does not hold it.
func TestEndingNamespaceIsNotHeld(t *testing.T) {
	s := newRecreation(t)
	ending := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "lone", errors.New("being terminated"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	s.Home.Refuse("create Pod", ending)
	pm := s.look()
	s.expect(pm, v1alpha1.MoveFailed, metav1.ConditionFalse, v1alpha1.ReasonCopyRefused, "being terminated")
	if len(pm.Finalizers) > 0 {
		t.Errorf("it is held by %v", pm.Finalizers)
	}
}

// Whichever write a manager dies before, the next one brings the move to its end: there is one such pod, at the destination or, if that
// does not start, restored.
func TestManagerMayDieBeforeEachWriteOfRecreation(t *testing.T) {
	for _, starts := range []bool{true, false} {
		for point := 1; point <= 12; point++ {
			t.Run(fmt.Sprintf("write %d, it starts: %t", point, starts), func(t *testing.T) {
				s := newRecreation(t)
				s.diesBefore(point)
				phase := v1alpha1.MoveFailed
				if starts {
					phase = v1alpha1.MoveSucceeded
				}
				created := s.recreatesOn(starts)
				pm := testkit.Get[v1alpha1.PodMove](s.Home, ns, "keeps")
				if pm.Status.Phase != phase || len(pm.Finalizers) > 0 {
					t.Errorf("it is %s, and held by %v", pm.Status.Phase, pm.Finalizers)
				}
				pod := s.lone()
				if starts && pod.UID != pm.Status.Copy.UID || len(pod.OwnerReferences) > 0 || pod.Annotations[v1alpha1.AnnotationMove] != "" {
					t.Errorf("there is %+v", pod.ObjectMeta)
				}
				if !starts {
					s.isRestored(pm)
				}
				if created > 3 { // there, back, and the one before which it died
					t.Errorf("%d pods were created", created)
				}
			})
		}
	}
}

// recreatesOn has new managers look again and again, and the pod start if it is to, or else not in time. It returns how many were asked for.
func (s *stage) recreatesOn(starts bool) (created int) {
	s.Helper()
	for range 12 {
		s.died = false
		if _, err := s.Mover.Reconcile(s.Context(), testkit.Request(ns, "keeps")); err != nil && !s.died {
			s.Fatal(err)
		}
		created += len(slices.DeleteFunc(s.Home.Wrote(), func(w string) bool { return !strings.HasPrefix(w, "create Pod") }))
		switch waits := s.Home.Find(&corev1.Pod{}, ns, "lone") && s.lone().Spec.NodeName == ""; {
		case waits && starts:
			s.loneStarts()
		case waits:
			s.Clock.Step(2 * time.Minute)
		}
	}
	return created
}
