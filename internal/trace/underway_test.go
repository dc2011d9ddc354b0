package trace

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestUnderway(t *testing.T) {
	for name, test := range map[string]struct {
		status corev1.PodStatus
		want   bool
	}{
		"a pod that was just bound":         {corev1.PodStatus{Phase: corev1.PodPending}, true},
		"one that has been started":         {podStatus(corev1.PodRunning, corev1.ConditionFalse, 5), true},
		"one that was ready, at the first":  {corev1.PodStatus{Conditions: podStatus("", corev1.ConditionTrue, 5).Conditions}, false},
		"one that is ready":                 {podStatus(corev1.PodRunning, corev1.ConditionTrue, 7), false},
		"one that is not ready any more":    {podStatus(corev1.PodRunning, corev1.ConditionFalse, 60), false},
		"one that nobody knows how it is":   {podStatus(corev1.PodRunning, corev1.ConditionUnknown, 60), false},
		"one that ended without being so":   {podStatus(corev1.PodSucceeded, corev1.ConditionFalse, 5), false},
		"one that failed before it started": {corev1.PodStatus{Phase: corev1.PodFailed}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Underway(&test.status); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// podStatus is that of a pod which was started at 5, and whose readiness has been so since.
func podStatus(phase corev1.PodPhase, ready corev1.ConditionStatus, since int) corev1.PodStatus {
	started := metav1.NewTime(testTime(5))
	return corev1.PodStatus{Phase: phase, StartTime: &started, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(testTime(4))},
		{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(testTime(since))},
	}}
}
