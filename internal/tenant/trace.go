// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	oteltrace "go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/trace"
)

// traceOf returns the context of the trace that home says the ShadowPod is part of. It is not sampled if nothing is to be
// recorded.
func (r *shadowPodReconciler) traceOf(shadow *v1alpha1.ShadowPod) oteltrace.SpanContext {
	return r.config.Tracer.Remote(shadow.Annotations[v1alpha1.AnnotationTraceparent], shadow.Spec.HomeUID)
}

// create creates the pod. Of the first one it records how long that took, and what came before it since the beginning.
func (r *shadowPodReconciler) create(ctx context.Context, shadow *v1alpha1.ShadowPod, pod *corev1.Pod, beginning time.Time) error {
	parent := r.traceOf(shadow)
	if !parent.IsSampled() || shadow.Status.PodUID != "" {
		return r.client.Create(ctx, pod)
	}
	admitted := r.config.Clock.Now()
	err := r.client.Create(ctx, pod)
	attributes := attributesOf(pod)
	r.config.Tracer.Record(ctx, parent, trace.Span{Name: "admit pod", Start: beginning, End: admitted, Attributes: attributes})
	r.config.Tracer.Record(ctx, parent, trace.Span{
		Name: "create Pod", Start: admitted, End: r.config.Clock.Now(), Err: err, Attributes: attributes,
	})
	return err
}

// traceStatus records that the status of a ShadowPod was written, until its first pod is ready, and then for how long that
// pod waited for a node, and to be started.
func (r *shadowPodReconciler) traceStatus(ctx context.Context, seen *observation, written *v1alpha1.ShadowPodStatus, began time.Time) {
	parent := r.traceOf(seen.shadow)
	if !parent.IsSampled() || seen.pod == nil || written.Recreations > 0 {
		return
	}
	if before := offload.RecordedPod(&seen.shadow.Status); before != nil && !trace.Underway(before) {
		return
	}
	attributes := attributesOf(seen.pod)
	r.config.Tracer.Record(ctx, parent, trace.Span{
		Name: "write ShadowPod status", Start: began, End: r.config.Clock.Now(), Attributes: attributes,
	})
	scheduled, ready := since(seen.pod, corev1.PodScheduled), since(seen.pod, corev1.PodReady)
	if scheduled.IsZero() || ready.IsZero() {
		return
	}
	// Kubernetes writes down whole seconds: the pod became ready in this one, and before we have seen it.
	ready = ready.Add(time.Second)
	if began.Before(ready) {
		ready = began
	}
	attributes = append(attributes, semconv.K8SNodeName(seen.pod.Spec.NodeName))
	r.config.Tracer.Record(ctx, parent, trace.Span{
		Name: "schedule Pod", Start: seen.pod.CreationTimestamp.Time, End: scheduled, Attributes: attributes,
	})
	r.config.Tracer.Record(ctx, parent, trace.Span{Name: "start Pod", Start: scheduled, End: ready, Attributes: attributes})
}

// since returns since when the condition of the pod has been True.
func since(pod *corev1.Pod, kind corev1.PodConditionType) time.Time {
	if c := offload.PodCondition(&pod.Status, kind); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

func attributesOf(pod *corev1.Pod) []attribute.KeyValue {
	return []attribute.KeyValue{
		semconv.K8SNamespaceName(pod.Namespace), semconv.K8SPodName(pod.Name), semconv.K8SPodUID(string(pod.UID)),
		attribute.String(trace.AttributePeer, pod.Labels[v1alpha1.LabelPeer]),
	}
}
