// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// second is another consumer.
func (w *world) second(name string, change func(*v1alpha1.Peer)) *v1alpha1.Peer {
	w.Helper()
	peer := testkit.Peer(name, v1alpha1.RoleConsumer)
	peer.Spec.ClusterID = name
	if change != nil {
		change(peer)
	}
	w.Home.Put(peer)
	return peer
}

// publish has the publisher look at the peer, and returns what the peer is told; nil is nothing.
func (w *world) publish(peer string) *v1alpha1.Advertisement {
	w.Helper()
	w.Reconcile(w.publisher, "", peer)
	ad := w.about(peer, here)
	if ad != nil {
		w.publisher.capacity.take(ad, false) // as the informer does
	}
	return ad
}

// answers writes what the consumer answers to our advertisement.
func (w *world) answers(ad *v1alpha1.Advertisement, state v1alpha1.AcknowledgementState) {
	w.Helper()
	ad = ad.DeepCopy()
	ad.Status.Acknowledgement = &v1alpha1.Acknowledgement{State: state, Reason: string(state), Sequence: ad.Spec.Sequence}
	w.Home.Put(ad)
	w.publisher.capacity.take(ad, false)
}

func TestHostsOfIngressesAreOffered(t *testing.T) {
	w := newWorld(t)
	w.node("a", "4")
	w.second("kiel", func(peer *v1alpha1.Peer) {
		peer.Spec.Ingress = &v1alpha1.PeerIngress{Hosts: []string{"*.example.org"}, ClassName: "public"}
	})
	w.second("wismar", func(peer *v1alpha1.Peer) { peer.Spec.Ingress = &v1alpha1.PeerIngress{ClassName: "public"} })
	w.expect(&v1alpha1.IngressOffer{Hosts: []string{"*.example.org"}, ClassName: "public"}, w.publish("kiel").Spec.Ingress)
	w.expect((*v1alpha1.IngressOffer)(nil), w.publish("wismar").Spec.Ingress)
}

func TestGuaranteeIsLockedFromAcceptanceOn(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	guaranteed := w.second("kiel", func(peer *v1alpha1.Peer) {
		peer.Spec.Guarantee = testkit.Quantities("cpu", "3", "memory", "-1")
	})
	w.node("a", "4")
	offeredTo := func(peer string) string {
		t.Helper()
		w.Clock.Step(2 * time.Second)
		cpu := w.publish(peer).Spec.Availability[corev1.ResourceCPU]
		return cpu.String()
	}
	w.publish("hamburg")
	first := w.publish("kiel")
	w.expect(testkit.Quantities("cpu", "3"), first.Spec.Guarantee)
	w.expect("4", offeredTo("hamburg"))
	expectSignal := func(want bool) {
		t.Helper()
		select {
		case <-w.publisher.capacity.changed:
			w.expect(want, true)
		default:
			w.expect(want, false)
		}
	}
	<-signalOnce(w)

	for _, step := range []struct {
		state         v1alpha1.AcknowledgementState
		signal        bool
		hamburg, kiel string
	}{
		{v1alpha1.AcknowledgementPending, false, "4", "4"},
		{v1alpha1.AcknowledgementAccepted, true, "1", "4"},
		{v1alpha1.AcknowledgementAccepted, false, "1", "4"},
		{v1alpha1.AcknowledgementRefused, true, "4", "4"},
		{v1alpha1.AcknowledgementAccepted, true, "1", "4"},
	} {
		w.answers(w.publish("kiel"), step.state)
		expectSignal(step.signal)
		w.expect(step.hamburg, offeredTo("hamburg"))
		w.expect(step.kiel, offeredTo("kiel"))
	}

	// What the consumer uses of it is not taken off again.
	w.pod("used", "kiel", "2")
	w.expect("1", offeredTo("hamburg"))
	w.expect("4", offeredTo("kiel"))

	// It is released with the offer.
	guaranteed.Spec.Roles = nil
	w.Home.Put(guaranteed)
	told := &v1alpha1.Advertisement{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("kiel"), Name: here}}
	w.expect((*v1alpha1.Advertisement)(nil), w.publish("kiel"))
	w.publisher.capacity.take(toolscache.DeletedFinalStateUnknown{Obj: told}, true)
	w.expect("2", offeredTo("hamburg"))
}

func TestGuaranteeIsWhatAReceiverBelieves(t *testing.T) {
	for name, test := range map[string]struct{ set, want corev1.ResourceList }{
		"none":          {nil, nil},
		"nothing of it": {testkit.Quantities("cpu", "0", "memory", "-1"), nil},
		"some":          {testkit.Quantities("cpu", "1500m"), testkit.Quantities("cpu", "1500m")},
		"too much":      {testkit.Quantities("cpu", "1e12"), testkit.Quantities("cpu", "1e8")},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{World: &testkit.World{TB: t}}
			w.expect(test.want, guaranteeOf(&v1alpha1.Peer{Spec: v1alpha1.PeerSpec{Guarantee: test.set}}))
		})
	}
}

// provider puts the copy of a provider's offer into our cluster, as the receiver does.
func (w *world) provider(id string, change func(*v1alpha1.Advertisement)) *v1alpha1.Advertisement {
	ad := &v1alpha1.Advertisement{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(id), Name: id},
		Spec:       w.offer(1, func(spec *v1alpha1.AdvertisementSpec) { spec.ClusterID = id }),
	}
	ad.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "Accepted"}}
	if change != nil {
		change(ad)
	}
	w.publisher.capacity.take(ad, false)
	return ad
}

func TestOffersOfProvidersArePassedOn(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Aggregate, c.AggregateShare = true, 10 })
	w.peer(v1alpha1.RoleConsumer)
	w.node("a", "4")
	bremen := w.provider("bremen", func(ad *v1alpha1.Advertisement) {
		ad.Spec.Prices = &v1alpha1.Prices{Currency: "EUR", PerHour: testkit.Quantities("cpu", "0.02")}
	})
	w.provider("hamburg", nil) // the receiver itself
	w.provider("lost", func(ad *v1alpha1.Advertisement) { ad.Status.Conditions = nil })
	w.provider("private", func(ad *v1alpha1.Advertisement) {
		ad.Spec.Flags = map[string]v1alpha1.Text{v1alpha1.FlagAggregatable: "false"}
	})
	w.reconcile(w.publisher)
	spec := w.ours().Spec
	w.expect(v1alpha1.Text("true"), spec.Flags[v1alpha1.FlagAggregated])
	w.expect([]v1alpha1.NestedOffer{{
		ClusterID: "bremen", Availability: bremen.Spec.Availability,
		Prices: &v1alpha1.Prices{Currency: "EUR", PerHour: testkit.Quantities("cpu", "0.022")},
	}}, spec.Nested)

	// A renewal by the provider is none of ours, and a large change is a new term.
	small := bremen.DeepCopy()
	small.Spec.Sequence++
	small.Spec.Availability = testkit.Quantities("cpu", "3900m", "memory", "8Gi", "pods", "10", "ephemeral-storage", "0")
	w.publisher.capacity.take(small, false)
	w.Clock.Step(2 * time.Second)
	w.expectWrites(0, w.publisher)
	large := small.DeepCopy()
	large.Spec.Availability[corev1.ResourceCPU] = resource.MustParse("2")
	w.publisher.capacity.take(large, false)
	w.Clock.Step(2 * time.Second)
	w.expectWrites(1, w.publisher)
	w.expect(large.Spec.Availability, w.ours().Spec.Nested[0].Availability)
	w.expect(w.ours().Spec.Sequence, w.ours().Spec.FullSequence)

	// One that is not accepted any more, or is gone, is not passed on.
	w.publisher.capacity.take(large, true)
	w.Clock.Step(2 * time.Second)
	w.expectWrites(1, w.publisher)
	w.expect(0, len(w.ours().Spec.Nested))
}

func TestNothingIsPassedOnUnasked(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	w.provider("bremen", nil)
	w.reconcile(w.publisher)
	w.expect(0, len(w.ours().Spec.Nested))
}

func TestAdvertisementsElsewhereAreNone(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Aggregate = true })
	for _, name := range []string{here, "bremen"} {
		ad := &v1alpha1.Advertisement{ObjectMeta: metav1.ObjectMeta{Namespace: "users", Name: name}}
		ad.Spec.Guarantee = testkit.Quantities("cpu", "1")
		ad.Status.Acknowledgement = &v1alpha1.Acknowledgement{State: v1alpha1.AcknowledgementAccepted}
		ad.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue}}
		w.expect(false, w.publisher.capacity.takeAd(ad, false))
		w.expect(false, w.publisher.capacity.takeAd(ad, true))
	}
	there := w.publisher.capacity.look()
	w.expect(0, len(there.guaranteed)+len(there.offers))
}

func TestWrongSettingsAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"full":    func(c *Config) { c.FullInterval = time.Minute },
		"share":   func(c *Config) { c.AggregateShare = -1 },
		"renewal": func(c *Config) { c.SilenceTimeout = c.RenewInterval },
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{ClusterID: here, Namespace: "hanse-system"}
			config.Default()
			if err := config.Validate(); err != nil {
				t.Fatal(err)
			}
			change(&config)
			if err := config.Validate(); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("error %v", err)
			}
		})
	}
	config := Config{RenewInterval: time.Second}
	config.Default()
	if config.SilenceTimeout != 3*time.Second {
		t.Errorf("timeout %s", config.SilenceTimeout)
	}
}

// The sum that is made once for all says the same as what is computed for each.
func TestLocksAreTheSumOfTheGuarantees(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		w := &world{World: &testkit.World{TB: t}}
		config := Config{ClusterID: here}
		w.publisher = &Publisher{config: config, capacity: newCapacity(&config, nil)}
		w.node("a", fmt.Sprint(1+random.IntN(10)))
		guaranteed := map[string]corev1.ResourceList{}
		for i := range 3 {
			peer := fmt.Sprint("peer-", i)
			guaranteed[peer] = corev1.ResourceList{
				corev1.ResourceCPU:                     *resource.NewMilliQuantity(random.Int64N(4000), resource.DecimalSI),
				corev1.ResourceName("example.com/gpu"): *resource.NewQuantity(random.Int64N(2), resource.DecimalSI),
			}
			w.pod(fmt.Sprint("pod-", i), peer, fmt.Sprintf("%dm", random.IntN(4000)))
		}
		delete(guaranteed, "peer-2")
		w.pod("own", "", fmt.Sprintf("%dm", random.IntN(4000))) // nobody's guarantee is for pods of the cluster's own users
		capacity := w.publisher.capacity.look().Capacity
		locks := locksOf(capacity, guaranteed, nil)
		for i := range 4 {
			peer := fmt.Sprint("peer-", i)
			want := capacity.Availability(peer, exchange.Claims{Guarantee: guaranteed[peer], Others: guaranteed})
			got := capacity.Availability(peer, exchange.Claims{Guarantee: guaranteed[peer], Others: locks.against(peer)})
			if !equality.Semantic.DeepEqual(want, got) {
				t.Fatalf("%s is offered %v, want %v", peer, got, want)
			}
		}
	}
}
