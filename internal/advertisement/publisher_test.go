// SPDX-License-Identifier: Apache-2.0

package advertisement

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/exchange"
	"github.com/hanse-dev/hanse/internal/testkit"
)

func (w *world) node(name, cpu string) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyRegion: "north"}},
		Spec:       corev1.NodeSpec{PodCIDR: "10.244.1.0/24"},
		Status: corev1.NodeStatus{
			Allocatable: testkit.Quantities("cpu", cpu, "memory", "8Gi", "pods", "10", "ephemeral-storage", "10Gi"),
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Images:      []corev1.ContainerImage{{Names: []string{"echo:1"}, SizeBytes: 7}},
			NodeInfo:    corev1.NodeSystemInfo{Architecture: "amd64", KubeletVersion: "v1.37.1"},
		},
	}
	w.publisher.capacity.take(node, false)
	return node
}

func (w *world) pod(name, peer, cpu string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.twin(peer), Name: name},
		Spec: corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: testkit.Quantities("cpu", cpu)},
		}}},
	}
	w.publisher.capacity.take(pod, false)
	return pod
}

func (w *world) prices(data map[string]string) *corev1.ConfigMap {
	setting := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "hanse-system", Name: PricesConfigMap}, Data: data}
	w.Home.Put(setting)
	return setting
}

func TestConsumerIsToldTheWholeOffer(t *testing.T) {
	w := newWorld(t)
	peer := w.peer(v1alpha1.RoleConsumer)
	w.node("a", "4")
	w.pod("local", "", "1")
	w.network(&exchange.OwnNetwork{Network: v1alpha1.Network{PodCIDRs: []v1alpha1.CIDR{"10.244.0.0/16"}}})
	w.prices(map[string]string{"currency": "EUR", "cpu": "0.02"})

	w.expectWrites(1, w.publisher)

	w.expect(v1alpha1.AdvertisementSpec{
		ClusterID:         here,
		Sequence:          testkit.Noon.UnixMilli(),
		FullSequence:      testkit.Noon.UnixMilli(),
		Phase:             v1alpha1.OfferOpen,
		Timestamp:         metav1.NewTime(testkit.Noon.Local()),
		TimeToLive:        metav1.NewTime(testkit.Noon.Add(30 * time.Minute).Local()),
		Availability:      testkit.Quantities("cpu", "3", "memory", "8Gi", "pods", "9", "ephemeral-storage", "10Gi"),
		LargestPod:        testkit.Quantities("cpu", "3", "memory", "8Gi", "ephemeral-storage", "10Gi"),
		Images:            []v1alpha1.Image{{Names: []string{"echo:1"}, SizeBytes: 7}},
		Prices:            &v1alpha1.Prices{Currency: "EUR", PerHour: testkit.Quantities("cpu", "0.02")},
		Network:           &v1alpha1.Network{PodCIDRs: []v1alpha1.CIDR{"10.244.0.0/16"}},
		Labels:            map[string]v1alpha1.Text{corev1.LabelTopologyRegion: "north"},
		Architectures:     []string{"amd64"},
		KubernetesVersion: "v1.37.1",
	}, w.ours().Spec)
	w.expect(peer.Name, w.ours().Labels[v1alpha1.LabelPeer])
	w.expect(peer.Name, w.ours().OwnerReferences[0].Name)

	w.expectWrites(0, w.publisher)
}

// What we publish is what a receiver accepts, whatever the cluster looks like.
func TestOurOwnOfferWouldBeAccepted(t *testing.T) {
	for name, arrange := range map[string]func(*world){
		"a cluster without nodes": func(*world) {},
		"a node":                  func(w *world) { w.node("a", "4") },
		"absurd nodes":            func(w *world) { w.node("a", "1e9"); w.node("b", "1e12") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.peer(v1alpha1.RoleConsumer)
			arrange(w)
			w.reconcile(w.publisher)
			verdict := exchange.Judge(&w.ours().Spec, exchange.DefaultBounds(), here, nil, w.Clock.Now())
			w.expect(exchange.Verdict{Accepted: true, Reason: v1alpha1.ReasonAccepted}, verdict)
		})
	}
}

func TestMessagesAreSentWhenDue(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*world)
		due    time.Duration
	}{
		"new terms after the least interval":              {func(w *world) { w.node("a", "4").Labels[corev1.LabelTopologyRegion] = "south" }, 2 * time.Second},
		"other prices, too":                               {func(w *world) { w.prices(map[string]string{"currency": "EUR", "cpu": "1"}) }, 2 * time.Second},
		"a large change after the least interval":         {func(w *world) { w.pod("local", "", "1") }, 2 * time.Second},
		"another consumer's pod is a change, too":         {func(w *world) { w.pod("other", "kiel", "1") }, 2 * time.Second},
		"a small change when it has settled":              {func(w *world) { w.pod("small", "", "10m"); w.pod("big", "hamburg", "0") }, 2 * time.Second},
		"the consumer's own pods leave less for one more": {func(w *world) { w.pod("own", "hamburg", "1") }, 2 * time.Second},
		"a little less when it has settled":               {func(w *world) { w.pod("own", "hamburg", "100m") }, 30 * time.Second},
		"and without any change the next is a renewal":    {func(*world) {}, 0},
		"a small change of one resource when it settled":  {func(w *world) { w.node("a", "3900m") }, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.peer(v1alpha1.RoleConsumer)
			w.node("a", "4")
			renewal := w.reconcile(w.publisher).RequeueAfter
			if renewal < 9*time.Minute || renewal > 10*time.Minute {
				t.Errorf("the next renewal is due in %s", renewal)
			}
			if test.due == 0 {
				test.due = renewal
			}
			before := w.ours()
			test.change(w)

			result := w.expectWrites(0, w.publisher)
			w.expect(test.due, result.RequeueAfter)
			w.Clock.Step(test.due)
			w.expectWrites(1, w.publisher)
			after := w.ours().Spec
			if after.Sequence <= before.Spec.Sequence || !after.TimeToLive.After(before.Spec.TimeToLive.Time) {
				t.Errorf("sequence %d, time to live %s after %v", after.Sequence, after.TimeToLive, before.Spec)
			}
			w.expectWrites(0, w.publisher)
		})
	}
}

func TestOwnPodsAreNotCountedTwice(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	w.node("a", "4")
	w.reconcile(w.publisher)
	empty := w.ours().Spec.Availability
	for i := range 4 {
		w.pod(fmt.Sprint("own-", i), "hamburg", "1")
	}
	w.Clock.Step(time.Hour)
	w.reconcile(w.publisher)
	w.expect(empty, w.ours().Spec.Availability)
}

func TestSequenceGrowsAlsoWhenTheObjectWasDeleted(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	w.reconcile(w.publisher)
	first := w.ours()
	w.Home.Remove(first)
	w.Clock.Step(time.Second)
	w.reconcile(w.publisher)
	if w.ours().Spec.Sequence <= first.Spec.Sequence {
		t.Errorf("sequence %d after %d", w.ours().Spec.Sequence, first.Spec.Sequence)
	}
}

func TestOfferIsWithdrawnWithTheRole(t *testing.T) {
	w := newWorld(t)
	peer := w.peer(v1alpha1.RoleConsumer)
	w.reconcile(w.publisher)
	peer.Spec.Roles = []v1alpha1.PeerRole{v1alpha1.RoleProvider}
	w.Home.Put(peer)
	w.expectWrites(1, w.publisher)
	if w.ours() != nil {
		t.Error("the offer is still there")
	}
	w.expectWrites(0, w.publisher)
}

func TestAnotherPhaseIsToldAtOnce(t *testing.T) {
	w := newWorld(t)
	peer := w.peer(v1alpha1.RoleConsumer)
	w.node("a", "4")
	w.reconcile(w.publisher)
	expectPhase := func(want v1alpha1.OfferPhase) {
		t.Helper()
		w.expectWrites(1, w.publisher)
		w.expect(want, w.ours().Spec.Phase)
		w.expectWrites(0, w.publisher)
	}
	for _, step := range []struct {
		access v1alpha1.PeerAccess
		want   v1alpha1.OfferPhase
	}{
		{v1alpha1.AccessCordoned, v1alpha1.OfferCordoned},
		{v1alpha1.AccessDraining, v1alpha1.OfferDraining},
		{v1alpha1.AccessOpen, v1alpha1.OfferOpen},
		{v1alpha1.AccessSuspended, v1alpha1.OfferCordoned},
	} {
		peer.Spec.Access = step.access
		w.Home.Put(peer)
		expectPhase(step.want)
	}
	w.hold(peer)
	w.Home.Remove(peer)
	expectPhase(v1alpha1.OfferLeaving)
}

// hold keeps a Peer that is deleted, as peering does.
func (w *world) hold(peer *v1alpha1.Peer) {
	w.Helper()
	peer.Finalizers = []string{v1alpha1.FinalizerPeer}
	w.Home.Put(peer)
}

func TestLeavingIsSaidUntilTheOfferIsClearedAway(t *testing.T) {
	w := newWorld(t)
	peer := w.peer(v1alpha1.RoleConsumer)
	w.hold(peer)
	w.reconcile(w.publisher)
	w.Home.Remove(peer)
	w.reconcile(w.publisher)

	w.Clock.Step(10 * time.Minute)
	w.expectWrites(1, w.publisher) // a renewal
	w.expect(v1alpha1.OfferLeaving, w.ours().Spec.Phase)

	w.Home.Remove(w.ours())
	w.expectWrites(0, w.publisher)
	if w.ours() != nil {
		t.Error("what was cleared away is back")
	}
}

func TestOfferGoesWhenWeAskNobody(t *testing.T) {
	for _, mode := range []v1alpha1.PartingMode{v1alpha1.PartingForced, v1alpha1.PartingForgotten} {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t)
			peer := w.peer(v1alpha1.RoleConsumer)
			peer.Spec.Parting = &v1alpha1.PeerParting{Mode: mode}
			w.hold(peer)
			w.reconcile(w.publisher)
			w.Home.Remove(peer)
			w.expectWrites(1, w.publisher)
			if w.ours() != nil {
				t.Error("the offer is still there")
			}
		})
	}
}

func TestNewRightsMayTakeAMoment(t *testing.T) {
	w := newWorld(t)
	peer := w.peer(v1alpha1.RoleConsumer)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "advertisements"}, here, nil)
	expectPause := func(want time.Duration) {
		t.Helper()
		w.refusing = forbidden
		defer func() { w.refusing = nil }()
		if pause := w.reconcile(w.publisher).RequeueAfter; pause != want {
			t.Errorf("looks again in %s, want %s", pause, want)
		}
	}
	expectPause(lookSoon) // there is no namespace, and nobody has rights in what is not there

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: v1alpha1.TenantNamespace("hamburg"), CreationTimestamp: metav1.NewTime(w.Clock.Now()),
		Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeTombstone, v1alpha1.LabelPeer: "hamburg"},
	}}
	w.Home.Put(ns)
	expectPause(lookSoon)
	ns.Labels = map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeTenant, v1alpha1.LabelPeer: "hamburg",
		v1alpha1.LabelClusterID: "hamburg", v1alpha1.LabelManaged: "true",
	}
	w.Home.Put(ns)
	expectPause(200 * time.Millisecond)
	w.Clock.Step(9 * time.Second)
	expectPause(200 * time.Millisecond)
	w.expectWrites(1, w.publisher)
	if w.ours() == nil {
		t.Error("nothing is offered")
	}

	w.Home.Remove(w.ours())
	w.Clock.Step(time.Second)
	w.refusing = forbidden
	if _, err := w.publisher.Reconcile(t.Context(), testkit.Request("", peer.Name)); !apierrors.IsForbidden(err) {
		t.Errorf("got %v, want Forbidden", err)
	}
}

func TestNobodyKnownIsOfferedNothing(t *testing.T) {
	w := newWorld(t)
	w.Home.Put(&v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: "hamburg"},
		Spec:       v1alpha1.PeerSpec{Roles: []v1alpha1.PeerRole{v1alpha1.RoleConsumer, v1alpha1.RoleProvider}},
	})
	w.expectWrites(0, w.publisher)
	w.expectWrites(0, w.receiver)
}

func TestOfferStaysWithinTheLimits(t *testing.T) {
	w := newWorld(t)
	peer := w.peer(v1alpha1.RoleConsumer)
	w.node("a", "4")
	w.pod("own", "hamburg", "1")
	w.reconcile(w.publisher)
	w.expect(resource.MustParse("4"), w.ours().Spec.Availability[corev1.ResourceCPU])

	peer.Spec.Limits = &v1alpha1.PeerLimits{Resources: testkit.Quantities("cpu", "2")}
	w.Home.Put(peer)
	w.Clock.Step(2 * time.Second)
	w.expectWrites(1, w.publisher)
	w.expect(resource.MustParse("2"), w.ours().Spec.Availability[corev1.ResourceCPU])
	w.expect(resource.MustParse("1"), w.ours().Spec.LargestPod[corev1.ResourceCPU])
	w.expect(resource.MustParse("8Gi"), w.ours().Spec.Availability[corev1.ResourceMemory])
}

func TestBrokenPricesChangeNoOffer(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	setting := w.prices(map[string]string{"currency": "EUR", "cpu": "0.02"})
	w.reconcile(w.publisher)
	setting.Data["cpu"] = "cheap"
	w.Home.Put(setting)

	requests := w.publisher.onPrices(t.Context(), setting)
	w.expect(1, len(requests))
	w.ExpectEvent("Warning InvalidPrices")
	w.Clock.Step(time.Hour)
	w.reconcile(w.publisher)
	w.expect(resource.MustParse("0.02"), w.ours().Spec.Prices.PerHour[corev1.ResourceCPU])

	w.Home.Remove(w.ours())
	w.reconcile(w.publisher)
	if w.ours() != nil {
		t.Error("something was offered although the price is unknown")
	}
	setting.Data["cpu"] = "0.03"
	w.Home.Put(setting)
	w.publisher.onPrices(t.Context(), setting)
	w.ExpectEvents()
	w.Clock.Step(2 * time.Second)
	w.reconcile(w.publisher)
	w.expect(resource.MustParse("0.03"), w.ours().Spec.Prices.PerHour[corev1.ResourceCPU])
}

func TestCapacityFollowsEvents(t *testing.T) {
	w := newWorld(t)
	c := w.publisher.capacity
	free := func() string {
		cpu := c.look().Free()[corev1.ResourceCPU]
		return cpu.String()
	}
	expectChange := func(want bool) {
		t.Helper()
		select {
		case <-c.changed:
			w.expect(want, true)
		default:
			w.expect(want, false)
		}
	}
	node := w.node("a", "4")
	expectChange(true)
	pod := w.pod("p", "", "1")
	expectChange(true)
	w.expect("3", free())

	heartbeat := node.DeepCopy()
	heartbeat.ResourceVersion = "2"
	c.update(node, heartbeat)
	started := pod.DeepCopy()
	started.Status.Phase = corev1.PodRunning
	c.update(pod, started)
	expectChange(false)

	ended := pod.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	c.update(started, ended)
	expectChange(true)
	w.expect("4", free())

	w.pod("p", "", "2")
	c.take(toolscache.DeletedFinalStateUnknown{Obj: pod}, true)
	w.expect("4", free())
	c.take(node, true)
	expectChange(true)
	w.expect("0", free())
}

func TestConsumersAreLookedAtOncePerInterval(t *testing.T) {
	w := newWorld(t)
	w.peer(v1alpha1.RoleConsumer)
	w.node("a", "4")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.publisher.Run(ctx) }()
	expectSignal := func() {
		t.Helper()
		<-w.publisher.changed
		w.expect([]reconcile.Request{requestFor("hamburg")}, peersWith(t.Context(), w.Home.Client, told))
	}
	expectSignal() // the first look
	w.pod("first", "", "1")
	for !w.Clock.HasWaiters() {
		runtime.Gosched()
	}
	w.expect(0, len(w.publisher.changed))
	w.Clock.Step(w.publisher.config.MinInterval)
	expectSignal()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
