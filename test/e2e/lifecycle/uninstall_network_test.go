// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/tenant"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// usesReflection has a pod of the cluster run at the peer, with a token, a ConfigMap, a Secret, and a Service that is there too.
func usesReflection(t *testing.T, c *framework.Cluster, peer *framework.Cluster) {
	t.Helper()
	ns := c.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	c.CreateNeededObjects(t, ns, peer)
	framework.Eventually(t, peer.Name+" has what the pod uses", func(ctx context.Context) error {
		service := &corev1.Service{ObjectMeta: framework.NamespacedMeta(tenant.TwinName(c.Name, ns), "shop")}
		return peer.Get(ctx, client.ObjectKeyFromObject(service), service)
	})
	if err := c.Delete(t.Context(), &corev1.Namespace{ObjectMeta: framework.ObjectMeta(ns)}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the namespace is gone", func(ctx context.Context) error {
		return c.CheckGone(ctx, &corev1.Namespace{ObjectMeta: framework.ObjectMeta(ns)})
	})
}

// The name of this file makes it the last of the stories about the network: it leaves bremen without Hanse. Nothing of Hanse is left on
// its nodes, and each object is as it was, although pods with Services, tokens and configuration went to it and came from it.
func TestUninstallRestoresNode(t *testing.T) {
	ctx := framework.Begin(t)
	usesReflection(t, bremen, lubeck)
	usesReflection(t, lubeck, bremen)
	bremen.AwaitNoRemotePods(t)
	for _, c := range []*framework.Cluster{lubeck, hamburg} {
		c.AwaitNoRemotePods(t)
		if _, err := c.Hanse(ctx, "unpeer", bremen.Name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := bremen.Hanse(ctx, "uninstall"); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the nodes of bremen are as they were", func(ctx context.Context) error { return hasNodesAgain(ctx, bremen) })
	before, err := remembered[framework.Inventory](bremen, framework.RememberedObjects)
	if err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "bremen has the objects it had before", func(ctx context.Context) error { return bremen.CheckInventory(ctx, before) })
}
