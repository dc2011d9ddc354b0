// SPDX-License-Identifier: Apache-2.0

// Package peering tests how clusters become peers and end that again, on two clusters that are no peers when a test begins.
package peering

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/harness"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

var lubeck, hamburg *framework.Cluster

func TestMain(m *testing.M) {
	framework.Main(m, framework.Config{Clusters: map[string]**framework.Cluster{"lubeck": &lubeck, "hamburg": &hamburg}})
}

// apart ends what an earlier test has left of a peering, and returns all objects of both clusters.
func apart(t *testing.T) map[*framework.Cluster]framework.Inventory {
	t.Helper()
	lubeck.Forget(t, "hamburg")
	hamburg.Forget(t, "lubeck")
	awaitApart(t)
	inventories := map[*framework.Cluster]framework.Inventory{}
	for _, c := range []*framework.Cluster{lubeck, hamburg} {
		framework.Eventually(t, c.Name+" has no objects of earlier tests", func(ctx context.Context) error {
			found, err := c.Inventory(ctx)
			if err != nil {
				return err
			}
			for name := range found {
				if strings.HasPrefix(name, "leases.coordination.k8s.io kube-node-lease/"+v1alpha1.VirtualNodePrefix) ||
					strings.HasPrefix(name, "namespaces /"+framework.NamespacePrefix) {
					return errors.New(name)
				}
			}
			inventories[c] = found
			return nil
		})
	}
	return inventories
}

// awaitApart waits until neither cluster has objects of the other.
func awaitApart(t *testing.T) {
	t.Helper()
	for here, there := range map[*framework.Cluster]*framework.Cluster{lubeck: hamburg, hamburg: lubeck} {
		framework.Eventually(t, here.Name+" has nothing of "+there.Name, func(ctx context.Context) error {
			return errors.Join(
				here.Gone(ctx, &v1alpha1.Peer{ObjectMeta: framework.Named("", there.Name)}),
				here.Gone(ctx, &corev1.Namespace{ObjectMeta: framework.Named("", v1alpha1.TenantNamespace(there.Name))}),
				here.Gone(ctx, &corev1.Node{ObjectMeta: framework.Named("", v1alpha1.VirtualNodeName(there.Name))}),
			)
		})
	}
}

// expectSameObjects waits until the clusters have exactly the objects that they had, as they were.
func expectSameObjects(t *testing.T, before map[*framework.Cluster]framework.Inventory) {
	t.Helper()
	for c, objects := range before {
		framework.Eventually(t, c.Name+" has the objects that it had before", func(ctx context.Context) error { return c.HasAgain(ctx, objects) })
	}
}

// peer makes lubeck and hamburg peers in both directions.
func peer(t *testing.T) {
	t.Helper()
	if err := harness.Peer(t.Context(), lubeck.Cluster, hamburg.Cluster, "--mutual"); err != nil {
		t.Fatal(err)
	}
}
