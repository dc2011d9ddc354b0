// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// stubborn ignores SIGTERM, so that it lives for as long as its grace.
const stubborn = "trap '' TERM; echo started; while true; do sleep 1; done"

// However a user deletes a pod, the remote one is deleted with that grace.
func TestGraceIsCarried(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	for name, story := range map[string]struct {
		flags []string
		grace int64
	}{
		"own":  {nil, 600},
		"five": {[]string{"--grace-period=5"}, 5},
		"now":  {[]string{"--now"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := framework.NewShellPod(ns, name, stubborn)
			pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](600)
			lubeck.MustCreate(t, pod)
			home := lubeck.AwaitReadyPods(t, ns, name, 1)[0]
			remote := hamburg.MustGetRemotePod(t, &home)
			if _, err := lubeck.Kubectl(t.Context(), append([]string{"delete", "pod", "-n", ns, name, "--wait=false"}, story.flags...)...); err != nil {
				t.Fatal(err)
			}
			awaitGrace(t, remote, story.grace)
			// A second deletion that is in more of a hurry is told too. (What the kubelet makes of it is its own affair.)
			deleteAgain := func(flags ...string) {
				t.Helper()
				_, err := lubeck.Kubectl(t.Context(), append([]string{"delete", "pod", "-n", ns, name, "--wait=false"}, flags...)...)
				if err != nil && !strings.Contains(err.Error(), "NotFound") {
					t.Fatal(err)
				}
			}
			deleteAgain("--now")
			awaitGrace(t, remote, 1)
			deleteAgain("--grace-period=0", "--force")
			awaitBothGone(t, &home, remote)
		})
	}
	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		pod := framework.NewShellPod(ns, "zero", stubborn)
		pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](600)
		lubeck.MustCreate(t, pod)
		home := lubeck.AwaitReadyPods(t, ns, "zero", 1)[0]
		remote := hamburg.MustGetRemotePod(t, &home)
		if _, err := lubeck.Kubectl(t.Context(), "delete", "pod", "-n", ns, "zero", "--grace-period=0", "--force"); err != nil {
			t.Fatal(err)
		}
		awaitBothGone(t, &home, remote)
	})
}

// awaitGrace waits until the remote pod is being deleted with that grace, or has ended by it.
func awaitGrace(t *testing.T, remote *corev1.Pod, grace int64) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("%s is deleted with a grace of %d s", remote.Name, grace), func(ctx context.Context) error {
		now, err := hamburg.GetPod(ctx, remote.Namespace, remote.Name)
		if apierrors.IsNotFound(err) && grace < 600 {
			return nil
		}
		if err != nil {
			return err
		}
		if got := ptr.Deref(now.DeletionGracePeriodSeconds, -1); got != grace {
			return fmt.Errorf("it has %d", got)
		}
		return nil
	})
}

func awaitBothGone(t *testing.T, home, remote *corev1.Pod) {
	t.Helper()
	framework.Eventually(t, home.Name+" is gone on both sides", func(ctx context.Context) error {
		if err := lubeck.CheckGone(ctx, home.DeepCopy()); err != nil {
			return err
		}
		if err := hamburg.CheckGone(ctx, remote.DeepCopy()); err != nil {
			return err
		}
		record := &v1alpha1.ShadowPod{}
		record.Namespace, record.Name = remote.Namespace, remote.Name
		return hamburg.CheckGone(ctx, record)
	})
}

// What a pod does before it stops is done there, and home hears of its end.
func TestPreStopHookRuns(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	pod := framework.NewShellPod(ns, "orderly", "while ! test -f /tmp/stopped; do sleep 0.2; done; echo hook has run > /dev/termination-log; exit 3")
	pod.Finalizers = []string{"stories.hanse.dev/watching"}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](60)
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
		Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "touch /tmp/stopped; sleep 1"}},
	}}
	lubeck.MustCreate(t, pod)
	home := lubeck.AwaitReadyPods(t, ns, "orderly", 1)[0]
	remote := hamburg.MustGetRemotePod(t, &home)
	if err := lubeck.Delete(t.Context(), home.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "home tells how the container ended, as long as somebody waits for it", func(ctx context.Context) error {
		now, err := lubeck.GetPod(ctx, ns, "orderly")
		if err != nil {
			return err
		}
		for _, s := range now.Status.ContainerStatuses {
			if end := s.State.Terminated; end != nil && end.ExitCode == 3 && strings.Contains(end.Message, "hook has run") {
				return nil
			}
		}
		return fmt.Errorf("%+v", now.Status.ContainerStatuses)
	})
	patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`))
	if err := lubeck.Patch(t.Context(), home.DeepCopy(), patch); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	awaitBothGone(t, &home, remote)
}

// Eviction at home respects the PodDisruptionBudget at home.
func TestEvictionAtHome(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	lubeck.MustCreate(t, framework.NewDeployment(ns, "guarded", 2, framework.NewShellPodSpec(framework.RunForever)))
	lubeck.MustCreate(t, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "guarded"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}},
		},
	})
	home := lubeck.AwaitReadyPods(t, ns, "guarded", 2)[0]
	remote := hamburg.MustGetRemotePod(t, &home)
	eviction := func() error {
		return lubeck.SubResource("eviction").Create(t.Context(), home.DeepCopy(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: home.Name}})
	}
	framework.Eventually(t, "the budget is counted", func(ctx context.Context) error {
		budget := &policyv1.PodDisruptionBudget{}
		err := lubeck.Get(ctx, types.NamespacedName{Namespace: ns, Name: "guarded"}, budget)
		if err == nil && budget.Status.CurrentHealthy != 2 {
			err = fmt.Errorf("%+v", budget.Status)
		}
		return err
	})
	if err := eviction(); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the eviction of one of two that must be there: %v", err)
	}
	if _, err := lubeck.Kubectl(t.Context(), "scale", "-n", ns, "deployment/guarded", "--replicas=3"); err != nil {
		t.Fatal(err)
	}
	lubeck.AwaitReadyPods(t, ns, "guarded", 3)
	framework.Eventually(t, "the eviction is let through", func(context.Context) error { return client.IgnoreNotFound(eviction()) })
	awaitBothGone(t, &home, remote)
}

func TestHomeNamespaceDeleted(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	lubeck.MustCreate(t, framework.NewDeployment(ns, "doomed", 3, framework.NewShellPodSpec(framework.RunForever)))
	home := lubeck.AwaitReadyPods(t, ns, "doomed", 3)[0]
	remote := hamburg.MustGetRemotePod(t, &home)
	if _, err := lubeck.Kubectl(t.Context(), "delete", "namespace", ns, "--wait=false"); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the namespace and its twin are gone", func(ctx context.Context) error {
		for where, name := range map[*framework.Cluster]string{lubeck: ns, hamburg: remote.Namespace} {
			if err := where.CheckGone(ctx, &corev1.Namespace{ObjectMeta: framework.ObjectMeta(name)}); err != nil {
				return err
			}
		}
		return nil
	})
}
