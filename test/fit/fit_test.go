// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	"pgregory.net/rapid"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
)

const gpu corev1.ResourceName = "example.org/gpu"

// What a peer is offered beyond what its own pods hold, the scheduler can place beside all pods: for each resource, pods
// that ask for it alone, one on each node, as large as its own code lets in.
func TestAvailabilityFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		snapshot := drawCluster(t)
		capacity := capacityOf(snapshot)
		held := capacity.Held("lubeck")
		for name, quantity := range capacity.Availability("lubeck", exchange.Claims{}) {
			quantity.Sub(held[name])
			placeable := placeable(snapshot, name)
			if quantity.Cmp(placeable) > 0 {
				t.Errorf("%s of %s is offered, and the scheduler places %s", quantity.String(), name, placeable.String())
			}
		}
	})
}

// The largest pod that we name fits on a node.
func TestLargestPodFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		snapshot := drawCluster(t)
		largest := capacityOf(snapshot).LargestPod("lubeck", exchange.Claims{})
		if largest == nil {
			return
		}
		pod := podOf("largest", "", largest)
		for _, info := range infos(snapshot) {
			if fits(pod, info) {
				return
			}
		}
		t.Errorf("the scheduler finds no node for %v", largest)
	})
}

type cluster struct {
	Nodes []*corev1.Node
	Pods  []*corev1.Pod
}

func capacityOf(snapshot cluster) exchange.Capacity {
	ledger := exchange.NewLedger()
	for _, node := range snapshot.Nodes {
		ledger.SetNode(node)
	}
	for _, pod := range snapshot.Pods {
		ledger.SetPod(pod, pod.Labels[v1alpha1.LabelPeer])
	}
	return ledger.Capacity(nil)
}

func fits(pod *corev1.Pod, info *framework.NodeInfo) bool {
	return len(noderesources.Fits(pod, info, nil, noderesources.ResourceRequestsOptions{EnablePodLevelResources: true})) == 0
}

// placeable is how much of the resource pods can ask for in all, one large pod to a node; of pods, how many.
func placeable(snapshot cluster, name corev1.ResourceName) resource.Quantity {
	sum := resource.Quantity{}
	for _, info := range infos(snapshot) {
		if name == corev1.ResourcePods {
			sum.Add(*resource.NewQuantity(room(info), resource.DecimalSI))
			continue
		}
		sum.Add(largestRequest(info, name))
	}
	return sum
}

// room is how many pods that ask for nothing the scheduler puts on the node.
func room(info *framework.NodeInfo) int64 {
	filled := info.SnapshotConcrete()
	for n := int64(0); ; n++ {
		pod := podOf(fmt.Sprintf("small-%d", n), info.Node().Name, nil)
		if !fits(pod, filled) {
			return n
		}
		filled.AddPod(pod)
	}
}

// largestRequest finds the largest request by halving.
func largestRequest(info *framework.NodeInfo, name corev1.ResourceName) resource.Quantity {
	quantity := func(n int64) resource.Quantity {
		if name == corev1.ResourceCPU {
			return *resource.NewMilliQuantity(n, resource.DecimalSI)
		}
		return *resource.NewQuantity(n, resource.DecimalSI)
	}
	low, high := int64(0), int64(1)<<45
	for low < high {
		middle := low + (high-low+1)/2
		if fits(podOf("large", "", corev1.ResourceList{name: quantity(middle)}), info) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return quantity(low)
}

// infos are the scheduler's own view of the nodes that it may use for a pod without tolerations.
func infos(snapshot cluster) []*framework.NodeInfo {
	var found []*framework.NodeInfo
	for _, node := range snapshot.Nodes {
		if node.Spec.Unschedulable || len(node.Spec.Taints) > 0 || node.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode {
			continue
		}
		info := framework.NewNodeInfo()
		info.SetNode(node)
		for _, pod := range snapshot.Pods {
			ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
			if pod.Spec.NodeName == node.Name && !ended {
				info.AddPod(pod)
			}
		}
		found = append(found, info)
	}
	return found
}

func drawCluster(t *rapid.T) cluster {
	snapshot := cluster{}
	for n := range rapid.IntRange(0, 4).Draw(t, "nodes") {
		node := drawNode(t, n)
		snapshot.Nodes = append(snapshot.Nodes, node)
		for p := range rapid.IntRange(0, 6).Draw(t, "pods") {
			snapshot.Pods = append(snapshot.Pods, drawPod(t, fmt.Sprintf("pod-%d-%d", n, p), node.Name))
		}
	}
	return snapshot
}

func drawNode(t *rapid.T, n int) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", n), Labels: map[string]string{}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: corev1.ResourceList{
				corev1.ResourceCPU:              *resource.NewMilliQuantity(rapid.Int64Range(0, 8000).Draw(t, "cpu"), resource.DecimalSI),
				corev1.ResourceMemory:           *resource.NewQuantity(rapid.Int64Range(0, 1<<34).Draw(t, "memory"), resource.BinarySI),
				corev1.ResourceEphemeralStorage: *resource.NewQuantity(rapid.Int64Range(0, 1<<34).Draw(t, "storage"), resource.BinarySI),
				corev1.ResourcePods:             *resource.NewQuantity(rapid.Int64Range(0, 12).Draw(t, "slots"), resource.DecimalSI),
				gpu:                             *resource.NewQuantity(rapid.Int64Range(0, 4).Draw(t, "gpus"), resource.DecimalSI),
			},
		},
	}
	switch rapid.IntRange(0, 9).Draw(t, "kind of node") {
	case 0:
		node.Spec.Unschedulable = true
	case 1:
		node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	case 2:
		node.Labels[v1alpha1.LabelType] = v1alpha1.TypeVirtualNode
	}
	return node
}

func drawPod(t *rapid.T, name, node string) *corev1.Pod {
	pod := podOf(name, node, drawRequests(t))
	if rapid.Bool().Draw(t, "init container") {
		pod.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{Requests: drawRequests(t)}}}
	}
	if rapid.Bool().Draw(t, "sidecar") {
		always := corev1.ContainerRestartPolicyAlways
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{
			Name: "sidecar", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: drawRequests(t)},
		})
	}
	if rapid.Bool().Draw(t, "overhead") {
		pod.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("8Mi")}
	}
	if rapid.IntRange(0, 3).Draw(t, "pod-level resources") == 0 {
		pod.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewMilliQuantity(rapid.Int64Range(0, 2000).Draw(t, "pod cpu"), resource.DecimalSI),
		}}
	}
	pod.Labels[v1alpha1.LabelPeer] = rapid.SampledFrom([]string{"", "lubeck", "bremen"}).Draw(t, "peer")
	pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{
		corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed,
	}).Draw(t, "phase")
	return pod
}

func drawRequests(t *rapid.T) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(rapid.Int64Range(0, 2000).Draw(t, "asks cpu"), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(rapid.Int64Range(0, 1<<32).Draw(t, "asks memory"), resource.BinarySI),
		gpu:                   *resource.NewQuantity(rapid.Int64Range(0, 2).Draw(t, "asks gpus"), resource.DecimalSI),
	}
}

func podOf(name, node string, requests corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{}},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests}}},
		},
	}
}
