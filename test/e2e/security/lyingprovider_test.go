// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// report writes what the provider of a record says of its pod.
func report(t *testing.T, c *framework.Cluster, record types.NamespacedName, status any) {
	t.Helper()
	raw, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the provider has a report on "+record.Name, func(ctx context.Context) error {
		shadow := &v1alpha1.ShadowPod{}
		if err := c.Get(ctx, record, shadow); err != nil {
			return err
		}
		shadow.Status = v1alpha1.ShadowPodStatus{
			ObservedGeneration: shadow.Generation, Phase: string(corev1.PodRunning), PodUID: "invented",
			Pod: &runtime.RawExtension{Raw: raw},
		}
		return c.Status().Update(ctx, shadow)
	})
}

// awaitHome waits until the pod at home is as it should be.
func awaitHome(t *testing.T, c *framework.Cluster, what string, home types.NamespacedName, check func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	framework.Eventually(t, what, func(ctx context.Context) error {
		if err := c.Get(ctx, home, pod); err != nil {
			return err
		}
		if !check(pod) {
			return fmt.Errorf("it has status %+v", pod.Status)
		}
		return nil
	})
	return pod
}

// What a provider says of a pod is a claim: one that makes no sense is no state of the pod, and none lasts.
func TestProviderThatLiesAboutAPod(t *testing.T) {
	framework.Begin(t)
	peer := consumesFromLiar(t, lubeck)
	home := types.NamespacedName{Namespace: peer.namespace, Name: "told"}
	record := types.NamespacedName{Namespace: peer.twin, Name: home.Name}
	lubeck.MustCreate(t, boundToRostock(home.Namespace, home.Name))
	says := func(restarts int32) corev1.PodStatus {
		return corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "main", Ready: true, ContainerID: "containerd://1", RestartCount: restarts,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		}
	}
	ready := func(status corev1.ConditionStatus) func(*corev1.Pod) bool {
		return func(pod *corev1.Pod) bool {
			c := offload.PodCondition(&pod.Status, corev1.PodReady)
			return c != nil && c.Status == status
		}
	}
	report(t, rostock, record, says(math.MaxInt32))
	pod := awaitHome(t, lubeck, "home shows that the pod is ready", home, ready(corev1.ConditionTrue))
	if n := pod.Status.ContainerStatuses[0].RestartCount; n > 1000 {
		t.Errorf("home believes %d restarts", n)
	}
	report(t, rostock, record, map[string]any{"phase": 7})
	pod = awaitHome(t, lubeck, "home says that nobody knows how the pod is", home, ready(corev1.ConditionUnknown))
	if c := offload.PodCondition(&pod.Status, v1alpha1.PodReported); c == nil || c.Reason != v1alpha1.ReasonStatusUnreadable {
		t.Errorf("condition %+v", c)
	}
	lubeck.AwaitEvent(t, pod, v1alpha1.ReasonStatusUnreadable)
	report(t, rostock, record, says(3))
	awaitHome(t, lubeck, "home believes what it can read, and the count of restarts", home, func(pod *corev1.Pod) bool {
		return ready(corev1.ConditionTrue)(pod) && offload.PodCondition(&pod.Status, v1alpha1.PodReported) == nil &&
			pod.Status.ContainerStatuses[0].RestartCount == 3
	})
}

// A finalizer of the provider's administrator holds the record of a pod that has ended there.
func TestPodWhoseRecordTheProviderHolds(t *testing.T) {
	ctx := framework.Begin(t)
	peer := consumesFromLiar(t, lubeck)
	home := types.NamespacedName{Namespace: peer.namespace, Name: "held"}
	record := types.NamespacedName{Namespace: peer.twin, Name: home.Name}
	lubeck.MustCreate(t, boundToRostock(home.Namespace, home.Name))
	holds := func(ctx context.Context, when func(*v1alpha1.ShadowPod) bool, finalizers ...string) error {
		shadow := &v1alpha1.ShadowPod{}
		if err := rostock.Get(ctx, record, shadow); err != nil {
			return err
		}
		if !when(shadow) {
			return errors.New("it is not yet as it should be")
		}
		shadow.Finalizers = finalizers
		return rostock.Update(ctx, shadow)
	}
	framework.Eventually(t, "the record has another finalizer", func(ctx context.Context) error {
		return holds(ctx, func(*v1alpha1.ShadowPod) bool { return true }, v1alpha1.FinalizerShadowPod, "example.com/backups")
	})
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = home.Namespace, home.Name
	if err := lubeck.Delete(ctx, pod, client.GracePeriodSeconds(1)); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the provider has ended the pod", func(ctx context.Context) error {
		return holds(ctx, func(s *v1alpha1.ShadowPod) bool { return !s.DeletionTimestamp.IsZero() }, "example.com/backups")
	})
	pod = awaitHome(t, lubeck, "home says what holds the pod", home, func(pod *corev1.Pod) bool {
		return offload.PodCondition(&pod.Status, v1alpha1.PodReleased) != nil
	})
	lubeck.AwaitEvent(t, pod, v1alpha1.ReasonHeldByProvider)
	if _, err := lubeck.Kubectl(ctx, "delete", "pod", "-n", home.Namespace, home.Name, "--force", "--grace-period=0"); err != nil {
		t.Fatal(err)
	}
	if err := lubeck.Get(ctx, home, pod); !apierrors.IsNotFound(err) {
		t.Errorf("the pod is still there: %v", err)
	}
}
