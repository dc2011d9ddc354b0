// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestOnlyPodOfItsOwnerKeepsItsCost(t *testing.T) {
	s := newStage(t)
	s.Home.Remove(testkit.Get[corev1.Pod](s.Home, ns, "web-1-b"))
	testkit.Change(s.Home, ns, "web-1", func(set *appsv1.ReplicaSet) { set.Spec.Replicas = ptr.To[int32](1) })
	s.Home.Wrote()
	s.look()
	s.starts()
	s.look()
	copied := s.copy().Name
	s.Home.ExpectWrites(
		"apply/status PodMove away", "create Pod "+copied, "apply/status PodMove away", "patch Pod "+copied, "apply/status PodMove away",
	)
	testkit.Change(s.Home, ns, copied, func(pod *corev1.Pod) { pod.OwnerReferences = s.pod("x").OwnerReferences })
	s.Home.Remove(testkit.Get[corev1.Pod](s.Home, ns, "web-1-a"))
	s.expect(s.look(), v1alpha1.MoveSucceeded, metav1.ConditionTrue, v1alpha1.ReasonMoved)
	s.Home.ExpectWrites("patch Pod "+copied, "apply/status PodMove away", "patch PodMove away")
}

// What the owner does between two of our reads is not seen by halves.
func TestOwnerMayActWhileWeLook(t *testing.T) {
	s := newStage(t)
	s.look()
	s.starts()
	s.look()
	acted := false
	s.Home.OnRead(func(r testkit.Read) error {
		if r.Kind == "Pod" && r.Name != "web-1-a" && !acted {
			acted = true
			s.adopts()
		}
		return nil
	})
	s.Home.Wrote()
	s.expect(s.look(), v1alpha1.MoveSucceeded, metav1.ConditionTrue, v1alpha1.ReasonMoved)
	if writes := s.Home.Wrote(); slices.Contains(writes, "create/eviction Pod web-1-a") {
		t.Errorf("the original was evicted: %v", writes)
	}
}

func TestMovesOfOneOwnerFollowEachOther(t *testing.T) {
	s := newStage(t)
	s.look()
	second := s.wanted("second", "web-1-b")
	s.Home.Put(second)
	s.World.Reconcile(s.Mover, ns, "second")
	s.expect(testkit.Get[v1alpha1.PodMove](s.Home, ns, "second"), v1alpha1.MovePending, metav1.ConditionFalse, v1alpha1.ReasonWaitsForOther, "another PodMove")
	s.starts()
	s.look()
	s.adopts()
	over := s.look()
	if diff := cmp.Diff([]string{"second"}, names(s.waiting(t.Context(), over))); diff != "" {
		t.Errorf("who goes on: %s", diff)
	}
	s.World.Reconcile(s.Mover, ns, "second")
	s.expect(testkit.Get[v1alpha1.PodMove](s.Home, ns, "second"), v1alpha1.MoveCopying, metav1.ConditionFalse, v1alpha1.ReasonMoving)
}

func names(requests []reconcile.Request) (all []string) {
	for _, r := range requests {
		all = append(all, r.Name)
	}
	return all
}
