// SPDX-License-Identifier: Apache-2.0

// Package offers tests what providers offer, how offers follow the load, and where pods run because of them.
package offers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

var lubeck, hamburg, bremen, wismar *framework.Cluster

func TestMain(m *testing.M) {
	framework.Main(m, framework.Config{
		Clusters: map[string]**framework.Cluster{"lubeck": &lubeck, "hamburg": &hamburg, "bremen": &bremen, "wismar": &wismar},
		Values:   func(*framework.Cluster) []string { return framework.FrequentMessages },
		Peers:    [][2]string{{"lubeck", "hamburg"}, {"lubeck", "bremen"}, {"hamburg", "bremen"}},
	})
}

// begin waits until lubeck uses the offers of both providers.
func begin(t *testing.T) {
	t.Helper()
	for _, provider := range []*framework.Cluster{hamburg, bremen} {
		lubeck.AwaitOpen(t, provider)
	}
}

// awaitIdle waits until the provider runs no pods of consumers or of earlier tests, and until it offers to the consumers exactly the
// processor time that is free on its schedulable nodes. It returns that in thousandths of a core.
func awaitIdle(t *testing.T, provider *framework.Cluster, consumers ...*framework.Cluster) int64 {
	t.Helper()
	var free int64
	framework.Eventually(t, provider.Name+" has no pods of earlier tests, and offers what is free", func(ctx context.Context) error {
		if err := hasNoTestPods(ctx, provider); err != nil {
			return err
		}
		capacity, err := provider.FreeCapacity(ctx)
		if err != nil {
			return err
		}
		free = capacity.Cpu().MilliValue()
		for _, consumer := range consumers {
			if err := isOffered(ctx, provider, free, consumer); err != nil {
				return err
			}
		}
		return nil
	})
	return free
}

// useOneNode leaves the provider one schedulable node until the end of the test, so that what is free fits into one pod. It returns the
// free processor time in thousandths of a core. The virtual nodes in the consumers show exactly that, because the offer has only fallen.
func useOneNode(t *testing.T, provider *framework.Cluster, consumers ...*framework.Cluster) int64 {
	t.Helper()
	awaitIdle(t, provider, consumers...)
	provider.Cordon(t, provider.NodeNames(t)[1:]...)
	free := awaitIdle(t, provider, consumers...)
	for _, consumer := range consumers {
		consumer.AwaitVirtualNode(t, provider, "shows exactly what is offered", func(node *corev1.Node) bool {
			return node.Status.Allocatable.Cpu().MilliValue() == free
		})
	}
	return free
}

// hasNoTestPods returns an error if a ShadowPod exists, or a pod in a namespace of a test.
func hasNoTestPods(ctx context.Context, c *framework.Cluster) error {
	records := &v1alpha1.ShadowPodList{}
	if err := c.List(ctx, records); err != nil {
		return err
	}
	if len(records.Items) > 0 {
		return fmt.Errorf("there are %d ShadowPods", len(records.Items))
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods); err != nil {
		return err
	}
	pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Namespace == v1alpha1.SystemNamespace })
	if len(pods.Items) > 0 {
		return errors.New(framework.Summary(pods.Items))
	}
	return nil
}

// isOffered returns an error unless the consumer's copy of the offer has exactly so much processor time, and its virtual node shows that. A
// virtual node shows no more than the offer, and shows less while the offer has risen by less than 2 %.
func isOffered(ctx context.Context, provider *framework.Cluster, want int64, consumer *framework.Cluster) error {
	held, err := consumer.CopyOf(ctx, provider)
	if err != nil {
		return err
	}
	node, err := consumer.VirtualNode(ctx, provider)
	if err != nil {
		return err
	}
	offered, shown := held.Spec.Availability.Cpu().MilliValue(), node.Status.Allocatable.Cpu().MilliValue()
	if offered != want || shown > want || (want-shown)*100 > shown*2 {
		return fmt.Errorf("%s offers %dm to %s, and the virtual node shows %dm, want %dm", provider.Name, offered, consumer.Name, shown, want)
	}
	return nil
}

// awaitOffered waits until the provider offers exactly so much processor time to each consumer.
func awaitOffered(t *testing.T, why string, provider *framework.Cluster, want int64, consumers ...*framework.Cluster) {
	t.Helper()
	for _, consumer := range consumers {
		framework.Eventually(t, fmt.Sprintf("%s offers %dm to %s: %s", provider.Name, want, consumer.Name, why), func(ctx context.Context) error {
			return isOffered(ctx, provider, want, consumer)
		})
	}
}

// podFor returns a pod that requests so many thousandths of a core. Unless the provider is nil, the pod may run there alone.
func podFor(ns, name string, milli int64, provider *framework.Cluster) *corev1.Pod {
	pod := framework.Pod(ns, name)
	pod.Spec.Containers[0].Resources = framework.Requests(fmt.Sprintf("%dm", milli), "1Mi")
	if provider != nil {
		pod.Spec.NodeSelector = map[string]string{v1alpha1.LabelPeer: provider.Name}
	}
	return pod
}

// awaitReady waits until the pod is Ready, and returns it.
func awaitReady(t *testing.T, c *framework.Cluster, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	var current *corev1.Pod
	framework.Eventually(t, "pod "+pod.Name+" is Ready in "+c.Name, func(ctx context.Context) error {
		var err error
		if current, err = c.Pod(ctx, pod.Namespace, pod.Name); err == nil && !framework.IsPodReady(current) {
			err = errors.New(framework.Summary([]corev1.Pod{*current}))
		}
		return err
	})
	return current
}

// awaitUnschedulable waits until the scheduler of the cluster finds no node for the pod.
func awaitUnschedulable(t *testing.T, c *framework.Cluster, pod *corev1.Pod) {
	t.Helper()
	framework.Eventually(t, "the scheduler of "+c.Name+" finds no node for pod "+pod.Name, func(ctx context.Context) error {
		current, err := c.Pod(ctx, pod.Namespace, pod.Name)
		if err != nil {
			return err
		}
		return isUnschedulable(current)
	})
}

func isUnschedulable(pod *corev1.Pod) error {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable {
			return nil
		}
	}
	return fmt.Errorf("pod %s is on %q: %+v", pod.Name, pod.Spec.NodeName, pod.Status.Conditions)
}

// mustDelete deletes objects without a grace period.
func mustDelete(t *testing.T, c *framework.Cluster, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := c.Delete(t.Context(), object, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
}

// A decision checks what placement decided for a namespace.
type decision func(*v1alpha1.PlacementStatus) error

// offloadAs makes a namespace with the placement, and waits for the decision and until admission applies it.
func offloadAs(
	t *testing.T, c *framework.Cluster, placement *v1alpha1.Placement, decided decision, classes ...v1alpha1.PlacementClass,
) string {
	t.Helper()
	ns := c.MustOffload(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy: v1alpha1.StrategyRemote, Placement: &v1alpha1.NamespacePlacement{Placement: *placement, Classes: classes},
	})
	awaitDecision(t, c, ns, decided)
	return ns
}

// awaitDecision waits for a decision in the status of the NamespaceOffloading.
func awaitDecision(t *testing.T, c *framework.Cluster, ns string, decided decision) {
	t.Helper()
	framework.Eventually(t, "the status has the decision for "+ns, func(ctx context.Context) error {
		offloading, err := offloadingOf(ctx, c, ns)
		if err != nil {
			return err
		}
		if offloading.Status.Placement == nil {
			return errors.New("there is no decision")
		}
		if err := decided(&offloading.Status.Placement.PlacementStatus); err != nil {
			return fmt.Errorf("%w: %+v", err, offloading.Status.Placement)
		}
		return nil
	})
}

func offloadingOf(ctx context.Context, c *framework.Cluster, ns string) (*v1alpha1.NamespaceOffloading, error) {
	offloading := &v1alpha1.NamespaceOffloading{}
	return offloading, c.Get(ctx, types.NamespacedName{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}, offloading)
}

// excludes checks that exactly these peers are excluded.
func excludes(peers ...string) decision {
	return func(decided *v1alpha1.PlacementStatus) error {
		for _, node := range decided.Nodes {
			if expected := slices.ContainsFunc(peers, func(peer string) bool { return node.Name == v1alpha1.VirtualNodeName(peer) }); expected != (node.Excluded != "") {
				return fmt.Errorf("%s is excluded because of %q", node.Name, node.Excluded)
			}
		}
		if len(decided.Nodes) < 2 {
			return fmt.Errorf("%d nodes are known", len(decided.Nodes))
		}
		return nil
	}
}

// only checks that a strict placement has chosen the peer.
func only(peer string) decision {
	return func(decided *v1alpha1.PlacementStatus) error {
		if !decided.Strict || !slices.Equal(decided.Only, []string{v1alpha1.VirtualNodeName(peer)}) {
			return fmt.Errorf("%s is not the only one", peer)
		}
		return nil
	}
}

// ranks checks that the weights of the peers decrease from the largest possible one.
func ranks(peers ...string) decision {
	return func(decided *v1alpha1.PlacementStatus) error {
		weights := map[string]int32{}
		for _, node := range decided.Nodes {
			weights[node.Name] = node.Weight
		}
		least := int32(101)
		for i, peer := range peers {
			weight := weights[v1alpha1.VirtualNodeName(peer)]
			if weight <= 0 || weight >= least || i == 0 && weight != 100 {
				return fmt.Errorf("%s has weight %d, after %d", peer, weight, least)
			}
			least = weight
		}
		return nil
	}
}

// expectAt creates a pod in lubeck as soon as admission prefers the provider to all others for such pods, and checks that it runs there.
func expectAt(t *testing.T, ns string, provider *framework.Cluster, labels, annotations map[string]string) {
	t.Helper()
	node := v1alpha1.VirtualNodeName(provider.Name)
	pod := framework.Pod(ns, "")
	pod.GenerateName, pod.Labels, pod.Annotations = "try-", labels, annotations
	lubeck.AwaitPreference(t, pod, node)
	lubeck.MustCreate(t, pod)
	home := awaitReady(t, lubeck, pod)
	if home.Spec.NodeName != node {
		t.Fatalf("the first pod of %s after the decision is on %q, want %s", ns, home.Spec.NodeName, node)
	}
	framework.ExpectSamePod(t, home, provider.MustRemotePod(t, home))
}
