package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
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
		return nil
	})
}

func mustTestbed(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := harness.Testbed(ctx, args...); err != nil {
		t.Fatal(err)
	}
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

// kill9 kills the hanse process of that subcommand in the cluster at once, as a crash would. The process is found by
// the UID of its pod, which is in the names of its control groups.
func (c *cluster) kill9(t *testing.T, subcommand string) {
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
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
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

// The consumer's scheduler subtracts its own pods from what is offered, so the offer must include them: a virtual node
// can be filled to the whole of it, pod by pod, and no further.
func TestCapacityNotCountedTwice(t *testing.T) {
	alone(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	free := lubeck.freeCPU(t, v1alpha1.VirtualNodeName("hamburg"))
	const parts = 4
	share := resource.NewMilliQuantity(free.MilliValue()/parts, resource.DecimalSI)
	for i := range parts {
		app := "part-" + strconv.Itoa(i)
		pod := shellPod(ns, app, forever)
		pod.Spec.Containers[0].Resources = requests(share.String(), "1Mi")
		lubeck.create(t, pod)
		home := lubeck.awaitReadyPods(t, ns, app, 1)[0]
		expectSamePod(t, &home, hamburg.mustRemotePod(t, &home))
	}
	tooMuch := shellPod(ns, "too-much", forever)
	tooMuch.Spec.Containers[0].Resources = requests(share.String(), "1Mi")
	lubeck.create(t, tooMuch)
	eventually(t, "home's own scheduler sees that the node is full", func(ctx context.Context) error {
		pod, err := lubeck.pod(ctx, ns, "too-much")
		if err != nil {
			return err
		}
		if podCondition(pod, corev1.PodScheduled) != corev1.ConditionFalse {
			return fmt.Errorf("pod is on node %q, conditions %v", pod.Spec.NodeName, pod.Status.Conditions)
		}
		return nil
	})
}

// freeCPU waits until the virtual node's offer no longer moves with what earlier stories left, and returns how much of
// it no pod asks for.
func (c *cluster) freeCPU(t *testing.T, nodeName string) resource.Quantity {
	t.Helper()
	var free resource.Quantity
	eventually(t, "nothing of earlier stories is left on "+nodeName, func(ctx context.Context) error {
		node, err := c.node(ctx, nodeName)
		if err != nil {
			return err
		}
		pods := &corev1.PodList{}
		if err := c.List(ctx, pods, client.MatchingFields{"spec.nodeName": nodeName}); err != nil {
			return err
		}
		if len(pods.Items) > 0 {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		if err := hamburg.noRemotePods(ctx); err != nil {
			return err
		}
		free = node.Status.Allocatable[corev1.ResourceCPU]
		return hamburg.offers(ctx, free)
	})
	return free
}

// offers checks that the real nodes of the cluster have that much cpu free that nobody asks for: the offer is neither
// stale nor more than there is.
func (c *cluster) offers(ctx context.Context, cpu resource.Quantity) error {
	nodes, err := c.realNodes(ctx)
	if err != nil {
		return err
	}
	free := resource.Quantity{}
	for _, node := range nodes {
		free.Add(node.Status.Allocatable[corev1.ResourceCPU])
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods); err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if isVirtual(&pod) || pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, container := range pod.Spec.Containers {
			free.Sub(container.Resources.Requests[corev1.ResourceCPU])
		}
	}
	slack := resource.MustParse("100m")
	least := free.DeepCopy()
	least.Sub(slack)
	if cpu.Cmp(free) > 0 || cpu.Cmp(least) < 0 {
		return fmt.Errorf("%s of %s free cpu are offered", cpu.String(), free.String())
	}
	return nil
}

// A pod that came from another cluster runs on real nodes only, even where a virtual node has room and the real ones
// have none.
func TestNoLoop(t *testing.T) {
	ctx := alone(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	nodes, err := hamburg.realNodes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		hamburg.cordon(t, node.Name, true)
		t.Cleanup(func() { hamburg.cordon(t, node.Name, false) })
	}
	// Bound by name, since home's scheduler would not choose a cluster without room.
	pod := shellPod(ns, "homing", forever)
	pod.Spec.NodeName = v1alpha1.VirtualNodeName("hamburg")
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	lubeck.create(t, pod)
	eventually(t, "hamburg's scheduler finds no node", func(ctx context.Context) error {
		remote, err := hamburg.remotePod(ctx, pod)
		if err != nil {
			return err
		}
		if podCondition(remote, corev1.PodScheduled) != corev1.ConditionFalse {
			return fmt.Errorf("remote pod is on node %q", remote.Spec.NodeName)
		}
		return nil
	})
	for _, node := range nodes {
		hamburg.cordon(t, node.Name, false)
	}
	home := lubeck.awaitReadyPods(t, ns, "homing", 1)[0]
	expectSamePod(t, &home, hamburg.mustRemotePod(t, &home))
}

func (c *cluster) cordon(t *testing.T, node string, on bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	verb := map[bool]string{true: "cordon", false: "uncordon"}[on]
	if _, err := c.Kubectl(ctx, verb, node); err != nil {
		t.Fatal(err)
	}
}
