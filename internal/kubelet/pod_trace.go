package kubelet

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/trace"
)

// createShadow creates the record at the peer. If the pod is traced, it tells the peer of the trace; an older peer that
// does not know what that is may not keep the pod.
func (c *podController) createShadow(ctx context.Context, home *corev1.Pod, shadow *v1alpha1.ShadowPod, link *peers.Link) error {
	root := c.tracer.Home(home.UID)
	if !root.IsSampled() {
		return link.Client().Create(ctx, shadow)
	}
	began := c.clock.Now()
	untold := shadow.DeepCopy()
	shadow.Annotations[v1alpha1.AnnotationTraceparent] = trace.Traceparent(root)
	err := link.Client().Create(ctx, shadow)
	if apierrors.IsForbidden(err) {
		err = link.Client().Create(ctx, untold)
	}
	c.tracer.Record(ctx, root, trace.Span{
		Name: "create ShadowPod", Start: began, End: c.clock.Now(), Err: err, Attributes: attributesOf(home),
	})
	return err
}

// traceStatus records that the status of a pod was written, until the pod is ready, and then all of the time since it was
// bound.
func (c *podController) traceStatus(ctx context.Context, home *corev1.Pod, written *corev1.PodStatus, began time.Time) {
	root := c.tracer.Home(home.UID)
	if !root.IsSampled() || !trace.Underway(&home.Status) {
		return
	}
	now, attributes := c.clock.Now(), attributesOf(home)
	c.tracer.Record(ctx, root, trace.Span{Name: "write Pod status", Start: began, End: now, Attributes: attributes})
	if trace.Underway(written) {
		return
	}
	whole := trace.Span{Start: boundAt(home), End: now, Attributes: attributes}
	if written.Phase == corev1.PodFailed {
		whole.Err = errors.New("the pod failed")
	}
	c.tracer.RecordRoot(ctx, root, whole)
}

func attributesOf(home *corev1.Pod) []attribute.KeyValue {
	return []attribute.KeyValue{
		semconv.K8SNamespaceName(home.Namespace), semconv.K8SPodName(home.Name), semconv.K8SPodUID(string(home.UID)),
		attribute.String(trace.AttributePeer, peerOf(home.Spec.NodeName)),
	}
}
