// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestAvailability(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	virtual := func(n *corev1.Node) { n.Labels[v1alpha1.LabelType] = v1alpha1.TypeVirtualNode }
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	unready := func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }
	tainted := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: effect}} }
	}
	all := resources("cpu", "4", "memory", "8Gi", "pods", "10", "ephemeral-storage", "100Gi")
	nothing := resources("cpu", "0", "memory", "0", "pods", "0", "ephemeral-storage", "0")

	for name, test := range map[string]struct {
		snapshot Snapshot
		want     corev1.ResourceList
	}{
		"an empty cluster offers nothing, and says so of each mandatory resource": {want: nothing},
		"an empty node is free": {Snapshot{Nodes: []*corev1.Node{node("a")}}, all},
		"virtual, cordoned, unready and tainted nodes do not count": {
			Snapshot{Nodes: []*corev1.Node{
				node("a"), node("b", virtual), node("c", cordoned), node("d", unready),
				node("e", tainted(corev1.TaintEffectNoSchedule)), node("f", tainted(corev1.TaintEffectNoExecute)),
			}}, all,
		},
		"a taint that is only a preference does not matter": {
			Snapshot{Nodes: []*corev1.Node{node("a", tainted(corev1.TaintEffectPreferNoSchedule))}}, all,
		},
		"what pods ask for is taken off": {
			Snapshot{
				Nodes: []*corev1.Node{node("a")},
				Pods: []*corev1.Pod{
					boundPod("local", "a", "", resources("cpu", "500m", "memory", "1Gi")),
					boundPod("other", "a", "kiel", resources("cpu", "1")),
				},
			},
			resources("cpu", "2500m", "memory", "7Gi", "pods", "8", "ephemeral-storage", "100Gi"),
		},
		"pods that have ended or are not bound hold nothing": {
			Snapshot{
				Nodes: []*corev1.Node{node("a")},
				Pods: []*corev1.Pod{
					boundPod("pending", "", "", resources("cpu", "1")),
					with(boundPod("done", "a", "", resources("cpu", "1")), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
					with(boundPod("failed", "a", "", resources("cpu", "1")), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
				},
			}, all,
		},
		"what the consumer's own pods hold is offered to it, also on a cordoned node, but not on a virtual one": {
			Snapshot{
				Nodes: []*corev1.Node{node("a"), node("b", cordoned), node("v", virtual)},
				Pods: []*corev1.Pod{
					boundPod("one", "a", "lubeck", resources("cpu", "1")),
					boundPod("two", "b", "lubeck", resources("cpu", "2")),
					boundPod("three", "v", "lubeck", resources("cpu", "2")),
				},
			},
			resources("cpu", "6", "memory", "8Gi", "pods", "11", "ephemeral-storage", "100Gi"),
		},
		"init containers, sidecars and overhead count as for the scheduler": {
			Snapshot{
				Nodes: []*corev1.Node{node("a")},
				Pods: []*corev1.Pod{with(boundPod("p", "a", "", resources("cpu", "1")), func(p *corev1.Pod) {
					p.Spec.InitContainers = []corev1.Container{
						{Name: "sidecar", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: resources("cpu", "500m")}},
						{Name: "init", Resources: corev1.ResourceRequirements{Requests: resources("cpu", "2")}},
					}
					p.Spec.Overhead = resources("cpu", "250m")
				})},
			},
			resources("cpu", "1250m", "memory", "8Gi", "pods", "9", "ephemeral-storage", "100Gi"),
		},
		"an overcommitted node takes nothing off the others": {
			Snapshot{
				Nodes: []*corev1.Node{node("a"), node("b")},
				Pods:  []*corev1.Pod{boundPod("huge", "b", "", resources("cpu", "40", "memory", "80Gi", "ephemeral-storage", "1Ti"))},
			},
			resources("cpu", "4", "memory", "8Gi", "pods", "19", "ephemeral-storage", "100Gi"),
		},
		"a node on which no slot for a pod is left has nothing to offer, but what the consumer's own pods hold": {
			Snapshot{
				Nodes: []*corev1.Node{node("a"), node("b", func(n *corev1.Node) {
					n.Status.Allocatable = resources("cpu", "4", "memory", "8Gi", "pods", "2", "example.com/gpu", "1")
				})},
				Pods: []*corev1.Pod{
					boundPod("one", "b", "lubeck", resources("cpu", "1")), boundPod("two", "b", "", resources("cpu", "500m")),
				},
			},
			resources("cpu", "5", "memory", "8Gi", "pods", "11", "ephemeral-storage", "100Gi", "example.com/gpu", "0"),
		},
		"the margin is never offered": {
			Snapshot{Nodes: []*corev1.Node{node("a")}, Margin: resources("cpu", "1", "memory", "100Gi")},
			resources("cpu", "3", "memory", "0", "pods", "10", "ephemeral-storage", "100Gi"),
		},
		"devices are offered, also when all are taken; storage that nodes do not count is not": {
			Snapshot{
				Nodes: []*corev1.Node{node("a", func(n *corev1.Node) {
					n.Status.Allocatable = resources("cpu", "4", "memory", "8Gi", "pods", "10", "example.com/gpu", "1", "hugepages-1Gi", "0")
				})},
				Pods: []*corev1.Pod{boundPod("p", "a", "", resources("example.com/gpu", "1"))},
			},
			resources("cpu", "4", "memory", "8Gi", "pods", "9", "ephemeral-storage", "0", "example.com/gpu", "0"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			expectEqual(t, test.want, Availability(test.snapshot, "lubeck"))
		})
	}
}

func TestLargestPodFitsOnOneNode(t *testing.T) {
	sized := func(cpu, memory, pods string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.Allocatable = resources("cpu", cpu, "memory", memory, "pods", pods) }
	}
	for name, test := range map[string]struct {
		nodes  []*corev1.Node
		margin corev1.ResourceList
		want   corev1.ResourceList
	}{
		"no node, no pod": {},
		"the balanced node wins over lopsided ones": {
			nodes: []*corev1.Node{
				node("a", sized("16", "1Gi", "9")), node("b", sized("1", "64Gi", "9")), node("c", sized("8", "32Gi", "9")),
			},
			want: resources("cpu", "8", "memory", "32Gi", "ephemeral-storage", "0"),
		},
		"a node without a free pod slot takes none": {
			nodes: []*corev1.Node{node("a", sized("16", "16Gi", "0")), node("b", sized("1", "1Gi", "9"))},
			want:  resources("cpu", "1", "memory", "1Gi", "ephemeral-storage", "0"),
		},
		"it is never more than what is offered": {
			nodes:  []*corev1.Node{node("a", sized("16", "16Gi", "9"))},
			margin: resources("cpu", "15"),
			want:   resources("cpu", "1", "memory", "16Gi", "ephemeral-storage", "0"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			ledger := NewLedger()
			for _, n := range test.nodes {
				ledger.SetNode(n)
			}
			expectEqual(t, test.want, ledger.Capacity(test.margin).LargestPod("lubeck", Claims{}))
		})
	}
}

// drawnSnapshot has a few nodes of every kind, and pods of three peers and nobody on them and elsewhere.
func drawnSnapshot(t *rapid.T) Snapshot {
	drawnRequests := rapid.Custom(func(t *rapid.T) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(rapid.Int64Range(0, 6000).Draw(t, "cpu"), resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(rapid.Int64Range(0, 1<<34).Draw(t, "memory"), resource.BinarySI),
		}
	})
	var s Snapshot
	for i := range rapid.IntRange(0, 4).Draw(t, "nodes") {
		s.Nodes = append(s.Nodes, node(fmt.Sprint("node-", i), func(n *corev1.Node) {
			n.Spec.Unschedulable = rapid.Bool().Draw(t, "cordoned")
			if rapid.IntRange(0, 3).Draw(t, "virtual") == 0 {
				n.Labels[v1alpha1.LabelType] = v1alpha1.TypeVirtualNode
			}
		}))
	}
	for i := range rapid.IntRange(0, 12).Draw(t, "pods") {
		nodeName := rapid.SampledFrom([]string{"", "node-0", "node-1", "node-2", "gone"}).Draw(t, "node")
		peer := rapid.SampledFrom([]string{"", "lubeck", "kiel"}).Draw(t, "peer")
		pod := boundPod(fmt.Sprint("pod-", i), nodeName, peer, drawnRequests.Draw(t, "requests"))
		pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodFailed}).Draw(t, "phase")
		s.Pods = append(s.Pods, pod)
	}
	s.Margin = drawnRequests.Draw(t, "margin")
	return s
}

func TestAvailabilityIsNeverNegativeAndComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		available := Availability(drawnSnapshot(t), "lubeck")
		for _, name := range mandatory {
			if _, found := available[name]; !found {
				t.Fatalf("%s is missing", name)
			}
		}
		for name, quantity := range available {
			if quantity.Sign() < 0 {
				t.Fatalf("%s is %s", name, quantity.String())
			}
		}
		if verdict := Judge(offer(func(ad *v1alpha1.AdvertisementSpec) { ad.Availability = available }),
			DefaultBounds(), "hamburg", nil, now); !verdict.Accepted {
			t.Fatalf("what we offer would be refused: %s", verdict.Message)
		}
	})
}

func TestOwnPodIsNotCountedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawnSnapshot(t)
		s.Margin = nil
		s.Nodes = append(s.Nodes, node("roomy"))
		own := boundPod("own", "", "lubeck", resources("cpu", "1", "memory", "1Gi"))
		before := Availability(Snapshot{Nodes: s.Nodes, Pods: append(s.Pods, own)}, "lubeck")
		own.Spec.NodeName = "roomy"
		after := Availability(Snapshot{Nodes: s.Nodes, Pods: append(s.Pods, own)}, "lubeck")
		expectSame(t, before, after)
	})
}

func TestLedgerDependsOnTheNewestStateOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawnSnapshot(t)
		ledger := NewLedger()
		for _, pod := range drawnSnapshot(t).Pods { // an older state of the same pods
			ledger.SetPod(pod, whose(pod))
		}
		for i := range 12 {
			ledger.RemovePod(types.NamespacedName{Namespace: "ns", Name: fmt.Sprint("pod-", i)})
		}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		for range 2 {
			for _, i := range random.Perm(len(s.Pods)) {
				ledger.SetPod(s.Pods[i], whose(s.Pods[i]))
			}
			for _, i := range random.Perm(len(s.Nodes)) {
				ledger.SetNode(s.Nodes[i])
			}
		}
		for _, peer := range []string{"lubeck", "kiel", "stranger"} {
			expectSame(t, Availability(s, peer), ledger.Capacity(s.Margin).Availability(peer, Claims{}))
		}
		for _, pod := range s.Pods {
			ledger.RemovePod(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
		if len(ledger.pods)+len(ledger.held) != 0 {
			t.Fatalf("the ledger still holds %v after the last pod went", ledger.held)
		}
	})
}

func expectSame(t *rapid.T, want, got corev1.ResourceList) {
	t.Helper()
	if Moved(want, got, 0) {
		t.Fatalf("%v and %v differ", want, got)
	}
}

func with[T any](object *T, change func(*T)) *T {
	change(object)
	return object
}

func TestPodLevelRequestsReplaceThoseOfContainers(t *testing.T) {
	pod := with(boundPod("p", "a", "", resources("cpu", "3")), func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: resources("cpu", "1")}
	})
	got := Availability(Snapshot{Nodes: []*corev1.Node{node("a")}, Pods: []*corev1.Pod{pod}}, "lubeck")
	expectEqual(t, resource.MustParse("3"), got[corev1.ResourceCPU])
}

func TestLoad(t *testing.T) {
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	virtual := func(n *corev1.Node) { n.Labels[v1alpha1.LabelType] = v1alpha1.TypeVirtualNode }
	allocatable, free := ledgerOf(Snapshot{
		Nodes: []*corev1.Node{node("a"), node("b"), node("c", cordoned), node("v", virtual)},
		Pods: []*corev1.Pod{
			boundPod("own", "a", "", resources("cpu", "1")), boundPod("guest", "b", "lubeck", resources("memory", "1Gi")),
			boundPod("elsewhere", "c", "", resources("cpu", "1")),
		},
	}).Load()
	expectEqual(t, resources("cpu", "8", "memory", "16Gi", "pods", "20", "ephemeral-storage", "200Gi"), allocatable)
	expectEqual(t, resources("cpu", "7", "memory", "15Gi", "pods", "18", "ephemeral-storage", "200Gi"), free)
}

func ledgerOf(s Snapshot) *Ledger {
	ledger := NewLedger()
	for _, node := range s.Nodes {
		ledger.SetNode(node)
	}
	for _, pod := range s.Pods {
		ledger.SetPod(pod, whose(pod))
	}
	return ledger
}
