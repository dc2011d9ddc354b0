// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// A manager that dies before any of its writes is followed by one that ends the move the same way, and by no second copy.
func TestManagerMayDieBeforeEachWrite(t *testing.T) {
	first := map[bool]int{false: 1, true: 5} // with a broken sibling the original is evicted, which is the fifth write
	for _, broken := range []bool{false, true} {
		for point := first[broken]; point <= 9; point++ {
			t.Run(fmt.Sprintf("write %d, broken sibling: %t", point, broken), func(t *testing.T) {
				s := newStage(t)
				if broken {
					testkit.Change(s.Home, ns, "web-1-b", func(p *corev1.Pod) { p.Status.Conditions = nil })
				}
				s.diesBefore(point)
				s.evicts()
				created := s.goesOn()
				s.expect(testkit.Get[v1alpha1.PodMove](s.Home, ns, "away"), v1alpha1.MoveSucceeded, metav1.ConditionTrue, v1alpha1.ReasonMoved)
				if pods := s.pods(); len(pods) != 2 || slices.Contains(pods, "web-1-a") || !slices.Contains(pods, "web-1-b") {
					t.Errorf("there are %v", pods)
				}
				if created > 2 { // one of which may have been the one before which it died
					t.Errorf("%d copies were created", created)
				}
			})
		}
	}
}

// goesOn has new managers look again and again, and the cluster do what it does meanwhile. It returns how many copies they asked for.
func (s *stage) goesOn() (created int) {
	s.Helper()
	for range 12 {
		s.died = false
		_, err := s.Mover.Reconcile(s.Context(), testkit.Request(ns, "away"))
		if err != nil && !s.died {
			s.Fatal(err)
		}
		created += len(slices.DeleteFunc(s.Home.Wrote(), func(w string) bool { return !strings.HasPrefix(w, "create Pod") }))
		switch pod := s.copy(); {
		case pod == nil:
		case pod.Spec.NodeName == "":
			s.starts()
		case len(pod.OwnerReferences) == 0 && testkit.Get[v1alpha1.PodMove](s.Home, ns, "away").Status.Phase != v1alpha1.MoveSucceeded:
			s.adopts()
		}
	}
	return created
}

// diesBefore has the process end before its nth write.
func (s *stage) diesBefore(n int) {
	count := 0
	s.Home.Before(func(testkit.Write) error {
		count++
		s.died = s.died || count == n
		if s.died {
			return errors.New("killed")
		}
		return nil
	})
}
