// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// AnyDecision is content with every decision.
func AnyDecision(*v1alpha1.PlacementStatus) error { return nil }

// PauseHanse scales one of Hanse's Deployments to nothing, until the story's end.
func (c *Cluster) PauseHanse(t *testing.T, component string) {
	t.Helper()
	c.ScaleHanse(t.Context(), t, component, "0")
	t.Cleanup(func() { c.ScaleHanse(context.Background(), t, component, "1") })
	Eventually(t, "hanse "+component+" of "+c.Name+" has ended", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		err := c.List(ctx, pods, client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/component": component})
		if err == nil && len(pods.Items) > 0 {
			err = errors.New(Summarize(pods.Items))
		}
		return err
	})
}

// ScaleHanse sets how many pods one of Hanse's Deployments has.
func (c *Cluster) ScaleHanse(ctx context.Context, t *testing.T, component, replicas string) {
	t.Helper()
	if _, err := c.Kubectl(ctx, "scale", "-n", v1alpha1.SystemNamespace, "deployment/hanse-"+component, "--replicas", replicas); err != nil {
		t.Error(err)
	}
}

// OfferFor is what the cluster advertises to the consumer, with the consumer's answer.
func (c *Cluster) OfferFor(ctx context.Context, consumer *Cluster) (*v1alpha1.Advertisement, error) {
	ad := &v1alpha1.Advertisement{}
	return ad, c.Get(ctx, types.NamespacedName{Namespace: v1alpha1.TenantNamespace(consumer.Name), Name: c.Name}, ad)
}

// ReceivedOffer is what the cluster has taken in of the provider.
func (c *Cluster) ReceivedOffer(ctx context.Context, provider *Cluster) (*v1alpha1.Advertisement, error) {
	ad := &v1alpha1.Advertisement{}
	return ad, c.Get(ctx, types.NamespacedName{Namespace: v1alpha1.TenantNamespace(provider.Name), Name: provider.Name}, ad)
}

// VirtualNode is the node that stands for the provider.
func (c *Cluster) VirtualNode(ctx context.Context, provider *Cluster) (*corev1.Node, error) {
	return c.GetNode(ctx, v1alpha1.VirtualNodeName(provider.Name))
}

// IsOpen reports whether the virtual node is Ready and takes pods.
func IsOpen(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == v1alpha1.TaintWithdrawn || taint.Key == corev1.TaintNodeNotReady {
			return false
		}
	}
	return IsNodeReady(node)
}

// AwaitOpen waits until the virtual node of the provider takes pods, and returns it.
func (c *Cluster) AwaitOpen(t *testing.T, provider *Cluster) *corev1.Node {
	t.Helper()
	return c.AwaitVirtualNode(t, provider, "takes pods", IsOpen)
}

// AwaitVirtualNode waits until the virtual node of the provider is as it should be.
func (c *Cluster) AwaitVirtualNode(t *testing.T, provider *Cluster, what string, is func(*corev1.Node) bool) *corev1.Node {
	t.Helper()
	var node *corev1.Node
	Eventually(t, fmt.Sprintf("the node of %s at %s %s", provider.Name, c.Name, what), func(ctx context.Context) error {
		var err error
		if node, err = c.VirtualNode(ctx, provider); err != nil {
			return err
		}
		if !is(node) {
			return fmt.Errorf("taints %v, allocatable %v", node.Spec.Taints, node.Status.Allocatable)
		}
		return nil
	})
	return node
}

// ApplyConfigMap puts a ConfigMap into Hanse's own namespace, as its administrator does, and takes it away at the story's end.
func (c *Cluster) ApplyConfigMap(t *testing.T, name string, labels, data map[string]string) *corev1.ConfigMap {
	t.Helper()
	made := &corev1.ConfigMap{Data: data}
	made.Namespace, made.Name, made.Labels = v1alpha1.SystemNamespace, name, labels
	current := &corev1.ConfigMap{}
	err := c.Get(t.Context(), client.ObjectKeyFromObject(made), current)
	switch {
	case apierrors.IsNotFound(err):
		c.MustCreate(t, made)
		t.Cleanup(func() {
			if err := c.Delete(context.Background(), made); client.IgnoreNotFound(err) != nil {
				t.Errorf("delete ConfigMap %s: %v", name, err)
			}
		})
		return made
	case err != nil:
		t.Fatal(err)
	}
	current.Labels, current.Data = labels, data
	if err := c.Update(t.Context(), current); err != nil {
		t.Fatal(err)
	}
	return current
}

// SetPrices sets what a core costs for an hour, in euros. At the story's end it is nothing again, and lubeck is told so: the
// next story must not find terms that still change.
func (c *Cluster) SetPrices(t *testing.T, core string) {
	t.Helper()
	list := c.ApplyConfigMap(t, "hanse-prices", nil, map[string]string{"currency": "EUR", "cpu": core})
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), list); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
		EventuallyInCleanup(t, c.Name+" offers lubeck what it has for nothing again", func(ctx context.Context) error {
			ad, err := c.OfferFor(ctx, Lubeck)
			if err == nil && ad.Spec.Prices != nil {
				err = fmt.Errorf("its prices are %+v", ad.Spec.Prices)
			}
			return err
		})
	})
}

// ApplyPolicy puts a module in force that answers the question.
func (c *Cluster) ApplyPolicy(t *testing.T, question, source string) *corev1.ConfigMap {
	t.Helper()
	return c.ApplyConfigMap(t, "story-"+question, map[string]string{v1alpha1.LabelPolicy: question}, map[string]string{"story.rego": source})
}

// CreatePlacedNamespace makes a namespace whose pods are offloaded with this wish, and waits until the admission policy knows the answer.
func (c *Cluster) CreatePlacedNamespace(
	t *testing.T, strategy v1alpha1.OffloadingStrategy, wish *v1alpha1.Placement, ready func(*v1alpha1.PlacementStatus) error,
	classes ...v1alpha1.PlacementClass,
) string {
	t.Helper()
	ns := c.CreateNamespace(t)
	offloading := &v1alpha1.NamespaceOffloading{Spec: v1alpha1.NamespaceOffloadingSpec{
		Strategy: strategy, Placement: &v1alpha1.NamespacePlacement{Placement: *wish, Classes: classes},
	}}
	offloading.Name, offloading.Namespace = v1alpha1.NamespaceOffloadingName, ns
	c.MustCreate(t, offloading)
	c.AwaitPlacement(t, ns, ready)
	c.AwaitAdmissionPolicy(t, ns, strategy)
	return ns
}

// AwaitPlacement waits for a decision in the status of the namespace's offloading, and for twins at the peers.
func (c *Cluster) AwaitPlacement(t *testing.T, ns string, ready func(*v1alpha1.PlacementStatus) error) {
	t.Helper()
	Eventually(t, "it is decided where the pods of "+ns+" go", func(ctx context.Context) error {
		offloading := &v1alpha1.NamespaceOffloading{}
		if err := c.Get(ctx, types.NamespacedName{Namespace: ns, Name: v1alpha1.NamespaceOffloadingName}, offloading); err != nil {
			return err
		}
		if offloading.Status.Placement == nil {
			return errors.New("there is no decision")
		}
		if err := ready(&offloading.Status.Placement.PlacementStatus); err != nil {
			return fmt.Errorf("%w: %+v", err, offloading.Status.Placement)
		}
		return nil
	})
}

// ExpectPodOn creates one pod, and expects it on the node, where it must run.
func (c *Cluster) ExpectPodOn(t *testing.T, ns, node string) *corev1.Pod {
	t.Helper()
	return c.ExpectPodOnAs(t, ns, node, nil, nil)
}

// ExpectPodOnAs is landsOn for a pod with these labels and annotations.
func (c *Cluster) ExpectPodOnAs(t *testing.T, ns, node string, labels, annotations map[string]string) *corev1.Pod {
	t.Helper()
	pod := NewShellPod(ns, "", RunForever)
	pod.GenerateName, pod.Labels, pod.Annotations = "try-", labels, annotations
	c.AwaitPreference(t, pod, node)
	c.MustCreate(t, pod)
	bound, err := c.AwaitBound(t.Context(), pod)
	if err != nil || bound.Spec.NodeName != node {
		t.Fatalf("the first pod of %s after the decision is on %q, want %s (%v)", ns, bound.Spec.NodeName, node, err)
	}
	c.AwaitRunning(t, bound)
	return bound
}

// AwaitPreference waits until admission has new pods of this kind prefer the node to all others: a change of what was decided
// takes effect there a moment later. A dry run shows it.
func (c *Cluster) AwaitPreference(t *testing.T, pod *corev1.Pod, node string) {
	t.Helper()
	Eventually(t, "admission sends pods of "+pod.Namespace+" to "+node, func(ctx context.Context) error {
		probe := pod.DeepCopy()
		if err := c.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		best, err := c.PreferredNodes(ctx, probe)
		if err == nil && !slices.Equal(best, []string{node}) {
			err = fmt.Errorf("it prefers %v by affinity %+v", best, probe.Spec.Affinity)
		}
		return err
	})
}

// AwaitBound waits for a while until the scheduler has found a node for the pod.
func (c *Cluster) AwaitBound(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	bound := pod
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		var err error
		bound, err = c.GetPod(ctx, pod.Namespace, pod.Name)
		return bound.Spec.NodeName != "", err
	})
	return bound, err
}

// AwaitRunning waits until the pod is Ready.
func (c *Cluster) AwaitRunning(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	Eventually(t, "pod "+pod.Name+" runs", func(ctx context.Context) error {
		now, err := c.GetPod(ctx, pod.Namespace, pod.Name)
		if err != nil {
			return err
		}
		if !IsPodReady(now) {
			return errors.New(Summarize([]corev1.Pod{*now}))
		}
		return nil
	})
}

// Listen listens where the processes and pods of all clusters reach it: on the bridge that they are on.
func (c *Cluster) Listen(t *testing.T) net.Listener {
	t.Helper()
	machine, err := c.Machine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(machine, "0"))
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// CheckOutput returns the error, or one if the output does not contain the text.
func CheckOutput(out, text string, err error) error {
	if err == nil && !strings.Contains(out, text) {
		err = fmt.Errorf("it says %q, not %q", out, text)
	}
	return err
}

// ExpectPodsAt runs a pod at each of the providers.
func (c *Cluster) ExpectPodsAt(t *testing.T, providers []*Cluster) {
	t.Helper()
	ns := c.CreatePlacedNamespace(t, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferSpread}, AnyDecision)
	for _, provider := range providers {
		pod := NewShellPod(ns, "at-"+provider.Name, RunForever)
		pod.Spec.NodeSelector = map[string]string{v1alpha1.LabelPeer: provider.Name}
		c.MustCreate(t, pod)
	}
	for _, provider := range providers {
		home := c.AwaitReadyPods(t, ns, "at-"+provider.Name, 1)[0]
		provider.MustGetRemotePod(t, &home)
	}
}
