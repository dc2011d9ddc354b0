// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// beginUnpeered begins a story in which lubeck and hamburg become peers. It ends an earlier peering, and returns the objects that each
// cluster has without one.
func beginUnpeered(t *testing.T) (context.Context, map[*framework.Cluster]framework.Inventory) {
	t.Helper()
	ctx := framework.Begin(t)
	switch here, there := lubeck.Knows(ctx, hamburg), hamburg.Knows(ctx, lubeck); {
	case here && there:
		for _, c := range []*framework.Cluster{lubeck, hamburg} {
			c.AwaitNoRemotePods(t)
		}
		if _, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--drain", "wait"); err != nil {
			t.Fatal(err)
		}
	case here:
		lubeck.ForgetPeer(t, "hamburg")
	case there:
		hamburg.ForgetPeer(t, "lubeck")
	}
	awaitParted(t)
	unpeered := map[*framework.Cluster]framework.Inventory{}
	for _, c := range []*framework.Cluster{lubeck, hamburg} {
		unpeered[c] = objectsAtRest(t, c)
	}
	return ctx, unpeered
}

// objectsAtRest are those that there are when Kubernetes has collected what earlier stories left, which it does in its own
// time: their namespaces, and the leases of virtual nodes.
func objectsAtRest(t *testing.T, c *framework.Cluster) framework.Inventory {
	t.Helper()
	var found framework.Inventory
	framework.Eventually(t, c.Name+" has nothing of earlier stories", func(ctx context.Context) error {
		var err error
		if found, err = c.TakeInventory(ctx); err != nil {
			return err
		}
		for name := range found {
			if strings.HasPrefix(name, "leases.coordination.k8s.io kube-node-lease/"+v1alpha1.VirtualNodePrefix) ||
				strings.HasPrefix(name, "namespaces /story-") {
				return errors.New(name)
			}
		}
		return nil
	})
	return found
}

// awaitParted waits until neither cluster knows the other.
func awaitParted(t *testing.T) {
	t.Helper()
	for here, there := range map[*framework.Cluster]*framework.Cluster{lubeck: hamburg, hamburg: lubeck} {
		framework.Eventually(t, here.Name+" has parted from "+there.Name, func(ctx context.Context) error {
			return errors.Join(
				here.CheckGone(ctx, &v1alpha1.Peer{ObjectMeta: framework.ObjectMeta(there.Name)}),
				here.CheckGone(ctx, &corev1.Namespace{ObjectMeta: framework.ObjectMeta(v1alpha1.TenantNamespace(there.Name))}),
				here.CheckGone(ctx, &corev1.Node{ObjectMeta: framework.ObjectMeta(v1alpha1.VirtualNodeName(there.Name))}),
			)
		})
	}
}

// expectSameObjects waits until a cluster has exactly the objects that it had, as they were.
func expectSameObjects(t *testing.T, before map[*framework.Cluster]framework.Inventory) {
	t.Helper()
	for c, objects := range before {
		framework.Eventually(t, c.Name+" has the objects it had before", func(ctx context.Context) error { return c.CheckInventory(ctx, objects) })
	}
}

func TestInviteJoinMutual(t *testing.T) {
	ctx, _ := beginUnpeered(t)
	if err := framework.Peer(ctx, lubeck, hamburg); err != nil {
		t.Fatal(err)
	}
	lubeck.RunPodAt(t, hamburg)
	hamburg.RunPodAt(t, lubeck)
}

func TestUnpeerLeavesNothing(t *testing.T) {
	ctx, unpeered := beginUnpeered(t)
	if err := framework.Peer(ctx, lubeck, hamburg); err != nil {
		t.Fatal(err)
	}
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	pinned := framework.NewDeployment(ns, "away", 2, framework.NewShellPodSpec(framework.RunForever))
	pinned.Spec.Template.Spec.NodeSelector = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}
	lubeck.MustCreate(t, pinned)
	lubeck.AwaitReadyPods(t, ns, "away", 2)

	// Pods run: nothing happens before somebody says what becomes of them.
	if _, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--timeout", "5s"); err == nil || !strings.Contains(err.Error(), "away") {
		t.Errorf("unpeer with running pods says %v", err)
	}
	// One side parts, and the other follows.
	if _, err := lubeck.Hanse(ctx, "unpeer", "hamburg", "--drain", "wait"); err != nil {
		t.Fatal(err)
	}
	awaitParted(t)
	lubeck.DeleteAndWait(t, pinned)
	lubeck.DeleteAndWait(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	expectSameObjects(t, unpeered)
}

// disappears stops the cluster's API server until it returns, at the story's end at the latest.
func disappears(t *testing.T, c *framework.Cluster) {
	t.Helper()
	framework.MustTestbed(t, "stop", c.Name, "apiserver")
	t.Cleanup(func() { c.StartAPIServer(t) })
}
