// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// Each cluster sends what it did for a pod to a collector of its own, and together that is one trace.
func TestTraceAcrossClusters(t *testing.T) {
	framework.Begin(t)
	collectors := map[*framework.Cluster]*collector{lubeck: collectTraces(t, lubeck), hamburg: collectTraces(t, hamburg)}
	awaitExporters(t, collectors)
	home, remote := lubeck.RunPodAt(t, hamburg)
	id := strings.ReplaceAll(string(home.UID), "-", "")
	ours := collectors[lubeck].awaitTrace(t, id, "create ShadowPod", "offload pod", "write Pod status")
	theirs := collectors[hamburg].awaitTrace(t, id, "admit pod", "create Pod", "schedule Pod", "start Pod", "write ShadowPod status")

	root := ours["offload pod"].span
	if len(root.ParentSpanId) > 0 || root.EndTimeUnixNano <= root.StartTimeUnixNano {
		t.Errorf("the root is %v", root)
	}
	delete(ours, root.Name)
	ours.expect(t, lubeck, root)
	theirs.expect(t, hamburg, root)
	for name, got := range ours {
		if strings.Contains(got.span.String(), remote.Spec.NodeName) {
			t.Errorf("%q tells lubeck of hamburg's node: %v", name, got.span)
		}
	}
	if _, reaches := remote.Annotations[v1alpha1.AnnotationTraceparent]; reaches {
		t.Error("the context of the trace reaches the remote pod")
	}
}

// collectTraces starts the collector to which the cluster sends its traces, and stops it at the story's end.
func collectTraces(t *testing.T, c *framework.Cluster) *collector {
	t.Helper()
	address, err := framework.CollectorAddress(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	collector := &collector{traces: map[string]trace{}}
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, collector)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) }) // returns when the server is stopped
	t.Cleanup(func() {
		server.Stop()
		served.Wait()
	})
	return collector
}

// awaitExporters offloads pods until each cluster has sent a span to its collector. No collector listened before the story, so that a
// cluster may wait for up to two minutes until it connects again. It drops spans meanwhile.
func awaitExporters(t *testing.T, collectors map[*framework.Cluster]*collector) {
	t.Helper()
	framework.Eventually(t, "both clusters send spans", func(context.Context) error {
		lubeck.RunPodAt(t, hamburg)
		for c, collector := range collectors {
			if collector.isEmpty() {
				return fmt.Errorf("%s has sent none", c.Name)
			}
		}
		return nil
	})
}

// A collector takes what an OpenTelemetry collector takes, and keeps it.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer

	mu     sync.Mutex
	traces map[string]trace // by their ids
}

// A trace is the spans of one trace, by their names.
type trace map[string]traced

type traced struct {
	cluster string // that says that it is its own
	span    *tracepb.Span
}

// expect checks that all spans are the cluster's own and children of the root.
func (spans trace) expect(t *testing.T, c *framework.Cluster, root *tracepb.Span) {
	t.Helper()
	for name, got := range spans {
		if got.cluster != c.Name {
			t.Errorf("%s sent %q of cluster %q", c.Name, name, got.cluster)
		}
		if !slices.Equal(got.span.ParentSpanId, root.SpanId) {
			t.Errorf("the parent of %q is %x, and the root %x", name, got.span.ParentSpanId, root.SpanId)
		}
	}
}

// Export keeps what a cluster sends.
func (c *collector) Export(_ context.Context, sent *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range sent.ResourceSpans {
		cluster := attributeOf(resource.Resource.Attributes, "k8s.cluster.name")
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				id := hex.EncodeToString(span.TraceId)
				if c.traces[id] == nil {
					c.traces[id] = trace{}
				}
				c.traces[id][span.Name] = traced{cluster, span}
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

func attributeOf(attributes []*commonpb.KeyValue, key string) string {
	for _, attribute := range attributes {
		if attribute.Key == key {
			return attribute.Value.GetStringValue()
		}
	}
	return ""
}

func (c *collector) isEmpty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.traces) == 0
}

// awaitTrace waits until the collector has these spans of the trace, and no others.
func (c *collector) awaitTrace(t *testing.T, id string, want ...string) trace {
	t.Helper()
	var got trace
	framework.Eventually(t, "a trace is complete", func(context.Context) error {
		c.mu.Lock()
		got = maps.Clone(c.traces[id])
		c.mu.Unlock()
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got))); diff != "" {
			return fmt.Errorf("spans (-want +got):\n%s", diff)
		}
		return nil
	})
	return got
}
