package tenant

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hanse-dev/hanse/api/v1alpha1"
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
		LastTimestamp:       metav1.NewTime(s.clock.Now()),
		ReportingController: by,
	}
	if err := s.server.Create(s.Context(), event); err != nil {
		s.Fatal(err)
	}
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
				s.clock.Step(time.Second)
				s.says(event.by, event.reason)
			}
			s.clock.Step(noRoomDelay)
			s.run()
			s.expectCondition(s.shadow().Status.Conditions, v1alpha1.ConditionScheduled, metav1.ConditionFalse, c.want)
		})
	}
}

func TestScaleUpThatBeginsLater(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	s.becomes(s.unplaced(shortOfCPU))
	s.clock.Step(noRoomDelay)
	s.run()
	s.expectScheduled(v1alpha1.ReasonNoRoom, noRoom+": Insufficient cpu", noon)
	s.says(autoscaler, eventTriggered)
	s.clock.Step(scaleUpPace)
	s.run()
	s.run()
	s.expectScheduled(v1alpha1.ReasonScalingUp, scalingUp+": Insufficient cpu", noon.Add(noRoomDelay))
	s.expectWrites("create Pod", "status ShadowPod", "status ShadowPod")

	// The node never came. Home has waited since the beginning.
	s.clock.Step(time.Minute)
	s.says(autoscaler, eventNotTriggered)
	s.run()
	s.expectScheduled(v1alpha1.ReasonNoRoom, noRoom+": Insufficient cpu", noon)
	s.placed()
	s.run()
	s.expectCondition(s.shadow().Status.Conditions, v1alpha1.ConditionScheduled, metav1.ConditionTrue, "Scheduled")
}

// The times in pods and events are those of the cluster, and Hanse's own clock may be another.
func TestScaleUpIsToldByAClockThatIsLate(t *testing.T) {
	s := newStage(t, shadowPod())
	s.run()
	s.becomes(s.unplaced(shortOfCPU))
	s.says(autoscaler, eventTriggered)
	s.clock.SetTime(noon.Add(-10 * time.Minute))
	s.run()
	s.expectScheduled(v1alpha1.ReasonScalingUp, scalingUp+": Insufficient cpu", noon)
}

func TestEventsAreReadNowAndThenForAllPodsOfATwinTogether(t *testing.T) {
	s := newStage(t, shadowPod())
	lists, fails := 0, false
	s.pods.scaleUps.live = interceptor.NewClient(s.server, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if options := (&client.ListOptions{}).ApplyOptions(opts); options.Namespace != s.twin || options.FieldSelector.Empty() || options.Limit == 0 {
				t.Errorf("lists with %+v", options)
			}
			lists++
			if fails {
				return errors.New("no")
			}
			return c.List(ctx, list, opts...)
		},
	})
	s.run()
	s.run()
	if lists != 0 {
		t.Errorf("%d lists for a pod that may get a node yet", lists)
	}
	s.becomes(s.unplaced(shortOfCPU))
	s.clock.Step(noRoomDelay)
	for range 10 {
		s.run()
		s.pods.scaleUps.of(t.Context(), s.pod(), s.clock.Now())
	}
	if lists != 2 {
		t.Errorf("%d lists at once, want 2", lists)
	}
	fails = true
	s.clock.Step(scaleUpPace)
	s.run()
	if lists != 3 {
		t.Errorf("%d lists", lists)
	}
	s.expectScheduled(v1alpha1.ReasonNoRoom, noRoom+": Insufficient cpu", noon)
}

func TestLooksAtTwinsThatAreGoneAreForgotten(t *testing.T) {
	w := newWorld(t)
	s := &scaleUps{live: w.server, byNamespace: map[string]scaleUpEvents{}}
	in := func(namespace string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, UID: "u"}}
	}
	s.of(t.Context(), in("old"), noon)
	s.of(t.Context(), in("new"), noon.Add(forgottenAfter+time.Second))
	if len(s.byNamespace) != 1 || s.byNamespace["new"].at.IsZero() {
		t.Errorf("got %v", s.byNamespace)
	}
}
