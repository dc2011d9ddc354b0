// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// AwaitMovedInPlace waits until the pod was moved by DeleteFirst, and returns the one that has its name now.
func (c *Cluster) AwaitMovedInPlace(t *testing.T, wanted *v1alpha1.PodMove, node string) *corev1.Pod {
	t.Helper()
	done := c.AwaitMove(t, wanted, v1alpha1.MoveSucceeded, v1alpha1.ReasonMoved)
	now, err := c.GetPod(t.Context(), done.Namespace, done.Spec.Pod.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s is Ready again %s after its PodMove: %+v", now.Name, PodReadySince(now).Sub(done.CreationTimestamp.Time), done.Status.Steps)
	if now.UID != done.Status.Copy.UID || now.UID == done.Spec.Pod.UID || now.Spec.NodeName != node || !IsPodReady(now) || len(now.OwnerReferences) > 0 {
		t.Errorf("in its place is %s: %v", Summarize([]corev1.Pod{*now}), now.ObjectMeta)
	}
	if done.Status.Method != v1alpha1.MoveDeleteFirst || done.Status.Record != "" {
		t.Errorf("it was moved by %s, and %q is kept of it", done.Status.Method, done.Status.Record)
	}
	return now
}

// ScaleDeployments scales the Deployments, and waits until each has as many pods, which are Ready.
func (c *Cluster) ScaleDeployments(t *testing.T, ns string, replicas int32, names ...string) {
	t.Helper()
	for _, name := range names {
		scale := &autoscalingv1.Scale{ObjectMeta: NamespacedMeta(ns, name), Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
		if err := c.SubResource("scale").Update(t.Context(), &appsv1.Deployment{ObjectMeta: scale.ObjectMeta}, client.WithSubResourceBody(scale)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		Eventually(t, fmt.Sprintf("%s has %d pods", name, replicas), func(ctx context.Context) error {
			d := &appsv1.Deployment{}
			err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, d)
			if err == nil && (d.Status.ReadyReplicas != replicas || d.Status.Replicas != replicas) {
				err = fmt.Errorf("%+v", d.Status)
			}
			return err
		})
	}
}

// NewStatefulSet returns a StatefulSet whose pods have the label app.
func NewStatefulSet(ns, app string, replicas int32, spec corev1.PodSpec) *appsv1.StatefulSet {
	labels := map[string]string{"app": app}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: app},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: app, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
}

// PodReadySince returns when the condition Ready of the pod changed last.
func PodReadySince(pod *corev1.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// CreatePodMove creates a PodMove of the pod.
func (c *Cluster) CreatePodMove(t *testing.T, pod *corev1.Pod, to v1alpha1.MoveDestination, deadline time.Duration) *v1alpha1.PodMove {
	t.Helper()
	move := NewPodMove(pod, to, deadline)
	c.MustCreate(t, move)
	return move
}

// NewPodMove returns a PodMove of the pod to create.
func NewPodMove(pod *corev1.Pod, to v1alpha1.MoveDestination, deadline time.Duration) *v1alpha1.PodMove {
	return &v1alpha1.PodMove{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, GenerateName: "story-"},
		Spec: v1alpha1.PodMoveSpec{
			Pod: v1alpha1.MovedPod{Name: pod.Name, UID: pod.UID}, Destination: to, Deadline: &metav1.Duration{Duration: deadline},
		},
	}
}

// AwaitMove waits until the move is over in that phase, for that reason.
func (c *Cluster) AwaitMove(t *testing.T, move *v1alpha1.PodMove, phase v1alpha1.MovePhase, reason string) *v1alpha1.PodMove {
	t.Helper()
	Eventually(t, fmt.Sprintf("PodMove %s of %s is %s", move.Name, move.Spec.Pod.Name, phase), func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(move), move); err != nil {
			return err
		}
		complete := meta.FindStatusCondition(move.Status.Conditions, v1alpha1.ConditionComplete)
		if move.Status.Phase.IsOver() && (move.Status.Phase != phase || complete == nil || complete.Reason != reason) {
			t.Fatalf("it is %s: %+v", move.Status.Phase, complete)
		}
		if !move.Status.Phase.IsOver() {
			return fmt.Errorf("it is %s: %+v", move.Status.Phase, complete)
		}
		return nil
	})
	return move
}

// ExpectNotMoved checks that the pod is as it was, and that no copy of it is left.
func (c *Cluster) ExpectNotMoved(t *testing.T, pod *corev1.Pod, move *v1alpha1.PodMove) {
	t.Helper()
	now, err := c.GetPod(t.Context(), pod.Namespace, pod.Name)
	if err != nil || now.UID != pod.UID || now.DeletionTimestamp != nil || !IsPodReady(now) || now.Annotations[corev1.PodDeletionCost] != "" {
		t.Errorf("the original is %+v (%v)", now, err)
	}
	if move.Status.Copy != nil {
		Eventually(t, "no copy is left", func(ctx context.Context) error {
			return c.CheckGone(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: move.Status.Copy.Name}})
		})
	}
}
