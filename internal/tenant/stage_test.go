// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// stage is a world with a twin namespace and one ShadowPod.
type stage struct {
	*world
	pods  *shadowPodReconciler
	woken *woken
	twin  string
}

// woken is the queue of the controller.
type woken []string

func (q *woken) Add(request reconcile.Request) { *q = append(*q, request.Name) }

// AddAfter does not wait: the clock of tests is stepped by hand.
func (q *woken) AddAfter(request reconcile.Request, _ time.Duration) { q.Add(request) }

func shadowPod() *v1alpha1.ShadowPod {
	return &v1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: lubeck.name(), UID: "shadow-uid", Generation: 1,
			Finalizers: []string{v1alpha1.FinalizerShadowPod},
		},
		Spec: v1alpha1.ShadowPodSpec{
			HomeUID: "home-uid",
			Pod:     `{"spec":{"containers":[{"name":"c","image":"i:1"}]}}`,
		},
	}
}

func newStage(t *testing.T, shadow *v1alpha1.ShadowPod, objects ...client.Object) *stage {
	t.Helper()
	return newStageOf(t, peer(), append(objects, shadow)...)
}

// newStageOf returns a stage whose pods are of that peer.
func newStageOf(t *testing.T, of *v1alpha1.Peer, objects ...client.Object) *stage {
	t.Helper()
	w := newWorld(t, append(objects, of, lubeck.namespace(of.Spec.PodSecurity))...)
	s := &stage{world: w, pods: newShadowPodReconciler(w.config(), w.Home.Client, w.Home.Server, w.Home.Server), woken: &woken{}, twin: lubeck.name()}
	s.pods.queue = s.woken
	return s
}

func (s *stage) run() time.Duration {
	s.Helper()
	return s.Reconcile(s.pods, s.twin, "web").RequeueAfter
}

func (s *stage) shadow() *v1alpha1.ShadowPod {
	s.Helper()
	return testkit.Get[v1alpha1.ShadowPod](s.Home, s.twin, "web")
}

// pod returns the pod, and nil if there is none.
func (s *stage) pod() *corev1.Pod {
	s.Helper()
	pod := &corev1.Pod{}
	if !s.Home.Find(pod, s.twin, "web") {
		return nil
	}
	return pod
}

// becomes sets the status of the pod as its kubelet would.
func (s *stage) becomes(change func(*corev1.PodStatus)) {
	s.Helper()
	testkit.Change(s.Home, s.twin, "web", func(pod *corev1.Pod) { change(&pod.Status) })
}

func (s *stage) running(status *corev1.PodStatus) {
	now := metav1.NewTime(s.Clock.Now())
	status.Phase = corev1.PodRunning
	status.StartTime = &now
	status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
	}
	status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "c", Ready: true, RestartCount: 2, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
	}}
}

// somebodyDeletes deletes the pod; its kubelet still holds it.
func (s *stage) somebodyDeletes() {
	s.Helper()
	s.Home.Remove(s.pod())
}

// kubeletLetsGo ends a pod that is being deleted.
func (s *stage) kubeletLetsGo() {
	s.Helper()
	testkit.Change(s.Home, s.twin, "web", func(pod *corev1.Pod) {
		pod.DeletionGracePeriodSeconds = ptr.To[int64](0)
		pod.Finalizers = slices.DeleteFunc(pod.Finalizers, func(f string) bool { return f == kubeletHolds })
	})
}

// homeDeletes deletes the ShadowPod as the consumer does.
func (s *stage) homeDeletes(grace *int64) {
	s.Helper()
	shadow := s.shadow()
	shadow.Spec.DeletionGracePeriodSeconds = grace
	s.Home.Put(shadow)
	if shadow.DeletionTimestamp.IsZero() {
		s.Home.Remove(shadow)
	}
}

func forbidden403() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("violates PodSecurity"))
}
