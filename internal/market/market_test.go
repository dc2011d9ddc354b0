// SPDX-License-Identifier: Apache-2.0

package market

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
	"github.com/hanse-dev/hanse/internal/testkit"
)

const (
	tenantThere = "hanse-peer-home"
	ns          = "shop"
)

// world is a home cluster with an Application, and its providers.
type world struct {
	*testkit.World
	links  *peerstest.World
	there  map[string]*testkit.Cluster
	market *applications
	own    v1alpha1.AdvertisementSpec
}

// An ownRoom is what home has for itself.
type ownRoom struct{ *v1alpha1.AdvertisementSpec }

// Home implements Home.
func (r ownRoom) Home() v1alpha1.AdvertisementSpec { return *r.DeepCopy() }

// newWorld has providers, each with eight cores, of which one costs so many thousandths of a euro.
func newWorld(t *testing.T, cents map[string]int64, changes ...func(*v1alpha1.Application)) *world {
	t.Helper()
	w := &world{World: testkit.NewWorld(t), links: peerstest.New(t, testkit.Scheme(), peers.Config{}), there: map[string]*testkit.Cluster{}}
	w.own.Availability = testkit.Quantities("cpu", "1", "pods", "10")
	offloading := testkit.Offloading(ns)
	offloading.Spec.Strategy = v1alpha1.StrategyLocalAndRemote
	offloading.Status.Placement = &v1alpha1.NamespacePlacementStatus{}
	for name, price := range cents {
		cluster := testkit.NewCluster(t, w.Clock)
		cluster.Before(nextGeneration)
		there := w.links.Add(name, tenantThere, cluster.Client)
		cluster.Client = there.Client
		w.there[name] = cluster
		peer := testkit.Peer(name, v1alpha1.RoleProvider)
		peer.Spec.PublicKey = publicOf(keyOf(name))
		w.links.Link(peer)
		ad := testkit.Advertisement(name)
		ad.Spec.ClusterID, ad.Labels = name, map[string]string{v1alpha1.LabelPeer: name}
		ad.Spec.TimeToLive = metav1.NewTime(w.Clock.Now().Add(24 * time.Hour))
		ad.Spec.Availability = testkit.Quantities("cpu", "8", "pods", "100")
		ad.Spec.Prices = &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{
			corev1.ResourceCPU: *resource.NewScaledQuantity(price, resource.Milli),
		}}
		testkit.SetCondition(&ad.Status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
		w.Home.Put(peer, ad)
		offloading.Status.Placement.Nodes = append(offloading.Status.Placement.Nodes, v1alpha1.NodePlacement{Name: v1alpha1.VirtualNodeName(name)})
	}
	app := &v1alpha1.Application{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec: v1alpha1.ApplicationSpec{Components: []v1alpha1.ApplicationComponent{
			{Name: "front", PodLabels: map[string]v1alpha1.LabelValue{"app": "front"}, Replicas: 2, Resources: testkit.Quantities("cpu", "1")},
			{Name: "back", PodLabels: map[string]v1alpha1.LabelValue{"app": "back"}, Replicas: 1, Resources: testkit.Quantities("cpu", "4")},
		}},
	}
	for _, change := range changes {
		change(app)
	}
	w.Home.Put(offloading, app)
	w.market = &applications{Config: Config{Client: w.Home.Client, Live: w.Home.Client, Links: w.links.Links, Home: ownRoom{&w.own}, Events: w.Events, Clock: w.Clock, ClusterID: "home", Key: keyOf("home")}}
	return w
}

// looks reconciles as often as it takes for what each look has written to be seen by the next.
func (w *world) looks() *v1alpha1.Application {
	w.Helper()
	for range 4 {
		w.Reconcile(w.market, ns, "web")
	}
	app := &v1alpha1.Application{}
	if err := w.Home.Client.Get(w.Context(), client.ObjectKey{Namespace: ns, Name: "web"}, app); client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	return app
}

// requestAt returns the Request at the peer, nil if there is none.
func (w *world) requestAt(peer string) *v1alpha1.Request {
	w.Helper()
	all := &v1alpha1.RequestList{}
	if err := w.there[peer].Client.List(context.Background(), all, client.InNamespace(tenantThere)); err != nil {
		w.Fatal(err)
	}
	if len(all.Items) == 0 {
		return nil
	}
	return &all.Items[0]
}

// answer plays the provider's manager.
func (w *world) answer(peer string, phase v1alpha1.RequestPhase, message string) {
	w.Helper()
	request := w.requestAt(peer)
	request.Status.Phase, request.Status.ObservedGeneration = phase, request.Generation
	status := metav1.ConditionTrue
	if phase != v1alpha1.RequestAcknowledged {
		status = metav1.ConditionFalse
	}
	meta.SetStatusCondition(&request.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionAcknowledged, Status: status, Reason: string(phase), Message: message, ObservedGeneration: request.Generation,
	})
	w.signAnswer(peer, request)
	if err := w.there[peer].Client.Status().Update(context.Background(), request); err != nil {
		w.Fatal(err)
	}
}

// inWords says where the components are, and whether they are acknowledged.
func inWords(app *v1alpha1.Application) string {
	words := []string{string(app.Status.Phase)}
	for _, c := range app.Status.Components {
		word := c.Name + "@" + c.Peer
		if c.Acknowledged {
			word += "!"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func (w *world) expect(app *v1alpha1.Application, want string) {
	w.Helper()
	if diff := cmp.Diff(want, inWords(app)); diff != "" {
		w.Fatalf("-want +got:\n%s%+v", diff, app.Status)
	}
}

func TestAnApplicationIsPlacedAndReleased(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10, "dear": 20})
	w.expect(w.looks(), "Requested front@cheap back@cheap")
	request := w.requestAt("cheap")
	if request == nil || len(request.Spec.Components) != 2 || request.Spec.Application.Name != ns+"/web" || w.requestAt("dear") != nil {
		t.Fatalf("asked for %+v", request)
	}
	w.answer("cheap", v1alpha1.RequestAcknowledged, "")
	app := w.looks()
	w.expect(app, "Placed front@cheap! back@cheap!")
	if app.Status.Price.Amount.String() != "60m" || app.Status.Price.Currency != "EUR" {
		t.Errorf("it costs %v", app.Status.Price)
	}

	if err := w.Home.Client.Delete(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	w.looks()
	if w.requestAt("cheap") != nil || w.Home.Find(&v1alpha1.Application{}, ns, "web") {
		t.Error("it was not released")
	}
}

func TestARefusalGoesToTheNextBest(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10, "dear": 20})
	w.looks()
	w.answer("cheap", v1alpha1.RequestRefused, "It has less than 6 of cpu free")
	app := w.looks()
	w.expect(app, "Requested front@dear back@dear")
	if w.requestAt("cheap") != nil {
		t.Error("the Request that was refused is still there")
	}
	w.answer("dear", v1alpha1.RequestRefused, "no")
	app = w.looks()
	w.expect(app, "Unplaced")
	if len(app.Status.Unsuitable) == 0 || len(app.Status.Refusals) != 2 || !strings.Contains(app.Status.Unsuitable[0].Message, "It refuses") {
		t.Errorf("it says %+v", app.Status)
	}
	w.Clock.Step(refusalTime)
	w.expect(w.looks(), "Requested front@cheap back@cheap")
}

func TestSilenceGoesToTheNextBest(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10, "dear": 20})
	w.looks()
	w.Clock.Step(answerTime)
	w.expect(w.looks(), "Requested front@dear back@dear")
}

func TestHomeIsARow(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10})
	w.own.Availability = testkit.Quantities("cpu", "2", "pods", "10")
	w.looks()
	w.answer("cheap", v1alpha1.RequestAcknowledged, "")
	w.expect(w.looks(), "Placed front@! back@cheap!")
}

func TestWhatWasAgreedStaysWhenMoreDoesNotFit(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10})
	w.looks()
	w.answer("cheap", v1alpha1.RequestAcknowledged, "")
	app := w.looks()
	app.Spec.Components[0].Replicas, app.Generation = 100, 1
	if err := w.Home.Client.Update(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	app = w.looks()
	w.expect(app, "Unplaced front@cheap! back@cheap!")
	if got := w.requestAt("cheap").Spec.Components[0].Replicas; got != 2 {
		t.Errorf("it asks for %d replicas", got)
	}
	app.Spec.Components[0].Replicas, app.Generation = 3, 2
	if err := w.Home.Client.Update(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	w.expect(w.looks(), "Requested front@cheap back@cheap")
	if got := w.requestAt("cheap").Spec.Components[0].Replicas; got != 3 {
		t.Errorf("it asks for %d replicas", got)
	}
	w.answer("cheap", v1alpha1.RequestAcknowledged, "")
	w.expect(w.looks(), "Placed front@cheap! back@cheap!")
}

func TestReservationsAreRenewed(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10})
	w.looks()
	w.answer("cheap", v1alpha1.RequestAcknowledged, "")
	w.looks()
	w.Clock.Step(v1alpha1.ReservationTime/2 + time.Minute)
	w.looks()
	if got := w.requestAt("cheap").Spec.ExpirationTime; got.Sub(w.Clock.Now()) < v1alpha1.ReservationTime-time.Minute {
		t.Errorf("it ends at %s", got)
	}
}

func TestWhatIsForbiddenIsNotAsked(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.Application)
		want   string
	}{
		"excluded": {func(app *v1alpha1.Application) {
			app.Spec.Placement = &v1alpha1.ApplicationPlacement{Exclude: []string{"cheap"}}
		}, "Requested front@dear back@dear"},
		"not named": {func(app *v1alpha1.Application) {
			app.Spec.Placement = &v1alpha1.ApplicationPlacement{Clusters: []string{"dear"}}
		}, "Requested front@dear back@dear"},
		"apart": {func(app *v1alpha1.Application) {
			app.Spec.Placement = &v1alpha1.ApplicationPlacement{Apart: []v1alpha1.ComponentGroup{{Components: []string{"front", "back"}}}}
		}, "Requested front@dear back@cheap"},
		"too dear": {func(app *v1alpha1.Application) {
			app.Spec.Placement = &v1alpha1.ApplicationPlacement{MaxPrice: &v1alpha1.Price{Amount: resource.MustParse("59m"), Currency: "EUR"}}
		}, "Unplaced"},
		"not too dear": {func(app *v1alpha1.Application) {
			app.Spec.Placement = &v1alpha1.ApplicationPlacement{MaxPrice: &v1alpha1.Price{Amount: resource.MustParse("60m"), Currency: "EUR"}}
		}, "Requested front@cheap back@cheap"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, map[string]int64{"cheap": 10, "dear": 20}, test.change)
			w.expect(w.looks(), test.want)
		})
	}
}

func TestPodsOfAnApplicationWaitAndGoWhereItIs(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10})
	offloading := testkit.Get[v1alpha1.NamespaceOffloading](w.Home, ns, v1alpha1.NamespaceOffloadingName)
	pod := testkit.Pod(ns, "front-0", "")
	pod.Labels = map[string]string{"app": "front"}
	placement, err := offload.NewPlacement(offloading)
	if err != nil {
		t.Fatal(err)
	}
	decided := func(app *v1alpha1.Application) v1alpha1.PlacementStatus {
		offloading.Status.Placement.Classes = placement.Components(app, offloading.Status.Placement.PlacementStatus)
		return placement.Decided(pod)
	}
	if got := decided(w.looks()); !got.Admission.Gated {
		t.Errorf("before it is placed: %+v", got)
	}
	w.answer("cheap", v1alpha1.RequestAcknowledged, "")
	app := w.looks()
	if got := decided(app); got.Admission.Gated || !cmp.Equal(got.Only, []string{"hanse-cheap"}) || placement.RequestFor(pod, "hanse-cheap") != "app-"+string(app.UID) {
		t.Errorf("when it is placed: %+v", got)
	}
	if placement.RequestFor(pod, "hanse-dear") != "" {
		t.Error("it uses a reservation where there is none")
	}
}

func TestAPeerIsAskedAgainBeforeItIsPassedOver(t *testing.T) {
	for name, change := range map[string]func(*world, *v1alpha1.Application){
		"for more": func(w *world, app *v1alpha1.Application) {
			app.Spec.Components[0].Replicas, app.Generation = 3, 1
			if err := w.Home.Client.Update(w.Context(), app); err != nil {
				w.Fatal(err)
			}
			request := w.requestAt("cheap")
			request.Status.ObservedGeneration = -1 // no answer to the new spec; the API server would count generations
			if err := w.there["cheap"].Client.Status().Update(w.Context(), request); err != nil {
				w.Fatal(err)
			}
		},
		"after its Request was deleted there": func(w *world, _ *v1alpha1.Application) {
			if err := w.there["cheap"].Client.Delete(w.Context(), w.requestAt("cheap")); err != nil {
				w.Fatal(err)
			}
		},
		"after its Request has expired": func(w *world, _ *v1alpha1.Application) { w.answer("cheap", v1alpha1.RequestExpired, "") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, map[string]int64{"cheap": 10, "dear": 20})
			w.looks()
			w.answer("cheap", v1alpha1.RequestAcknowledged, "")
			app := w.looks()
			w.Clock.Step(answerTime)
			change(w, app)
			w.expect(w.looks(), "Requested front@cheap back@cheap")
			w.answer("cheap", v1alpha1.RequestAcknowledged, "")
			w.expect(w.looks(), "Placed front@cheap! back@cheap!")
		})
	}
}

func TestAPeerWithoutHanseIsNotAsked(t *testing.T) {
	w := newWorld(t, map[string]int64{"cheap": 10, "dear": 20})
	peer := testkit.Get[v1alpha1.Peer](w.Home, "", "cheap")
	peer.Spec.Mode = v1alpha1.ModeAgentless
	w.Home.Put(peer)
	w.expect(w.looks(), "Requested front@dear back@dear")
}

func TestWhatWasChosenForItsPriceIsNotTakenForMore(t *testing.T) {
	for name, test := range map[string]struct {
		cents int64
		want  string
	}{"dear": {10, "60m"}, "free": {0, "0"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, map[string]int64{"cheap": test.cents}, func(app *v1alpha1.Application) {
				app.Spec.Components[1].MaxPrice = &v1alpha1.Price{Amount: resource.MustParse("1"), Currency: "EUR"}
			})
			w.looks()
			if most := w.requestAt("cheap").Spec.MaxPrice; most == nil || most.Amount.String() != test.want || most.Currency != "EUR" {
				t.Errorf("it may cost %v", most)
			}
		})
	}
}
