// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestDescribe(t *testing.T) {
	described := func(region, zone, architecture, version string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Labels["region"], n.Labels["zone"] = region, zone
			n.Status.NodeInfo = corev1.NodeSystemInfo{Architecture: architecture, KubeletVersion: version}
		}
	}
	ledger := NewLedger()
	ledger.SetNode(node("a", described("north", "1", "amd64", "v1.37.1")))
	ledger.SetNode(node("b", described("north", "2", "arm64", "v1.9.9-eks.1")))
	ledger.SetNode(node("c", described("south", "2", "s390x", "v1.2.3"), func(n *corev1.Node) {
		n.Labels[v1alpha1.LabelType] = v1alpha1.TypeVirtualNode
	}))

	expectEqual(t, Description{
		Stock: []StockedImage{},
		Offer: v1alpha1.AdvertisementSpec{
			Labels:            map[string]v1alpha1.Text{"region": "north"},
			Architectures:     []string{"amd64", "arm64"},
			KubernetesVersion: "v1.9.9",
		},
	}, ledger.Describe([]string{"region", "zone", "rack"}, nil))
}

func TestPodCIDRs(t *testing.T) {
	for name, test := range map[string]struct {
		ranges [][]string // of each node
		want   []v1alpha1.CIDR
	}{
		"no nodes":                        {},
		"nodes without ranges":            {[][]string{{}}, nil},
		"one node is widened":             {[][]string{{"10.244.3.0/24"}}, []v1alpha1.CIDR{"10.244.0.0/16"}},
		"a wide range stays":              {[][]string{{"10.0.0.0/12"}}, []v1alpha1.CIDR{"10.0.0.0/12"}},
		"all nodes are covered":           {[][]string{{"10.244.0.0/24"}, {"10.247.0.0/24"}}, []v1alpha1.CIDR{"10.244.0.0/14"}},
		"both families, IPv4 first":       {[][]string{{"fd00::/64", "10.244.0.0/24"}}, []v1alpha1.CIDR{"10.244.0.0/16", "fd00::/48"}},
		"IPv6":                            {[][]string{{"fd00:1:2:3::/64"}, {"fd00:1:2:4::/64"}}, []v1alpha1.CIDR{"fd00:1:2::/48"}},
		"ranges that have nothing common": {[][]string{{"10.244.0.0/24"}, {"192.168.0.0/24"}}, nil},
		"nonsense is passed over":         {[][]string{{"nonsense", "10.244.0.0/24"}}, []v1alpha1.CIDR{"10.244.0.0/16"}},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes []*corev1.Node
			for _, ranges := range test.ranges {
				nodes = append(nodes, node("n", func(n *corev1.Node) { n.Spec.PodCIDRs = ranges }))
			}
			expectEqual(t, test.want, PodCIDRs(nodes, nil))
		})
	}
}

func TestPodCIDRsLeaveOutNodesAndServices(t *testing.T) {
	at := func(pods, address string) *corev1.Node {
		return node("n", func(n *corev1.Node) {
			n.Spec.PodCIDRs, n.Status.Addresses = []string{pods}, []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		})
	}
	services := func(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }
	for name, test := range map[string]struct {
		node   *corev1.Node
		others []netip.Prefix
		want   v1alpha1.CIDR
	}{
		"one /48 for the whole site":      {at("2001:db8:1:100::/64", "2001:db8:1:1::5"), services("2001:db8:1:200::/112"), "2001:db8:1:100::/56"},
		"Services beside pods":            {at("fd00:1:2:40::/64", "fd00:9::5"), services("fd00:1:2:80::/112"), "fd00:1:2::/57"},
		"nodes beside pods":               {at("10.244.3.0/24", "10.244.128.7"), services("10.96.0.0/12"), "10.244.0.0/17"},
		"nothing is near":                 {at("fd00:1:2:40::/64", "fd00:9::5"), services("fd00:1:3::/112"), "fd00:1:2::/48"},
		"a node in its own range of pods": {at("10.244.3.0/24", "10.244.3.7"), nil, "10.244.3.0/24"},
		"addresses of the other family":   {at("10.244.3.0/24", "fd00::7"), services("fd00:1:3::/112"), "10.244.0.0/16"},
		"what a node says is no address":  {at("10.244.3.0/24", "node-1"), nil, "10.244.0.0/16"},
	} {
		t.Run(name, func(t *testing.T) {
			expectEqual(t, []v1alpha1.CIDR{test.want}, PodCIDRs([]*corev1.Node{test.node}, test.others))
		})
	}
}

func TestTrimKeepsWhatOffersAreComputedFrom(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	whole := func() Snapshot {
		pod := boundPod("p", "a", "lubeck", resources("cpu", "1"))
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
		pod.Spec.Containers[0].Image = "image"
		pod.Spec.Overhead = resources("cpu", "100m")
		pod.Spec.InitContainers = []corev1.Container{{
			Name: "s", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: resources("memory", "1Gi")},
		}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", AllocatedResources: resources("cpu", "2"), ImageID: "id"}}
		n := node("a", withImages(corev1.ContainerImage{Names: []string{"e:1"}}))
		n.Status.Conditions[0].Message = "message"
		return Snapshot{Nodes: []*corev1.Node{n}, Pods: []*corev1.Pod{pod}}
	}
	trimmed := whole()
	if _, err := TrimPod(trimmed.Pods[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := TrimNode(trimmed.Nodes[0]); err != nil {
		t.Fatal(err)
	}
	for _, peer := range []string{"lubeck", "kiel"} {
		expectEqual(t, Availability(whole(), peer), Availability(trimmed, peer))
	}
	expectEqual(t, Stock(whole().Nodes, nil), Stock(trimmed.Nodes, nil))
	pod := trimmed.Pods[0]
	if pod.ManagedFields != nil || pod.Spec.Containers[0].Image != "" || pod.Status.ContainerStatuses[0].ImageID != "" {
		t.Errorf("pod was not trimmed: %v", pod)
	}
	if trimmed.Nodes[0].Status.Conditions[0].Message != "" {
		t.Errorf("node was not trimmed: %v", trimmed.Nodes[0])
	}
}

func TestTrimLeavesRemotePodsAndOtherThingsAlone(t *testing.T) {
	remote := boundPod("p", "a", "lubeck", nil)
	remote.OwnerReferences = testkit.OwnedByShadowPod("p", "uid")
	remote.Spec.Containers[0].Image = "image"
	want := remote.DeepCopy()
	if _, err := TrimPod(remote); err != nil {
		t.Fatal(err)
	}
	expectEqual(t, want, remote)
	posing := boundPod("p", "a", "lubeck", nil)
	posing.Labels[v1alpha1.LabelHomeUID] = "uid"
	posing.Spec.Containers[0].Image = "image"
	if _, err := TrimPod(posing); err != nil || posing.Spec.Containers[0].Image != "" {
		t.Errorf("a pod that only says it is remote is kept whole: %v", err)
	}

	for name, trim := range map[string]func(any) (any, error){"TrimPod": TrimPod, "TrimNode": TrimNode} {
		if got, err := trim("a tombstone"); got != any("a tombstone") || err != nil {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}
