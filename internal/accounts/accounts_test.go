// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/offload"
	"github.com/hanse-dev/hanse/internal/peers"
	"github.com/hanse-dev/hanse/internal/peers/peerstest"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

const (
	twin = "shop-twin"
	// toCount is how long after the end of a period all of it is counted.
	toCount = DefaultPeriod * 3 / 10
)

var (
	lubeckKey  = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	hamburgKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize))
)

// providerPeer is hamburg, as lubeck knows it.
func providerPeer() *v1alpha1.Peer {
	peer := testkit.Peer("hamburg", v1alpha1.RoleProvider)
	peer.Spec.PublicKey = trust.PublicKeyOf(hamburgKey)
	return peer
}

// world is a consumer, lubeck, and a provider, hamburg, each with an accountant of its own.
type world struct {
	*testkit.World
	links              *peerstest.World
	way                *peerstest.Peer
	here, there        *testkit.Cluster // of the consumer, and of the provider
	consumer, provider *accountant
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: testkit.NewWorld(t), links: peerstest.New(t, testkit.Scheme(), peers.Config{})}
	w.here, w.there = w.Home, w.Away
	w.way = w.links.Add("hamburg", v1alpha1.TenantNamespace("lubeck"), w.there.Client)
	w.there.Client = w.way.Client
	provider, consumer := providerPeer(), testkit.Peer("lubeck", v1alpha1.RoleConsumer)
	consumer.Spec.PublicKey = trust.PublicKeyOf(lubeckKey)
	link := w.links.Link(provider)
	if err := link.Mappings().WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	offer := testkit.Advertisement("lubeck")
	offer.Name = "hamburg-id"
	offer.Spec.Prices = &v1alpha1.Prices{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse("0.12")}}
	taken := testkit.Advertisement("hamburg")
	taken.Spec.Prices = offer.Spec.Prices
	w.here.Put(provider, taken)
	w.there.Put(consumer, offer, testkit.TwinNamespace(twin, "lubeck"))
	w.Clock.Step(time.Minute)
	w.start()
	return w
}

// start starts both managers, with nothing in their memory.
func (w *world) start() {
	made := func(c client.Client, id string, key ed25519.PrivateKey) *accountant {
		return newAccountant(Config{Client: c, Links: w.links.Links, Events: w.Events, Clock: w.Clock, ClusterID: id, Key: key, Period: DefaultPeriod})
	}
	w.consumer = made(w.here.Client, "lubeck-id", lubeckKey)
	w.provider = made(w.there.Client, "hamburg-id", hamburgKey)
}

// noQueue takes what nobody looks at: tests reconcile by themselves.
type noQueue struct{ queue }

// AddAfter implements workqueue.TypedDelayingInterface.
func (noQueue) AddAfter(reconcile.Request, time.Duration) {}

// runs has a pod with so much CPU run since then, as both sides see it.
func (w *world) runs(name, cpu string, since time.Time, changes ...func(home, remote *corev1.Pod)) {
	w.Helper()
	home, remote := testkit.Pod("shop", name, v1alpha1.VirtualNodeName("hamburg")), testkit.Pod(twin, name, "worker")
	remote.OwnerReferences = testkit.OwnedByShadowPod(name, "u")
	for _, pod := range []*corev1.Pod{home, remote} {
		pod.Status.StartTime, pod.Status.Phase = &metav1.Time{Time: since}, corev1.PodRunning
		pod.Spec.Containers[0].Resources.Requests = testkit.Quantities("cpu", cpu)
	}
	for _, change := range changes {
		change(home, remote)
	}
	w.consumer.podChanged(w.Context(), home, noQueue{})
	w.provider.podChanged(w.Context(), remote, noQueue{})
}

func (w *world) ends(name string) {
	w.consumer.podGone(w.Context(), testkit.Pod("shop", name, ""), noQueue{})
	w.provider.podGone(w.Context(), testkit.Pod(twin, name, ""), noQueue{})
}

// periods lets so many of them pass. Each side is asked as often as what the other one writes would have it.
func (w *world) periods(count int) {
	w.Helper()
	for range count {
		w.Clock.SetTime(w.Clock.Now().Truncate(DefaultPeriod).Add(DefaultPeriod + toCount))
		w.look()
	}
}

func (w *world) look() {
	w.Helper()
	for range 3 {
		w.Reconcile(w.provider, "lent", "lubeck")
		w.Reconcile(w.consumer, "borrowed", "hamburg")
	}
}

// account is that of today, or of the day that many days ago.
func (w *world) account(of *testkit.Cluster, direction v1alpha1.AccountDirection, peer string) *v1alpha1.Account {
	w.Helper()
	found := &v1alpha1.Account{}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer), Name: v1alpha1.AccountName(direction, testkit.Noon)}
	if err := of.Server.Get(w.Context(), key, found); client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	return found
}

func (w *world) lent() *v1alpha1.Account { return w.account(w.there, v1alpha1.AccountLent, "lubeck") }

func (w *world) borrowed() *v1alpha1.Account {
	return w.account(w.here, v1alpha1.AccountBorrowed, "hamburg")
}

// inWords is what is counted, without resources but CPU.
func inWords(count *v1alpha1.AccountCount) string {
	var words []string
	for _, e := range count.Entries {
		words = append(words, fmt.Sprintf("%s used %s reserved %s cost %s %s", e.Application, e.Used["cpu"], e.Reserved["cpu"], e.Cost, e.Currency))
	}
	return strings.Join(words, "; ")
}

// expect checks what all four counts say.
func (w *world) expect(want string) {
	w.Helper()
	for name, count := range map[string]*v1alpha1.AccountCount{
		"provider": w.lent().Own(), "provider, of the consumer": w.lent().Peers(),
		"consumer": w.borrowed().Own(), "consumer, of the provider": w.borrowed().Peers(),
	} {
		if diff := cmp.Diff(want, inWords(count)); diff != "" {
			w.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

func (w *world) expectAgreed(of *v1alpha1.Account, status metav1.ConditionStatus, reason string, texts ...string) {
	w.Helper()
	testkit.ExpectCondition(w, of.Status.Conditions, v1alpha1.ConditionAgreed, status, reason, texts...)
	testkit.ExpectCondition(w, of.Status.Conditions, v1alpha1.ConditionReady, status, reason)
}

func (w *world) expectBothAgree() {
	w.Helper()
	w.expectAgreed(w.lent(), metav1.ConditionTrue, v1alpha1.ReasonCountsAgree)
	w.expectAgreed(w.borrowed(), metav1.ConditionTrue, v1alpha1.ReasonCountsAgree)
}

func TestBothSidesCountTheSame(t *testing.T) {
	w := newWorld(t)
	w.periods(1)
	w.here.ExpectWrites()
	w.there.ExpectWrites() // nothing is used

	w.runs("web", "6", w.Clock.Now().Truncate(DefaultPeriod))
	w.periods(2)
	w.expect(" used 1 reserved  cost 0.12 EUR")
	w.expectBothAgree()
	w.EventReasons()

	w.ends("web")
	w.periods(1)
	w.expect(" used 1.15 reserved  cost 0.138 EUR") // of the 1.5 minutes in which it was not counted yet
	w.expectBothAgree()
	w.here.Writes()
	w.there.Writes()
	w.periods(3)
	w.here.ExpectWrites()
	w.there.ExpectWrites()
	w.ExpectEvents()
}

func TestAPeriodCostsFewWrites(t *testing.T) {
	w := newWorld(t)
	for i := range 50 {
		w.runs(fmt.Sprint("web-", i), "1", w.Clock.Now())
	}
	w.periods(2)
	w.here.Writes()
	w.there.Writes()
	w.periods(1)
	name := v1alpha1.AccountName(v1alpha1.AccountBorrowed, testkit.Noon)
	w.here.ExpectWrites("patch Account "+name, "patch/status Account "+name)
	name = v1alpha1.AccountName(v1alpha1.AccountLent, testkit.Noon)
	w.there.ExpectWrites("patch/status Account "+name, "apply Account "+name) // the provider's count, and the consumer's claim
}

func TestReservationsAreCounted(t *testing.T) {
	w := newWorld(t)
	app := &v1alpha1.Application{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "shop", UID: "app-uid", CreationTimestamp: metav1.NewTime(testkit.Noon)},
		Spec: v1alpha1.ApplicationSpec{Components: []v1alpha1.ApplicationComponent{
			{Name: "web", PodLabels: map[string]v1alpha1.LabelValue{"app": "web"}, Replicas: 1},
		}},
		Status: v1alpha1.ApplicationStatus{AskedAt: []string{"hamburg"}},
	}
	w.here.Put(app)
	request := &v1alpha1.Request{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("lubeck"), Name: offload.RequestName(app)},
		Spec:       v1alpha1.RequestSpec{Application: v1alpha1.RequestedApplication{UID: app.UID, Name: "shop/shop"}},
		Status: v1alpha1.RequestStatus{
			Phase: v1alpha1.RequestAcknowledged, Reserved: testkit.Quantities("cpu", "12"),
			Price: &v1alpha1.Price{Amount: resource.MustParse("1.2"), Currency: "EUR"},
			Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionAcknowledged, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(testkit.Noon),
			}},
		},
	}
	if err := w.there.Client.Create(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	link, _ := w.links.Links.Get("hamburg")
	mirror := link.Follow(peers.Requests, link.TenantNamespace())
	if err := mirror.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.provider.requestChanged(t.Context(), request, noQueue{})
	w.consumer.requestsAt(t.Context(), peers.Change{Link: link, Mirror: mirror}, peers.Queue[reconcile.Request]{TypedRateLimitingInterface: noQueue{}})
	w.runs("web", "6", testkit.Noon, func(home, remote *corev1.Pod) {
		home.Labels = map[string]string{"app": "web"}
		remote.Labels = map[string]string{v1alpha1.LabelRequest: request.Name}
	})
	w.runs("other", "12", testkit.Noon)
	w.periods(1)
	w.expect(" used 1 reserved  cost 0.12 EUR; shop/shop used 0.5 reserved 1 cost 0.1 EUR")
	w.expectBothAgree()

	w.provider.requestGone(t.Context(), request, noQueue{})
	if err := w.there.Client.Delete(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	w.consumer.requestsAt(t.Context(), peers.Change{Link: link, Mirror: mirror}, peers.Queue[reconcile.Request]{TypedRateLimitingInterface: noQueue{}})
	w.periods(2)
	w.expectBothAgree()
	if got := w.lent().Own().Entries; len(got) != 2 || got[1].Reserved["cpu"] != "1.3" || got[1].Used["cpu"] != "0.65" { // it ended after 1.5 minutes
		t.Errorf("entries %+v", got)
	}
}

func TestCountsThatDifferAreTold(t *testing.T) {
	w := newWorld(t)
	w.runs("web", "6", testkit.Noon)
	w.periods(1)
	w.expectBothAgree()
	w.EventReasons()

	edited := w.borrowed()
	edited.Spec.Entries[0].Used["cpu"] = "40"
	if err := w.here.Server.Update(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	w.periods(1)
	const figures = "cpu used is 40.5 by the consumer and 1 by the provider"
	w.expectAgreed(w.lent(), metav1.ConditionFalse, v1alpha1.ReasonCountsDiffer, figures)
	w.expectAgreed(w.borrowed(), metav1.ConditionFalse, v1alpha1.ReasonCountsDiffer, figures)
	w.ExpectEvents(v1alpha1.ReasonCountsDiffer, v1alpha1.ReasonCountsDiffer)
	w.periods(1)
	w.ExpectEvents() // it is known

	edited = w.borrowed()
	edited.Spec.Entries[0].Used["cpu"] = "1.5"
	if err := w.here.Server.Update(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	w.periods(1)
	w.expectBothAgree()
}

func TestRestartsLoseNothing(t *testing.T) {
	w := newWorld(t)
	began := testkit.Noon
	w.runs("web", "6", began)
	w.periods(1)
	w.start()
	w.runs("web", "6", began)
	w.periods(1)
	w.expect(" used 1 reserved  cost 0.12 EUR")

	w.start() // and for a while nothing runs, in which another pod begins
	w.Clock.Step(3 * DefaultPeriod)
	w.runs("web", "6", began)
	w.runs("more", "12", testkit.Noon.Add(4*DefaultPeriod))
	w.periods(1)
	w.expect(" used 5 reserved  cost 0.6 EUR")
	w.expectBothAgree()
}

func TestDaysAreApart(t *testing.T) {
	w := newWorld(t)
	w.Clock.SetTime(testkit.Noon.Add(12*time.Hour - DefaultPeriod + toCount))
	w.runs("web", "6", testkit.Noon.Add(12*time.Hour-DefaultPeriod))
	w.Clock.Step(DefaultPeriod) // a manager that was down at midnight counts both days
	w.periods(1)
	w.expect(" used 0.5 reserved  cost 0.06 EUR")
	w.expectBothAgree()
	tomorrow := &v1alpha1.Account{}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace("hamburg"), Name: v1alpha1.AccountName(v1alpha1.AccountBorrowed, w.Clock.Now())}
	if err := w.here.Server.Get(t.Context(), key, tomorrow); err != nil || inWords(tomorrow.Own()) != " used 0.5 reserved  cost 0.06 EUR" {
		t.Errorf("%v: %s", err, inWords(tomorrow.Own()))
	}

	w.ends("web")
	w.Clock.Step(v1alpha1.AccountRetention + 24*time.Hour)
	w.look()
	if w.borrowed().UID != "" || w.lent().UID != "" {
		t.Error("old Accounts are still there")
	}
}

func TestConfigIsValidated(t *testing.T) {
	for period, good := range map[time.Duration]bool{
		5 * time.Minute: true, 3 * time.Second: true, time.Hour: true,
		0: false, 7 * time.Minute: false, 1500 * time.Millisecond: false, 48 * time.Hour: false, -time.Minute: false,
	} {
		w := testkit.NewWorld(t)
		c := Config{
			Client: w.Home.Client, Links: &peers.Links{}, Events: events.NewFakeRecorder(1), Clock: w.Clock, ClusterID: "a", Key: lubeckKey, Period: period,
		}
		if err := c.Validate(); (err == nil) != good {
			t.Errorf("%s: %v", period, err)
		}
	}
}
