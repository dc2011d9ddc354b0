package e2e

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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// webAt is an application of one component, as large as its Deployment, which the change places.
func webAt(ns string, change func(*v1alpha1.Application)) *v1alpha1.Application {
	app := applicationOf(ns, &v1alpha1.ApplicationPlacement{}, "10m", "web")
	app.Spec.Components[0].Replicas, app.Spec.Components[0].Resources = 0, nil
	change(app)
	return app
}

// small is a container that asks for little.
func small() corev1.PodSpec {
	spec := shellSpec(forever)
	spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
	return spec
}

// awaitSpread waits until so many pods of the app are Ready in each cluster, of which ours has no name.
func (c *cluster) awaitSpread(t *testing.T, ns, app string, want map[string]int) {
	t.Helper()
	eventually(t, fmt.Sprintf("pods of %s are at %v", app, want), func(ctx context.Context) error {
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
			case !podReady(pod):
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
	ctx := market(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	app := webAt(ns, func(app *v1alpha1.Application) {
		app.Spec.Components[0].Weights = []v1alpha1.ClusterWeight{{Peer: "hamburg", Weight: 2}, {Peer: "bremen", Weight: 1}, {Weight: 1}}
	})
	lubeck.create(t, app)
	lubeck.awaitApplication(t, app, v1alpha1.ApplicationUnplaced)
	lubeck.awaitDeployment(t, ns, "web", 4)
	lubeck.awaitSpread(t, ns, "web", map[string]int{"hamburg": 2, "bremen": 1, "": 1})

	lubeck.scaleTo(t, ns, 8, "web")
	lubeck.awaitSpread(t, ns, "web", map[string]int{"hamburg": 4, "bremen": 2, "": 2})
	if out, err := lubeck.Kubectl(ctx, "rollout", "restart", "-n", ns, "deployment/web"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := lubeck.Kubectl(ctx, "rollout", "status", "-n", ns, "deployment/web"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lubeck.awaitSpread(t, ns, "web", map[string]int{"hamburg": 4, "bremen": 2, "": 2})
	eventually(t, "hamburg has reserved what it runs", func(ctx context.Context) error {
		request, err := hamburg.requestOf(ctx, app, lubeck)
		if err == nil && (request.Status.Phase != v1alpha1.RequestAcknowledged || request.Status.Reserved.Pods().Value() != 4 || request.Status.Used.Pods().Value() != 4) {
			err = fmt.Errorf("it says %+v", request.Status)
		}
		return err
	})
	if out, err := lubeck.Kubectl(ctx, "get", "applications", "-n", ns); err != nil || !strings.Contains(out, "web 4 at hamburg, web 2 at bremen, web 2 here") {
		t.Errorf("kubectl get applications: %v\n%s", err, out)
	}
	lubeck.deleteAndWait(t, app)
}

// awaitDeployment creates a Deployment of small pods once admission knows that they are of an application.
func (c *cluster) awaitDeployment(t *testing.T, ns, name string, replicas int32) {
	t.Helper()
	c.awaitGates(t, ns, name)
	c.create(t, deployment(ns, name, replicas, small()))
}

// A cluster that is cut off for longer than the user wants to wait loses its component: it gets its room in another one, and its pods are
// made anew there. When the cluster is back, nothing of it is left there, and no pod ran twice under one UID.
func TestLostComponentIsPlacedAgain(t *testing.T) {
	ctx := market(t)
	charge(t, "0.01", "0.02")
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	app := webAt(ns, func(app *v1alpha1.Application) {
		app.Spec.Placement.ReplaceAfter = &metav1.Duration{Duration: 10 * time.Second}
	})
	lubeck.create(t, app)
	lubeck.awaitDeployment(t, ns, "web", 1)
	lubeck.awaitApplication(t, app, v1alpha1.ApplicationPlaced)
	lubeck.expectAtComponent(t, app, "web", "hamburg")
	before := lubeck.awaitReadyPods(t, ns, "web", 1)[0]
	cutOff(t)
	eventually(t, "its pod runs at bremen", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		err := lubeck.List(ctx, pods, client.InNamespace(ns), client.MatchingLabels{"app": "web"})
		for i := range pods.Items {
			if pod := &pods.Items[i]; pod.Spec.NodeName == "hanse-bremen" && podReady(pod) {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("it does not: %+v", app.Status.Components))
	})
	mustTestbed(t, "heal", "lubeck", "hamburg")
	eventually(t, "nothing is left at hamburg", func(ctx context.Context) error {
		return errors.Join(hamburg.hasNoRequest(ctx, app, lubeck), lubeck.isGone(ctx, before.DeepCopy()))
	})
	if _, err := hamburg.remotePod(ctx, &before); err == nil {
		t.Error("its old pod still runs at hamburg")
	}
	lubeck.deleteAndWait(t, app)
}

// hasNoRequest is nil if the provider has no Request of the consumer's application.
func (c *cluster) hasNoRequest(ctx context.Context, app *v1alpha1.Application, consumer *cluster) error {
	if _, err := c.requestOf(ctx, app, consumer); !apierrors.IsNotFound(err) {
		return errors.Join(err, fmt.Errorf("%s has the Request of %s", c.Name, app.Name))
	}
	return nil
}

// An application that is deleted while its cluster is cut off says that this one cannot be told. When it is back it is told, and has the room
// for others again.
func TestReleaseReachesCutOffProvider(t *testing.T) {
	ctx := market(t)
	app := applicationOf(lubeck.offloaded(t, v1alpha1.StrategyRemote), &v1alpha1.ApplicationPlacement{Clusters: []string{"hamburg"}}, "10m", "web")
	lubeck.create(t, app)
	lubeck.awaitApplication(t, app, v1alpha1.ApplicationPlaced)
	cutOff(t)
	if err := lubeck.Delete(ctx, app); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it says that it is released and whom it cannot tell", func(ctx context.Context) error {
		err := lubeck.Get(ctx, client.ObjectKeyFromObject(app), app)
		if err == nil && (app.Status.Phase != v1alpha1.ApplicationReleased || !slices.Equal(app.Status.AskedAt, []string{"hamburg"})) {
			err = fmt.Errorf("it says %+v", app.Status)
		}
		return err
	})
	if request, err := hamburg.requestOf(ctx, app, lubeck); err != nil || len(request.Locked()) == 0 {
		t.Errorf("hamburg does not reserve its room any more: %+v (%v)", request.Status, err)
	}
	mustTestbed(t, "heal", "lubeck", "hamburg")
	eventually(t, "the room is given back", func(ctx context.Context) error {
		return errors.Join(hamburg.hasNoRequest(ctx, app, lubeck), lubeck.isGone(ctx, app))
	})
}

// closed has the cluster refuse every Request.
func (c *cluster) closed(t *testing.T) {
	t.Helper()
	c.policy(t, "request", "package hanse.request\n\ndeny contains \"closed on Thursdays\"\n")
}

// A provider that refuses is passed over for the next best.
func TestNackGoesToNext(t *testing.T) {
	market(t)
	charge(t, "0.02", "0.01")
	bremen.closed(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	app := applicationOf(ns, nil, "10m", "web")
	lubeck.create(t, app)
	lubeck.awaitApplication(t, app, v1alpha1.ApplicationPlaced)
	if at(app)[0] != "hamburg" || len(app.Status.Refusals) != 1 || !strings.Contains(app.Status.Refusals[0].Message, "closed on Thursdays") {
		t.Errorf("it is at %v, and refused by %+v", at(app), app.Status.Refusals)
	}
	lubeck.deleteAndWait(t, app)
}

// An application that gets no place says of each cluster why, on its object and where its user waits for it.
func TestUnplacedSaysWhyPerCluster(t *testing.T) {
	ctx := market(t)
	hamburg.closed(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	app := applicationOf(ns, &v1alpha1.ApplicationPlacement{Exclude: []string{"bremen"}}, "10m", "web")
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
	lubeck.awaitApplication(t, app, v1alpha1.ApplicationUnplaced)
	expectUnsuitable(t, app, "closed on Thursdays", "hamburg")
	expectUnsuitable(t, app, "exclude in spec.placement names it", "bremen")
	expectUnsuitable(t, app, "The strategy of the namespace is Remote", "")
	out, err = lubeck.Hanse(ctx, "explain", "application", app.Name, "-n", ns)
	if err := wants(out, "closed on Thursdays", err); err != nil {
		t.Error(err)
	}
	lubeck.deleteAndWait(t, app)
}
