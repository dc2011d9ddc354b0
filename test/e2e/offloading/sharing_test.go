// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	stdcmp "cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

func TestAdvertisementBecomesVirtualNode(t *testing.T) {
	framework.Begin(t)
	for _, pair := range [][2]*framework.Cluster{{lubeck, hamburg}, {hamburg, lubeck}} {
		consumer, provider := pair[0], pair[1]
		var node *corev1.Node
		var copied v1alpha1.Advertisement
		framework.Eventually(t, consumer.Name+" has a virtual node for "+provider.Name, func(ctx context.Context) error {
			var err error
			if node, err = consumer.GetNode(ctx, v1alpha1.VirtualNodeName(provider.Name)); err != nil {
				return err
			}
			key := types.NamespacedName{Namespace: v1alpha1.TenantNamespace(provider.Name), Name: provider.Name}
			if err = consumer.Get(ctx, key, &copied); err != nil {
				return err
			}
			if !framework.IsNodeReady(node) {
				return fmt.Errorf("node is not Ready: %v", node.Status.Conditions)
			}
			return sameCapacity(node, copied.Spec.Availability)
		})
		expectVirtualNode(t, node, provider)
		expectImages(t, node, copied.Spec.Images)
		expectAcknowledged(t, provider, consumer)
	}
}

// sameCapacity says what of the node is not as offered: it never shows more, and a rise of two percent or more at once.
// Other stories use the same clusters meanwhile, so less than that may remain.
func sameCapacity(node *corev1.Node, offered corev1.ResourceList) error {
	for name, want := range offered {
		got := node.Status.Allocatable[name]
		if got.Cmp(want) > 0 || got.AsApproximateFloat64()*1.02 <= want.AsApproximateFloat64() && !got.Equal(want) {
			return fmt.Errorf("allocatable %s is %s, offered is %s", name, got.String(), want.String())
		}
	}
	return nil
}

func expectVirtualNode(t *testing.T, node *corev1.Node, provider *framework.Cluster) {
	t.Helper()
	want := map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeer: provider.Name, v1alpha1.LabelClusterID: provider.Name,
		"type": "virtual-kubelet", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
	}
	for key, value := range want {
		if node.Labels[key] != value {
			t.Errorf("label %s of %s is %q, want %q", key, node.Name, node.Labels[key], value)
		}
	}
	if cpu := node.Status.Allocatable.Cpu(); cpu.Sign() <= 0 {
		t.Errorf("%s offers %s cpu", node.Name, cpu)
	}
	if node.Spec.ProviderID != "hanse://"+provider.Name {
		t.Errorf("provider id is %q", node.Spec.ProviderID)
	}
	tainted := slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Key == v1alpha1.TaintVirtualNode && taint.Effect == corev1.TaintEffectNoSchedule
	})
	if !tainted {
		t.Errorf("%s has taints %v", node.Name, node.Spec.Taints)
	}
}

func expectImages(t *testing.T, node *corev1.Node, images []v1alpha1.Image) {
	t.Helper()
	var advertised, shown []string
	for _, image := range images {
		advertised = append(advertised, image.Names...)
	}
	for _, image := range node.Status.Images {
		shown = append(shown, image.Names...)
	}
	slices.Sort(advertised)
	slices.Sort(shown)
	if diff := cmp.Diff(advertised, shown); diff != "" {
		t.Errorf("images advertised and shown: %s", diff)
	}
	if !slices.ContainsFunc(shown, func(name string) bool { return strings.Contains(name, "hanse.dev/test/echo") }) {
		t.Errorf("the echo image, which is on every node, is not among %v", shown)
	}
}

// expectAcknowledged looks at the answer where the sender sees it: on its own object.
func expectAcknowledged(t *testing.T, provider, consumer *framework.Cluster) {
	t.Helper()
	key := types.NamespacedName{Namespace: v1alpha1.TenantNamespace(consumer.Name), Name: provider.Name}
	framework.Eventually(t, provider.Name+" reads the acknowledgement of "+consumer.Name, func(ctx context.Context) error {
		var sent v1alpha1.Advertisement
		if err := provider.Get(ctx, key, &sent); err != nil {
			return err
		}
		if ack := sent.Status.Acknowledgement; ack == nil || ack.State != v1alpha1.AcknowledgementAccepted {
			return fmt.Errorf("acknowledgement is %+v", ack)
		}
		return nil
	})
}

func TestDeploymentSpansClusters(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	lubeck.MustCreate(t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	})
	lubeck.MustCreate(t, framework.NewDeployment(ns, "web", 3, framework.NewEchoPodSpec()))
	for _, home := range lubeck.AwaitReadyPods(t, ns, "web", 3) {
		if home.Spec.NodeName != v1alpha1.VirtualNodeName("hamburg") {
			t.Errorf("%s is on node %q", home.Name, home.Spec.NodeName)
		}
		framework.ExpectSamePod(t, &home, hamburg.MustGetRemotePod(t, &home))
		expectNoAddress(t, &home, hamburg.MustGetRemotePod(t, &home))
	}
	expectNoEndpoints(t, lubeck, ns, "web")
}

// expectNoEndpoints checks that the Service sends traffic to nobody, since no network leads to its pods, and says so.
func expectNoEndpoints(t *testing.T, c *framework.Cluster, ns, name string) {
	t.Helper()
	framework.Eventually(t, "the Service says why its pods are no endpoints", func(ctx context.Context) error {
		out, err := c.Kubectl(ctx, "-n", ns, "describe", "service", name)
		return framework.CheckOutput(out, v1alpha1.ReasonNoNetworkFabric, err)
	})
	found := &discoveryv1.EndpointSliceList{}
	if err := c.List(t.Context(), found, client.InNamespace(ns), client.MatchingLabels{discoveryv1.LabelServiceName: name}); err != nil {
		t.Fatal(err)
	}
	for i := range found.Items {
		if endpoints := found.Items[i].Endpoints; len(endpoints) > 0 {
			t.Errorf("it has the endpoints %+v", endpoints)
		}
	}
}

// expectNoAddress checks that a pod that no network leads to shows no address at home, and so is no endpoint of a Service
// there, though it is Ready.
func expectNoAddress(t *testing.T, home, remote *corev1.Pod) {
	t.Helper()
	peer, err := lubeck.GetPeer(t.Context(), "hamburg")
	if err != nil {
		t.Fatal(err)
	}
	if len(peer.Status.Mappings) == 0 {
		t.Error("no range is known in which peer hamburg is seen")
	}
	if status := peerCondition(peer, v1alpha1.ConditionConnected); status != "False" {
		t.Errorf("peer hamburg says Connected=%s, but there is no network fabric yet", status)
	}
	if home.Status.PodIP != "" || len(home.Status.PodIPs) > 0 || remote.Status.PodIP == "" || !framework.IsPodReady(home) {
		t.Errorf("%s has address %q at home and %q at the provider, ready: %t",
			home.Name, home.Status.PodIP, remote.Status.PodIP, framework.IsPodReady(home))
	}
}

func peerCondition(peer *v1alpha1.Peer, kind string) string {
	for _, condition := range peer.Status.Conditions {
		if condition.Type == kind {
			return string(condition.Status)
		}
	}
	return "missing"
}

func TestHomeDeletionDeletesRemote(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	lubeck.MustCreate(t, framework.NewShellPod(ns, "brief", framework.RunForever))
	home := lubeck.AwaitReadyPods(t, ns, "brief", 1)[0]
	remote := hamburg.MustGetRemotePod(t, &home)

	if err := lubeck.Delete(t.Context(), &home); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "home pod, remote pod and record are gone", func(ctx context.Context) error {
		_, homeErr := lubeck.GetPod(ctx, ns, "brief")
		_, remoteErr := hamburg.GetPod(ctx, remote.Namespace, remote.Name)
		recordErr := hamburg.Get(ctx, types.NamespacedName{Namespace: remote.Namespace, Name: remote.Name}, &v1alpha1.ShadowPod{})
		for what, err := range map[string]error{"home pod": homeErr, "remote pod": remoteErr, "record": recordErr} {
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s is not gone: %w", what, stdcmp.Or(err, errors.New("it is still there")))
			}
		}
		return nil
	})
}

func TestNamespaceNotOffloaded(t *testing.T) {
	framework.Begin(t)
	ns := lubeck.CreateNamespace(t)
	pod := framework.NewShellPod(ns, "lost", framework.RunForever)
	pod.Spec.NodeSelector = map[string]string{v1alpha1.LabelPeer: "hamburg"}
	for _, taint := range []string{v1alpha1.TaintVirtualNode, v1alpha1.TaintFull} { // the latter is there while other stories' pods are
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists})
	}
	lubeck.MustCreate(t, pod)
	framework.Eventually(t, "the pod says why it does not run", func(ctx context.Context) error {
		seen, err := lubeck.GetPod(ctx, ns, "lost")
		if err != nil {
			return err
		}
		if seen.Status.Phase != corev1.PodPending || seen.Status.Reason != v1alpha1.ReasonOffloadingBackOff ||
			!strings.Contains(seen.Status.Message, ns) {
			return fmt.Errorf("pod is %s, %q: %q", seen.Status.Phase, seen.Status.Reason, seen.Status.Message)
		}
		return nil
	})
	// What it lacks can be given afterwards.
	offloading := &v1alpha1.NamespaceOffloading{Spec: v1alpha1.NamespaceOffloadingSpec{Strategy: v1alpha1.StrategyRemote}}
	offloading.Name, offloading.Namespace = v1alpha1.NamespaceOffloadingName, ns
	lubeck.MustCreate(t, offloading)
	home := lubeck.AwaitReadyPods(t, ns, "lost", 1)[0]
	framework.ExpectSamePod(t, &home, hamburg.MustGetRemotePod(t, &home))
}

func TestNodeObjectDeleted(t *testing.T) {
	framework.Begin(t)
	// Hamburg's node for Lubeck: no other story counts on that one.
	ns := hamburg.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	hamburg.MustCreate(t, framework.NewShellPod(ns, "steady", framework.RunForever))
	home := hamburg.AwaitReadyPods(t, ns, "steady", 1)[0]
	before := lubeck.MustGetRemotePod(t, &home)
	node, err := hamburg.GetNode(t.Context(), v1alpha1.VirtualNodeName("lubeck"))
	if err != nil {
		t.Fatal(err)
	}

	if _, err := hamburg.Kubectl(t.Context(), "delete", "node", node.Name); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the virtual node comes back", func(ctx context.Context) error {
		again, err := hamburg.GetNode(ctx, node.Name)
		if err != nil {
			return err
		}
		if again.UID == node.UID || !framework.IsNodeReady(again) {
			return fmt.Errorf("node has uid %s and conditions %v", again.UID, again.Status.Conditions)
		}
		return nil
	})
	hamburg.MustCreate(t, framework.NewShellPod(ns, "later", framework.RunForever))
	hamburg.AwaitReadyPods(t, ns, "later", 1)
	framework.ExpectUntouched(t, hamburg, &home, lubeck, before)
}
