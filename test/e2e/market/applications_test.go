// SPDX-License-Identifier: Apache-2.0

package market

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// Components of an application that must be apart get room in two clusters, where it is reserved before there is a pod. Pods that are
// created before that wait. Then each goes where its component is, and uses what is reserved. When the application is deleted the room
// is free again, and its pods run on.
func TestApplicationPlacedAsAWhole(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	apart := []v1alpha1.ComponentGroup{{Components: []string{"front", "back"}}}
	app := framework.NewApplication(ns, &v1alpha1.ApplicationPlacement{Apart: apart, Clusters: []string{"nobody"}}, "50m", "front", "back")
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationUnplaced)
	expectUnsuitable(t, app, "clusters in spec.placement", "hamburg", "bremen")
	awaitGated(t, lubeck, ns, "front")

	app.Spec.Placement.Clusters = nil
	if err := lubeck.Update(ctx, app); err != nil {
		t.Fatal(err)
	}
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	peers := framework.ComponentPeers(app)
	if slices.Sort(peers); !slices.Equal(peers, []string{"bremen", "hamburg"}) {
		t.Fatalf("it is at %v", framework.ComponentPeers(app))
	}
	lubeck.MustCreate(t, framework.NewDeployment(ns, "back", 1, framework.NewShellPodSpec(framework.RunForever)))
	for i, name := range []string{"front", "back"} {
		lubeck.ExpectComponentAt(t, app, name, app.Status.Components[i].Peer)
	}
	if out, err := lubeck.Kubectl(ctx, "get", "applications", "-n", ns); err != nil || !strings.Contains(out, app.Status.Where) {
		t.Errorf("kubectl get applications: %v\n%s", err, out)
	}

	running := lubeck.AwaitReadyPods(t, ns, "front", 1)[0]
	lubeck.DeleteAndWait(t, app)
	for _, provider := range []*framework.Cluster{hamburg, bremen} {
		if _, err := provider.RequestOf(ctx, app, lubeck); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("%s still has the Request (%v)", provider.Name, err)
		}
	}
	if now := lubeck.AwaitReadyPods(t, ns, "front", 1)[0]; now.UID != running.UID {
		t.Error("its pod was made again")
	}
}

// expectUnsuitable checks that the application says of each peer that this stands against it.
func expectUnsuitable(t *testing.T, app *v1alpha1.Application, why string, peers ...string) {
	t.Helper()
	for _, peer := range peers {
		if !slices.ContainsFunc(app.Status.Unsuitable, func(u v1alpha1.UnsuitableCluster) bool {
			return u.Peer == peer && strings.Contains(u.Message, why)
		}) {
			t.Errorf("it does not say why %s is unsuitable: %+v", peer, app.Status.Unsuitable)
		}
	}
}

// awaitGated creates a Deployment of one pod once admission has pods of that name wait for the application.
func awaitGated(t *testing.T, c *framework.Cluster, ns, name string) {
	t.Helper()
	awaitGates(t, c, ns, name)
	c.MustCreate(t, framework.NewDeployment(ns, name, 1, framework.NewShellPodSpec(framework.RunForever)))
}

// awaitGates waits until admission has pods of that name wait for the application.
func awaitGates(t *testing.T, c *framework.Cluster, ns, name string) {
	t.Helper()
	framework.Eventually(t, "pods of the component wait", func(ctx context.Context) error {
		probe := framework.NewShellPod(ns, name, framework.RunForever)
		if err := c.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if !offload.Gated(probe) {
			return fmt.Errorf("it has gates %v", probe.Spec.SchedulingGates)
		}
		return nil
	})
}
