// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

func TestRemoteDeletionIsRemade(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	lubeck.MustCreate(t, framework.NewShellPod(ns, "stubborn", framework.RunForever))
	home := lubeck.AwaitReadyPods(t, ns, "stubborn", 1)[0]
	first := hamburg.MustGetRemotePod(t, &home)

	// The provider does not need home to bring the pod back.
	framework.MustTestbed(t, "stop", "lubeck", "apiserver")
	t.Cleanup(func() { framework.MustTestbed(t, "start", "lubeck", "apiserver") })
	if err := hamburg.Delete(ctx, first.DeepCopy(), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	var second *corev1.Pod
	framework.Eventually(t, "hamburg makes the pod again", func(ctx context.Context) error {
		var err error
		if second, err = hamburg.GetPod(ctx, first.Namespace, first.Name); err != nil {
			return err
		}
		if second.UID == first.UID || !framework.IsPodReady(second) {
			return fmt.Errorf("pod %s is not a new and Ready one", second.UID)
		}
		return nil
	})

	framework.MustTestbed(t, "start", "lubeck", "apiserver")
	framework.Eventually(t, "home shows the new container", func(ctx context.Context) error {
		now, err := lubeck.GetPod(ctx, ns, "stubborn")
		if err != nil {
			return err
		}
		if now.UID != home.UID {
			return fmt.Errorf("the home pod was replaced: %s", now.UID)
		}
		if diff := cmp.Diff(framework.ContainerIDs(second), framework.ContainerIDs(now)); diff != "" || !framework.IsPodReady(now) {
			return fmt.Errorf("ready: %v, containers: %s", framework.IsPodReady(now), diff)
		}
		if restarts := now.Status.ContainerStatuses[0].RestartCount; restarts != 1 {
			return fmt.Errorf("home shows %d restarts", restarts)
		}
		return nil
	})
	lubeck.AwaitDescription(t, ns, "pod/stubborn", "MadeAgain")
}

func TestManagerAndKubeletRestart(t *testing.T) {
	ctx := framework.Begin(t)
	const burst = 50
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	lubeck.MustCreate(t, framework.NewDeployment(ns, "burst", burst, framework.NewShellPodSpec(framework.RunForever)))

	// Each process dies once, each time with a part of the burst on its way.
	victims := []struct {
		where   *framework.Cluster
		command string
		atReady int
	}{{lubeck, "kubelet", 5}, {hamburg, "manager", 15}, {lubeck, "manager", 25}}
	for _, victim := range victims {
		framework.Eventually(t, fmt.Sprintf("%d pods are Ready", victim.atReady), func(ctx context.Context) error {
			return atLeastReady(ctx, lubeck, ns, "burst", victim.atReady)
		})
		known := runningContainers(t, ctx, ns)
		victim.where.KillHanse(t, victim.command)
		t.Logf("killed hanse %s of %s with %d remote containers running", victim.command, victim.where.Name, len(known))
		t.Cleanup(func() {
			now := runningContainers(t, context.Background(), ns)
			for uid, ids := range known {
				if diff := cmp.Diff(ids, now[uid]); diff != "" && len(now) > 0 {
					t.Errorf("containers of home pod %s: %s", uid, diff)
				}
			}
		})
	}

	ready := lubeck.AwaitReadyPods(t, ns, "burst", burst)
	all := runningContainers(t, ctx, ns)
	if len(all) != burst {
		t.Errorf("%d remote pods run, want %d", len(all), burst)
	}
	for _, home := range ready {
		remote := hamburg.MustGetRemotePod(t, &home)
		framework.ExpectSamePod(t, &home, remote)
		for _, s := range remote.Status.ContainerStatuses {
			if s.RestartCount != 0 {
				t.Errorf("container %s of %s was restarted %d times", s.Name, home.Name, s.RestartCount)
			}
		}
	}
}

// Pods that are created while no process of Hanse runs in either cluster wait, and run when Hanse is back: the pods that were
// created, and not others.
func TestPodCreatedWhileHanseIsDown(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	down := map[*framework.Cluster][]string{lubeck: {"manager", "kubelet"}, hamburg: {"manager"}}
	for c, components := range down {
		for _, component := range components {
			c.PauseHanse(t, component)
		}
	}
	lubeck.MustCreate(t, framework.NewShellPod(ns, "early", framework.RunForever))
	lubeck.MustCreate(t, framework.NewDeployment(ns, "early-too", 2, framework.NewShellPodSpec(framework.RunForever)))
	created := map[string]types.UID{}
	framework.Eventually(t, "they are bound to the peer by admission and the scheduler alone", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		err := lubeck.List(ctx, pods, client.InNamespace(ns))
		clear(created)
		for i := range pods.Items {
			if pod := &pods.Items[i]; pod.Spec.NodeName == v1alpha1.VirtualNodeName("hamburg") && pod.Status.Phase == corev1.PodPending {
				created[pod.Name] = pod.UID
			}
		}
		if err == nil && len(created) != 3 {
			err = errors.New(framework.Summarize(pods.Items))
		}
		return err
	})
	for c, components := range down {
		for _, component := range components {
			c.ScaleHanse(ctx, t, component, "1")
		}
	}
	for _, home := range append(lubeck.AwaitReadyPods(t, ns, "early", 1), lubeck.AwaitReadyPods(t, ns, "early-too", 2)...) {
		if created[home.Name] != home.UID {
			t.Errorf("%s is %s, and was created as %s", home.Name, home.UID, created[home.Name])
		}
		framework.ExpectSamePod(t, &home, hamburg.MustGetRemotePod(t, &home))
	}
}

func atLeastReady(ctx context.Context, c *framework.Cluster, ns, app string, want int) error {
	pods, err := c.GetPods(ctx, ns, app)
	if err != nil {
		return err
	}
	ready := 0
	for _, pod := range pods {
		if framework.IsPodReady(&pod) {
			ready++
		}
	}
	if ready < want {
		return fmt.Errorf("%d of %d pods are Ready: %s", ready, want, framework.Summarize(pods))
	}
	return nil
}

// runningContainers returns the container ids of the remote pods in hamburg that run for pods of the home namespace,
// by the UID of the home pod.
func runningContainers(t *testing.T, ctx context.Context, homeNamespace string) map[string]map[string]string {
	t.Helper()
	twins := &corev1.NamespaceList{}
	if err := hamburg.List(ctx, twins, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeTwin}); err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]string{}
	for _, twin := range twins.Items {
		if twin.Annotations[v1alpha1.AnnotationHomeNamespace] != homeNamespace {
			continue
		}
		pods := &corev1.PodList{}
		if err := hamburg.List(ctx, pods, client.InNamespace(twin.Name)); err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods.Items {
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp.IsZero() {
				found[pod.Labels[v1alpha1.LabelHomeUID]] = framework.ContainerIDs(&pod)
			}
		}
	}
	return found
}

// What happens to a pod at its provider is the provider's business: it is made again, and home keeps its pod.
func TestProviderDrainsItsNode(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	lubeck.MustCreate(t, framework.NewShellPod(ns, "tough", framework.RunForever))
	home := lubeck.AwaitReadyPods(t, ns, "tough", 1)[0]
	first := hamburg.MustGetRemotePod(t, &home)
	uncordon := drainOf(t, hamburg, &home)
	framework.Eventually(t, "hamburg has made another pod, for which it has no node", func(ctx context.Context) error {
		remote, err := hamburg.GetRemotePod(ctx, &home)
		if err == nil && (remote.UID == first.UID || framework.PodConditionStatus(remote, corev1.PodScheduled) != corev1.ConditionFalse) {
			err = fmt.Errorf("%s on %q", remote.UID, remote.Spec.NodeName)
		}
		return err
	})
	framework.Eventually(t, "home keeps its pod, which is not Ready", func(ctx context.Context) error {
		now, err := lubeck.GetPod(ctx, ns, "tough")
		if err == nil && (now.UID != home.UID || framework.IsPodReady(now) || now.Status.Phase == corev1.PodFailed) {
			err = fmt.Errorf("%s, ready %t, %s", now.UID, framework.IsPodReady(now), now.Status.Phase)
		}
		return err
	})
	uncordon()
	again := lubeck.AwaitReadyPods(t, ns, "tough", 1)[0]
	if again.UID != home.UID {
		t.Error("home's pod is another one")
	}
	if diff := cmp.Diff(framework.ContainerIDs(hamburg.MustGetRemotePod(t, &again)), framework.ContainerIDs(&again)); diff != "" {
		t.Errorf("containers: %s", diff)
	}
}

// drainOf drains the cluster's nodes of what runs for the home pod. They stay closed until uncordon is called.
func drainOf(t *testing.T, c *framework.Cluster, home *corev1.Pod) (uncordon func()) {
	t.Helper()
	nodes, err := c.RealNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	uncordon = func() {
		for _, node := range nodes {
			c.SetCordoned(t, node.Name, false)
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
