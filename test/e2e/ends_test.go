package e2e

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
)

// A pod that has run to its end is never run again.
func TestCompletedPodIsNotRunAgain(t *testing.T) {
	ctx := alone(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	pod := shellPod(ns, "once", "echo done > /dev/termination-log")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	lubeck.create(t, pod)
	eventually(t, "it has ended", func(ctx context.Context) error { return lubeck.hasPhase(ctx, ns, "once", corev1.PodSucceeded) })
	home, err := lubeck.pod(ctx, ns, "once")
	if err != nil {
		t.Fatal(err)
	}
	remote := hamburg.mustRemotePod(t, home)
	if err := hamburg.Delete(ctx, remote.DeepCopy(), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	hamburg.kill9(t, "manager")
	// The next pod shows that the manager is at work again.
	lubeck.create(t, shellPod(ns, "next", forever))
	lubeck.awaitReadyPods(t, ns, "next", 1)
	pods := &corev1.PodList{}
	if err := hamburg.List(ctx, pods, client.MatchingLabels{v1alpha1.LabelHomeUID: string(home.UID)}); err != nil || len(pods.Items) > 0 {
		t.Errorf("there is a pod for it again: %s %v", summary(pods.Items), err)
	}
	if err := lubeck.hasPhase(ctx, ns, "once", corev1.PodSucceeded); err != nil {
		t.Error(err)
	}
}

// What ended while nobody looked, or was asked to end, has ended too.
func TestEndThatNobodySawIsNoLoss(t *testing.T) {
	ctx := alone(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	names := []string{"unseen", "stopped", "unread", "held"}
	for _, name := range names {
		pod := shellPod(ns, name, "trap 'exit 0' TERM; while [ ! -e /done ]; do sleep 1 & wait $!; done")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		lubeck.create(t, pod)
	}
	remote := map[string]*corev1.Pod{}
	for _, name := range names {
		remote[name] = hamburg.mustRemotePod(t, &lubeck.awaitReadyPods(t, ns, name, 1)[0])
	}

	t.Run("stopped", func(t *testing.T) {
		if err := hamburg.Delete(ctx, remote["stopped"].DeepCopy()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it has succeeded", func(ctx context.Context) error {
			return lubeck.hasPhase(ctx, ns, "stopped", corev1.PodSucceeded)
		})
		eventually(t, "nothing holds it", func(ctx context.Context) error { return hamburg.isGone(ctx, remote["stopped"]) })
	})
	t.Run("unseen", func(t *testing.T) {
		hamburg.pause(t, "manager")
		unseen := remote["unseen"]
		hamburg.completes(t, unseen)
		if err := hamburg.Delete(ctx, unseen.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		hamburg.scale(ctx, t, "manager", "1")
		eventually(t, "home learns of its end", func(ctx context.Context) error {
			return lubeck.hasPhase(ctx, ns, "unseen", corev1.PodSucceeded)
		})
		eventually(t, "nothing holds it", func(ctx context.Context) error { return hamburg.isGone(ctx, unseen) })
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
		lubeck.pause(t, "kubelet")
		hamburg.completes(t, remote["unread"])
		if err := hamburg.Delete(ctx, twin); err != nil {
			t.Fatal(err)
		}
		eventually(t, "no pod is left in the namespace", func(ctx context.Context) error {
			return errors.Join(hamburg.isGone(ctx, held), hamburg.isGone(ctx, remote["unread"]))
		})
		lubeck.scale(ctx, t, "kubelet", "1")
		for _, name := range []string{"unread", "held"} {
			eventually(t, "home learns how pod "+name+" ended", func(ctx context.Context) error {
				return lubeck.hasPhase(ctx, ns, name, corev1.PodSucceeded)
			})
		}
		eventually(t, "the namespace goes", func(ctx context.Context) error {
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
func (c *cluster) completes(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if _, err := c.Kubectl(t.Context(), "exec", "-n", pod.Namespace, pod.Name, "--", "touch", "/done"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has ended", func(ctx context.Context) error {
		return c.hasPhase(ctx, pod.Namespace, pod.Name, corev1.PodSucceeded)
	})
}

func (c *cluster) hasPhase(ctx context.Context, ns, name string, phase corev1.PodPhase) error {
	pod, err := c.pod(ctx, ns, name)
	if err == nil && pod.Status.Phase != phase {
		err = fmt.Errorf("%s: %s %s %s", name, pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
	}
	return err
}

// When a provider will not make a pod again, home's pod fails with the cause, and its controller makes another, which
// may run where it can.
func TestUnrecoverableTellsHome(t *testing.T) {
	ctx := alone(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	lubeck.create(t, deployment(ns, "unwanted", 1, shellSpec(forever)))
	home := lubeck.awaitReadyPods(t, ns, "unwanted", 1)[0]
	remote := hamburg.mustRemotePod(t, &home)
	hamburg.policy(t, "shadowpod", "package hanse.shadowpod\n\ndeny contains \"no guests on Sundays\"\n")
	if err := hamburg.Delete(ctx, remote.DeepCopy(), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "home's pod fails with the provider's reason", func(ctx context.Context) error {
		now, err := lubeck.pod(ctx, ns, home.Name)
		if err != nil {
			return err
		}
		if now.Status.Phase != corev1.PodFailed || !strings.Contains(now.Status.Message, "no guests on Sundays") {
			return fmt.Errorf("%s %s %q", now.Status.Phase, now.Status.Reason, now.Status.Message)
		}
		return nil
	})
	eventually(t, "its controller makes another", func(ctx context.Context) error {
		pods, err := lubeck.pods(ctx, ns, "unwanted")
		if err != nil {
			return err
		}
		for i := range pods {
			if pods[i].UID != home.UID && pods[i].Status.Phase == corev1.PodPending {
				return nil
			}
		}
		return fmt.Errorf("no: %s", summary(pods))
	})
	lubeck.expectHeld(t, ns, "unwanted", &home)
}

// expectHeld waits until the one pod that followed the first says that its provider refuses it, and the node too: none fails
// and is made again without a pause.
func (c *cluster) expectHeld(t *testing.T, ns, app string, first *corev1.Pod) {
	t.Helper()
	eventually(t, "the next pod waits, and says why", func(ctx context.Context) error {
		pods, err := c.pods(ctx, ns, app)
		if err != nil {
			return err
		}
		for i := range pods {
			if pod := &pods[i]; pod.UID != first.UID && pod.Status.Reason == v1alpha1.ReasonRefusedByProvider && pod.Status.Phase == corev1.PodPending {
				if len(pods) > 2 {
					t.Errorf("there are more: %s", summary(pods))
				}
				return nil
			}
		}
		return fmt.Errorf("no: %s", summary(pods))
	})
	c.awaitVirtual(t, hamburg, "says that pods are refused", func(node *corev1.Node) bool {
		return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == v1alpha1.NodeRefusesPods && c.Status == corev1.ConditionTrue
		})
	})
}
