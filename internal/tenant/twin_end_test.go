// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// namespaceEnds has the twin be deleted, for as long as something is in it.
func (s *stage) namespaceEnds() {
	s.Helper()
	ns := testkit.Get[corev1.Namespace](s.Home, "", s.twin)
	ns.Finalizers = []string{"test/held"}
	s.Home.Put(ns)
	s.Home.Remove(ns)
}

// Somebody deletes the namespace moments after the pod has ended: home may not have read that yet.
func TestEndInATwinThatIsTakenAwayIsKeptUntilHomeHasHeardIt(t *testing.T) {
	for name, heard := range map[string]func(*stage){
		"home says so": func(s *stage) { s.homeHasHeard() },
		"home does not answer, which is waited for as long as elsewhere": func(s *stage) { s.Clock.Step(endKept) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, once(), tenantNamespace(), mappingOf("shop"))
			s.Clock.SetTime(time.Now().Add(-time.Hour)) // the time of a deletion is the true one
			s.run()
			s.becomes(succeeded)
			s.run()
			s.run()
			s.namespaceEnds()
			s.somebodyDeletes()
			s.kubeletLetsGo()
			s.homeDeletes(nil)
			s.Clock.SetTime(s.shadow().DeletionTimestamp.Time)
			if again := s.run(); s.gone() || again <= 0 || again > endKept {
				t.Fatalf("the record is gone: %t, and looked at again in %s", s.gone(), again)
			}
			heard(s)
			if s.run(); !s.gone() {
				t.Error("it is still kept")
			}
		})
	}
}

// The record may go before the manager has seen that the pod had done its work.
func TestWorkDoneInATwinThatIsTakenAwayIsTold(t *testing.T) {
	for phase, want := range map[corev1.PodPhase]string{
		corev1.PodSucceeded: "Succeeded",
		corev1.PodFailed:    "Running", // by its deletion: home makes another one
	} {
		t.Run(string(phase), func(t *testing.T) {
			s := newStage(t, once(), tenantNamespace(), mappingOf("shop"))
			s.run()
			s.becomes(s.running)
			s.run()
			s.namespaceEnds()
			s.homeDeletes(nil)
			s.run()
			s.becomes(func(status *corev1.PodStatus) { status.Phase = phase })
			s.run()
			if got := s.shadow().Status.Phase; got != want {
				t.Errorf("the record says %s, want %s", got, want)
			}
			s.run()
			s.kubeletLetsGo()
			if s.pod() != nil {
				t.Error("the pod is held for ever")
			}
		})
	}
}

func TestRightsInATwinGoLast(t *testing.T) {
	stray := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "stray", Namespace: lubeck.name()}}
	for name, c := range map[string]struct {
		ends bool
		left []client.Object
		kept bool
	}{
		"a twin that stays":    {kept: true},
		"an empty one":         {ends: true},
		"one with a ShadowPod": {ends: true, left: []client.Object{shadowPod()}, kept: true},
		"one with a pod":       {ends: true, left: []client.Object{stray}, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			bindings := []*rbacv1.RoleBinding{lubeck.managerBinding(&Config{Namespace: "hanse-system"}), lubeck.peerBinding(v1alpha1.AccessOpen)}
			objects := append(c.left, lubeck.namespace(v1alpha1.PodSecurityBaseline))
			for _, binding := range bindings {
				objects = append(objects, binding)
			}
			s := &stage{world: newWorld(t, objects...), twin: lubeck.name()}
			if c.ends {
				s.namespaceEnds()
			}
			for _, binding := range bindings {
				s.Home.Remove(binding)
			}
			again := s.Reconcile(&endReconciler{client: s.Home.Client, live: s.Home.Server}, "", lubeck.name()).RequeueAfter
			for _, binding := range bindings {
				if got := s.Home.Find(&rbacv1.RoleBinding{}, lubeck.name(), binding.Name); got != c.kept {
					t.Errorf("%s is there: %t, want %t", binding.Name, got, c.kept)
				}
			}
			if (again > 0) != (c.ends && c.kept) {
				t.Errorf("it is looked at again in %s", again)
			}
		})
	}
}
