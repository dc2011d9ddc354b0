package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
)

// applicationOf is one whose components have a pod each that asks for so much.
func applicationOf(ns string, placement *v1alpha1.ApplicationPlacement, cpu string, components ...string) *v1alpha1.Application {
	app := &v1alpha1.Application{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "shop"}, Spec: v1alpha1.ApplicationSpec{Placement: placement}}
	for _, name := range components {
		app.Spec.Components = append(app.Spec.Components, v1alpha1.ApplicationComponent{
			Name: name, PodLabels: map[string]v1alpha1.LabelValue{"app": v1alpha1.LabelValue(name)}, Replicas: 1,
			Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("16Mi")},
		})
	}
	return app
}

// awaitApplication waits until the application is in the phase.
func (c *cluster) awaitApplication(t *testing.T, app *v1alpha1.Application, phase v1alpha1.ApplicationPhase) *v1alpha1.Application {
	t.Helper()
	eventually(t, fmt.Sprintf("Application %s is %s", app.Name, phase), func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(app), app)
		if err == nil && (app.Status.Phase != phase || app.Status.ObservedGeneration != app.Generation) {
			err = fmt.Errorf("it is %s: %+v", app.Status.Phase, app.Status)
		}
		return err
	})
	return app
}

// at are the peers of the components, in their order.
func at(app *v1alpha1.Application) (peers []string) {
	for _, c := range app.Status.Components {
		peers = append(peers, c.Peer)
	}
	return peers
}

// requestOf returns our Request for the application at the provider, an error if there is none.
func (c *cluster) requestOf(ctx context.Context, app *v1alpha1.Application, consumer *cluster) (*v1alpha1.Request, error) {
	request := &v1alpha1.Request{}
	return request, c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.TenantNamespace(consumer.Name), Name: offload.RequestName(app)}, request)
}

// Components of an application that must be apart get room in two clusters, where it is reserved before there is a pod. Pods that are
// created before that wait. Then each goes where its component is, and uses what is reserved. When the application is deleted the room
// is free again, and its pods run on.
func TestApplicationPlacedAsAWhole(t *testing.T) {
	ctx := market(t)
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	apart := []v1alpha1.ComponentGroup{{Components: []string{"front", "back"}}}
	app := applicationOf(ns, &v1alpha1.ApplicationPlacement{Apart: apart, Clusters: []string{"nobody"}}, "50m", "front", "back")
	lubeck.create(t, app)
	lubeck.awaitApplication(t, app, v1alpha1.ApplicationUnplaced)
	expectUnsuitable(t, app, "clusters in spec.placement", "hamburg", "bremen")
	lubeck.awaitGated(t, ns, "front")

	app.Spec.Placement.Clusters = nil
	if err := lubeck.Update(ctx, app); err != nil {
		t.Fatal(err)
	}
	lubeck.awaitApplication(t, app, v1alpha1.ApplicationPlaced)
	peers := at(app)
	if slices.Sort(peers); !slices.Equal(peers, []string{"bremen", "hamburg"}) {
		t.Fatalf("it is at %v", at(app))
	}
	lubeck.create(t, deployment(ns, "back", 1, shellSpec(forever)))
	for i, name := range []string{"front", "back"} {
		lubeck.expectAtComponent(t, app, name, app.Status.Components[i].Peer)
	}
	if out, err := lubeck.Kubectl(ctx, "get", "applications", "-n", ns); err != nil || !strings.Contains(out, app.Status.Where) {
		t.Errorf("kubectl get applications: %v\n%s", err, out)
	}

	running := lubeck.awaitReadyPods(t, ns, "front", 1)[0]
	lubeck.deleteAndWait(t, app)
	for _, provider := range []*cluster{hamburg, bremen} {
		if _, err := provider.requestOf(ctx, app, lubeck); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("%s still has the Request (%v)", provider.Name, err)
		}
	}
	if now := lubeck.awaitReadyPods(t, ns, "front", 1)[0]; now.UID != running.UID {
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

// expectAtComponent checks that the pod of the component runs at the peer, and waits until the peer counts it as one that uses what is
// reserved.
func (c *cluster) expectAtComponent(t *testing.T, app *v1alpha1.Application, name, peer string) {
	t.Helper()
	pod := c.awaitReadyPods(t, app.Namespace, name, 1)[0]
	if pod.Spec.NodeName != v1alpha1.VirtualNodeName(peer) {
		t.Errorf("%s is on %s, and its component at %s", name, pod.Spec.NodeName, peer)
	}
	provider := map[string]*cluster{"hamburg": hamburg, "bremen": bremen, "wismar": wismar}[peer]
	eventually(t, "the pod uses what is reserved at "+peer, func(ctx context.Context) error {
		request, err := provider.requestOf(ctx, app, c)
		if err == nil && (request.Status.Phase != v1alpha1.RequestAcknowledged || request.Status.Used.Cpu().IsZero()) {
			err = fmt.Errorf("it says %+v", request.Status)
		}
		return err
	})
}

// awaitGated creates a Deployment of one pod once admission has pods of that name wait for the application.
func (c *cluster) awaitGated(t *testing.T, ns, name string) {
	t.Helper()
	c.awaitGates(t, ns, name)
	c.create(t, deployment(ns, name, 1, shellSpec(forever)))
}

// awaitGates waits until admission has pods of that name wait for the application.
func (c *cluster) awaitGates(t *testing.T, ns, name string) {
	t.Helper()
	eventually(t, "pods of the component wait", func(ctx context.Context) error {
		probe := shellPod(ns, name, forever)
		if err := c.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if !offload.Gated(probe) {
			return fmt.Errorf("it has gates %v", probe.Spec.SchedulingGates)
		}
		return nil
	})
}

// charge has a core cost so much in hamburg and in bremen, and waits until they say so and lubeck knows: what is placed before stays where
// it is.
func charge(t *testing.T, atHamburg, atBremen string) {
	t.Helper()
	for provider, price := range map[*cluster]string{hamburg: atHamburg, bremen: atBremen} {
		provider.prices(t, price)
		want := resource.MustParse(price)
		eventually(t, "lubeck knows the price of "+provider.Name, func(ctx context.Context) error {
			offer, offerErr := provider.offerFor(ctx, lubeck)
			known, err := lubeck.copyFrom(ctx, provider) // which may be of an earlier story
			if err := errors.Join(offerErr, err); err != nil {
				return err
			}
			for _, prices := range []*v1alpha1.Prices{offer.Spec.Prices, known.Spec.Prices} {
				if prices == nil || want.Cmp(prices.PerHour[corev1.ResourceCPU]) != 0 {
					return fmt.Errorf("it says %+v, and lubeck knows %+v", offer.Spec.Prices, known.Spec.Prices)
				}
			}
			return nil
		})
	}
}

// The cheapest set of clusters is chosen, and a ceiling is kept.
func TestComponentsOnBestClusters(t *testing.T) {
	market(t)
	charge(t, "0.02", "0.01")
	ns := lubeck.offloaded(t, v1alpha1.StrategyRemote)
	for name, test := range map[string]struct {
		placement *v1alpha1.ApplicationPlacement
		want      string
	}{
		"the cheapest": {nil, "bremen"},
		"excluded":     {&v1alpha1.ApplicationPlacement{Exclude: []string{"bremen"}}, "hamburg"},
	} {
		app := applicationOf(ns, test.placement, "50m", "web")
		lubeck.create(t, app)
		eventually(t, name+": it is at "+test.want, func(ctx context.Context) error {
			err := lubeck.Get(ctx, client.ObjectKeyFromObject(app), app)
			if err == nil && (app.Status.Phase != v1alpha1.ApplicationPlaced || !slices.Equal(at(app), []string{test.want}) || app.Status.Price == nil) {
				err = fmt.Errorf("it says %+v", app.Status)
			}
			return err
		})
		lubeck.deleteAndWait(t, app)
	}
	ceiling := &v1alpha1.Price{Amount: resource.MustParse("0.0001"), Currency: "EUR"}
	app := applicationOf(ns, &v1alpha1.ApplicationPlacement{MaxPrice: ceiling}, "50m", "web")
	app.Spec.Auction = &v1alpha1.ApplicationAuctionSpec{When: v1alpha1.AuctionNever}
	lubeck.create(t, app)
	lubeck.awaitApplication(t, app, v1alpha1.ApplicationUnplaced)
	if said := meta.FindStatusCondition(app.Status.Conditions, v1alpha1.ConditionPlaced); said == nil || said.Reason != v1alpha1.ReasonNoClusterFits {
		t.Errorf("it says %+v", said)
	}
	lubeck.deleteAndWait(t, app)
}

// This cluster is one of those that are chosen from, and costs nothing.
func TestHomeIsARow(t *testing.T) {
	market(t)
	charge(t, "0.02", "0.01")
	local := lubeck.offloaded(t, v1alpha1.StrategyLocalAndRemote)
	home := applicationOf(local, nil, "10m", "web")
	lubeck.create(t, home)
	lubeck.awaitApplication(t, home, v1alpha1.ApplicationPlaced)
	if got := at(home); !slices.Equal(got, []string{""}) {
		t.Errorf("it is at %q", got)
	}
	lubeck.create(t, deployment(local, "web", 1, shellSpec(forever)))
	if pod := lubeck.awaitReadyPods(t, local, "web", 1)[0]; isVirtual(&pod) {
		t.Errorf("it runs on %s", pod.Spec.NodeName)
	}
}
