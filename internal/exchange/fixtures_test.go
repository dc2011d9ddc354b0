// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// A Snapshot is the state of a cluster from which its offers are computed.
type Snapshot struct {
	Nodes  []*corev1.Node
	Pods   []*corev1.Pod
	Margin corev1.ResourceList
}

// Availability is what the cluster can offer a peer without limits.
func Availability(s Snapshot, peer string) corev1.ResourceList {
	return ledgerOf(s).Capacity(s.Margin).Availability(peer, Claims{})
}

// resources makes a list of pairs of a name and a quantity.
func resources(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func node(name string, changes ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}},
		Status: corev1.NodeStatus{
			Allocatable: resources("cpu", "4", "memory", "8Gi", "pods", "10", "ephemeral-storage", "100Gi"),
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, change := range changes {
		change(n)
	}
	return n
}

func boundPod(name, nodeName, peer string, requests corev1.ResourceList) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{}},
		Spec: corev1.PodSpec{
			NodeName:   nodeName,
			Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if peer != "" {
		pod.Labels[v1alpha1.LabelPeer] = peer
	}
	return pod
}

// whose returns the peer that boundPod made the pod for.
func whose(pod *corev1.Pod) string { return pod.Labels[v1alpha1.LabelPeer] }

func offer(changes ...func(*v1alpha1.AdvertisementSpec)) *v1alpha1.AdvertisementSpec {
	ad := &v1alpha1.AdvertisementSpec{
		ClusterID:    "hamburg",
		Sequence:     7,
		Timestamp:    metav1.NewTime(now),
		TimeToLive:   metav1.NewTime(now.Add(30 * time.Minute)),
		Availability: resources("cpu", "4", "memory", "8Gi", "pods", "10", "ephemeral-storage", "0"),
	}
	for _, change := range changes {
		change(ad)
	}
	return ad
}

func expectEqual(t testing.TB, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unexpected result (-want +got):\n%s", diff)
	}
}

// drawnQuantity is a number of thousandths.
func drawnQuantity(t *rapid.T, name string, least, most int64) resource.Quantity {
	return *resource.NewMilliQuantity(rapid.Int64Range(least, most).Draw(t, name), resource.DecimalSI)
}
