// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/trace"
)

const (
	tracedUID   = "3f6c1e5a-9d84-4b0e-a1c7-52f0d9e8b733"
	traceOfHome = "3f6c1e5a9d844b0ea1c752f0d9e8b733"
	spanOfHome  = "b7ad6b7169203331"
)

// traced is a stage whose ShadowPod home says is part of a trace.
func traced(t *testing.T, traceparent string) (*stage, *tracetest.InMemoryExporter) {
	t.Helper()
	shadow := shadowPod()
	shadow.Spec.HomeUID = tracedUID
	shadow.Annotations = map[string]string{v1alpha1.AnnotationTraceparent: traceparent}
	s := newStage(t, shadow)
	spans := tracetest.NewInMemoryExporter()
	s.pods.config.Tracer = trace.New(trace.Config{SamplePercent: 100}, sdktrace.NewSimpleSpanProcessor(spans))
	return s, spans
}

// lives makes the pod, has it started and be ready, and then not.
func (s *stage) lives() {
	s.Helper()
	s.run()
	s.Clock.Step(2 * time.Second)
	s.becomes(s.running)
	s.Clock.Step(time.Minute) // the manager was not there
	s.run()
	s.becomes(func(status *corev1.PodStatus) {
		ready := &status.Conditions[1]
		ready.Status, ready.LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(s.Clock.Now())
	})
	s.Clock.Step(startingDelay)
	s.run()
}

func TestTraceOfHomeGoesOn(t *testing.T) {
	s, exporter := traced(t, "00-"+traceOfHome+"-"+spanOfHome+"-01")
	s.latency = time.Second
	s.lives()
	type span struct {
		Name, Node string
		Seconds    float64
	}
	var got []span
	for _, stub := range exporter.GetSpans() {
		if stub.SpanContext.TraceID().String() != traceOfHome || stub.Parent.SpanID().String() != spanOfHome {
			t.Errorf("%s is in trace %s under %s", stub.Name, stub.SpanContext.TraceID(), stub.Parent.SpanID())
		}
		one := span{Name: stub.Name, Seconds: stub.EndTime.Sub(stub.StartTime).Seconds()}
		for _, attribute := range stub.Attributes {
			if attribute.Key == "k8s.node.name" {
				one.Node = attribute.Value.AsString()
			}
		}
		got = append(got, one)
	}
	want := []span{
		{"admit pod", "", 0},
		{"create Pod", "", 1},
		{"write ShadowPod status", "", 1},
		{"schedule Pod", "", 2},
		{"start Pod", "", 1}, // in the second in which it became ready
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	if annotations := s.pod().Annotations; annotations[v1alpha1.AnnotationTraceparent] != "" {
		t.Errorf("the trace reaches the pod: %v", annotations)
	}
}

func TestPodThatIsMadeAgainIsNotTracedAgain(t *testing.T) {
	s, exporter := traced(t, "00-"+traceOfHome+"-"+spanOfHome+"-01")
	s.run()
	s.becomes(s.running) // at once, so that its times do not tell that it ever was
	s.run()
	exporter.Reset()
	s.somebodyDeletes()
	s.run()
	s.kubeletLetsGo()
	s.lives()
	if s.shadow().Status.Recreations != 1 {
		t.Error("it was not made again")
	}
	if spans := exporter.GetSpans(); len(spans) > 0 {
		t.Errorf("%d spans are recorded, the first is %q", len(spans), spans[0].Name)
	}
}

func TestOnlySensibleTracesAreRecorded(t *testing.T) {
	for name, traceparent := range map[string]string{
		"none":                  "",
		"of another pod":        "00-0af7651916cd43dd8448eb211c80319c-" + spanOfHome + "-01",
		"not recorded at home":  "00-" + traceOfHome + "-" + spanOfHome + "-00",
		"something else":        "<script>",
		"with something behind": "00-" + traceOfHome + "-" + spanOfHome + "-01-x",
	} {
		t.Run(name, func(t *testing.T) {
			s, exporter := traced(t, traceparent)
			s.lives()
			if s.pod() == nil {
				t.Error("there is no pod")
			}
			if spans := exporter.GetSpans(); len(spans) > 0 {
				t.Errorf("%d spans are recorded", len(spans))
			}
		})
	}
}

func TestNewTraceChangesNothing(t *testing.T) {
	s, _ := traced(t, "")
	s.lives()
	s.Home.Writes()
	shadow := s.shadow()
	shadow.Annotations = map[string]string{v1alpha1.AnnotationTraceparent: "00-" + traceOfHome + "-" + spanOfHome + "-01"}
	s.Home.Put(shadow)
	s.run()
	s.Home.ExpectWrites()
}
