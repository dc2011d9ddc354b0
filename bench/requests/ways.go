// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/bench/lab"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/unread"
)

// A way is how a write can be made.
type way struct {
	name    string
	prepare func(context.Context) (func(ctx context.Context, n int) error, error)
}

// begun is when all that runs began to. It lies in the past, and has no meaning.
var begun = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

// ways makes what is written to, and returns the ways.
func (w *world) ways(ctx context.Context) ([]way, error) {
	if err := w.all(ctx, func(ctx context.Context, n int) error {
		name := fmt.Sprintf("p-%d", n)
		pod := lab.Pod(namespace, name)
		pod.Spec.SchedulerName = "nobody" // it stays as it is
		if err := w.Create(ctx, pod); err != nil {
			return err
		}
		record, err := recordOf(pod)
		if err != nil {
			return err
		}
		return w.Create(ctx, record)
	}); err != nil {
		return nil, err
	}
	ways := []way{{"ShadowPod: create", w.creating(w, read)}, {"ShadowPod: create, answer unread", w.creating(w, unread.Answer)}}
	for kind, status := range map[string]func(writing) func(context.Context) (func(context.Context, int) error, error){
		"Pod": w.podStatus, "ShadowPod": w.recordStatus,
	} {
		for _, how := range []writing{
			{"patch of status", true, read},
			{"patch of status, answer unread", true, unread.Answer},
			{"update of status", false, read},
			{"update of status, answer unread", false, unread.Answer},
		} {
			ways = append(ways, way{kind + ": " + how.name, status(how)})
		}
	}
	return ways, nil
}

// A writing is how a status is written.
type writing struct {
	name  string
	patch bool
	with  func(context.Context) context.Context
}

func read(ctx context.Context) context.Context { return ctx }

// all does something as often as there are objects.
func (w *world) all(ctx context.Context, do func(ctx context.Context, n int) error) error {
	return lab.Each(ctx, w.Count, writers, do)
}

// recordOf is the record of the pod at a provider.
func recordOf(pod *corev1.Pod) (*v1alpha1.ShadowPod, error) {
	template, err := offload.Outbound(pod, "10.0.0.1")
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(template)
	return &v1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, Finalizers: []string{v1alpha1.FinalizerShadowPod},
			Annotations: map[string]string{v1alpha1.AnnotationHomeRevision: "1-0123456789abcdef"},
		},
		Spec: v1alpha1.ShadowPodSpec{HomeUID: pod.UID, Path: []string{"home"}, Pod: string(raw)},
	}, err
}

func (w *world) creating(c client.Client, with func(context.Context) context.Context) func(context.Context) (func(context.Context, int) error, error) {
	return func(context.Context) (func(context.Context, int) error, error) {
		w.made++
		round := w.made
		return func(ctx context.Context, n int) error {
			pod := lab.Pod(twin, fmt.Sprintf("r-%d-%d", round, n))
			pod.UID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
			record, err := recordOf(pod)
			if err != nil {
				return err
			}
			return c.Create(with(ctx), record)
		}, nil
	}
}

// podStatus writes that a pod runs which was bound only.
func (w *world) podStatus(how writing) func(context.Context) (func(context.Context, int) error, error) {
	return func(ctx context.Context) (func(context.Context, int) error, error) {
		pods, err := w.pods(ctx)
		if err != nil {
			return nil, err
		}
		err = w.all(ctx, func(ctx context.Context, n int) error {
			pods[n].Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: pods[n].Status.QOSClass, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: begun},
			}}
			return w.Status().Update(ctx, &pods[n])
		})
		return func(ctx context.Context, n int) error {
			before := &pods[n]
			after := &corev1.Pod{ObjectMeta: before.ObjectMeta, Status: running(before)}
			after.ManagedFields = nil
			if !how.patch {
				return w.Status().Update(how.with(ctx), after)
			}
			named := metav1.ObjectMeta{Namespace: before.Namespace, Name: before.Name}
			base := &corev1.Pod{ObjectMeta: named, Status: before.Status}
			after.ObjectMeta = named
			after.UID = before.UID
			return w.Status().Patch(how.with(ctx), after, client.StrategicMergeFrom(base))
		}, err
	}
}

// recordStatus writes that the pod of a record runs of which nothing was told yet.
func (w *world) recordStatus(how writing) func(context.Context) (func(context.Context, int) error, error) {
	return func(ctx context.Context) (func(context.Context, int) error, error) {
		records, err := w.records(ctx)
		if err != nil {
			return nil, err
		}
		err = w.all(ctx, func(ctx context.Context, n int) error {
			records[n].Status = v1alpha1.ShadowPodStatus{}
			return w.Status().Update(ctx, &records[n])
		})
		return func(ctx context.Context, n int) error {
			before := &records[n]
			status, err := told(before)
			if err != nil {
				return err
			}
			named := metav1.ObjectMeta{
				Namespace: before.Namespace, Name: before.Name, UID: before.UID, ResourceVersion: before.ResourceVersion,
			}
			after := &v1alpha1.ShadowPod{ObjectMeta: named, Status: *status}
			if !how.patch {
				return w.Status().Update(how.with(ctx), after)
			}
			base := &v1alpha1.ShadowPod{ObjectMeta: named}
			return w.Status().Patch(how.with(ctx), after, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
		}, err
	}
}

// told is what a provider tells of a pod that runs.
func told(record *v1alpha1.ShadowPod) (*v1alpha1.ShadowPodStatus, error) {
	raw, err := json.Marshal(running(lab.Pod(namespace, record.Name)))
	status := &v1alpha1.ShadowPodStatus{
		Phase: string(corev1.PodRunning), PodUID: types.UID("7c9e6679-7425-40de-944b-e07fc1f90ae7"), ObservedGeneration: 1,
		Pod: &runtime.RawExtension{Raw: raw},
	}
	for _, kind := range []string{v1alpha1.ConditionScheduled, v1alpha1.ConditionReady} {
		status.Conditions = append(status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: kind, ObservedGeneration: 1, LastTransitionTime: begun,
		})
	}
	return status, err
}

// running is the status of the pod when it runs.
func running(pod *corev1.Pod) corev1.PodStatus {
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, QOSClass: pod.Status.QOSClass, StartTime: &begun,
		HostIP: "10.0.0.1", HostIPs: []corev1.HostIP{{IP: "10.0.0.1"}},
		PodIP: "10.244.3.4", PodIPs: []corev1.PodIP{{IP: "10.244.3.4"}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", Ready: true, Started: ptr.To(true), Image: pod.Spec.Containers[0].Image, ContainerID: "containerd://1",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: begun}},
		}},
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: begun})
	}
	return status
}
