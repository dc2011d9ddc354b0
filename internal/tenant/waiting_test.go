// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// queueOf returns a stage with so many ShadowPods of one size, and a limit for a few of them.
func queueOf(t *testing.T, records int, limit string) *stage {
	t.Helper()
	shadows := make([]client.Object, records)
	for i := range shadows {
		shadows[i] = asking(fmt.Sprintf("pod-%03d", i), "1")
	}
	s := newStageOf(t, limited("cpu", limit), shadows...)
	s.rules(`allow := true`)
	for _, shadow := range shadows {
		s.runOf(shadow.GetName())
	}
	*s.woken = nil
	return s
}

// called lets all run that were woken, as the workers would.
func (s *stage) called() {
	s.Helper()
	for len(*s.woken) > 0 {
		name := (*s.woken)[0]
		*s.woken = (*s.woken)[1:]
		s.runOf(name)
	}
}

func (s *stage) ends(name string) {
	s.Helper()
	s.changes(name, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })
	s.runOf(name)
}

func (s *stage) made() []string {
	s.Helper()
	return s.Home.Names(&corev1.PodList{}, s.twin)
}

func TestFreedPlacesHavePoliciesAskedOnceEach(t *testing.T) {
	const records, places = 60, 5
	s := queueOf(t, records, fmt.Sprint(places))
	s.expectAsked(records)
	for ended := 0; ended < records; ended++ {
		all := s.made()
		if want := min(ended+places, records); len(all) != want {
			t.Fatalf("%d pods were made, want %d", len(all), want)
		}
		s.ends(all[ended])
		s.called()
	}
	s.expectAsked(records - places)
	if l := s.pods.ledger; len(l.waiting)+len(l.rooms)+len(l.used) != 0 {
		t.Errorf("the ledger still has %+v", l)
	}
}

func TestPlacesThatAreFreedTogetherCallAsMany(t *testing.T) {
	s := queueOf(t, 20, "5")
	s.expectAsked(20)
	for _, name := range s.made()[:3] {
		s.ends(name)
	}
	s.called()
	s.expectAsked(3)
	if got := len(s.made()); got != 8 {
		t.Errorf("%d pods were made, want 8", got)
	}
}

// What was called and does not take its place leaves it to the next.
func TestPlaceIsNotLostWithTheOneThatWasCalled(t *testing.T) {
	for name, happens := range map[string]func(s *stage, called string){
		"home takes it back": func(s *stage, called string) {
			testkit.Change(s.Home, s.twin, called, func(shadow *v1alpha1.ShadowPod) { shadow.Finalizers = nil })
			s.Home.Remove(testkit.Get[v1alpha1.ShadowPod](s.Home, s.twin, called))
		},
		"policies refuse it": func(s *stage, called string) {
			s.rules(fmt.Sprintf(`deny contains "no" if input.pod.metadata.name == %q`, called))
			*s.woken = woken{called}
		},
		"its name is taken": func(s *stage, called string) { s.Home.Put(testkit.Pod(s.twin, called, "")) },
		"it asks for more": func(s *stage, called string) {
			testkit.Change(s.Home, s.twin, called, func(shadow *v1alpha1.ShadowPod) { shadow.Spec.Pod = asking(called, "2").Spec.Pod })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := queueOf(t, 3, "1")
			s.ends("pod-000")
			called := (*s.woken)[0]
			happens(s, called)
			s.called()
			last := "pod-001"
			if called == last {
				last = "pod-002"
			}
			if !s.has(last) {
				t.Errorf("%s has no pod", last)
			}
		})
	}
}

func TestPlaceGoesToTheSmallWhereTheLargeHaveNoRoom(t *testing.T) {
	s := newStageOf(t, limited("cpu", "2"), asking("first", "1500m"), asking("second", "500m"), asking("large", "2"), asking("small", "500m"))
	for _, name := range []string{"first", "second", "large", "small"} {
		s.runOf(name)
	}
	s.ends("second")
	s.called()
	if s.has("large") || !s.has("small") {
		t.Errorf("there are pods %v", s.made())
	}
}

// BenchmarkFreedPlace is what it costs that one of 10,000 that wait gets the place of another.
func BenchmarkFreedPlace(b *testing.B) {
	for name, sizes := range map[string]int{"one size": 1, "1,000 sizes": 1000} {
		b.Run(name, func(b *testing.B) {
			var called []reconcile.Request
			l := newLedger(newRoom("64"), func(requests []reconcile.Request) { called = append(called, requests...) })
			limits := cpus(1_000_000)
			claimants := map[types.NamespacedName]claimant{}
			runs := claimant{NamespacedName: types.NamespacedName{Name: "first"}, peer: "lubeck"}
			l.reserve(runs, limits, limits)
			for i := range 10_000 {
				who := claimant{NamespacedName: types.NamespacedName{Name: fmt.Sprint(i)}, peer: "lubeck"}
				claimants[who.NamespacedName] = who
				l.enter(who)
				l.reserve(who, cpus(1_000_000-i%sizes), limits)
			}
			b.ReportAllocs()
			for b.Loop() {
				called = nil
				l.enter(runs) // to wait again, behind all others
				l.refuse(runs.NamespacedName)
				if len(called) != 1 {
					b.Fatalf("called %d", len(called))
				}
				next := claimants[called[0].NamespacedName]
				claimants[runs.NamespacedName] = runs
				l.enter(next)
				l.reserve(next, cpus(1_000_000), limits)
				l.reserve(runs, cpus(1_000_000), limits)
				runs = next
			}
		})
	}
}

func cpus(milli int) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(milli), resource.DecimalSI)}
}
