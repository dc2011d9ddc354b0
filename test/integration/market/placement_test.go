// SPDX-License-Identifier: Apache-2.0

package market

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// TestComponentsOnBestClusters: an Application goes to the cheapest cluster that its placement allows. It is not placed above its price
// ceiling.
func TestComponentsOnBestClusters(t *testing.T) {
	begin(t)
	setCorePrices(t, "0.02", "0.01")
	ns := offloadedNamespace(t, v1alpha1.StrategyRemote)
	for _, test := range []struct {
		name      string
		placement *v1alpha1.ApplicationPlacement
		want      string
		price     string
	}{
		{"the cheapest", nil, "bremen", "500u"},
		{"the cheapest is excluded", &v1alpha1.ApplicationPlacement{Exclude: []string{"bremen"}}, "hamburg", "1m"},
	} {
		app := framework.Application(ns, test.placement, "50m", "web")
		lubeck.MustCreate(t, app)
		lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
		if got := framework.ComponentPeers(app); !slices.Equal(got, []string{test.want}) || app.Status.Price == nil || app.Status.Price.Amount.String() != test.price {
			t.Errorf("%s: it is placed at %v for %+v, want %s for %s", test.name, got, app.Status.Price, test.want, test.price)
		}
		lubeck.DeleteAndWait(t, app)
	}
	ceiling := &v1alpha1.Price{Amount: resource.MustParse("0.0001"), Currency: "EUR"}
	app := framework.Application(ns, &v1alpha1.ApplicationPlacement{MaxPrice: ceiling}, "50m", "web")
	app.Spec.Auction = &v1alpha1.ApplicationAuctionSpec{When: v1alpha1.AuctionNever}
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationUnplaced)
	if placed := meta.FindStatusCondition(app.Status.Conditions, v1alpha1.ConditionPlaced); placed == nil || placed.Reason != v1alpha1.ReasonNoClusterFits {
		t.Errorf("condition Placed is %+v", placed)
	}
	lubeck.DeleteAndWait(t, app)
}

// TestHomeIsARow: the home cluster takes part in the choice as a cluster that costs nothing.
func TestHomeIsARow(t *testing.T) {
	begin(t)
	setCorePrices(t, "0.02", "0.01")
	ns := offloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	app := framework.Application(ns, nil, "10m", "web")
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	if got := framework.ComponentPeers(app); !slices.Equal(got, []string{""}) {
		t.Errorf("it is placed at %q", got)
	}
	lubeck.MustCreate(t, framework.Deployment(ns, "web", 1, framework.PodSpec()))
	if pod := lubeck.AwaitReadyPods(t, ns, "web", 1)[0]; framework.IsVirtual(&pod) {
		t.Errorf("its pod runs on %s", pod.Spec.NodeName)
	}
	lubeck.DeleteAndWait(t, app)
}

// TestReplicasByWeight: three clusters share the replicas of a component by weight, as many as the Deployment has: after its creation,
// after it was scaled, and after a rollout has replaced all pods. Each provider has reserved what it runs.
func TestReplicasByWeight(t *testing.T) {
	begin(t)
	ns := offloadedNamespace(t, v1alpha1.StrategyLocalAndRemote)
	app := framework.Application(ns, &v1alpha1.ApplicationPlacement{}, "10m", "web")
	component := &app.Spec.Components[0]
	component.Replicas, component.Resources = 0, nil // those of the Deployment
	component.Weights = []v1alpha1.ClusterWeight{{Peer: "hamburg", Weight: 2}, {Peer: "bremen", Weight: 1}, {Weight: 1}}
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationUnplaced)
	lubeck.AwaitGate(t, framework.Pod(ns, "web"))
	lubeck.MustCreate(t, framework.Deployment(ns, "web", 4, framework.PodSpec()))
	awaitSpread(t, ns, "web", map[string]int{"hamburg": 2, "bremen": 1, "": 1})

	lubeck.MustKubectl(t, "scale", "-n", ns, "deployment/web", "--replicas", "8")
	awaitSpread(t, ns, "web", map[string]int{"hamburg": 4, "bremen": 2, "": 2})
	before, err := lubeck.Pods(t.Context(), ns, "web")
	if err != nil {
		t.Fatal(err)
	}
	lubeck.MustKubectl(t, "rollout", "restart", "-n", ns, "deployment/web")
	lubeck.MustKubectl(t, "rollout", "status", "-n", ns, "deployment/web")
	for i := range before {
		framework.Eventually(t, before[i].Name+" is gone", func(ctx context.Context) error { return lubeck.Gone(ctx, &before[i]) })
	}
	awaitSpread(t, ns, "web", map[string]int{"hamburg": 4, "bremen": 2, "": 2})
	for provider, replicas := range map[*framework.Cluster]int64{hamburg: 4, bremen: 2} {
		framework.Eventually(t, provider.Name+" has reserved what it runs", func(ctx context.Context) error {
			request, err := provider.RequestOf(ctx, app, lubeck)
			if err == nil && (request.Status.Phase != v1alpha1.RequestAcknowledged ||
				request.Status.Reserved.Pods().Value() != replicas || request.Status.Used.Pods().Value() != replicas) {
				err = fmt.Errorf("the Request has the status %+v", request.Status)
			}
			return err
		})
	}
	framework.Eventually(t, "kubectl shows the clusters of the replicas", func(ctx context.Context) error {
		out, err := lubeck.Kubectl(ctx, "get", "applications", "-n", ns)
		return outputContains(out, "web 4 at hamburg, web 2 at bremen, web 2 here", err)
	})
	lubeck.DeleteAndWait(t, app)
}

// awaitSpread waits until each cluster runs so many Ready pods with the label app, and none is elsewhere. The name of the home cluster
// is empty.
func awaitSpread(t *testing.T, ns, app string, want map[string]int) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("the clusters run pods of %s as in %v", app, want), func(ctx context.Context) error {
		pods, err := lubeck.Pods(ctx, ns, app)
		if err != nil {
			return err
		}
		got := map[string]int{}
		for i := range pods {
			pod := &pods[i]
			peer, remote := strings.CutPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix)
			switch {
			case !pod.DeletionTimestamp.IsZero():
			case !framework.IsPodReady(pod):
				got["not Ready"]++
			case remote:
				got[peer]++
			default:
				got[""]++
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("they run %v", got)
		}
		return nil
	})
}

// TestNackGoesToNext: when the best provider refuses the Request, the next best one gets it. The Application reports the refusal.
func TestNackGoesToNext(t *testing.T) {
	begin(t)
	setCorePrices(t, "0.02", "0.01")
	refuseRequests(t, bremen)
	app := framework.Application(offloadedNamespace(t, v1alpha1.StrategyRemote), nil, "10m", "web")
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	if got := framework.ComponentPeers(app); !slices.Equal(got, []string{"hamburg"}) {
		t.Errorf("it is placed at %v", got)
	}
	if refusals := app.Status.Refusals; len(refusals) != 1 || refusals[0].Peer != "bremen" || !strings.Contains(refusals[0].Message, "closed on Thursdays") {
		t.Errorf("status.refusals is %+v", refusals)
	}
	lubeck.DeleteAndWait(t, app)
}

// TestUnplacedSaysWhyPerCluster: an Application that no cluster can run reports the reason of each cluster: in its status, in the output of
// kubectl hanse request, and in that of kubectl hanse explain.
func TestUnplacedSaysWhyPerCluster(t *testing.T) {
	begin(t)
	ctx := t.Context()
	refuseRequests(t, hamburg)
	app := framework.Application(offloadedNamespace(t, v1alpha1.StrategyRemote), &v1alpha1.ApplicationPlacement{Exclude: []string{"bremen"}}, "10m", "web")
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
	out, err = lubeck.Hanse(ctx, "explain", "application", app.Name, "-n", app.Namespace)
	if err := outputContains(out, "closed on Thursdays", err); err != nil {
		t.Error(err)
	}
	lubeck.DeleteAndWait(t, app)
}

// expectUnsuitable checks that the Application reports each peer as unsuitable with this message.
func expectUnsuitable(t *testing.T, app *v1alpha1.Application, message string, peers ...string) {
	t.Helper()
	for _, peer := range peers {
		if !slices.ContainsFunc(app.Status.Unsuitable, func(u v1alpha1.UnsuitableCluster) bool {
			return u.Peer == peer && strings.Contains(u.Message, message)
		}) {
			t.Errorf("status.unsuitable does not report %q of %q: %+v", message, peer, app.Status.Unsuitable)
		}
	}
}
