// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// flip makes the pod ready, or not ready any more.
func flip(status *corev1.PodStatus) {
	for i := range status.Conditions {
		c := &status.Conditions[i]
		switch {
		case c.Type != corev1.PodReady:
		case c.Status == corev1.ConditionTrue:
			c.Status = corev1.ConditionFalse
		default:
			c.Status = corev1.ConditionTrue
		}
	}
}

func TestFlappingPodIsWrittenOncePerSecond(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	s.becomes(s.running)
	s.run()
	s.Clock.Step(time.Minute)
	s.Home.Writes()

	s.becomes(flip)
	s.run()
	s.Home.ExpectWrites("update/status ShadowPod web") // at once
	const seconds = 30
	for range seconds * 20 {
		s.Clock.Step(50 * time.Millisecond)
		s.becomes(flip)
		s.run()
	}
	if n := len(s.Home.Writes()); n < seconds || n > seconds+writeBurst {
		t.Errorf("%d writes in %d seconds", n, seconds)
	}
	s.becomes(func(status *corev1.PodStatus) { status.Conditions[1].Status = corev1.ConditionFalse })
	again := s.run()
	if again > writePeriod {
		t.Errorf("looks again in %s", again)
	}
	s.Clock.Step(again)
	s.run()
	testkit.ExpectCondition(s, s.shadow().Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionFalse, "Ready")
	s.Home.Writes()
	s.Clock.Step(time.Minute)
	s.run()
	s.Home.ExpectWrites()
}

func TestEndOfAFlappingPodIsWrittenAtOnce(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	s.becomes(s.running)
	for range 2 * writeBurst {
		s.run()
		s.becomes(flip)
	}
	s.Home.Writes()
	s.run()
	s.Home.ExpectWrites()
	s.becomes(func(status *corev1.PodStatus) { status.Phase = corev1.PodSucceeded })
	s.run()
	s.Home.ExpectWrites("update/status ShadowPod web")
}

func TestNothingIsRememberedOfARecordThatIsGone(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	s.becomes(s.running)
	s.run()
	s.homeDeletes(nil)
	s.run()
	s.kubeletLetsGo()
	s.run()
	s.run()
	s.pods.notes.Range(func(name, note any) bool {
		t.Errorf("still knows %v of %v", note, name)
		return true
	})
}

func TestSooner(t *testing.T) {
	for _, c := range [][3]time.Duration{{0, 0, 0}, {0, 5, 5}, {5, 0, 5}, {3, 5, 3}, {5, 3, 3}} {
		if got := sooner(c[0], c[1]); got != c[2] {
			t.Errorf("%v: got %s", c, got)
		}
	}
}
