// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
)

// SetCordoned cordons the node or uncordons it.
func (c *Cluster) SetCordoned(t *testing.T, node string, on bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), WaitTimeout)
	defer cancel()
	verb := map[bool]string{true: "cordon", false: "uncordon"}[on]
	if _, err := c.Kubectl(ctx, verb, node); err != nil {
		t.Fatal(err)
	}
}

// CheckClosedToHamburg checks that the virtual node of hamburg takes no more pods.
func (c *Cluster) CheckClosedToHamburg(ctx context.Context) error {
	node, err := c.GetNode(ctx, v1alpha1.VirtualNodeName("hamburg"))
	if err != nil {
		return err
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == v1alpha1.TaintWithdrawn {
			return nil
		}
	}
	return fmt.Errorf("taints: %v", node.Spec.Taints)
}

// DeleteAndWait deletes the object and waits until it is gone.
func (c *Cluster) DeleteAndWait(t *testing.T, object client.Object) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), WaitTimeout)
	defer cancel()
	if err := c.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
		t.Error(err)
	}
	for ctx.Err() == nil {
		if apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(object), object)) {
			return
		}
		time.Sleep(200 * time.Millisecond) // between two looks
	}
	t.Errorf("%s is not gone: finalizers %v", object.GetName(), object.GetFinalizers())
}

// CheckPeerCondition returns an error unless the condition of the Peer is not True, for that reason.
func (c *Cluster) CheckPeerCondition(ctx context.Context, name, condition, reason string) error {
	peer, err := c.GetPeer(ctx, name)
	if err != nil {
		return err
	}
	got := meta.FindStatusCondition(peer.Status.Conditions, condition)
	if got == nil || got.Reason != reason || got.Status == metav1.ConditionTrue {
		return fmt.Errorf("condition %s is %+v", condition, got)
	}
	return nil
}

// PeerBothWays makes two clusters peers, unless they are. What is left of an earlier peering on one side goes first.
func PeerBothWays(ctx context.Context, consumer, provider *Cluster) error {
	if consumer.sharesWith(ctx, provider) && provider.sharesWith(ctx, consumer) {
		return nil
	}
	for here, there := range map[*Cluster]*Cluster{consumer: provider, provider: consumer} {
		if !here.Knows(ctx, there) {
			continue
		}
		if _, err := here.Hanse(ctx, "unpeer", there.Name, "--force", "--forget"); err != nil && here.Knows(ctx, there) { // it may be going
			return err
		}
	}
	return Peer(ctx, consumer, provider)
}

// Knows reports whether the cluster has a Peer for the other one, with a role.
func (c *Cluster) Knows(ctx context.Context, other *Cluster) bool {
	peer, err := c.GetPeer(ctx, other.Name)
	return err == nil && len(peer.Spec.Roles) > 0
}

// sharesWith tells whether each of the two is a provider of the other, as far as this one Knows.
func (c *Cluster) sharesWith(ctx context.Context, other *Cluster) bool {
	peer, err := c.GetPeer(ctx, other.Name)
	return err == nil && slices.Contains(peer.Spec.Roles, v1alpha1.RoleProvider) && slices.Contains(peer.Spec.Roles, v1alpha1.RoleConsumer)
}

// Peer has two clusters invite and join each other.
func Peer(ctx context.Context, consumer, provider *Cluster) error {
	return harness.Peer(ctx, consumer.Cluster, provider.Cluster, "--mutual")
}

// RunPodAt has the consumer run a pod at the provider.
func (c *Cluster) RunPodAt(t *testing.T, provider *Cluster) (home, remote *corev1.Pod) {
	t.Helper()
	ns := c.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	c.MustCreate(t, NewShellPod(ns, "guest", RunForever))
	home = &c.AwaitReadyPods(t, ns, "guest", 1)[0]
	remote = provider.MustGetRemotePod(t, home)
	ExpectSamePod(t, home, remote)
	return home, remote
}

// CheckPeerReady returns an error unless the Peer is Ready.
func (c *Cluster) CheckPeerReady(ctx context.Context, name string) error {
	return c.CheckPeerHas(ctx, name, v1alpha1.ConditionReady)
}

// CheckPeerHas checks that the condition of the Peer is True.
func (c *Cluster) CheckPeerHas(ctx context.Context, name, condition string) error {
	peer, err := c.GetPeer(ctx, name)
	if err != nil {
		return err
	}
	if !meta.IsStatusConditionTrue(peer.Status.Conditions, condition) {
		return fmt.Errorf("conditions: %+v", peer.Status.Conditions)
	}
	return nil
}

// CountRestarts counts how often Kubernetes has started Hanse's containers again.
func (c *Cluster) CountRestarts(t *testing.T) int {
	t.Helper()
	pods := &corev1.PodList{}
	if err := c.List(t.Context(), pods, client.InNamespace(v1alpha1.SystemNamespace)); err != nil {
		t.Fatal(err)
	}
	count := 0
	for i := range pods.Items {
		for _, container := range pods.Items[i].Status.ContainerStatuses {
			count += int(container.RestartCount)
		}
	}
	return count
}

// StartAPIServer starts the API server that a story has stopped, and waits until it answers.
func (c *Cluster) StartAPIServer(t *testing.T) {
	t.Helper()
	MustTestbed(t, "start", c.Name, "apiserver")
	EventuallyInCleanup(t, c.Name+" answers", func(ctx context.Context) error {
		return c.List(ctx, &v1alpha1.PeerList{})
	})
}
