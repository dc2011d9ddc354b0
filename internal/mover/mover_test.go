// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/move"
	"github.com/hanse-dev/hanse/internal/testkit"
)

const (
	ns       = "shop"
	copyName = "web-1-" // and what the UID of the move makes of itself
)

// stage is a Deployment with two pods on node here, one of which is to move to node there.
type stage struct {
	*testkit.World
	*Mover
	move *v1alpha1.PodMove
	died bool
}

func newStage(t *testing.T) *stage {
	t.Helper()
	w := testkit.NewWorld(t)
	s := &stage{World: w, Mover: New(Config{Client: w.Home.Client, Live: w.Home.Client, Events: w.Events, Clock: w.Clock})}
	for _, name := range []string{"here", "there"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		node.Status.Allocatable = testkit.Resources("4", "8Gi", "10")
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		w.Home.Put(node)
	}
	labels := map[string]string{"app": "web", "pod-template-hash": "1"}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web", UID: "deployment", Annotations: map[string]string{revision: "1"}}}
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: "web-1", UID: "set", Annotations: map[string]string{revision: "1"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "deployment", Controller: ptr.To(true)}},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web:1"}}}},
		},
	}
	w.Home.Put(deployment, set, s.pod("web-1-a"), s.pod("web-1-b"))
	s.move = s.wanted("away", "web-1-a")
	w.Home.Put(s.move)
	return s
}

func (s *stage) pod(name string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: name, Labels: map[string]string{"app": "web", "pod-template-hash": "1"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1", UID: "set", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{NodeName: "here", Containers: []corev1.Container{{Name: "main", Image: "web:1"}}},
	}
	becomeReady(pod)
	return pod
}

func becomeReady(pod *corev1.Pod) {
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(testkit.Noon)}}
}

func (s *stage) wanted(name, pod string) *v1alpha1.PodMove {
	return &v1alpha1.PodMove{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Finalizers: []string{v1alpha1.FinalizerPodMove}},
		Spec: v1alpha1.PodMoveSpec{
			Pod:         v1alpha1.MovedPod{Name: pod, UID: testkit.Get[corev1.Pod](s.Home, ns, pod).UID},
			Destination: v1alpha1.MoveDestination{Node: "there"}, Deadline: &metav1.Duration{Duration: time.Minute},
		},
	}
}

// look has the controller look at the move, and returns the move.
func (s *stage) look() *v1alpha1.PodMove {
	s.Helper()
	s.World.Reconcile(s.Mover, ns, s.move.Name)
	return testkit.Get[v1alpha1.PodMove](s.Home, ns, s.move.Name)
}

// countLooks counts how often a move is observed.
func (s *stage) countLooks() *int {
	looks := new(int)
	s.Home.OnRead(func(read testkit.Read) error {
		if read.Kind == "PodMove" {
			*looks++
		}
		return nil
	})
	return looks
}

// expectCosts checks what a move has cost.
func (s *stage) expectCosts(observed *int) {
	s.Helper()
	if writes := s.Home.Wrote(); len(writes) > 9 || *observed > 5 { // the copy's own creation is one
		s.Errorf("%d writes: %v, and all was observed %d times", len(writes), writes, *observed)
	}
}

// copyOf returns the copy, nil if there is none.
func (s *stage) copy() *corev1.Pod {
	s.Helper()
	for _, name := range s.Home.Names(&corev1.PodList{}, ns) {
		if strings.HasPrefix(name, copyName) && len(name) == len(copyName)+8 {
			return testkit.Get[corev1.Pod](s.Home, ns, name)
		}
	}
	return nil
}

// starts has the copy be bound, and become Ready.
func (s *stage) starts() {
	s.Helper()
	testkit.Change(s.Home, ns, s.copy().Name, func(pod *corev1.Pod) { pod.Spec.NodeName = "there"; becomeReady(pod) })
}

// adopts does what the ReplicaSet does when it has one pod too many.
func (s *stage) adopts() {
	s.Helper()
	testkit.Change(s.Home, ns, s.copy().Name, func(pod *corev1.Pod) { pod.OwnerReferences = s.pod("x").OwnerReferences })
	set := &corev1.PodList{}
	if err := s.Home.Server.List(s.Context(), set, client.InNamespace(ns), client.MatchingLabels{"pod-template-hash": "1"}); err != nil {
		s.Fatal(err)
	}
	if len(set.Items) > 2 {
		s.Home.Remove(move.DeletionOrder(set.Items, s.Clock.Now())[0])
	}
}

func (s *stage) expect(pm *v1alpha1.PodMove, phase v1alpha1.MovePhase, complete metav1.ConditionStatus, reason string, texts ...string) {
	s.Helper()
	if pm.Status.Phase != phase {
		s.Errorf("phase %s, want %s", pm.Status.Phase, phase)
	}
	testkit.ExpectCondition(s, pm.Status.Conditions, v1alpha1.ConditionComplete, complete, reason, texts...)
}

func actions(pm *v1alpha1.PodMove) (all []v1alpha1.MoveAction) {
	for _, step := range pm.Status.Steps {
		all = append(all, step.Action)
	}
	return all
}

func TestPodMoves(t *testing.T) {
	s := newStage(t)
	observed := s.countLooks()
	pm := s.look()
	s.expect(pm, v1alpha1.MoveCopying, metav1.ConditionFalse, v1alpha1.ReasonMoving, "to be Ready")
	made := s.copy()
	if _, counted := made.Labels["pod-template-hash"]; counted || made.Labels["app"] != "web" {
		t.Errorf("the copy has labels %v", made.Labels)
	}
	s.starts()
	pm = s.look()
	s.expect(pm, v1alpha1.MoveHandingOver, metav1.ConditionFalse, v1alpha1.ReasonMoving, "adopt")
	if cost := testkit.Get[corev1.Pod](s.Home, ns, "web-1-a").Annotations[corev1.PodDeletionCost]; cost != move.LowestCost {
		t.Errorf("the original costs %q", cost)
	}
	s.adopts()
	pm = s.look()
	s.expect(pm, v1alpha1.MoveSucceeded, metav1.ConditionTrue, v1alpha1.ReasonMoved, "node there")
	if diff := cmp.Diff([]string{"web-1-b", made.Name}, s.pods()); diff != "" {
		t.Error(diff)
	}
	stays := s.copy()
	if diff := cmp.Diff(map[string]string{"app": "web", "pod-template-hash": "1"}, stays.Labels); diff != "" {
		t.Error(diff)
	}
	if len(stays.Annotations) > 0 || stays.UID != pm.Status.Copy.UID || pm.Status.Copy.Node != "there" {
		t.Errorf("it has annotations %v and UID %s, and %+v is noted", stays.Annotations, stays.UID, pm.Status.Copy)
	}
	if len(pm.Finalizers) > 0 {
		t.Errorf("it is held by %v", pm.Finalizers)
	}
	want := []v1alpha1.MoveAction{v1alpha1.MoveCopied, v1alpha1.MoveCostLowered, v1alpha1.MoveHandedOver, v1alpha1.MoveSettled}
	if diff := cmp.Diff(want, actions(pm)); diff != "" {
		t.Error(diff)
	}
	s.ExpectEvents(v1alpha1.ReasonMoved, v1alpha1.ReasonMoved)
	s.expectCosts(observed)
	s.look()
	s.Home.ExpectWrites()
}

func (s *stage) pods() []string { return s.Home.Names(&corev1.PodList{}, ns) }

// untouched checks that the pods are as they were.
func (s *stage) untouched() {
	s.Helper()
	if diff := cmp.Diff([]string{"web-1-a", "web-1-b"}, s.pods()); diff != "" {
		s.Error(diff)
	}
	if original := testkit.Get[corev1.Pod](s.Home, ns, "web-1-a"); len(original.Annotations) > 0 {
		s.Errorf("the original has annotations %v", original.Annotations)
	}
}

func TestWhatFailsIsRolledBack(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(*stage)
		reason  string
	}{
		"the copy is not Ready in time": {func(s *stage) { s.Clock.Step(2 * time.Minute) }, v1alpha1.ReasonDeadlineExceeded},
		"a rollout": {func(s *stage) {
			testkit.Change(s.Home, ns, "web", func(d *appsv1.Deployment) { d.Annotations[revision] = "2" })
		}, v1alpha1.ReasonRolloutUnderWay},
		"the owner goes to nothing": {func(s *stage) {
			testkit.Change(s.Home, ns, "web-1", func(set *appsv1.ReplicaSet) { set.Spec.Replicas = ptr.To[int32](0) })
		}, v1alpha1.ReasonRolloutUnderWay},
		"the copy fails": {func(s *stage) {
			testkit.Change(s.Home, ns, s.copy().Name, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		}, v1alpha1.ReasonCopyLost},
		"somebody deletes the copy": {func(s *stage) { s.Home.Remove(s.copy()) }, v1alpha1.ReasonCopyLost},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.look()
			test.happens(s)
			s.expect(s.look(), v1alpha1.MoveFailed, metav1.ConditionFalse, test.reason)
			s.untouched()
			s.ExpectEvents(test.reason, test.reason)
		})
	}
}

func TestDeletionAborts(t *testing.T) {
	s := newStage(t)
	testkit.Change(s.Home, ns, "web-1-a", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: "7"} })
	s.look()
	s.starts()
	s.Home.Refuse("patch Pod "+copyName, errors.New("not now"))
	if _, err := s.Mover.Reconcile(t.Context(), testkit.Request(ns, "away")); err == nil {
		t.Fatal("the copy took over")
	}
	s.Home.Remove(testkit.Get[v1alpha1.PodMove](s.Home, ns, "away"))
	s.World.Reconcile(s.Mover, ns, "away")
	if s.Home.Find(&v1alpha1.PodMove{}, ns, "away") {
		t.Error("the move is still there")
	}
	if cost := testkit.Get[corev1.Pod](s.Home, ns, "web-1-a").Annotations[corev1.PodDeletionCost]; cost != "7" {
		t.Errorf("the original costs %q", cost)
	}
	if s.copy() != nil {
		t.Error("the copy is still there")
	}
}

func TestNothingIsTouchedThatCannotMove(t *testing.T) {
	s := newStage(t)
	testkit.Change(s.Home, "", "there", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	s.expect(s.look(), v1alpha1.MoveFailed, metav1.ConditionFalse, v1alpha1.ReasonNodeClosed, "kubectl uncordon there")
	s.untouched()
}

func TestRefusedCopyEndsTheMove(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	s := newStage(t)
	s.Home.Refuse("create Pod", apierrors.NewForbidden(pods, "web", errors.New("exceeded quota: tight")))
	s.expect(s.look(), v1alpha1.MoveFailed, metav1.ConditionFalse, v1alpha1.ReasonCopyRefused, "exceeded quota")
	s.untouched()
}

func TestBudgetHoldsTheOriginal(t *testing.T) {
	s := newStage(t)
	testkit.Change(s.Home, ns, "web-1-b", func(p *corev1.Pod) { p.Status.Conditions = nil }) // it would be deleted first
	stop := s.Home.Refuse("create/eviction Pod", apierrors.NewTooManyRequests("disruption budget", 1))
	s.look()
	s.starts()
	s.expect(s.look(), v1alpha1.MoveCopying, metav1.ConditionFalse, v1alpha1.ReasonEvictionBlocked, "disruption budget")
	stop()
	s.evicts()
	s.expect(s.look(), v1alpha1.MoveHandingOver, metav1.ConditionFalse, v1alpha1.ReasonMoving, "adopt")
	s.adopts()
	s.expect(s.look(), v1alpha1.MoveSucceeded, metav1.ConditionTrue, v1alpha1.ReasonMoved)
	if !slices.Contains(s.pods(), "web-1-b") {
		t.Error("the broken sibling was deleted")
	}
}

// evicts has the API server in memory delete what is evicted.
func (s *stage) evicts() {
	s.Home.Before(func(w testkit.Write) error {
		if w.Verb == "create/eviction" {
			s.Home.Remove(testkit.Get[corev1.Pod](s.Home, ns, w.Name))
		}
		return nil
	})
}

func TestAMoveIsRemovedSomeTimeAfterItIsOver(t *testing.T) {
	s := newStage(t)
	testkit.Change(s.Home, ns, s.move.Name, func(pm *v1alpha1.PodMove) {
		pm.Spec.Destination.Node, pm.Spec.TTLSecondsAfterFinished = "nowhere", ptr.To[int32](3600)
	})
	if pm := s.look(); pm.Status.Phase != v1alpha1.MoveFailed || !pm.Status.FinishedAt.Time.Equal(s.Clock.Now()) {
		t.Fatalf("its status is %+v", pm.Status)
	}
	s.Clock.Step(time.Hour - time.Minute)
	if again := s.World.Reconcile(s.Mover, ns, s.move.Name).RequeueAfter; again != time.Minute || !s.Home.Find(s.move, ns, s.move.Name) {
		t.Errorf("it is gone, or looked at again after %s", again)
	}
	s.Clock.Step(time.Minute)
	s.World.Reconcile(s.Mover, ns, s.move.Name)
	if s.Home.Find(s.move, ns, s.move.Name) {
		t.Error("it is there yet")
	}
}

func TestBarePodMoves(t *testing.T) {
	s := newStage(t)
	lone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web-1", Labels: map[string]string{"app": "tool"}}, Spec: s.pod("x").Spec}
	becomeReady(lone)
	s.Home.Put(lone)
	s.move = s.wanted("lone", "web-1")
	s.Home.Put(s.move)
	s.evicts()
	s.look()
	s.starts()
	s.expect(s.look(), v1alpha1.MoveSucceeded, metav1.ConditionTrue, v1alpha1.ReasonMoved)
	if stays := s.copy(); s.Home.Find(lone, ns, "web-1") || len(stays.OwnerReferences) > 0 || stays.Labels["app"] != "tool" {
		t.Errorf("there are %v, and the copy has labels %v and owners %v", s.pods(), stays.Labels, stays.OwnerReferences)
	}
}
