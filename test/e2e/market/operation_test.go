// SPDX-License-Identifier: Apache-2.0

package market

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// webAt is an application of one component, as large as its Deployment, which the change places.
func webAt(ns string, change func(*v1alpha1.Application)) *v1alpha1.Application {
	app := framework.NewApplication(ns, &v1alpha1.ApplicationPlacement{}, "10m", "web")
	app.Spec.Components[0].Replicas, app.Spec.Components[0].Resources = 0, nil
	change(app)
	return app
}

// awaitSpread waits until so many pods of the app are Ready in each cluster, of which ours has no name.
func awaitSpread(t *testing.T, c *framework.Cluster, ns, app string, want map[string]int) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("pods of %s are at %v", app, want), func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := c.List(ctx, pods, client.InNamespace(ns), client.MatchingLabels{"app": app}); err != nil {
			return err
		}
		got := map[string]int{}
		for i := range pods.Items {
			pod := &pods.Items[i]
			peer, away := strings.CutPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix)
			switch {
			case !pod.DeletionTimestamp.IsZero():
			case !framework.IsPodReady(pod):
				got["not Ready"]++
			case away:
				got[peer]++
			default:
				got[""]++
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("they are at %v", got)
		}
		return nil
	})
}

// Three clusters share the replicas of a component by weights, as many as its Deployment asks for: when it is created, when it is scaled,
// and when all its pods are replaced. What each runs is reserved there.
func TestReplicasByWeight(t *testing.T) {
	ctx := framework.Begin(t)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	app := webAt(ns, func(app *v1alpha1.Application) {
		app.Spec.Components[0].Weights = []v1alpha1.ClusterWeight{{Peer: "hamburg", Weight: 2}, {Peer: "bremen", Weight: 1}, {Weight: 1}}
	})
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationUnplaced)
	awaitDeployment(t, lubeck, ns, "web", 4)
	awaitSpread(t, lubeck, ns, "web", map[string]int{"hamburg": 2, "bremen": 1, "": 1})

	lubeck.ScaleDeployments(t, ns, 8, "web")
	awaitSpread(t, lubeck, ns, "web", map[string]int{"hamburg": 4, "bremen": 2, "": 2})
	if out, err := lubeck.Kubectl(ctx, "rollout", "restart", "-n", ns, "deployment/web"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := lubeck.Kubectl(ctx, "rollout", "status", "-n", ns, "deployment/web"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	awaitSpread(t, lubeck, ns, "web", map[string]int{"hamburg": 4, "bremen": 2, "": 2})
	framework.Eventually(t, "hamburg has reserved what it runs", func(ctx context.Context) error {
		request, err := hamburg.RequestOf(ctx, app, lubeck)
		if err == nil && (request.Status.Phase != v1alpha1.RequestAcknowledged || request.Status.Reserved.Pods().Value() != 4 || request.Status.Used.Pods().Value() != 4) {
			err = fmt.Errorf("it says %+v", request.Status)
		}
		return err
	})
	if out, err := lubeck.Kubectl(ctx, "get", "applications", "-n", ns); err != nil || !strings.Contains(out, "web 4 at hamburg, web 2 at bremen, web 2 here") {
		t.Errorf("kubectl get applications: %v\n%s", err, out)
	}
	lubeck.DeleteAndWait(t, app)
}

// awaitDeployment creates a Deployment of small pods once admission knows that they are of an application.
func awaitDeployment(t *testing.T, c *framework.Cluster, ns, name string, replicas int32) {
	t.Helper()
	awaitGates(t, c, ns, name)
	c.MustCreate(t, framework.NewDeployment(ns, name, replicas, framework.SmallPodSpec()))
}

// A cluster that is cut off for longer than the user wants to wait loses its component: it gets its room in another one, and its pods are
// made anew there. When the cluster is back, nothing of it is left there, and no pod ran twice under one UID.
func TestLostComponentIsPlacedAgain(t *testing.T) {
	ctx := framework.Begin(t)
	framework.SetCorePrices(t, "0.01", "0.02")
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	app := webAt(ns, func(app *v1alpha1.Application) {
		app.Spec.Placement.ReplaceAfter = &metav1.Duration{Duration: 10 * time.Second}
	})
	lubeck.MustCreate(t, app)
	awaitDeployment(t, lubeck, ns, "web", 1)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	lubeck.ExpectComponentAt(t, app, "web", "hamburg")
	before := lubeck.AwaitReadyPods(t, ns, "web", 1)[0]
	framework.CutOff(t)
	framework.Eventually(t, "its pod runs at bremen", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		err := lubeck.List(ctx, pods, client.InNamespace(ns), client.MatchingLabels{"app": "web"})
		for i := range pods.Items {
			if pod := &pods.Items[i]; pod.Spec.NodeName == "hanse-bremen" && framework.IsPodReady(pod) {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("it does not: %+v", app.Status.Components))
	})
	framework.MustTestbed(t, "heal", "lubeck", "hamburg")
	framework.Eventually(t, "nothing is left at hamburg", func(ctx context.Context) error {
		return errors.Join(hasNoRequest(ctx, hamburg, app, lubeck), lubeck.CheckGone(ctx, before.DeepCopy()))
	})
	if _, err := hamburg.GetRemotePod(ctx, &before); err == nil {
		t.Error("its old pod still runs at hamburg")
	}
	lubeck.DeleteAndWait(t, app)
}

// hasNoRequest is nil if the provider has no Request of the consumer's application.
func hasNoRequest(ctx context.Context, c *framework.Cluster, app *v1alpha1.Application, consumer *framework.Cluster) error {
	if _, err := c.RequestOf(ctx, app, consumer); !apierrors.IsNotFound(err) {
		return errors.Join(err, fmt.Errorf("%s has the Request of %s", c.Name, app.Name))
	}
	return nil
}

// An application that is deleted while its cluster is cut off says that this one cannot be told. When it is back it is told, and has the room
// for others again.
func TestReleaseReachesCutOffProvider(t *testing.T) {
	ctx := framework.Begin(t)
	app := framework.NewApplication(lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote), &v1alpha1.ApplicationPlacement{Clusters: []string{"hamburg"}}, "10m", "web")
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	framework.CutOff(t)
	if err := lubeck.Delete(ctx, app); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "it says that it is released and whom it cannot tell", func(ctx context.Context) error {
		err := lubeck.Get(ctx, client.ObjectKeyFromObject(app), app)
		if err == nil && (app.Status.Phase != v1alpha1.ApplicationReleased || !slices.Equal(app.Status.AskedAt, []string{"hamburg"})) {
			err = fmt.Errorf("it says %+v", app.Status)
		}
		return err
	})
	if request, err := hamburg.RequestOf(ctx, app, lubeck); err != nil || len(request.Locked()) == 0 {
		t.Errorf("hamburg does not reserve its room any more: %+v (%v)", request.Status, err)
	}
	framework.MustTestbed(t, "heal", "lubeck", "hamburg")
	framework.Eventually(t, "the room is given back", func(ctx context.Context) error {
		return errors.Join(hasNoRequest(ctx, hamburg, app, lubeck), lubeck.CheckGone(ctx, app))
	})
}

// closed has the cluster refuse every Request.
func closed(t *testing.T, c *framework.Cluster) {
	t.Helper()
	c.ApplyPolicy(t, "request", "package hanse.request\n\ndeny contains \"closed on Thursdays\"\n")
}

// A provider that refuses is passed over for the next best.
func TestNackGoesToNext(t *testing.T) {
	framework.Begin(t)
	framework.SetCorePrices(t, "0.02", "0.01")
	closed(t, bremen)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	app := framework.NewApplication(ns, nil, "10m", "web")
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	if framework.ComponentPeers(app)[0] != "hamburg" || len(app.Status.Refusals) != 1 || !strings.Contains(app.Status.Refusals[0].Message, "closed on Thursdays") {
		t.Errorf("it is at %v, and refused by %+v", framework.ComponentPeers(app), app.Status.Refusals)
	}
	lubeck.DeleteAndWait(t, app)
}

// An application that gets no place says of each cluster why, on its object and where its user waits for it.
func TestUnplacedSaysWhyPerCluster(t *testing.T) {
	ctx := framework.Begin(t)
	closed(t, hamburg)
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	app := framework.NewApplication(ns, &v1alpha1.ApplicationPlacement{Exclude: []string{"bremen"}}, "10m", "web")
	app.Spec.Auction = &v1alpha1.ApplicationAuctionSpec{When: v1alpha1.AuctionNever}
	app.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Application"}
	text, err := yaml.Marshal(app)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "app.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := lubeck.Hanse(ctx, "request", "-f", file, "--timeout", "10s")
	if err == nil || !strings.Contains(out+err.Error(), "web does not fit in hamburg: It refuses: ") {
		t.Errorf("kubectl hanse request: %v\n%s", err, out)
	}
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationUnplaced)
	expectUnsuitable(t, app, "closed on Thursdays", "hamburg")
	expectUnsuitable(t, app, "exclude in spec.placement names it", "bremen")
	expectUnsuitable(t, app, "The strategy of the namespace is Remote", "")
	out, err = lubeck.Hanse(ctx, "explain", "application", app.Name, "-n", ns)
	if err := framework.CheckOutput(out, "closed on Thursdays", err); err != nil {
		t.Error(err)
	}
	lubeck.DeleteAndWait(t, app)
}
