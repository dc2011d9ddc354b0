package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// What happens to a pod at its provider is the provider's business: it is made again, and home keeps its pod.
func TestProviderDrainsItsNode(t *testing.T) {
	alone(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	lubeck.create(t, shellPod(ns, "tough", forever))
	home := lubeck.awaitReadyPods(t, ns, "tough", 1)[0]
	first := hamburg.mustRemotePod(t, &home)
	uncordon := hamburg.drainOf(t, &home)
	eventually(t, "hamburg has made another pod, for which it has no node", func(ctx context.Context) error {
		remote, err := hamburg.remotePod(ctx, &home)
		if err == nil && (remote.UID == first.UID || podCondition(remote, corev1.PodScheduled) != corev1.ConditionFalse) {
			err = fmt.Errorf("%s on %q", remote.UID, remote.Spec.NodeName)
		}
		return err
	})
	eventually(t, "home keeps its pod, which is not Ready", func(ctx context.Context) error {
		now, err := lubeck.pod(ctx, ns, "tough")
		if err == nil && (now.UID != home.UID || podReady(now) || now.Status.Phase == corev1.PodFailed) {
			err = fmt.Errorf("%s, ready %t, %s", now.UID, podReady(now), now.Status.Phase)
		}
		return err
	})
	uncordon()
	again := lubeck.awaitReadyPods(t, ns, "tough", 1)[0]
	if again.UID != home.UID {
		t.Error("home's pod is another one")
	}
	if diff := cmp.Diff(containerIDs(hamburg.mustRemotePod(t, &again)), containerIDs(&again)); diff != "" {
		t.Errorf("containers: %s", diff)
	}
}

// drainOf drains the cluster's nodes of what runs for the home pod. They stay closed until uncordon is called.
func (c *cluster) drainOf(t *testing.T, home *corev1.Pod) (uncordon func()) {
	t.Helper()
	nodes, err := c.realNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	uncordon = func() {
		for _, node := range nodes {
			c.cordon(t, node.Name, false)
		}
	}
	t.Cleanup(uncordon)
	for _, node := range nodes {
		_, err := c.Kubectl(t.Context(), "drain", node.Name, "--force", "--ignore-daemonsets", "--delete-emptydir-data",
			"--pod-selector", v1alpha1.LabelHomeUID+"="+string(home.UID))
		if err != nil {
			t.Fatal(err)
		}
	}
	return uncordon
}

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
}
