package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestRemoteDeletionIsRemade(t *testing.T) {
	ctx := alone(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	lubeck.create(t, shellPod(ns, "stubborn", forever))
	home := lubeck.awaitReadyPods(t, ns, "stubborn", 1)[0]
	first := hamburg.mustRemotePod(t, &home)

	// The provider does not need home to bring the pod back.
	mustTestbed(t, "stop", "lubeck", "apiserver")
	t.Cleanup(func() { mustTestbed(t, "start", "lubeck", "apiserver") })
	if err := hamburg.Delete(ctx, first.DeepCopy(), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	var second *corev1.Pod
	eventually(t, "hamburg makes the pod again", func(ctx context.Context) error {
		var err error
		if second, err = hamburg.pod(ctx, first.Namespace, first.Name); err != nil {
			return err
		}
		if second.UID == first.UID || !podReady(second) {
			return fmt.Errorf("pod %s is not a new and Ready one", second.UID)
		}
		return nil
	})

	mustTestbed(t, "start", "lubeck", "apiserver")
	eventually(t, "home shows the new container", func(ctx context.Context) error {
		now, err := lubeck.pod(ctx, ns, "stubborn")
		if err != nil {
			return err
		}
		if now.UID != home.UID {
			return fmt.Errorf("the home pod was replaced: %s", now.UID)
		}
		if diff := cmp.Diff(containerIDs(second), containerIDs(now)); diff != "" || !podReady(now) {
			return fmt.Errorf("ready: %v, containers: %s", podReady(now), diff)
		}
		if restarts := now.Status.ContainerStatuses[0].RestartCount; restarts != 1 {
			return fmt.Errorf("home shows %d restarts", restarts)
		}
		return nil
	})
	lubeck.describeSays(t, ns, "pod/stubborn", "MadeAgain")
}

func TestManagerAndKubeletRestart(t *testing.T) {
	ctx := alone(t)
	const burst = 50
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	lubeck.create(t, deployment(ns, "burst", burst, shellSpec(forever)))

	// Each process dies once, each time with a part of the burst on its way.
	victims := []struct {
		where   *cluster
		command string
		atReady int
	}{{lubeck, "kubelet", 5}, {hamburg, "manager", 15}, {lubeck, "manager", 25}}
	for _, victim := range victims {
		eventually(t, fmt.Sprintf("%d pods are Ready", victim.atReady), func(ctx context.Context) error {
			return lubeck.atLeastReady(ctx, ns, "burst", victim.atReady)
		})
		known := runningContainers(t, ctx, ns)
		victim.where.kill9(t, victim.command)
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

	ready := lubeck.awaitReadyPods(t, ns, "burst", burst)
	all := runningContainers(t, ctx, ns)
	if len(all) != burst {
		t.Errorf("%d remote pods run, want %d", len(all), burst)
	}
	for _, home := range ready {
		remote := hamburg.mustRemotePod(t, &home)
		expectSamePod(t, &home, remote)
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
	ctx := alone(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	down := map[*cluster][]string{lubeck: {"manager", "kubelet"}, hamburg: {"manager"}}
	for c, components := range down {
		for _, component := range components {
			c.pause(t, component)
		}
	}
	lubeck.create(t, shellPod(ns, "early", forever))
	lubeck.create(t, deployment(ns, "early-too", 2, shellSpec(forever)))
	created := map[string]types.UID{}
	eventually(t, "they are bound to the peer by admission and the scheduler alone", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		err := lubeck.List(ctx, pods, client.InNamespace(ns))
		clear(created)
		for i := range pods.Items {
			if pod := &pods.Items[i]; pod.Spec.NodeName == v1alpha1.VirtualNodeName("hamburg") && pod.Status.Phase == corev1.PodPending {
				created[pod.Name] = pod.UID
			}
		}
		if err == nil && len(created) != 3 {
			err = errors.New(summary(pods.Items))
		}
		return err
	})
	for c, components := range down {
		for _, component := range components {
			c.scale(ctx, t, component, "1")
		}
	}
	for _, home := range append(lubeck.awaitReadyPods(t, ns, "early", 1), lubeck.awaitReadyPods(t, ns, "early-too", 2)...) {
		if created[home.Name] != home.UID {
			t.Errorf("%s is %s, and was created as %s", home.Name, home.UID, created[home.Name])
		}
		expectSamePod(t, &home, hamburg.mustRemotePod(t, &home))
	}
}

func (c *cluster) atLeastReady(ctx context.Context, ns, app string, want int) error {
	pods, err := c.pods(ctx, ns, app)
	if err != nil {
		return err
	}
	ready := 0
	for _, pod := range pods {
		if podReady(&pod) {
			ready++
		}
	}
	if ready < want {
		return fmt.Errorf("%d of %d pods are Ready: %s", ready, want, summary(pods))
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
				found[pod.Labels[v1alpha1.LabelHomeUID]] = containerIDs(&pod)
			}
		}
	}
	return found
}

// kill9 kills the hanse process of that subcommand in the cluster at once, as a crash would.
func (c *cluster) kill9(t *testing.T, subcommand string) {
	t.Helper()
	if err := syscall.Kill(c.pidOf(t, subcommand), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// freeze stops the hanse process of that subcommand, which says and does nothing until it is thawed, at the story's end at
// the latest.
func (c *cluster) freeze(t *testing.T, subcommand string) (thaw func()) {
	t.Helper()
	pid := c.pidOf(t, subcommand)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thaw = func() { _ = syscall.Kill(pid, syscall.SIGCONT) } // Kubernetes may have started another
	t.Cleanup(thaw)
	return thaw
}

// pidOf finds the hanse process of that subcommand by the UID of its pod, which is in the names of its control groups.
func (c *cluster) pidOf(t *testing.T, subcommand string) int {
	t.Helper()
	list := &corev1.PodList{}
	err := c.List(t.Context(), list, client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/component": subcommand})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("pods of hanse %s in %s: %d, %v", subcommand, c.Name, len(list.Items), err)
	}
	pid, err := processOf(list.Items[0].UID, "/hanse")
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func processOf(pod types.UID, executable string) (int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		groups, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(groups), string(pod)) {
			continue // a process that has just ended, or another pod's
		}
		dir := filepath.Dir(file)
		command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err == nil && strings.HasPrefix(string(command), executable+"\x00") {
			return strconv.Atoi(filepath.Base(dir))
		}
	}
	return 0, fmt.Errorf("no process %s in pod %s", executable, pod)
}

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
