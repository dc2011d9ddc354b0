package trace

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
)

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

// has says whether the trace is in the share. Whoever records a larger share of the same traces has it too.
func (s share) has(id oteltrace.TraceID) bool {
	const ones = 1<<randomBits - 1
	return ones-binary.BigEndian.Uint64(id[8:])&ones < uint64(s)
}
