// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func (s *stage) expectScheduled(reason, message string, since time.Time) {
	s.Helper()
	c := meta.FindStatusCondition(s.shadow().Status.Conditions, v1alpha1.ConditionScheduled)
	if c == nil || c.Status != metav1.ConditionFalse {
		s.Fatalf("got condition %+v", c)
	}
	type told struct{ Reason, Message, Since string }
	got := told{c.Reason, c.Message, c.LastTransitionTime.UTC().Format(time.TimeOnly)}
	if diff := cmp.Diff(told{reason, message, since.UTC().Format(time.TimeOnly)}, got); diff != "" {
		s.Errorf("-want +got:\n%s", diff)
	}
}

// says adds an event about the pod.
func (s *stage) says(by, reason string) {
	s.Helper()
	event := &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{GenerateName: "web.", Namespace: s.twin},
		InvolvedObject:      corev1.ObjectReference{Kind: "Pod", Namespace: s.twin, Name: "web", UID: s.pod().UID},
		Reason:              reason,
		LastTimestamp:       metav1.NewTime(s.Clock.Now()),
		ReportingController: by,
	}
	s.pods.events.hear(s.Context(), event)
}

const autoscaler = "cluster-autoscaler"

func TestScaleUpIsTold(t *testing.T) {
	type saying struct{ by, reason string }
	for name, c := range map[string]struct {
		says []saying
		want string
	}{
		"nothing":                       {nil, v1alpha1.ReasonNoRoom},
		"that room is being made":       {[]saying{{autoscaler, eventTriggered}}, v1alpha1.ReasonScalingUp},
		"that none can be made":         {[]saying{{autoscaler, eventNotTriggered}}, v1alpha1.ReasonNoRoom},
		"first yes, then no":            {[]saying{{autoscaler, eventTriggered}, {autoscaler, eventNotTriggered}}, v1alpha1.ReasonNoRoom},
		"first no, then yes":            {[]saying{{autoscaler, eventNotTriggered}, {autoscaler, eventTriggered}}, v1alpha1.ReasonScalingUp},
		"that Karpenter makes a node":   {[]saying{{karpenter, eventNominated}}, v1alpha1.ReasonScalingUp},
		"something else, the same word": {[]saying{{"someone", eventNominated}}, v1alpha1.ReasonNoRoom},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, shadowPod())
			s.run()
			s.becomes(s.unplaced(shortOfCPU))
			for _, event := range c.says {
				s.Clock.Step(time.Second)
				s.says(event.by, event.reason)
			}
			s.Clock.Step(noRoomDelay)
			s.run()
			testkit.ExpectCondition(s, s.shadow().Status.Conditions, v1alpha1.ConditionScheduled, metav1.ConditionFalse, c.want)
		})
	}
}

func TestScaleUpThatBeginsLater(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	s.becomes(s.unplaced(shortOfCPU))
	s.Clock.Step(noRoomDelay)
	s.run()
	s.expectScheduled(v1alpha1.ReasonNoRoom, noRoom+": Insufficient cpu", testkit.Noon)
	s.says(autoscaler, eventTriggered)
	if len(*s.woken) != 1 {
		s.Error("nobody looks at the pod")
	}
	s.run()
	s.run()
	s.expectScheduled(v1alpha1.ReasonScalingUp, scalingUp+": Insufficient cpu", testkit.Noon.Add(noRoomDelay))
	s.Home.ExpectWrites("create Pod web", "update/status ShadowPod web", "update/status ShadowPod web")

	// The node never came. Home has waited since the beginning.
	s.Clock.Step(time.Minute)
	s.says(autoscaler, eventNotTriggered)
	s.run()
	s.expectScheduled(v1alpha1.ReasonNoRoom, noRoom+": Insufficient cpu", testkit.Noon)
	s.placed()
	s.run()
	testkit.ExpectCondition(s, s.shadow().Status.Conditions, v1alpha1.ConditionScheduled, metav1.ConditionTrue, "Scheduled")
}

// The times in pods and events are those of the cluster, and Hanse's own clock may be another.
func TestScaleUpIsToldByAClockThatIsLate(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	s.becomes(s.unplaced(shortOfCPU))
	s.says(autoscaler, eventTriggered)
	s.Clock.SetTime(testkit.Noon.Add(-10 * time.Minute))
	s.run()
	s.expectScheduled(v1alpha1.ReasonScalingUp, scalingUp+": Insufficient cpu", testkit.Noon)
}
