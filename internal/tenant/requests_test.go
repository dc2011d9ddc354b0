// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/policy"
	"github.com/hanse-dev/hanse/internal/testkit"
	"github.com/hanse-dev/hanse/internal/trust"
)

const ourID = "hamburg-id"

// counter is a world in which lubeck asks for reservations, beside the pods of a stage. Of cpu there are 4 cores.
type counter struct {
	*stage
	requests *requestReconciler
	said     int64 // how many statements lubeck has signed
}

func newCounter(t *testing.T, of *v1alpha1.Peer, objects ...client.Object) *counter {
	t.Helper()
	offer := &v1alpha1.Advertisement{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(of.Name), Name: ourID},
		Spec: v1alpha1.AdvertisementSpec{Prices: &v1alpha1.Prices{
			Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse("0.01")},
		}},
	}
	c := &counter{stage: newStageOf(t, of, append(objects, offer)...)}
	c.room.ledger = newRoom("4").ledger
	c.requests = c.start()
	return c
}

// start starts a controller of Requests that knows what the one of pods knows.
func (c *counter) start() *requestReconciler {
	cfg := c.config()
	cfg.ClusterID = ourID
	return newRequestReconciler(cfg, c.Home.Client, c.Home.Server, c.pods.ledger)
}

// ask puts a Request for so much cpu, and has it answered.
func (c *counter) ask(name, cpu string, change ...func(*v1alpha1.Request)) *v1alpha1.Request {
	c.Helper()
	c.put(name, cpu, change...)
	return c.look(name)
}

func (c *counter) put(name, cpu string, change ...func(*v1alpha1.Request)) {
	c.Helper()
	request := &v1alpha1.Request{}
	c.Home.Find(request, v1alpha1.TenantNamespace("lubeck"), name)
	request.Namespace, request.Name, request.UID = v1alpha1.TenantNamespace("lubeck"), name, types.UID("request-"+name)
	request.Generation++
	request.Spec = v1alpha1.RequestSpec{
		Application:    v1alpha1.RequestedApplication{UID: "app-1", Name: "shop"},
		Components:     []v1alpha1.RequestedComponent{{Name: "web", Replicas: 1, Resources: testkit.Quantities("cpu", cpu)}},
		ExpirationTime: metav1.NewTime(c.Clock.Now().Add(time.Hour)),
	}
	for _, change := range change {
		change(request)
	}
	if request.Spec.Signed == nil {
		request.Spec.Signed = c.signsFor(request, trust.Request, exchange.RequestToSign(request))
	}
	c.Home.Put(request)
}

// signs has lubeck sign what it asks, for an hour unless that is changed.
func (c *counter) signs(kind trust.StatementType, body any, changes ...func(*trust.Statement)) *v1alpha1.SignedStatement {
	c.Helper()
	return c.signsWith(lubeckKey, kind, body, changes...)
}

func (c *counter) signsWith(
	key ed25519.PrivateKey, kind trust.StatementType, body any, changes ...func(*trust.Statement),
) *v1alpha1.SignedStatement {
	c.Helper()
	c.said++
	said := trust.Statement{
		Type: kind, From: "lubeck-id", To: ourID, Sequence: c.Clock.Now().UnixNano() + c.said, Expires: c.Clock.Now().Add(time.Hour),
	}
	for _, change := range changes {
		change(&said)
	}
	signed, err := trust.SignStatement(key, said, body)
	if err != nil {
		c.Fatal(err)
	}
	return signed
}

// look has the controller look at the Request, and returns what there is of it then.
func (c *counter) look(name string) *v1alpha1.Request {
	c.Helper()
	c.Reconcile(c.requests, v1alpha1.TenantNamespace("lubeck"), name)
	request := &v1alpha1.Request{}
	c.Home.Find(request, v1alpha1.TenantNamespace("lubeck"), name)
	return request
}

func (c *counter) expect(request *v1alpha1.Request, phase v1alpha1.RequestPhase, reserved, reason, words string) {
	c.Helper()
	status, found := request.Status, &metav1.Condition{}
	if f := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAcknowledged); f != nil {
		found = f
	}
	cpu := status.Reserved[corev1.ResourceCPU]
	if status.Phase != phase || cpu.String() != reserved || found.Reason != reason || !strings.Contains(found.Message, words) {
		c.Errorf("%s %s: %s: %s, want %s %s: %s: %s", status.Phase, cpu.String(), found.Reason, found.Message, phase, reserved, reason, words)
	}
	if (found.Status == metav1.ConditionTrue) != (reason == v1alpha1.ReasonReserved) {
		c.Errorf("condition Acknowledged is %s", found.Status)
	}
	if meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) != (phase == v1alpha1.RequestAcknowledged) {
		c.Errorf("Ready: %+v", status.Conditions)
	}
}

// fits says whether one more pod of the peer that names the Request gets room.
func (c *counter) fits(peer, request, cpu string) bool {
	who := of(peer, "probe")
	who.request = request
	short := c.pods.ledger.reserve(who, testkit.Quantities("cpu", cpu), nil)
	c.pods.ledger.leave(who.NamespacedName)
	return short == nil
}

func TestAcknowledgedIsReserved(t *testing.T) {
	c := newCounter(t, peer())
	got := c.ask("shop", "3")
	c.expect(got, v1alpha1.RequestAcknowledged, "3", v1alpha1.ReasonReserved, "is reserved")
	if price := got.Status.Price; price == nil || price.Amount.String() != "30m" || price.Currency != "EUR" {
		t.Errorf("the price is %+v", price)
	}
	if until := got.Status.ValidUntil; !until.Equal(&got.Spec.ExpirationTime) {
		t.Errorf("it is valid until %s", until)
	}
	for _, test := range []struct {
		peer, request, cpu string
		want               bool
	}{
		{"kiel", "", "1", true},
		{"kiel", "", "1001m", false},
		{"kiel", "shop", "1001m", false},
		{"lubeck", "", "1001m", false},
		{"lubeck", "shop", "3", true},
		{"lubeck", "shop", "4", true},
	} {
		if c.fits(test.peer, test.request, test.cpu) != test.want {
			t.Errorf("%+v", test)
		}
	}
}

func TestEachVersionOfARequestIsAnsweredOnce(t *testing.T) {
	c := newCounter(t, peer())
	c.expect(c.ask("shop", "3"), v1alpha1.RequestAcknowledged, "3", v1alpha1.ReasonReserved, "")
	c.expect(c.ask("stock", "2"), v1alpha1.RequestRefused, "0", v1alpha1.ReasonNoRoom, "asks for 2 of cpu, and the provider has 1 too little")
	c.Home.Writes()
	c.look("shop")
	c.Home.ExpectWrites()
	c.expect(c.ask("shop", "5"), v1alpha1.RequestAcknowledged, "3", v1alpha1.ReasonNoRoom, "What was acknowledged before stays reserved")
	c.expect(c.ask("shop", "4"), v1alpha1.RequestAcknowledged, "4", v1alpha1.ReasonReserved, "")
	c.expect(c.ask("shop", "1"), v1alpha1.RequestAcknowledged, "1", v1alpha1.ReasonReserved, "")
	c.expect(c.look("stock"), v1alpha1.RequestRefused, "0", v1alpha1.ReasonNoRoom, "") // who was refused has gone elsewhere
	c.expect(c.ask("stock", "2"), v1alpha1.RequestAcknowledged, "2", v1alpha1.ReasonReserved, "")
}

func TestWhyARequestIsRefused(t *testing.T) {
	cordoned := func() *v1alpha1.Peer {
		p := peer()
		p.Spec.Access = v1alpha1.AccessCordoned
		return p
	}
	for name, test := range map[string]struct {
		peer   *v1alpha1.Peer
		change func(*v1alpha1.Request)
		reason string
		words  string
	}{
		"no room":  {reason: v1alpha1.ReasonNoRoom, change: func(r *v1alpha1.Request) { r.Spec.Components[0].Replicas = 10000 }},
		"a limit":  {peer: limited("cpu", "1"), reason: v1alpha1.ReasonLimitExceeded, words: "limit of 1"},
		"cordoned": {peer: cordoned(), reason: v1alpha1.ReasonPeerCordoned},
		"too late": {reason: v1alpha1.ReasonInvalidExpirationTime, words: "spec.expirationTime", change: func(r *v1alpha1.Request) {
			r.Spec.ExpirationTime.Time = r.Spec.ExpirationTime.Add(-2 * time.Hour)
		}},
		"too dear": {reason: v1alpha1.ReasonTooExpensive, words: "spec.maxPrice", change: func(r *v1alpha1.Request) {
			r.Spec.MaxPrice = &v1alpha1.Price{Amount: resource.MustParse("0.001"), Currency: "EUR"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			of := test.peer
			if of == nil {
				of = peer()
			}
			c := newCounter(t, of)
			change := test.change
			if change == nil {
				change = func(*v1alpha1.Request) {}
			}
			c.expect(c.ask("shop", "2", change), v1alpha1.RequestRefused, "0", test.reason, test.words)
			if !c.fits("kiel", "", "4") {
				t.Error("something is locked all the same")
			}
		})
	}
}

func TestNothingIsReservedForAPeerWithoutAnOffer(t *testing.T) {
	c := newCounter(t, peer())
	c.requests.config.ClusterID = "another"
	c.expect(c.ask("shop", "2"), v1alpha1.RequestRefused, "0", v1alpha1.ReasonNotOffered, "Advertisement")
}

func TestPoliciesDecideAboutRequests(t *testing.T) {
	c := newCounter(t, peer())
	set, err := policy.Compile(policy.Request, []policy.Module{{Name: "test/test.rego", Source: `package hanse.request
deny contains "too much at once" if input.request.cpu > 2
deny contains "too long" if input.reservation.components[_].replicas > 5
deny contains "too dear" if input.price.amount > 1
deny contains "not you" if not input.peer.name == "lubeck"`}})
	if err != nil {
		t.Fatal(err)
	}
	c.policies = fakePolicies{set: set, question: policy.Request}
	c.expect(c.ask("shop", "2"), v1alpha1.RequestAcknowledged, "2", v1alpha1.ReasonReserved, "")
	c.expect(c.ask("stock", "2500m"), v1alpha1.RequestRefused, "0", v1alpha1.ReasonRefusedByPolicy, "refuse the Request: too much at once")
	c.policies.err = errors.New("broken")
	c.expect(c.ask("late", "1"), v1alpha1.RequestPending, "0", v1alpha1.ReasonPolicyFailed, "asks them again")
	c.policies.err = nil
	c.expect(c.look("late"), v1alpha1.RequestAcknowledged, "1", v1alpha1.ReasonReserved, "")
}

func TestLimitsCountWhatIsReserved(t *testing.T) {
	c := newCounter(t, limited("cpu", "3"), asking("free", "1"))
	c.expect(c.ask("shop", "2"), v1alpha1.RequestAcknowledged, "2", v1alpha1.ReasonReserved, "")
	c.expect(c.ask("stock", "1500m"), v1alpha1.RequestRefused, "0", v1alpha1.ReasonLimitExceeded, "1500m of cpu")
	c.runOf("free")
	if !c.has("free") {
		t.Fatal("a pod without a Request has no room within the limit")
	}
	second, own := asking("second", "100m"), asking("own", "2")
	own.Spec.Request = "shop"
	c.Home.Put(second)
	c.Home.Put(own)
	c.runOf("second")
	c.expectHeld("second", v1alpha1.ReasonLimitExceeded)
	c.runOf("own")
	if !c.has("own") {
		t.Fatal("a pod of the Request has no room")
	}
	*c.woken = nil
	c.changes("own", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })
	c.runOf("own")
	if len(*c.woken) > 0 {
		t.Errorf("what the pod leaves is still reserved, and %v were called", *c.woken)
	}
	c.Home.Remove(&v1alpha1.Request{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("lubeck"), Name: "shop"}})
	c.look("shop")
	if fmt.Sprint(*c.woken) != "[second]" {
		t.Errorf("after the release %v were called", *c.woken)
	}
}

func TestPodsUseTheirReservation(t *testing.T) {
	web := asking("web", "1")
	web.Spec.Request = "shop"
	c := newCounter(t, peer(), web)
	c.ask("shop", "3")
	c.runOf("web")
	pod := &corev1.Pod{}
	if !c.Home.Find(pod, c.twin, "web") || pod.Labels[v1alpha1.LabelRequest] != "shop" {
		t.Fatalf("the labels of the pod are %v", pod.Labels)
	}
	used := c.look("shop").Status.Used
	if cpu := used[corev1.ResourceCPU]; cpu.String() != "1" {
		t.Errorf("used are %v", used)
	}
	if c.fits("kiel", "", "1001m") || !c.fits("kiel", "", "1") {
		t.Error("what the pod uses is locked besides, or not at all")
	}
	// A manager that starts anew counts the pod by its label.
	again := newShadowPodReconciler(c.config(), c.Home.Client, c.Home.Server, c.Home.Server)
	again.queue = c.woken
	again.podChanged(t.Context(), pod)
	if cpu := again.ledger.usedBy(requestKey{"lubeck", "shop"})[corev1.ResourceCPU]; cpu.String() != "1" {
		t.Errorf("after a restart %s are used", cpu.String())
	}
}

func TestWhatWaitsForItsRequestIsCalled(t *testing.T) {
	web := asking("web", "3")
	web.Spec.Request = "shop"
	c := newCounter(t, peer(), web)
	c.room.guarantee("kiel", "2")
	c.runOf("web")
	c.expectHeld("web", v1alpha1.ReasonNoRoom)
	c.room.guarantee("kiel", "0")
	*c.woken = nil
	c.ask("shop", "3")
	if fmt.Sprint(*c.woken) != "[web]" {
		t.Errorf("%v were called", *c.woken)
	}
}

// The end of a reservation leaves its pods alone, and gives others what they do not hold.
func TestReservationEnds(t *testing.T) {
	for name, test := range map[string]struct {
		end   func(*counter)
		phase v1alpha1.RequestPhase
		why   string
	}{
		"in time": {func(c *counter) { c.Clock.Step(time.Hour) }, v1alpha1.RequestExpired, v1alpha1.ReasonExpired},
		"with its deletion": {func(c *counter) {
			c.Home.Remove(&v1alpha1.Request{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("lubeck"), Name: "shop"}})
		}, "", ""},
		"when the peer is no consumer any more": {func(c *counter) {
			p := &v1alpha1.Peer{}
			c.Home.Find(p, "", "lubeck")
			p.Spec.Roles = nil
			c.Home.Put(p)
		}, v1alpha1.RequestExpired, v1alpha1.ReasonParting},
	} {
		t.Run(name, func(t *testing.T) {
			web := asking("web", "1")
			web.Spec.Request = "shop"
			c := newCounter(t, peer(), web)
			c.ask("shop", "3")
			c.runOf("web")
			test.end(c)
			if got := c.look("shop"); got.Name != "" {
				c.expect(got, test.phase, "0", test.why, "")
			}
			if !c.fits("kiel", "", "3") {
				t.Error("others do not get what is left")
			}
			if !c.has("web") {
				t.Error("its pod has ended")
			}
		})
	}
}

// Only the manager writes the status. If somebody else has broken it, nothing is reserved for ever.
func TestReservationWithoutAnEndIsOver(t *testing.T) {
	c := newCounter(t, peer())
	broken := c.ask("shop", "3")
	broken.Status.ValidUntil = nil
	c.Home.Put(broken)
	c.expect(c.look("shop"), v1alpha1.RequestExpired, "0", v1alpha1.ReasonExpired, "")
	if !c.fits("kiel", "", "4") {
		t.Error("something is still locked")
	}
}

func TestReservationIsRenewed(t *testing.T) {
	c := newCounter(t, peer())
	c.ask("shop", "4")
	c.Clock.Step(59 * time.Minute)
	c.expect(c.ask("shop", "4"), v1alpha1.RequestAcknowledged, "4", v1alpha1.ReasonReserved, "")
	c.Clock.Step(59 * time.Minute)
	c.expect(c.look("shop"), v1alpha1.RequestAcknowledged, "4", v1alpha1.ReasonReserved, "")
	c.Clock.Step(time.Minute)
	c.expect(c.look("shop"), v1alpha1.RequestExpired, "0", v1alpha1.ReasonExpired, "move spec.expirationTime on")
	c.expect(c.ask("shop", "4"), v1alpha1.RequestAcknowledged, "4", v1alpha1.ReasonReserved, "")
}

// What is given back is others' only when the status says so: after a restart, the status is what counts.
func TestStatusComesBeforeTheRelease(t *testing.T) {
	c := newCounter(t, peer())
	c.ask("shop", "4")
	broken := errors.New("broken")
	c.Home.Refuse("patch/status Request", broken)
	for name, change := range map[string]func(){
		"less": func() { c.put("shop", "1") },
		"over": func() { c.Clock.Step(2 * time.Hour) },
	} {
		change()
		if _, err := c.requests.Reconcile(t.Context(), testkit.Request(v1alpha1.TenantNamespace("lubeck"), "shop")); !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
		if c.fits("kiel", "", "1") {
			t.Errorf("%s: another has what the status says is reserved", name)
		}
	}
}

// Many Requests of many peers at once, with pods between them, come to no more than there is.
func TestNothingIsSoldTwice(t *testing.T) {
	r := newRoom("4")
	l := ledgerIn(r)
	var group sync.WaitGroup
	var mu sync.Mutex
	sold := 0
	for i := range 200 {
		group.Go(func() {
			peer, name := fmt.Sprint("peer-", i%5), fmt.Sprint("request-", i)
			if i%4 == 0 {
				if l.reserve(of(peer, name), testkit.Quantities("cpu", "100m"), nil) != nil {
					return
				}
			} else if l.acknowledge(requestKey{peer, name}, testkit.Quantities("cpu", "100m"), nil, nil) != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			sold++
		})
	}
	group.Wait()
	// Until the first Request is acknowledged, a pod may wait for more than there is.
	if sold < 40 || sold > 41 {
		t.Errorf("%d tenths of a core were sold, of 40", sold)
	}
}
