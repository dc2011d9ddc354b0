package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/tenant"
)

// usesReflection has a pod of the cluster run at the peer, with a token, a ConfigMap, a Secret, and a Service that is there too.
func (c *cluster) usesReflection(t *testing.T, peer *cluster) {
	t.Helper()
	ns := c.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	c.needed(t, ns, peer)
	eventually(t, peer.Name+" has what the pod uses", func(ctx context.Context) error {
		service := &corev1.Service{ObjectMeta: inNamespace(tenant.TwinName(c.Name, ns), "shop")}
		return peer.Get(ctx, client.ObjectKeyFromObject(service), service)
	})
	if err := c.Delete(t.Context(), &corev1.Namespace{ObjectMeta: named(ns)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace is gone", func(ctx context.Context) error { return c.isGone(ctx, &corev1.Namespace{ObjectMeta: named(ns)}) })
}

// The name of this file makes it the last of the stories about the network: it leaves bremen without Hanse. Nothing of Hanse is left on
// its nodes, and each object is as it was, although pods with Services, tokens and configuration went to it and came from it.
func TestUninstallRestoresNode(t *testing.T) {
	ctx := network(t)
	bremen.usesReflection(t, lubeck)
	lubeck.usesReflection(t, bremen)
	bremen.awaitNoRemotePods(t)
	for _, c := range []*cluster{lubeck, hamburg} {
		c.awaitNoRemotePods(t)
		if _, err := c.Hanse(ctx, "unpeer", bremen.Name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := bremen.Hanse(ctx, "uninstall"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the nodes of bremen are as they were", bremen.hasNodesAgain)
	before, err := remembered[inventory](bremen, rememberedObjects)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "bremen has the objects it had before", func(ctx context.Context) error { return bremen.hasAgain(ctx, before) })
}
