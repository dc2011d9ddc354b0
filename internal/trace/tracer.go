// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	oteltrace "go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hanse-dev/hanse/internal/offload"
)

// A Tracer records spans. A nil one records nothing and costs nothing.
type Tracer struct {
	service  string
	share    share
	tracer   oteltrace.Tracer
	provider *sdktrace.TracerProvider
}

// New returns a Tracer that hands spans to the processor, which must not block.
func New(cfg Config, processor sdktrace.SpanProcessor) *Tracer {
	attributes := []attribute.KeyValue{semconv.ServiceName(cfg.Service), semconv.ServiceVersion(cfg.Version)}
	if cfg.ClusterID != "" {
		attributes = append(attributes, semconv.K8SClusterName(cfg.ClusterID))
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // what is not to be recorded does not get there
		sdktrace.WithIDGenerator(given{}),
		sdktrace.WithResource(resource.NewWithAttributes(semconv.SchemaURL, attributes...)),
		sdktrace.WithSpanProcessor(processor),
	)
	return &Tracer{
		service: cfg.Service, share: shareOf(cfg.SamplePercent), provider: provider,
		tracer: provider.Tracer("github.com/hanse-dev/hanse/internal/trace"),
	}
}

// Stop sends what has not been sent yet, for as long as the context lasts.
func (t *Tracer) Stop(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Home returns the context that the spans of our own pod are in. It is not sampled if they are not to be recorded.
func (t *Tracer) Home(pod types.UID) oteltrace.SpanContext {
	if t == nil {
		return oteltrace.SpanContext{}
	}
	return t.ifShared(rootOf(pod))
}

// Remote returns the context that the spans of a peer's pod are in, as its traceparent has it. It is not sampled if they
// are not to be recorded: the peer does not record them, or says what makes no sense, or we record a smaller share.
func (t *Tracer) Remote(traceparent string, home types.UID) oteltrace.SpanContext {
	if t == nil || traceparent == "" {
		return oteltrace.SpanContext{}
	}
	return t.ifShared(parse(traceparent, home))
}

func (t *Tracer) ifShared(sc oteltrace.SpanContext) oteltrace.SpanContext {
	if !sc.IsSampled() || !t.share.has(sc.TraceID()) {
		return oteltrace.SpanContext{}
	}
	return sc
}

// AttributePeer is the attribute of a span that names the peer whose pod it is, or that runs it.
const AttributePeer = "hanse.peer"

// longestError is how many bytes of an error are recorded.
const longestError = 1024

// A Span is something that took its time.
type Span struct {
	// Name says what was done. There are few of them.
	Name string
	// Start and End are when it began and ended.
	Start, End time.Time
	// Err is why it went wrong, if it did.
	Err error
	// Attributes say what it was done to.
	Attributes []attribute.KeyValue
}

// Record records a span in that context, if it is sampled. Who makes attributes for it asks that first.
func (t *Tracer) Record(ctx context.Context, parent oteltrace.SpanContext, span Span) {
	if t == nil || !parent.IsSampled() {
		return
	}
	id := spanID(parent.TraceID(), t.service, span.Name, span.Start)
	t.record(oteltrace.ContextWithSpanContext(ctx, parent), parent.WithSpanID(id), span)
}

// RecordRoot records the span that all others of the trace are children of. It has a name of its own.
func (t *Tracer) RecordRoot(ctx context.Context, root oteltrace.SpanContext, span Span) {
	if t == nil || !root.IsSampled() {
		return
	}
	span.Name = rootName
	t.record(oteltrace.ContextWithSpanContext(ctx, oteltrace.SpanContext{}), root, span)
}

func (t *Tracer) record(ctx context.Context, id oteltrace.SpanContext, span Span) {
	_, made := t.tracer.Start(context.WithValue(ctx, givenKey{}, id), span.Name,
		oteltrace.WithTimestamp(span.Start), oteltrace.WithAttributes(span.Attributes...))
	if span.Err != nil {
		text := span.Err.Error()
		made.SetStatus(codes.Error, text[:min(len(text), longestError)]) // some of it is what a peer said
	}
	end := span.End
	if end.Before(span.Start) {
		end = span.Start // the times are of two clocks
	}
	made.End(oteltrace.WithTimestamp(end))
	recorded.Inc()
}

// given gives each span the ids that were chosen for it.
type given struct{}

type givenKey struct{}

// NewIDs returns the ids of a root span.
func (given) NewIDs(ctx context.Context) (oteltrace.TraceID, oteltrace.SpanID) {
	sc, _ := ctx.Value(givenKey{}).(oteltrace.SpanContext)
	return sc.TraceID(), sc.SpanID()
}

// NewSpanID returns the id of any other span.
func (given) NewSpanID(ctx context.Context, _ oteltrace.TraceID) oteltrace.SpanID {
	sc, _ := ctx.Value(givenKey{}).(oteltrace.SpanContext)
	return sc.SpanID()
}

// MaxTraceparent is how long the text of a context may be. That of the one version that there is has 55 bytes.
const MaxTraceparent = 55

// rootName is the name of the span that all others of a trace are children of.
const rootName = "offload pod"

// key is that of the only field of W3C's trace context that travels.
const key = "traceparent"

// rootOf returns the context of the root span of a home pod's trace. It is invalid if the UID is no UUID.
func rootOf(home types.UID) oteltrace.SpanContext {
	const uuid = len("00000000-0000-0000-0000-000000000000")
	digits := strings.ReplaceAll(string(home), "-", "")
	if len(home) != uuid {
		return oteltrace.SpanContext{}
	}
	id, err := oteltrace.TraceIDFromHex(digits)
	if err != nil {
		return oteltrace.SpanContext{}
	}
	return oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: id, SpanID: spanID(id, "", rootName, time.Time{}), TraceFlags: oteltrace.FlagsSampled,
	})
}

// spanID makes the id of a span. A span that is told twice, after a restart for example, has the same one.
func spanID(trace oteltrace.TraceID, service, name string, start time.Time) oteltrace.SpanID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%s/%d", trace, service, name, start.UnixNano()))
	return oteltrace.SpanID(sum[:8])
}

// Traceparent returns the text by which the context travels, and nothing if there is none that is recorded.
func Traceparent(sc oteltrace.SpanContext) string {
	if !sc.IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	//nolint:forbidigo // the library wants to have it there, and nothing is waited for
	propagation.TraceContext{}.Inject(oteltrace.ContextWithSpanContext(context.Background(), sc), carrier)
	return carrier[key]
}

// parse reads a context that a peer wrote. It is invalid if it makes no sense, or is of another pod's trace.
func parse(text string, home types.UID) oteltrace.SpanContext {
	if len(text) > MaxTraceparent {
		return oteltrace.SpanContext{}
	}
	//nolint:forbidigo // the library wants to have it there, and nothing is waited for
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{key: text})
	sc := oteltrace.SpanContextFromContext(ctx)
	if root := rootOf(home); !root.IsValid() || sc.TraceID() != root.TraceID() {
		return oteltrace.SpanContext{}
	}
	return sc
}

// A share is which part of all traces is recorded.
type share uint64

// randomBits is how many bits at the end of a trace's id OpenTelemetry takes for random when it samples by them. In a UUID
// they are. The bits before them are not, which is why the SDK's own sampler would take all or none of our traces.
const randomBits = 56

func shareOf(percent float64) share {
	return share(min(max(percent, 0), 100) / 100 * (1 << randomBits))
}

// has says whether the trace is in the share. A cluster that records a larger share has every trace of a smaller share too.
func (s share) has(id oteltrace.TraceID) bool {
	const ones = 1<<randomBits - 1
	return ones-binary.BigEndian.Uint64(id[8:])&ones < uint64(s)
}

// Underway says whether the trace of a pod of that status goes on: the pod has not ended and has never been ready. That
// shows in how long it has not been: since it was started.
func Underway(status *corev1.PodStatus) bool {
	if offload.Terminal(status.Phase) {
		return false
	}
	ready := offload.PodCondition(status, corev1.PodReady)
	if ready == nil || status.StartTime == nil {
		return ready == nil || ready.Status != corev1.ConditionTrue
	}
	return ready.Status != corev1.ConditionTrue && !ready.LastTransitionTime.After(status.StartTime.Time)
}
