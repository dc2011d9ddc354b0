// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A change goes to the API server only if it changes what pods do: not with each message of each peer.
func TestAvailabilityThatMovesIsNotWritten(t *testing.T) {
	w := newWorld(t)
	for i := range 20 {
		name := fmt.Sprintf("shop-%d", i)
		w.update(namespace(name, nil), offloadingBy(name, v1alpha1.StrategyRemote, &v1alpha1.Placement{Prefer: v1alpha1.PreferPrice}))
	}
	var offers []*v1alpha1.Advertisement
	for i := range 100 {
		p := offerer{name: fmt.Sprintf("peer-%02d", i), cpu: "100", perHour: fmt.Sprintf("0.%02d", i+1)}
		offer := p.offer()
		w.update(offer, p.peer(), p.node())
		offers = append(offers, offer)
	}
	w.settleAll()
	if w.writes != 20 {
		t.Fatalf("%d writes, want one for each namespace", w.writes)
	}
	w.policies.asked = 0
	for round := range 50 {
		offer := offers[round]
		offer.Spec.Availability[corev1.ResourceCPU] = resource.MustParse(fmt.Sprint(99 - round))
		w.update(offer)
		w.controller.offloadings.queue.Add(everything)
		w.settleAll()
		w.clock.Step(10 * time.Millisecond)
	}
	if w.writes != 20 {
		t.Errorf("%d writes after availability has moved, want none", w.writes-20)
	}
	if w.policies.asked > 20 {
		t.Errorf("policies were asked %d times in half a second about 20 namespaces", w.policies.asked)
	}
}

func TestOneLookInAnInterval(t *testing.T) {
	w := newMarketWorld(t, v1alpha1.StrategyRemote, nil)
	w.settleAll()
	if w.policies.asked != 1 {
		t.Fatalf("asked %d times, want once", w.policies.asked)
	}
	w.clock.Step(400 * time.Millisecond)
	if after := w.reconcile(offloadingIn("shop")); after != 600*time.Millisecond || w.policies.asked != 1 {
		t.Errorf("the second look is after %s", after)
	}
	if after := w.reconcile(everything); after != 600*time.Millisecond {
		t.Errorf("the second look at everything is after %s", after)
	}
	w.clock.Step(600 * time.Millisecond)
	if after := w.reconcile(offloadingIn("shop")); after != 0 || w.policies.asked != 2 {
		t.Errorf("asked %d times, the next look is after %s", w.policies.asked, after)
	}
	if after := w.reconcile(everything); after != lookAgain {
		t.Errorf("all is looked at again after %s, since policies may depend on the time", after)
	}
}

func TestTheMarketIsReadOnceForAllNamespaces(t *testing.T) {
	w := newMarketWorld(t, v1alpha1.StrategyRemote, nil)
	w.update(namespace("bank", nil), offloadingBy("bank", v1alpha1.StrategyRemote, nil))
	w.settleAll()
	market := w.controller.offloadings.market
	w.clock.Step(time.Second)
	w.reconcile(offloadingIn("shop"))
	w.reconcile(offloadingIn("bank"))
	if w.controller.offloadings.market != market {
		t.Error("a look at one namespace reads all offers anew")
	}
}

func TestNamespacesThatAreGoneAreForgotten(t *testing.T) {
	w := newMarketWorld(t, v1alpha1.StrategyRemote, nil)
	w.settleAll()
	if err := w.home.Delete(t.Context(), w.offloading("shop")); err != nil {
		t.Fatal(err)
	}
	w.reconcile(offloadingIn("shop"))
	if _, known := w.controller.offloadings.pace[offloadingIn("shop")]; known {
		t.Error("a namespace that is gone is remembered")
	}
}

func TestWhatIsLookedAt(t *testing.T) {
	heartbeat := func(ad *v1alpha1.Advertisement) {
		ad.Spec.Sequence, ad.Spec.Timestamp = 2, metav1.NewTime(ad.Spec.Timestamp.Add(time.Minute))
		ad.Spec.TimeToLive = metav1.NewTime(ad.Spec.TimeToLive.Add(time.Minute))
	}
	for name, test := range map[string]struct {
		predicate predicate.Predicate
		object    client.Object
		change    func(client.Object)
		want      bool
	}{
		"a heartbeat": {offerChanged, bremen.offer(), func(o client.Object) { heartbeat(o.(*v1alpha1.Advertisement)) }, false},
		"availability": {offerChanged, bremen.offer(), func(o client.Object) {
			o.(*v1alpha1.Advertisement).Spec.Availability[corev1.ResourceCPU] = resource.MustParse("1")
		}, true},
		"prices": {offerChanged, bremen.offer(), func(o client.Object) { o.(*v1alpha1.Advertisement).Spec.Prices = nil }, true},
		"an offer that has expired": {offerChanged, bremen.offer(), func(o client.Object) {
			o.(*v1alpha1.Advertisement).Status.Conditions[0].Status = metav1.ConditionFalse
		}, true},
		"a peer that is farther away": {distanceChanged, bremen.peer(), func(o client.Object) {
			o.(*v1alpha1.Peer).Status.RoundTripTime = nil
		}, true},
		"a peer to which something is lost": {distanceChanged, bremen.peer(), func(o client.Object) {
			o.(*v1alpha1.Peer).Status.LossPercent = new(int32)
		}, true},
		"a peer with another bandwidth": {distanceChanged, bremen.peer(), func(o client.Object) {
			o.(*v1alpha1.Peer).Status.Bandwidth = resource.NewQuantity(1, resource.DecimalSI)
		}, true},
		"a peer with another throughput": {distanceChanged, bremen.peer(), func(o client.Object) {
			o.(*v1alpha1.Peer).Status.Throughput = resource.NewQuantity(1, resource.DecimalSI)
		}, true},
		"a peer's session": {distanceChanged, bremen.peer(), func(o client.Object) {
			o.(*v1alpha1.Peer).Status.Session = &v1alpha1.SessionStatus{}
		}, false},
		"a peer that is known to be who it says": {trustChanged, bremen.peer(), func(o client.Object) {
			meta.SetStatusCondition(&o.(*v1alpha1.Peer).Status.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionAuthenticated, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPending,
			})
		}, true},
		"the way to a peer": {trustChanged, bremen.peer(), func(o client.Object) { o.(*v1alpha1.Peer).Status.RoundTripTime = nil }, false},
		"the heartbeat of a node": {virtualNodeChanged, bremen.node(), func(o client.Object) {
			o.(*corev1.Node).Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
		}, false},
		"the labels of a node": {virtualNodeChanged, bremen.node(), func(o client.Object) { o.GetLabels()["x"] = "y" }, true},
		"a node that closes":   {virtualNodeChanged, bremen.node(), func(o client.Object) { o.(*corev1.Node).Spec.Unschedulable = true }, true},
		"a namespace's label":  {metadataChanged, namespace("shop", nil), func(o client.Object) { o.SetLabels(map[string]string{"a": "b"}) }, true},
		"a namespace's end": {metadataChanged, namespace("shop", nil), func(o client.Object) {
			o.(*corev1.Namespace).Status.Phase = corev1.NamespaceTerminating
		}, false},
		"what the user asks for": {offloadingChanged, offloadingBy("shop", "", nil), func(o client.Object) { o.SetGeneration(2) }, true},
		"a status that somebody else writes": {offloadingChanged, offloadingBy("shop", "", nil), func(o client.Object) {
			o.(*v1alpha1.NamespaceOffloading).Status.Placement = &v1alpha1.NamespacePlacementStatus{}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			after := test.object.DeepCopyObject().(client.Object)
			test.change(after)
			if got := test.predicate.Update(event.UpdateEvent{ObjectOld: test.object, ObjectNew: after}); got != test.want {
				t.Errorf("is looked at: %t", got)
			}
		})
	}
}
