// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// A pod that has run to its end is never run again.
func TestCompletedPodIsNotRunAgain(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	pod := framework.NewShellPod(ns, "once", "echo done > /dev/termination-log")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	lubeck.MustCreate(t, pod)
	framework.Eventually(t, "it has ended", func(ctx context.Context) error { return lubeck.CheckPhase(ctx, ns, "once", corev1.PodSucceeded) })
	home, err := lubeck.GetPod(ctx, ns, "once")
	if err != nil {
		t.Fatal(err)
	}
	remote := hamburg.MustGetRemotePod(t, home)
	if err := hamburg.Delete(ctx, remote.DeepCopy(), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	hamburg.KillHanse(t, "manager")
	// The next pod shows that the manager is at work again.
	lubeck.MustCreate(t, framework.NewShellPod(ns, "next", framework.RunForever))
	lubeck.AwaitReadyPods(t, ns, "next", 1)
	pods := &corev1.PodList{}
	if err := hamburg.List(ctx, pods, client.MatchingLabels{v1alpha1.LabelHomeUID: string(home.UID)}); err != nil || len(pods.Items) > 0 {
		t.Errorf("there is a pod for it again: %s %v", framework.Summarize(pods.Items), err)
	}
	if err := lubeck.CheckPhase(ctx, ns, "once", corev1.PodSucceeded); err != nil {
		t.Error(err)
	}
}

// What ended while nobody looked, or was asked to end, has ended too.
func TestEndThatNobodySawIsNoLoss(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	names := []string{"unseen", "stopped", "unread", "held"}
	for _, name := range names {
		pod := framework.NewShellPod(ns, name, "trap 'exit 0' TERM; while [ ! -e /done ]; do sleep 1 & wait $!; done")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		lubeck.MustCreate(t, pod)
	}
	remote := map[string]*corev1.Pod{}
	for _, name := range names {
		remote[name] = hamburg.MustGetRemotePod(t, &lubeck.AwaitReadyPods(t, ns, name, 1)[0])
	}

	t.Run("stopped", func(t *testing.T) {
		if err := hamburg.Delete(ctx, remote["stopped"].DeepCopy()); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "it has succeeded", func(ctx context.Context) error {
			return lubeck.CheckPhase(ctx, ns, "stopped", corev1.PodSucceeded)
		})
		framework.Eventually(t, "nothing holds it", func(ctx context.Context) error { return hamburg.CheckGone(ctx, remote["stopped"]) })
	})
	t.Run("unseen", func(t *testing.T) {
		hamburg.PauseHanse(t, "manager")
		unseen := remote["unseen"]
		completes(t, hamburg, unseen)
		if err := hamburg.Delete(ctx, unseen.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		hamburg.ScaleHanse(ctx, t, "manager", "1")
		framework.Eventually(t, "home learns of its end", func(ctx context.Context) error {
			return lubeck.CheckPhase(ctx, ns, "unseen", corev1.PodSucceeded)
		})
		framework.Eventually(t, "nothing holds it", func(ctx context.Context) error { return hamburg.CheckGone(ctx, unseen) })
	})
	t.Run("the namespace is deleted before home has read it", func(t *testing.T) {
		held := remote["held"]
		if len(held.Finalizers) == 0 {
			t.Error("the pod that still runs has no finalizer")
		}
		twin := &corev1.Namespace{}
		if err := hamburg.Get(ctx, client.ObjectKey{Name: held.Namespace}, twin); err != nil {
			t.Fatal(err)
		}
		lubeck.PauseHanse(t, "kubelet")
		completes(t, hamburg, remote["unread"])
		if err := hamburg.Delete(ctx, twin); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "no pod is left in the namespace", func(ctx context.Context) error {
			return errors.Join(hamburg.CheckGone(ctx, held), hamburg.CheckGone(ctx, remote["unread"]))
		})
		lubeck.ScaleHanse(ctx, t, "kubelet", "1")
		for _, name := range []string{"unread", "held"} {
			framework.Eventually(t, "home learns how pod "+name+" ended", func(ctx context.Context) error {
				return lubeck.CheckPhase(ctx, ns, name, corev1.PodSucceeded)
			})
		}
		framework.Eventually(t, "the namespace goes", func(ctx context.Context) error {
			now := &corev1.Namespace{}
			err := hamburg.Get(ctx, client.ObjectKey{Name: twin.Name}, now)
			if err == nil && now.UID == twin.UID {
				err = fmt.Errorf("it is there: %v", now.Status.Conditions)
			}
			return client.IgnoreNotFound(err)
		})
	})
}

// completes has the pod run to its end. It is not asked over a link, which may look for a manager that is down.
func completes(t *testing.T, c *framework.Cluster, pod *corev1.Pod) {
	t.Helper()
	if _, err := c.Kubectl(t.Context(), "exec", "-n", pod.Namespace, pod.Name, "--", "touch", "/done"); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "it has ended", func(ctx context.Context) error {
		return c.CheckPhase(ctx, pod.Namespace, pod.Name, corev1.PodSucceeded)
	})
}

// When a provider will not make a pod again, home's pod fails with the cause, and its controller makes another, which
// may run where it can.
func TestUnrecoverableTellsHome(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	lubeck.MustCreate(t, framework.NewDeployment(ns, "unwanted", 1, framework.NewShellPodSpec(framework.RunForever)))
	home := lubeck.AwaitReadyPods(t, ns, "unwanted", 1)[0]
	remote := hamburg.MustGetRemotePod(t, &home)
	hamburg.ApplyPolicy(t, "shadowpod", "package hanse.shadowpod\n\ndeny contains \"no guests on Sundays\"\n")
	if err := hamburg.Delete(ctx, remote.DeepCopy(), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "home's pod fails with the provider's reason", func(ctx context.Context) error {
		now, err := lubeck.GetPod(ctx, ns, home.Name)
		if err != nil {
			return err
		}
		if now.Status.Phase != corev1.PodFailed || !strings.Contains(now.Status.Message, "no guests on Sundays") {
			return fmt.Errorf("%s %s %q", now.Status.Phase, now.Status.Reason, now.Status.Message)
		}
		return nil
	})
	framework.Eventually(t, "its controller makes another", func(ctx context.Context) error {
		pods, err := lubeck.GetPods(ctx, ns, "unwanted")
		if err != nil {
			return err
		}
		for i := range pods {
			if pods[i].UID != home.UID && pods[i].Status.Phase == corev1.PodPending {
				return nil
			}
		}
		return fmt.Errorf("no: %s", framework.Summarize(pods))
	})
	expectHeld(t, lubeck, ns, "unwanted", &home)
}

// expectHeld waits until the one pod that followed the first says that its provider refuses it, and the node too: none fails
// and is made again without a pause.
func expectHeld(t *testing.T, c *framework.Cluster, ns, app string, first *corev1.Pod) {
	t.Helper()
	framework.Eventually(t, "the next pod waits, and says why", func(ctx context.Context) error {
		pods, err := c.GetPods(ctx, ns, app)
		if err != nil {
			return err
		}
		for i := range pods {
			if pod := &pods[i]; pod.UID != first.UID && pod.Status.Reason == v1alpha1.ReasonRefusedByProvider && pod.Status.Phase == corev1.PodPending {
				if len(pods) > 2 {
					t.Errorf("there are more: %s", framework.Summarize(pods))
				}
				return nil
			}
		}
		return fmt.Errorf("no: %s", framework.Summarize(pods))
	})
	c.AwaitVirtualNode(t, hamburg, "says that pods are refused", func(node *corev1.Node) bool {
		return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == v1alpha1.NodeRefusesPods && c.Status == corev1.ConditionTrue
		})
	})
}
