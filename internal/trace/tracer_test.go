// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func testTime(seconds int) time.Time {
	return time.Date(2031, 5, 7, 12, 0, seconds, 0, time.UTC)
}

func inMemory(percent float64) (*Tracer, *tracetest.InMemoryExporter) {
	exporter := tracetest.NewInMemoryExporter()
	config := Config{Service: "hanse-kubelet", Version: "v9", ClusterID: "lyon", SamplePercent: percent}
	return New(config, sdktrace.NewSimpleSpanProcessor(exporter)), exporter
}

func TestSpansOfBothClustersAreOneTrace(t *testing.T) {
	ours, atHome := inMemory(100)
	theirs, overThere := inMemory(100)
	root := ours.Home(home)
	parent := theirs.Remote(Traceparent(root), home)
	theirs.Record(t.Context(), parent, Span{Name: "create Pod", Start: testTime(2), End: testTime(3)})
	ours.RecordRoot(t.Context(), root, Span{Start: testTime(1), End: testTime(4), Err: errors.New("it failed")})

	first, second := atHome.GetSpans()[0], overThere.GetSpans()[0]
	if first.SpanContext.TraceID().String() != homeID || second.SpanContext.TraceID() != first.SpanContext.TraceID() {
		t.Errorf("traces %s and %s", first.SpanContext.TraceID(), second.SpanContext.TraceID())
	}
	if first.Parent.IsValid() || second.Parent.SpanID() != first.SpanContext.SpanID() || !second.Parent.IsRemote() {
		t.Errorf("parents %v and %v", first.Parent, second.Parent)
	}
	if first.Name != "offload pod" || second.Name != "create Pod" || first.Status.Code != codes.Error {
		t.Errorf("got %q (%v) and %q", first.Name, first.Status, second.Name)
	}
	if !first.StartTime.Equal(testTime(1)) || !first.EndTime.Equal(testTime(4)) {
		t.Errorf("it took from %s to %s", first.StartTime, first.EndTime)
	}
	want := `k8s.cluster.name=lyon,service.name=hanse-kubelet,service.version=v9`
	if got := first.Resource.Encoded(attribute.DefaultEncoder()); got != want {
		t.Errorf("the resource is %s, want %s", got, want)
	}
}

func TestSpanThatIsToldTwiceHasOneID(t *testing.T) {
	tracer, exporter := inMemory(100)
	span := Span{Name: "write Pod status", Start: testTime(1), End: testTime(2)}
	for range 2 {
		tracer.Record(t.Context(), tracer.Home(home), span)
	}
	span.Start = testTime(2)
	tracer.Record(t.Context(), tracer.Home(home), span)
	got := exporter.GetSpans()
	if got[0].SpanContext.SpanID() != got[1].SpanContext.SpanID() || got[1].SpanContext.SpanID() == got[2].SpanContext.SpanID() {
		t.Errorf("ids %s %s %s", got[0].SpanContext.SpanID(), got[1].SpanContext.SpanID(), got[2].SpanContext.SpanID())
	}
}

func TestSpanOfTwoClocksDoesNotEndBeforeItStarts(t *testing.T) {
	tracer, exporter := inMemory(100)
	err := errors.New(strings.Repeat("x", 1<<20))
	tracer.Record(t.Context(), tracer.Home(home), Span{Name: "x", Start: testTime(9), End: testTime(1), Err: err})
	got := exporter.GetSpans()[0]
	if !got.EndTime.Equal(testTime(9)) || len(got.Status.Description) != longestError {
		t.Errorf("it ends at %s with %d bytes of an error", got.EndTime, len(got.Status.Description))
	}
}

func TestEachSideRecordsItsOwnShareAtMost(t *testing.T) {
	all, _ := inMemory(100)
	none, _ := inMemory(0)
	text := Traceparent(all.Home(home))
	for name, got := range map[string]oteltrace.SpanContext{
		"a home that traces nothing":     none.Home(home),
		"a provider that traces nothing": none.Remote(text, home),
		"no context":                     all.Remote("", home),
		"that of another pod":            all.Remote(text, another),
		"a home pod without a UUID":      all.Home("uid"),
		"a home that is off":             (*Tracer)(nil).Home(home),
		"a provider that is off":         (*Tracer)(nil).Remote(text, home),
	} {
		if got.IsSampled() {
			t.Errorf("%s: it is recorded", name)
		}
	}
	if !all.Remote(text, home).IsSampled() {
		t.Error("it is not recorded")
	}
}

func TestWithoutTracingNothingIsSpent(t *testing.T) {
	var off *Tracer
	got := testing.AllocsPerRun(100, func() {
		if sc := off.Home(home); sc.IsSampled() {
			t.Error("it is sampled")
		}
		off.Record(t.Context(), off.Remote("00-"+homeID+"-b7ad6b7169203331-01", home), Span{Name: "x"})
		off.RecordRoot(t.Context(), off.Home(home), Span{})
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
	if err := off.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// stuck is a collector that takes nothing until it is told to.
type stuck struct {
	let  chan struct{}
	took chan int
}

func (s *stuck) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	select {
	case <-s.let:
		s.took <- len(spans)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *stuck) Shutdown(context.Context) error { return nil }

// If recording waited for the collector, this would never end.
func TestNobodyWaitsForTheCollector(t *testing.T) {
	collector := &stuck{let: make(chan struct{}), took: make(chan int, 100)}
	config := Config{Service: "hanse-kubelet", SamplePercent: 100, Log: funcr.New(func(string, string) {}, funcr.Options{})}
	tracer := New(config, batches(config, collector))
	for i := range 3 * queued {
		tracer.Record(t.Context(), tracer.Home(home), Span{Name: "x", Start: testTime(i), End: testTime(i)})
	}
	close(collector.let)
	if err := tracer.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(collector.took)
	got := 0
	for spans := range collector.took {
		got += spans
	}
	if got == 0 || got >= 3*queued {
		t.Errorf("%d spans were sent", got)
	}
}

func TestStopDoesNotWaitForEver(t *testing.T) {
	collector := &stuck{let: make(chan struct{})}
	config := Config{SamplePercent: 100}
	tracer := New(config, batches(config, collector))
	tracer.Record(t.Context(), tracer.Home(home), Span{Name: "x"})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := tracer.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// failing is a collector that takes nothing for a while.
type failing struct {
	stuck
	err error
}

func (f *failing) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return f.err }

func TestTroubleWithTheCollectorIsLoggedOnce(t *testing.T) {
	var lines []string
	collector := &failing{err: errors.New("no answer")}
	exporter := &reporting{SpanExporter: collector, log: funcr.New(func(_, line string) {
		lines = append(lines, line)
	}, funcr.Options{})}
	for range 3 {
		if err := exporter.ExportSpans(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	collector.err = nil
	for range 2 {
		if err := exporter.ExportSpans(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(lines) != 2 || !strings.Contains(lines[0], "no answer") || !strings.Contains(lines[1], "again") {
		t.Errorf("logged %q", lines)
	}
}

func TestWrongConfigurationsAreRefused(t *testing.T) {
	for name, config := range map[string]Config{
		"no port":                       {Endpoint: "collector"},
		"less than none":                {SamplePercent: -1},
		"more than all":                 {SamplePercent: 101},
		"authorities that nobody needs": {Endpoint: "collector:4317", Insecure: true, CAFile: "ca.crt"},
		"authorities that do not exist": {Endpoint: "collector:4317", CAFile: "testdata/none"},
		"authorities that are none":     {Endpoint: "collector:4317", CAFile: "doc.go"},
	} {
		t.Run(name, func(t *testing.T) {
			if tracer, err := Start(t.Context(), config); err == nil {
				t.Errorf("no error, but %v", tracer)
			}
		})
	}
	if tracer, err := Start(t.Context(), Config{SamplePercent: 100}); tracer != nil || err != nil {
		t.Errorf("without a collector there is %v, %v", tracer, err)
	}
}

func TestAttributesArrive(t *testing.T) {
	tracer, exporter := inMemory(100)
	want := []attribute.KeyValue{attribute.String(AttributePeer, "turin")}
	tracer.Record(t.Context(), tracer.Home(home), Span{Name: "x", Attributes: want})
	if diff := cmp.Diff(want, exporter.GetSpans()[0].Attributes, cmp.AllowUnexported(attribute.Value{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

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
